"""Ends what a run of tests or benches has started and left behind, also where the run itself was killed.

Senders outlive their training on purpose, and PostgreSQL is a daemon. All that a run starts inherits a mark in its
environment; a small process holds a pipe to the run, and when that is closed it ends whoever bears the mark. Reads
`/proc`: elsewhere nobody is found. Invariant: a mark is random, so nothing that others have started is touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator

MARK = "KEPT_FOR_TESTS_OF_HALFSCOPE"
"""No variable of halfscope's own: those are taken out where a server or a training is to have none."""
GRACE_S = 2.0

_pipe: list[int] = []
"""What this process holds; its forks do not, so that they keep nobody waiting."""


def keep() -> None:
    """From now on, until this process is gone."""
    reading, writing = os.pipe()
    mark = secrets.token_hex(8)
    unmarked = dict(os.environ)
    os.environ[MARK] = os.environ.get(MARK, "") + mark  # behind that of a run which has started this one
    nowhere = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (1, 2)]
    command = [sys.executable, "-IS", __file__, mark]
    given = [(os.POSIX_SPAWN_DUP2, reading, 0), *nowhere]
    os.posix_spawn(sys.executable, command, unmarked, file_actions=given, setsid=True)
    os.close(reading)
    _pipe.append(writing)


def _let_go() -> None:
    while _pipe:
        os.close(_pipe.pop())


os.register_at_fork(after_in_child=_let_go)


def _bearers(mark: bytes) -> Iterator[int]:
    """Descriptors of the processes that bear a mark, each open until the next is asked for."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it is over, or somebody else's
            process = os.pidfd_open(int(name))
            try:
                with open(f"/proc/{name}/environ", "rb") as environ:
                    if mark in environ.read():
                        yield process
            finally:
                os.close(process)


def _end(mark: bytes) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        for process in _bearers(mark):
            signal.pidfd_send_signal(process, number)
        deadline_s = time.monotonic() + GRACE_S
        while any(True for _ in _bearers(mark)):
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.05)
        else:
            return


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _end(sys.argv[1].encode())
