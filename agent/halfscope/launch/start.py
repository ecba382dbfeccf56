"""Waiting for torch, and for the first optimizer or scaler: all that is loaded before them.

Must not import torch: the program imports it when it has set what it wants to set.
Invariant: a program that never trains loads nothing of the agent beyond this, and is told at its end.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from halfscope import integrations
from halfscope.config import whole
from halfscope.guard import Guard
from halfscope.launch.births import Births, Kind

if TYPE_CHECKING:
    from halfscope.launch.auto import Launcher

NOTHING = (
    "halfscope: nothing was recorded: no optimizer went to work in this process. Trainings in processes that a program "
    "starts itself are not seen yet; give those their own `halfscope run`, or call halfscope.watch there."
)
FAILED = (
    "halfscope: nothing was recorded: a training was seen, and halfscope failed to watch it ({}: {}). Where that names "
    "a setting, mend it; else please report it."
)


class AutoWatch:
    """Watches what the program trains, from `start` to `stop` or the end of the process."""

    def __init__(self, options: Mapping[str, Any], default_name: str) -> None:
        """
        Args:
            options: keyword arguments of `watch`, checked.
            default_name: of the runs, where neither options nor environment name them.
        """
        self._options, self._default_name = options, default_name
        self._failure: BaseException | None = None
        """What kept the launcher from being made."""
        self._guard = Guard(self._failed)
        self._integrations = self._guard.wrap("integrations", integrations.found)() or {}
        framework_classes = {
            module: (name, each.id) for each in self._integrations.values() for module, name in each.made.items()
        }
        self._births = Births(self._guard.wrap("halfscope run", self._made, keep=True), framework_classes)
        self._launcher: Launcher | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        """From now on."""
        self._births.install()
        atexit.register(self._say_if_nothing)
        ref = weakref.ref(self._births)
        os.register_at_fork(after_in_child=lambda: births.uninstall() if (births := ref()) is not None else None)

    def stop(self) -> None:
        """Ends the run that is on and takes everything off."""
        self._births.uninstall()
        atexit.unregister(self._say_if_nothing)
        if self._launcher is not None:
            self._launcher.stop()
        self._say_if_nothing()

    def _failed(self, probe: str, error: BaseException) -> None:
        if probe == "halfscope run" and self._launcher is None:
            self._failure = error

    def _made(self, kind: Kind, item: Any) -> None:
        if self._launcher is None:
            from halfscope.launch.auto import Launcher

            self._launcher = Launcher(self._options, self._default_name)
        if kind in self._integrations:
            self._integrations[kind].adopt(item, self._launcher)
        else:
            self._launcher.made(kind, item)

    def _say_if_nothing(self) -> None:
        launcher = self._launcher
        seen = launcher is not None and (launcher.num_runs or launcher.num_watched_by_program)
        if self._pid == os.getpid() and not seen and whole("RANK", 0) == 0:
            error = self._failure if launcher is None else launcher.failure
            print(NOTHING if error is None else FAILED.format(type(error).__name__, error), file=sys.stderr)
