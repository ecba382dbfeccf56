"""`python -m halfscope.send DIRECTORY`: the sender process.

Started by `ensure_sender`, with nothing on its standard streams. Must not import torch or numpy. Invariant: it ends
by itself, once everything it was there for is acknowledged, or nobody writes any more and no server has answered for
a while.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import socket
import sys
import time
from pathlib import Path
from traceback import format_exception
from types import FrameType, TracebackType
from typing import NoReturn

from halfscope.record.jobs import remove_ended
from halfscope.record.layout import StreamPlace, make_directory, try_lock, write_atomically
from halfscope.send.cleanup import KEEP_S, remove_shipped
from halfscope.send.endpoint import resolve
from halfscope.send.outbox import ORPHAN_QUIET_S
from halfscope.send.process import SenderStatus, crash_path, lock_path, status_path, write_status
from halfscope.send.ship import Shipper
from halfscope.wire.messages import StreamInfo

STATUS_INTERVAL_S = 2.0
"""What is new is written at once."""
IDLE_S = 5.0
"""How long it stays when all is shipped: the next cell of a notebook, or the next rank, finds it running."""
ABANDONED_S = 900.0
"""How long it goes on trying when nobody writes any more."""
CLEANUP_INTERVAL_S = 600.0


def main() -> int:
    """Ship until there is nothing left to do."""
    parser = argparse.ArgumentParser(prog="python -m halfscope.send", description="Ships a directory's journals.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--server")
    parser.add_argument("--lock", type=int, help="descriptor of the node's lock, which is held already")
    parser.add_argument("--idle-s", type=float, default=IDLE_S)
    parser.add_argument("--keep-s", type=float, default=KEEP_S, help="how long shipped journals are kept")
    parsed = parser.parse_args()
    os.umask(0o077)
    sys.excepthook = functools.partial(_note_crash, parsed.directory)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    make_directory(parsed.directory)
    lock: int | None = parsed.lock
    while True:
        if lock is None:
            lock = try_lock(lock_path(parsed.directory))
        if lock is None:
            return 0  # another one was faster
        try:
            _serve(parsed.directory, parsed.server, idle_s=parsed.idle_s, keep_s=parsed.keep_s)
        finally:
            os.close(lock)
            lock = None
        remove_ended(parsed.directory)
        # A training that began while we made up our mind saw us running and counts on us.
        if not _has_work(parsed.directory, parsed.server):
            return 0


def _serve(directory: Path, server: str | None, *, idle_s: float, keep_s: float) -> None:
    shipper = _shipper(directory, server)
    reporter = _Reporter(directory, shipper)
    clean_at_s = 0.0
    busy_s = hopeful_s = time.monotonic()
    try:
        while True:
            shipper.turn()
            now_s = time.monotonic()
            reporter.report(now_s)
            if not shipper.is_idle or shipper.tally.busy:  # who ships those may give up
                busy_s = now_s
            if shipper.has_live_writers or shipper.health.state == "connected":
                hopeful_s = now_s
            if now_s - busy_s >= idle_s or now_s - hopeful_s >= ABANDONED_S:
                return
            if now_s >= clean_at_s:
                clean_at_s = now_s + CLEANUP_INTERVAL_S
                remove_shipped(directory, older_than_s=keep_s, wall_s=time.time())
    finally:
        shipper.close()
        reporter.remove()


def _shipper(directory: Path, server: str | None) -> Shipper:
    host = socket.gethostname()

    def wants(place: StreamPlace, info: StreamInfo) -> bool:
        if place.offline_mark.exists():
            return False
        return info.host in ("", host) or _is_orphan(place)

    return Shipper(directory, lambda: resolve(server), wants=wants, follow=True)


def _is_orphan(place: StreamPlace) -> bool:
    """Left by another host (a container that is gone), as far as that can be seen from here."""
    firsts = place.segments()
    try:
        return bool(firsts) and time.time() - place.segment(firsts[-1]).stat().st_mtime >= ORPHAN_QUIET_S
    except OSError:
        return False


def _has_work(directory: Path, server: str | None) -> bool:
    shipper = _shipper(directory, server)
    try:
        shipper.look()
        return shipper.has_live_writers
    finally:
        shipper.close()


class _Reporter:
    """Keeps the status file."""

    def __init__(self, directory: Path, shipper: Shipper) -> None:
        self._directory = directory
        self._shipper = shipper
        self._told: tuple[object, ...] = ()
        self._next_s = 0.0

    def report(self, now_s: float) -> None:
        health = self._shipper.health
        news = (health.state, health.message, health.url, self._shipper.num_outboxes)
        if news == self._told and now_s < self._next_s:
            return
        self._told, self._next_s = news, now_s + STATUS_INTERVAL_S
        with contextlib.suppress(OSError):  # a full disk: shipping is what makes room on it
            write_status(
                self._directory,
                SenderStatus(
                    pid=os.getpid(),
                    state=health.state,
                    message=health.message,
                    url=health.url,
                    num_streams=self._shipper.num_outboxes,
                    updated_us=time.time_ns() // 1000,
                ),
            )

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            status_path(self._directory).unlink()


def _note_crash(
    directory: Path, kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Standard error leads nowhere here; what went wrong is left where `doctor` and people find it."""
    text = "".join(format_exception(kind, error, traceback))
    with contextlib.suppress(OSError):
        write_atomically(crash_path(directory), text.encode(errors="replace"))


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    raise SystemExit(main())
