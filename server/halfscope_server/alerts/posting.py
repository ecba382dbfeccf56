"""One POST over a checked connection, and what its answer means for trying again.

Must not know of channels. Invariants: no redirect is followed; of the answer only the status line and the headers are
read, so its size does not matter and nothing of it is ever shown; proxies of the environment are not used, because one
would look names up again and reach what is refused here.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from halfscope_server.alerts.addresses import Refused
from halfscope_server.alerts.dialing import Reach, explain

MAX_RETRY_AFTER_S = 3600.0
PASSING = (408, 425, 429)
"""4xx that may well succeed later: timeout, too early, too many."""
_SAFE = "/%:=&?~+!$,;'@()*[]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of sending a message."""

    ok: bool
    text: str
    """What was sent where, or what went wrong and what to do; holds no secret."""
    may_retry: bool = True
    """False: it cannot succeed as it is."""
    retry_after_s: float | None = None
    """What the receiver asked for."""
    is_size_or_form: bool = False
    """The message itself was refused, not the sender: parts of it may pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A web address, taken apart."""

    host: str
    """As it goes to the resolver and into TLS: ASCII."""
    port: int
    tls: bool
    target: str
    """Path and query."""

    @property
    def authority(self) -> str:
        """For the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def place_of(url: str) -> Place:
    """Take a web address apart.

    Raises:
        ValueError: it is none that a notification can be sent to; the text says why and does not repeat it.
    """
    if any(ord(char) <= 32 or ord(char) == 127 for char in url):
        raise ValueError("the address holds spaces or control characters")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (
            (parts.hostname or "").encode("idna").decode("ascii")
            if ":" not in (parts.hostname or "")
            else parts.hostname
        )
    except (ValueError, UnicodeError):
        raise ValueError("this is no web address; expected https://host/path") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("this is no web address; expected https://host/path")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address holds a user or password; give them as Authorization instead")
    tls = parts.scheme == "https"
    if port == 0:
        raise ValueError("port 0 cannot be connected to")
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    return Place(host=host, port=port or (443 if tls else 80), tls=tls, target=target)


def post(place: Place, body: bytes, headers: Mapping[str, str], reach: Reach) -> Outcome:
    """Send a body and judge the answer; nothing is raised for what goes wrong on the way."""
    try:
        with reach.connection(place.host, place.port, tls=place.tls) as opened:
            connection = http.client.HTTPConnection(place.host, place.port)
            connection.sock = opened
            connection.request("POST", place.target, body, {**headers, "Host": place.authority, "Connection": "close"})
            answer = connection.getresponse()
            return judged(answer.status, place.host, answer.headers.get("Retry-After"))
    except Refused as error:
        return Outcome(ok=False, text=str(error), may_retry=False)
    except OSError as error:
        return Outcome(ok=False, text=explain(error, place.host))
    except http.client.HTTPException as error:
        return Outcome(ok=False, text=f"{place.host} does not speak HTTP here: {type(error).__name__}")


def judged(status: int, host: str, retry_after: str | None = None) -> Outcome:
    """What a status means."""
    if 200 <= status < 300:
        return Outcome(ok=True, text=f"{host} took it ({status})")
    if 300 <= status < 400:
        text = f"{host} answered {status}, a redirect; redirects are not followed: enter the address it leads to"
        return Outcome(ok=False, text=text, may_retry=False)
    after_s = min(float(retry_after), MAX_RETRY_AFTER_S) if retry_after and retry_after.isdecimal() else None
    if status in PASSING or status >= 500:
        return Outcome(ok=False, text=f"{host} answered {status}; it is tried again", retry_after_s=after_s)
    what = "the message" if status in (400, 413, 422) else "the sender: check address, token and secret"
    return Outcome(
        ok=False,
        text=f"{host} answered {status}: it refuses {what}",
        may_retry=False,
        is_size_or_form=status in (400, 413, 422),
    )
