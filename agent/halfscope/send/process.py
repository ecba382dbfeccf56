"""The node's one sender process: started beside the training, seen through its lock and its status file.

Owns the files `sender-<host>.lock` and `sender-<host>.json` in `HALFSCOPE_DIR`. Must not import torch or numpy.
Invariant: the training never waits for the sender, and holds none of its pipes (a `train.py | tee log` would hang
until the sender ends).
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from halfscope.config import journal_directory
from halfscope.record.acks import read_acks
from halfscope.record.layout import StreamPlace, is_locked, make_directory, try_lock, write_atomically
from halfscope.send.endpoint import Endpoint, resolve

log = logging.getLogger("halfscope")

CONNECT_CHECK_S = 0.3
"""What looking for the server may cost at the start of a training, so that it can be told at once that there is
none."""
POLL_S = 0.02


class SenderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the sender process says of itself."""

    pid: int = 0
    state: str = "none"
    """`none` (no sender runs), `starting`, `connected`, `unreachable`, `unauthorized`, `refused`."""
    message: str = ""
    url: str = ""
    num_streams: int = 0
    """Streams it ships at the moment."""
    updated_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """What `ensure_sender` found or did."""

    running: bool
    """A sender process runs, or has just been started."""
    reachable: bool
    """Something listens at the server's address."""
    endpoint: Endpoint
    warning: str
    """What the user should know, already logged; empty when all is well."""


def ensure_sender(*, directory: Path | None = None, server: str | None = None) -> Sender:
    """See that this node's sender runs for a directory, and that there is somebody to send to.

    Costs some milliseconds, or 0.3 s where the server's address does not answer at all. Logs one warning where the
    run will not be seen live, with what to do.

    Args:
        directory: `HALFSCOPE_DIR`.
        server: as given to `watch`; else found as `endpoint.resolve` says.

    Raises:
        ValueError: the server's address is none.
    """
    directory = (journal_directory() if directory is None else directory).absolute()
    endpoint = resolve(server)
    _servers[directory] = server
    running, problem = _start(directory, server)
    reachable = _is_reachable(endpoint)
    if problem:
        warning = (
            f"halfscope: {problem} The run is journalled in {directory}; ship it with `halfscope sync {directory}`."
        )
    elif not reachable:
        warning = (
            f"halfscope: no server answers at {endpoint.url}. Training goes on and the run is journalled in "
            f"{directory}. "
            "To see it live, start `halfscope serve` (it picks the run up), "
            f"or ship it later with `halfscope sync {directory}`."
        )
    else:
        warning = ""
    if warning:
        log.warning(warning)
    return Sender(running=running, reachable=reachable, endpoint=endpoint, warning=warning)


def keep_sender(*, directory: Path, server: str | None) -> None:
    """Start a sender again where the one that ran is gone; a file lock is looked at when it is not. Says nothing."""
    _start(directory.absolute(), server)


def status(directory: Path | None = None) -> SenderStatus:
    """What this node's sender last said of itself; state `none` where none runs."""
    directory = journal_directory() if directory is None else directory
    if not is_locked(lock_path(directory)):
        return SenderStatus()
    try:
        return msgspec.json.decode(status_path(directory).read_bytes(), type=SenderStatus)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return SenderStatus(state="starting")


def write_status(directory: Path, found: SenderStatus) -> None:
    """Put the sender's word where `status` finds it.

    Raises:
        OSError: the directory cannot be written.
    """
    write_atomically(status_path(directory), msgspec.json.encode(found))


def drain(run_id: str, stream: str, timeout_s: float = 2.0, *, directory: Path | None = None) -> bool:
    """Wait until a stream that has ended is acknowledged as a whole.

    Returns at once where nobody answers: waiting would bring nothing, and the journal keeps everything. Without a
    sender process the stream is shipped from here.

    Returns:
        Whether the server has committed all of it.
    """
    directory = (journal_directory() if directory is None else directory).absolute()
    place = StreamPlace(directory=directory, run_id=run_id, stream=stream)
    deadline_s = time.monotonic() + timeout_s
    while not _is_settled(place):
        _reap()
        now = status(directory)
        if now.state == "none" and directory not in _spawned:
            return _ship_here(place, deadline_s - time.monotonic())
        if now.state in ("unauthorized", "refused"):
            log.warning(
                "halfscope: %s does not take this run (%s). It is journalled in %s; %s, then `halfscope sync %s`.",
                now.url, now.message, place.path,
                f"run `halfscope login {now.url}`" if now.state == "unauthorized" else "see to that",
                directory,
            )  # fmt: skip
            return False
        if now.state == "unreachable" or time.monotonic() >= deadline_s:
            return False
        time.sleep(POLL_S)
    return True


