"""Ends of a process: exit, an exception that nobody catches, a fork.

Owns `sys.excepthook` and the exit handler while runs are on. Signals are left to the user.
Invariant: the hook that was there before is always called, and is back in place when the last run has ended.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from types import TracebackType
from typing import Any, Protocol


class Ending(Protocol):
    """A run, as far as the end of its process concerns it."""

    def end(self, outcome: str, error: BaseException | None = None) -> None: ...
    def forget(self) -> None: ...


_runs: weakref.WeakSet[Any] = weakref.WeakSet()
_previous_hook: Any = None


def register(run: Ending) -> None:
    """From now on the end of the process ends this run."""
    global _previous_hook
    if not _runs:
        atexit.register(_at_exit)
        if sys.excepthook is not _hook:
            _previous_hook, sys.excepthook = sys.excepthook, _hook
    _runs.add(run)


def unregister(run: Ending) -> None:
    """The run has ended by itself."""
    global _previous_hook
    _runs.discard(run)
    if not _runs:
        atexit.unregister(_at_exit)
        if sys.excepthook is _hook:
            # Where somebody has replaced it since, theirs calls ours, and ours passes on.
            sys.excepthook, _previous_hook = _previous_hook, None


def _hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    previous = _previous_hook or sys.__excepthook__
    try:
        for run in list(_runs):
            run.end("exception", error)
    finally:
        previous(kind, error, traceback)


def _at_exit() -> None:
    for run in list(_runs):
        run.end("finished")


def _in_child() -> None:
    # The run belongs to the parent: a forked child (a data loader's worker) neither records nor ends it.
    for run in list(_runs):
        run.forget()
    _runs.clear()


os.register_at_fork(after_in_child=_in_child)
