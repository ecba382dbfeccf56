"""Asking a server whether it knows a token, and keeping the token.

Standard library only. Invariant: a token is kept only after the server accepted it, in a file of mode 0600, and is
shown nowhere.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

TIMEOUT_S = 10.0
MAX_BYTES = 1 << 20
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said."""

    status: int
    """HTTP status, or 0: nobody answered."""
    body: dict[str, Any]
    """The JSON object it sent, or empty."""
    reason: str
    """Why nobody answered."""


class LoginError(Exception):
    """The token was not kept; the text says why and what to do."""


def normalised(address: str) -> str:
    """A server's address without a final slash.

    Raises:
        LoginError: no http or https address.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise LoginError(
            f"{address!r} is no server address; expected http://host:port or https://host, without a user name"
        )
    return address.rstrip("/")


def travels_in_clear(address: str) -> bool:
    """Whether a token sent there could be read on the way."""
    parts = urlsplit(address)
    return parts.scheme == "http" and parts.hostname not in _LOOPBACK


def ask(address: str, path: str, token: str = "", *, timeout_s: float = TIMEOUT_S) -> Answer:
    """GET a JSON object; proxies and certificate authorities as the environment has them."""
    status, data, reason = fetch(address, path, token, timeout_s=timeout_s)
    return Answer(status=status, body=_object(data), reason=reason)


def fetch(
    address: str, path: str, token: str = "", *, timeout_s: float = TIMEOUT_S, max_bytes: int = MAX_BYTES
) -> tuple[int, bytes, str]:
    """GET anything: HTTP status, or 0 where nobody answered; the body, cut at a limit; why nobody answered."""
    request = Request(f"{address}{path}")
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        # A proxy of the environment leads out of this machine, and so not to a server on it.
        proxies = [ProxyHandler({})] if urlsplit(address).hostname in _LOOPBACK else []
        with build_opener(_NoRedirects, *proxies).open(request, timeout=timeout_s) as response:
            return response.status, response.read(max_bytes), ""
    except HTTPError as error:
        with error:
            return error.code, error.read(1 << 16), ""
    except (URLError, HTTPException, OSError) as error:
        return 0, b"", str(getattr(error, "reason", error)) or type(error).__name__


def log_in(address: str, token: str, *, credentials: Path) -> str:
    """Checks a token with its server and keeps it.

    Returns:
        The version of the server.

    Raises:
        LoginError: nobody answered, or the token was not accepted.
    """
    url = normalised(address)
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise LoginError(
            "that is no token; expected the one line that `halfscope token create NAME` prints on the server's machine"
        )
    answer = ask(url, "/api/v1/server", token)
    if answer.status == 0:
        raise LoginError(f"no server answers at {url} ({answer.reason}); check the address, the network and any proxy")
    if answer.status == 401:
        raise LoginError(
            f"{url} does not know this token; nothing was kept. On the server's machine `halfscope token create NAME` "
            "makes a new one"
        )
    if answer.status != 200 or "version" not in answer.body:
        detail = answer.body.get("detail") or f"status {answer.status}"
        raise LoginError(f"{url} does not answer like a halfscope server: {detail}")
    _write_private(credentials, json.dumps({"url": url, "token": token}) + "\n")
    return str(answer.body["version"])


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class _NoRedirects(HTTPRedirectHandler):
    """A redirect could lead to a server that the token is not for."""

    def redirect_request(self, *arguments: Any, **keywords: Any) -> None:
        return None
