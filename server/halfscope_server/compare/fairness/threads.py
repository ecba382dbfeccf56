"""Threads that torch computes with, where it computes on a CPU."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import ValueCheck, environment, fact
from halfscope_server.query.format import plural
from halfscope_server.query.view import RunView


def _threads(view: RunView) -> int | None:
    found = environment(view, "num_torch_threads")
    if fact(view, "device", "type") not in (None, "cpu"):
        return 0  # they do not do the work
    return found if isinstance(found, int) else None


CHECK = ValueCheck(
    id="threads",
    title="Threads",
    order=62,
    read=_threads,
    tell=lambda count: plural(count, "thread") if count else "on the device",
    confounds=("speed",),
    is_configuration=False,
)
