"""Steps with a sketch and steps without, measured apart: what the benches of trainings share.

Every step is either sketched or not, so no turn has to hold a whole interval between two sketches: what is paid by
default is put together from both by the interval that the budget chooses for just these costs.
Invariant: that interval is chosen by the code that chooses it in a training.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from halfscope.instrument.interval import SketchInterval

UNWATCHED, UNSKETCHED, SKETCHED = "unwatched", "unsketched", "sketched"
NEVER = 1_000_000_007
"""As an interval: no step of a run is sketched."""
BUDGET_SHARE = 0.005
T = TypeVar("T", bound=Any)
"""A dataclass of numbers."""


def chosen_interval(step_s: float, sketch_s: float) -> int:
    """The interval that the budget leads to, by the code that chooses it, under a clock that is moved by hand."""
    now_ns = 0
    interval = SketchInterval(every=None, budget_share=BUDGET_SHARE, clock=lambda: now_ns)
    for step in range(20_000):
        if interval.is_due(step):
            interval.spend(round(sketch_s * 1e9))
            now_ns += round(sketch_s * 1e9)
        now_ns += round(step_s * 1e9)
    return interval.value


def mean(one: T, other: T) -> T:
    """Of two turns, figure by figure: what a turn between them is compared with."""
    both = {each.name: (getattr(one, each.name) + getattr(other, each.name)) / 2 for each in fields(one)}
    found: T = type(one)(**both)
    return found
