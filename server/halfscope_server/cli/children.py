"""Processes that a command starts and must not leave behind: the demo's server and its trainings.

Must not import the app. Invariant: when `Children` is left, whatever the reason, every process in it has ended, and so
have those that it started, but for sessions of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import FrameType, TracebackType
from typing import IO, Any

INTERRUPT_GRACE_S = 5.0
"""How long a process has to end by itself after SIGINT: a training says how it ended and hands over its last
records."""


class Children:
    """A context manager over processes; to be used in the main thread, whose Ctrl-C and SIGTERM it takes over.

    They run in sessions of their own, so that Ctrl-C reaches only us and we stop them in order: the servers, which take
    in what the others say at their end, last.
    """

    def __init__(self) -> None:
        self._workers: list[subprocess.Popen[str]] = []
        self._servers: list[subprocess.Popen[str]] = []
        self._is_starting = False
        self._is_leaving = False
        self._was_interrupted = False
        self._handlers: dict[int, Any] = {}

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdout: int | IO[str],
        stderr: int | IO[str],
        stdin: int = subprocess.DEVNULL,
        is_server: bool = False,
    ) -> subprocess.Popen[str]:
        # An interrupt between the start of a process and its place in the list would leave it behind.
        self._is_starting = True
        try:
            process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
            (self._servers if is_server else self._workers).append(process)
        finally:
            self._is_starting = False
        if self._was_interrupted:
            raise KeyboardInterrupt
        return process

    def __enter__(self) -> Children:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_leaving = True
        for group in (self._workers, self._servers):
            for process in group:
                if process.returncode is None:
                    os.kill(process.pid, signal.SIGINT)
            deadline = time.monotonic() + INTERRUPT_GRACE_S
            for process in group:
                _wait_or_kill(process, max(0.0, deadline - time.monotonic()))
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._was_interrupted = True
        if self._is_leaving:
            # Asked a second time: now.
            for process in (*self._workers, *self._servers):
                if process.returncode is None:
                    _kill_session(process)
        elif not self._is_starting:
            raise KeyboardInterrupt


def _wait_or_kill(process: subprocess.Popen[str], grace_s: float) -> None:
    if process.returncode is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        _kill_session(process)
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _kill_session(process: subprocess.Popen[str]) -> None:
    """With what it has started itself. For one that nobody has waited for until now: its number is nobody else's."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
