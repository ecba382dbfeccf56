"""A loss scale that fell far below the level it had held, and did not come back.

Must not import the store's tables. Invariant: a scale that settles from its start, that is set by hand, or that is low
without having been higher, has not collapsed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfscope_server.compare.align import NoAxis, track
from halfscope_server.compare.reasons.base import SCALE, Mechanism
from halfscope_server.compare.reasons.skips import origin_of
from halfscope_server.compare.types import Reason
from halfscope_server.query.format import integer, layer_words, power_of_two
from halfscope_server.query.view import ROLLUP_WIDTH, RunView
from halfscope_server.store.types import SeriesRow

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

HELD_STEPS = 50
"""A scale has held a level that it was never below for so many steps in a row."""
FALL_LOG2 = 6.0
FLOOR_LOG2 = 4.0
"""What practitioners call too low for any batch size; above it the scale follows gradients that grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fall:
    step: int
    """The last at the level that it held, which was skipped."""
    held: float
    last: float


def find(comparison: Comparison, index: int) -> list[Reason]:
    """Where the member's scale has collapsed."""
    view = comparison.views[index]
    fall, before = (run.memo("scale collapsed", partial(_find, run)) for run in (view, comparison.baseline))
    if fall is None or (before is not None and before.step <= fall.step):
        return []
    lost = [layer for layer in comparison.numerics[index].layers if layer.what == "zeros"]
    layer = origin_of(view, fall.step)
    where = f", when gradients of {layer_words(layer)} overflowed" if layer else ""
    return [
        Reason(
            id="scale_collapsed",
            text=f"the loss scale fell from {power_of_two(fall.held)} to {power_of_two(fall.last)} from step"
            f" {integer(fall.step)} on{where}, and has not come back",
            layer=layer,
            step=fall.step,
            certainty="measured" if lost or fall.last < 1 else "likely",
            score=SCALE + min(1.0, math.log2(fall.held / fall.last) / 64),
            advice="Find what overflows: a batch with outliers, a layer whose gradients grow, a loss that is not"
            " finite. Bad batches are better left out than answered by an ever smaller scale; a lower growth_interval"
            " brings it back sooner.",
        )
    ]


def _find(view: RunView) -> _Fall | None:
    """Of several scalers the one that fell first."""
    falls = [fall for series in view.named("amp.scale") if (fall := _find_in(view, series)) is not None]
    return min(falls, key=lambda fall: fall.step, default=None)


def _find_in(view: RunView, series: SeriesRow) -> _Fall | None:
    found = track(view, "amp.scale", "attempts", series=series)
    if isinstance(found, NoAxis):
        return None
    known = (found.count > 0) & (found.minimum >= 0)
    step, low = found.step[known], np.log2(np.maximum(found.minimum[known], 2.0**-149))
    if not step.size:
        return None
    width = HELD_STEPS if found.is_raw else 1  # else of 64 steps each
    if step.size <= width:
        return None
    held = np.lib.stride_tricks.sliding_window_view(low, width).min(axis=1).max()
    last = low[-1]
    if held - last < FALL_LOG2 or last >= FLOOR_LOG2:
        return None
    at = int(np.flatnonzero(low >= held)[-1])
    # Of a summary all steps were at the level: what took it down is at its very end or in the next.
    first, end = (
        (step[at], step[at + 1]) if found.is_raw else (step[at] + ROLLUP_WIDTH - 1, step[at] + 2 * ROLLUP_WIDTH)
    )
    skips = view.skips.step[(view.skips.step >= first) & (view.skips.step < end)]
    if not skips.size:
        return None  # it was set
    return _Fall(step=int(skips.min()), held=float(2.0**held), last=float(2.0**last))


REASON = Mechanism(id="scale_collapsed", find=find)
