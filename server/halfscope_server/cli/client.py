"""Asking a running server: which one, with which token, and what its refusals mean.

Standard library only. Invariant: a token is sent to no other server than the one it is for; the local token never
leaves this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from halfscope_server.cli.home import running_server
from halfscope_server.settings import DEFAULT_PORT, Settings

TIMEOUT_S = 30.0


class ClientError(Exception):
    """The server could not be asked, or refused; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server and the token for it."""

    url: str
    token: str


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine's own."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def find(settings: Settings, given: str = "") -> Target:
    """The server to ask: the one given, HALFSCOPE_SERVER, the one logged in to, the one running here, or the default
    address."""
    credentials = _credentials(settings)
    running = running_server(settings)
    local = running.url if running else f"http://127.0.0.1:{DEFAULT_PORT}"
    url = (given or settings.server or (credentials.url if credentials else "") or local).rstrip("/")
    if urlsplit(url).scheme not in ("http", "https"):
        raise ClientError(f"{url!r} is no server address; expected http://host:port or https://host")
    return Target(url=url, token=_token_for(url, settings, credentials, local))


def _token_for(url: str, settings: Settings, credentials: Target | None, local: str) -> str:
    if settings.token:
        return settings.token
    if credentials is not None and credentials.url == url:
        return credentials.token
    if url == local.rstrip("/") or is_loopback(url):
        try:
            return settings.token_path.read_text(encoding="ascii").strip()
        except OSError:
            return ""
    return ""


def _credentials(settings: Settings) -> Target | None:
    try:
        found = json.loads(settings.credentials_path.read_text(encoding="utf-8"))
        return Target(url=str(found["url"]).rstrip("/"), token=str(found["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def request(
    target: Target,
    path: str,
    *,
    method: str = "GET",
    query: Mapping[str, str | Sequence[str]] | None = None,
    body: Any = None,
) -> Iterator[IO[bytes]]:
    """An open response to read from.

    Args:
        body: sent as JSON; None sends nothing.

    Raises:
        ClientError: no answer, or a refusal.
    """
    url = f"{target.url}{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
    empty = b"" if method == "POST" else None
    asked = Request(url, method=method, data=empty if body is None else json.dumps(body).encode())
    if body is not None:
        asked.add_header("Content-Type", "application/json")
    asked.add_unredirected_header("Authorization", f"Bearer {target.token}")
    try:
        with _opener(target.url).open(asked, timeout=TIMEOUT_S) as response:
            yield response
    except HTTPError as error:
        with error:
            raise ClientError(_explain(target, error)) from error
    except BrokenPipeError:
        # Nobody reads what the caller writes (`| head`). The connection itself fails with this only while the request
        # goes out, and urllib makes a URLError of it.
        raise
    except HTTPException as error:
        raise ClientError(
            f"{target.url} broke off in the middle of its answer ({error!r}); its log has the reason"
        ) from error
    except (URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise ClientError(f"no server answers at {target.url} ({reason}); start one with: halfscope serve") from error


def get_json(target: Target, path: str, *, method: str = "GET", body: Any = None) -> Any:
    """The JSON body of an answer; raises like `request`."""
    with request(target, path, method=method, body=body) as response:
        return json.load(response)


def _explain(target: Target, error: HTTPError) -> str:
    try:
        detail = str(json.loads(error.read(65536))["detail"])
    except (ValueError, KeyError, TypeError):
        detail = error.reason
    if error.code == 401:
        token = "the token sent was not accepted" if target.token else "no token for it was found"
        return f"{target.url} wants a token, and {token}; get one from whoever runs it: halfscope login {target.url}"
    return f"{target.url} answered {error.code}: {detail}"


def _opener(url: str) -> OpenerDirector:
    # A proxy of the environment leads out of this machine, and so not to a server on it.
    handlers = [ProxyHandler({})] if is_loopback(url) else []
    return build_opener(_NoRedirects, *handlers)


class _NoRedirects(HTTPRedirectHandler):
    """A redirect could carry the request, and what we tell, to another server."""

    def redirect_request(self, *arguments: Any, **keywords: Any) -> None:
        return None
