"""Ends of a process: exit, an exception that nobody catches, a fork.

Owns `sys.excepthook`, `threading.excepthook` and the exit handler while runs are on. Signals are left to the user.
Invariant: the hook that was there before is always called, and is back in place when the last run has ended.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from types import TracebackType
from typing import Any, Protocol


class Ending(Protocol):
    """A run, as far as the end of its process concerns it."""

    def end(self, outcome: str, error: BaseException | None = None) -> None: ...
    def thread_died(self, thread: int | None, error: BaseException) -> None: ...
    def forget(self) -> None: ...


_runs: weakref.WeakSet[Any] = weakref.WeakSet()
_previous_hook: Any = None
_previous_thread_hook: Any = None
_leaves_with: SystemExit | None = None


def register(run: Ending) -> None:
    """From now on the end of the process ends this run."""
    global _previous_hook, _previous_thread_hook
    if not _runs:
        atexit.register(_at_exit)
        if sys.excepthook is not _hook:
            _previous_hook, sys.excepthook = sys.excepthook, _hook
        if threading.excepthook is not _thread_hook:
            _previous_thread_hook, threading.excepthook = threading.excepthook, _thread_hook
    _runs.add(run)


def unregister(run: Ending) -> None:
    """The run has ended by itself."""
    global _previous_hook, _previous_thread_hook
    _runs.discard(run)
    if not _runs:
        atexit.unregister(_at_exit)
        if sys.excepthook is _hook:
            # Where somebody has replaced it since, theirs calls ours, and ours passes on.
            sys.excepthook, _previous_hook = _previous_hook, None
        if threading.excepthook is _thread_hook:
            threading.excepthook, _previous_thread_hook = _previous_thread_hook, None


def leaving(error: SystemExit) -> None:
    """The program has asked to end so. Runs that are still on at the process's end take it for theirs: a thread may
    train on."""
    global _leaves_with
    _leaves_with = error


def is_failure(error: BaseException) -> bool:
    """Whether who waits for the process would say that it failed: `sys.exit()` is an end like any other."""
    return not isinstance(error, SystemExit) or not (error.code is None or error.code == 0)


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    previous = _previous_hook or sys.__excepthook__
    try:
        for run in list(_runs):
            run.end("exception", error)
    finally:
        previous(kind, error, traceback)


def _thread_hook(details: threading.ExceptHookArgs) -> None:
    previous = _previous_thread_hook or threading.__excepthook__
    try:
        error = details.exc_value
        if error is not None and not isinstance(error, SystemExit):  # with which a thread may end, as it should
            for run in list(_runs):
                run.thread_died(None if details.thread is None else details.thread.ident, error)
    finally:
        previous(details)


def _at_exit() -> None:
    for run in list(_runs):
        run.end("finished" if _leaves_with is None else "exception", _leaves_with)


def _in_child() -> None:
    # The run belongs to the parent: a forked child (a data loader's worker) neither records nor ends it.
    for run in list(_runs):
        run.forget()
    _runs.clear()


os.register_at_fork(after_in_child=_in_child)
