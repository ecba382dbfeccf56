"""Steps that were withheld, so that the run was trained on fewer of them.

Must not import the store's tables. Invariant: what a scaler skips while it settles or tries a larger scale is healthy
and is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfscope_server.compare.reasons.base import SKIPS, Mechanism
from halfscope_server.compare.types import Reason
from halfscope_server.query.format import integer, layer_words, plural, share
from halfscope_server.query.skips import SINGLE, STREAK, longest_row
from halfscope_server.query.view import RunView

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

SKIPPED_SHARE, MEASURED_SHARE = 0.01, 0.05
"""Of all steps, beyond the baseline's; from the second on fewer updates alone can be seen in the loss."""


def find(comparison: Comparison, index: int) -> list[Reason]:
    """Where the member skipped a share of its steps that the baseline did not."""
    view = comparison.views[index]
    skipped, before = (_skipped_share(run) for run in (view, comparison.baseline))
    if skipped - before < SKIPPED_SHARE:
        return []
    table = view.skips.of(SINGLE, STREAK)
    step = view.streaks[0].first_step if view.streaks else int(table.step[0])
    layer = origin_of(view, step)
    where = f", most likely because {layer_words(layer)} overflowed" if layer else ""
    return [
        Reason(
            id="skips",
            text=f"{integer(table.size)} of {plural(view.num_attempted_steps, 'step')} ({share(skipped)}) were skipped,"
            f" up to {integer(longest_row(table))} in a row, from step {integer(step)} on{where}",
            layer=layer,
            step=step,
            certainty="measured" if skipped - before >= MEASURED_SHARE else "likely",
            score=SKIPS + skipped,
            advice="Compare by applied steps to see what the missing updates explain. A scaler that skips again and"
            " again answers gradients that overflow at any scale, or a loss that is not finite.",
        )
    ]


def _skipped_share(view: RunView) -> float:
    steps = view.num_attempted_steps
    return view.skips.of(SINGLE, STREAK).size / steps if steps else 0.0


def origin_of(view: RunView, step: int) -> str:
    """The layer in which the non-finite gradients of the streak at a step began; empty where it was not localised."""
    for streak in view.streaks:
        if streak.first_step <= step + 1 and step <= streak.last_step:
            return streak.origin_layer
    return ""


REASON = Mechanism(id="skips", find=find)
