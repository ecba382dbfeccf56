"""The files of the home folder: the local token and server.json.

Must not import the app. Invariant: a file that holds a secret never exists with a mode other than 0600, not even for a
moment, and no reader ever sees half a file.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from halfscope_server.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """What server.json says."""

    url: str
    pid: int


def ensure_token(settings: Settings) -> str:
    """The token of this machine's agents; made on the first start, then kept, so that senders survive a restart of
    the server."""
    try:
        token = settings.token_path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        token = ""
    if len(token) < 20:
        token = secrets.token_urlsafe(32)
        write_private(settings.token_path, token + "\n")
    elif settings.token_path.stat().st_mode & 0o077:
        settings.token_path.chmod(0o600)
    return token


def write_private(path: Path, text: str) -> None:
    """Writes a file of mode 0600 in one step."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def announce(settings: Settings, url: str) -> None:
    """Tells agents and `halfscope open` on this machine where the server is."""
    write_private(settings.server_json_path, json.dumps({"url": url, "pid": os.getpid()}) + "\n")


def withdraw(settings: Settings) -> None:
    """Takes the announcement back, unless another server has put its own there."""
    running = running_server(settings, alive_only=False)
    if running is not None and running.pid == os.getpid():
        settings.server_json_path.unlink(missing_ok=True)


def running_server(settings: Settings, *, alive_only: bool = True) -> RunningServer | None:
    """The server that announced itself here, or None: none did, or its process is gone."""
    try:
        found = json.loads(settings.server_json_path.read_text(encoding="utf-8"))
        running = RunningServer(url=str(found["url"]), pid=int(found["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return running if not alive_only or is_alive(running.pid) else None


def is_alive(pid: int) -> bool:
    """Whether a process of this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
