"""What else the machine does: processor cores that other processes keep busy.

Read from /proc/stat, less what this process and its data loaders' workers used. Must not import torch.
Invariant: what cannot be told is left out, never 0; and asking takes at most a thousandth of the time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from halfscope.probes.spec import SeriesSpec

SERIES = (SeriesSpec(name="host.other_load", unit="cores", reduction="max"),)

LARGEST_COST_SHARE = 0.001
"""On a machine of many cores the kernel takes milliseconds to tell: then it is asked more rarely."""
SHORTEST_S = 0.5
"""The kernel counts in hundredths of a second: over less than this the difference is mostly rounding."""

_IDLE = (3, 4)
_GUESTS = 8
"""Of the fields of /proc/stat: idle, waiting for a disk; and from here on what is in the others already."""


class Used(NamedTuple):
    """Seconds of processors, so far."""

    machine_s: float
    """Busy, whoever kept them so; of a virtual machine what was taken away from it too."""
    own_s: float


class OtherLoad:
    """Asked now and then, tells of the time since it was last asked."""

    def __init__(
        self,
        read: Callable[[], Used | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        cost_clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """
        Args:
            read: what was used so far; None where that cannot be told. By default as /proc says.
            clock: in seconds.
            cost_clock: likewise; measures what asking takes.
        """
        self._read, self._clock, self._cost_clock = read or used, clock, cost_clock
        self._before: tuple[float, Used] | None = None
        self._not_before_s = -1.0

    def cores(self) -> float | None:
        """Cores that others kept busy; None at first, where it cannot be told, and where it is too soon to ask."""
        now_s = self._clock()
        if now_s < self._not_before_s:
            return None
        began_s = self._cost_clock()
        now = self._read()
        cost_s = self._cost_clock() - began_s
        self._not_before_s = now_s + max(SHORTEST_S, cost_s / LARGEST_COST_SHARE)
        before, self._before = self._before, None if now is None else (now_s, now)
        if before is None or now is None or now.machine_s <= before[1].machine_s:
            return None  # a machine that was not busy at all does not keep count: we were
        others_s = (now.machine_s - before[1].machine_s) - (now.own_s - before[1].own_s)
        return max(0.0, others_s / (now_s - before[0]))


def used() -> Used | None:
    """As /proc says; None on systems without it, and for one of several ranks on a machine, whose siblings are no
    strangers."""
    if int(os.environ.get("LOCAL_WORLD_SIZE") or 1) > 1:
        return None
    try:
        with open("/proc/stat", "rb") as file:
            fields = [int(field) for field in file.readline().split()[1:]]
    except (OSError, ValueError):
        return None
    busy = sum(ticks for at, ticks in enumerate(fields[:_GUESTS]) if at not in _IDLE)
    times = os.times()
    ended_s = times.children_user + times.children_system
    return Used(busy / _ticks_per_s(), time.process_time() + ended_s + sum(map(_process_s, _workers())))


def _workers() -> Iterable[int]:
    """ids of the processes that Python's multiprocessing started here and that are not known to have ended."""
    module = sys.modules.get("multiprocessing.process")
    children: Iterable[object] = getattr(module, "_children", ())
    return [pid for child in tuple(children) if isinstance(pid := getattr(child, "pid", None), int)]


def _process_s(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # its name may hold anything
    except OSError:
        return 0.0
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / _ticks_per_s()


def _ticks_per_s() -> int:
    return os.sysconf("SC_CLK_TCK")