def lock_path(directory: Path) -> Path:
    """Held by the node's sender; one directory on a network filesystem serves many nodes."""
    return directory / f"sender-{_host()}.lock"


def status_path(directory: Path) -> Path:
    return directory / f"sender-{_host()}.json"


def crash_path(directory: Path) -> Path:
    """Where a sender that failed left its traceback."""
    return directory / f"sender-{_host()}.crash.txt"


def _start(directory: Path, server: str | None) -> tuple[bool, str]:
    """(a sender runs, what is wrong)"""
    _reap()
    try:
        make_directory(directory)
        if is_locked(lock_path(directory)):
            return True, _other_server(directory, server)
        if directory in _spawned:
            return True, ""  # ours has not come to take the lock yet, or has just let it go
        _spawn(directory, server)
    except OSError as error:
        return False, f"the sender process cannot be started ({error})."
    return True, ""


def _spawn(directory: Path, server: str | None) -> None:
    if not sys.executable:
        raise FileNotFoundError("this Python does not say where its executable is")
    # Taken here and handed on: of several ranks that start at once, one starts the sender.
    lock = try_lock(lock_path(directory))
    if lock is None:
        return
    # -P: the training's own directory may hold a module named like one of ours or of the standard library.
    command = [sys.executable, "-P", "-m", "halfscope.send", str(directory), "--lock", str(lock)]
    if server:
        command += ["--server", server]
    environ = dict(os.environ)
    package_root = Path(__file__).parents[2]
    if package_root.name not in ("site-packages", "dist-packages"):
        # A source tree, found by a path that only this process may know.
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(package_root), environ.get("PYTHONPATH", "")]))
    try:
        _spawned[directory] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environ,
            pass_fds=[lock],
        )
    finally:
        os.close(lock)


_servers: dict[Path, str | None] = {}
"""The server that `ensure_sender` was given for a directory: where `drain` ships to when no sender runs."""
_spawned: dict[Path, subprocess.Popen[bytes]] = {}
"""Senders started by this process, so that one that has ended does not stay as a zombie."""


def _reap() -> None:
    for directory, process in list(_spawned.items()):
        if process.poll() is not None:
            del _spawned[directory]


def _let_live() -> None:
    """At exit: a sender outlives us on purpose, and Popen's finalizer need not warn that it still runs."""
    for process in _spawned.values():
        process.returncode = 0


atexit.register(_let_live)


def _other_server(directory: Path, server: str | None) -> str:
    """A sender that runs already ships to where it was told; say so where that is not what is asked for now."""
    now = status(directory)
    if not server or not now.url or now.url == resolve(server).url:
        return ""
    return (
        f"the sender of {directory} (process {now.pid}) ships to {now.url}, not to {server}; "
        "set HALFSCOPE_DIR to another directory to ship to both."
    )


def _is_reachable(endpoint: Endpoint) -> bool:
    parts = urlsplit(endpoint.url)
    host = parts.hostname or ""
    if not endpoint.is_local and parts.scheme in getproxies() and not proxy_bypass(host):
        return True  # only the proxy can tell
    try:
        with socket.create_connection(
            (host, parts.port or (443 if parts.scheme == "https" else 80)), timeout=CONNECT_CHECK_S
        ):
            return True
    except OSError:
        return False


def _is_settled(place: StreamPlace) -> bool:
    return any(ack.ended or ack.gone for ack in read_acks(place.acks).servers.values())


def _ship_here(place: StreamPlace, timeout_s: float) -> bool:
    from halfscope.send.once import SyncError, sync

    server = _servers.get(place.directory)
    if not _is_reachable(resolve(server)):
        return False  # sync itself would try for longer than a training should wait at its end
    try:
        result = sync(place.directory, server, only=place, timeout_s=max(0.0, timeout_s))
    except (SyncError, ValueError):
        return False
    return result.num_shipped == 1


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname())[:100] or "node"
