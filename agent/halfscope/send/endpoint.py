"""Which server to ship to, and the token to show there.

Owns the order in which addresses and tokens are looked up. Must not import torch or numpy. Invariant: the token of
this machine's own server is shown to nobody but a server on this machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from halfscope.config import halfscope_home

DEFAULT_URL = "http://127.0.0.1:65504"
LOCAL_KEY = "local"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server, and what it knows us by."""

    url: str
    """Without a final slash."""
    token: str = field(default="", repr=False)

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in _LOOPBACK

    @property
    def key(self) -> str:
        """What acknowledgements are kept under. A local server keeps its data when it comes back on another port."""
        return LOCAL_KEY if self.is_local else self.url

    @property
    def websocket_url(self) -> str:
        return f"{'wss' if self.url.startswith('https:') else 'ws'}://{self.url.split('://', 1)[1]}/api/v1/agent"

    @property
    def ingest_url(self) -> str:
        return f"{self.url}/api/v1/ingest"


def resolve(
    server: str | None = None,
    token: str | None = None,
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Endpoint:
    """The server of this machine's agents.

    Args:
        server: as given by the user; else HALFSCOPE_SERVER, what `halfscope login` kept, the server running here, the
        default. token: as given; else HALFSCOPE_TOKEN, HALFSCOPE_TOKEN_FILE, what was kept for that server, this
        machine's own.

    Raises:
        ValueError: an address that is no http or https address.
    """
    environ = os.environ if environ is None else environ
    home = halfscope_home() if home is None else home
    kept = _read_object(home / "credentials.json")
    url = server or environ.get("HALFSCOPE_SERVER") or str(kept.get("url") or "") or _running(home) or DEFAULT_URL
    url = url.rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"{url!r} is no server address; expected http://host:port or https://host "
            "(argument server= or HALFSCOPE_SERVER)"
        )
    if token is None:
        token = environ.get("HALFSCOPE_TOKEN") or _read_text(environ.get("HALFSCOPE_TOKEN_FILE"))
    if not token and str(kept.get("url") or "").rstrip("/") == url:
        token = str(kept.get("token") or "")
    if not token and parts.hostname in _LOOPBACK:
        token = _read_text(home / "token")
    return Endpoint(url=url, token=token)


def _running(home: Path) -> str:
    """The address of the server that announced itself here and still lives."""
    found = _read_object(home / "server.json")
    url, pid = found.get("url"), found.get("pid")
    return url if isinstance(url, str) and isinstance(pid, int) and is_alive(pid) else ""


def is_alive(pid: int) -> bool:
    """Whether a process of that number exists on this machine."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


def _read_object(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_text(path: str | Path | None) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
