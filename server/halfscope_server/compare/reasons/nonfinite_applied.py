"""NaN or Inf that reached weights, buffers or optimizer state.

Must not import the store's tables. Invariant: a step that the scaler withheld is none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfscope_server.compare.reasons.base import NONFINITE, Mechanism
from halfscope_server.compare.types import Reason
from halfscope_server.query.format import integer, layer_words, plural
from halfscope_server.query.skips import StepTable
from halfscope_server.query.strip import APPLIED, LOSS_APPLIED
from halfscope_server.query.view import RunView

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

KINDS = ("nonfinite_applied",)


def find(comparison: Comparison, index: int) -> list[Reason]:
    """Where the member has such steps before the baseline has any."""
    view = comparison.views[index]
    applied, before = (_applied(run) for run in (view, comparison.baseline))
    if not applied.size or (before.size and int(before.step[0]) <= int(applied.step[0])):
        return []
    step, layer = int(applied.step[0]), _layer(view, int(applied.attempt[0]), int(applied.step[0]))
    numerics = comparison.numerics[index]
    if not layer and any(item.what == "nonfinite" for item in numerics.layers if item.layer == numerics.first_layer):
        layer = numerics.first_layer
    where = f" in {layer_words(layer)}" if layer else ""
    many = f", and so on in {plural(applied.size, 'step')}" if applied.size > 1 else ""
    return [
        Reason(
            id="nonfinite_applied",
            text=f"NaN or Inf{where} was applied at step {integer(step)}{many}: nothing withheld it",
            layer=layer,
            step=step,
            certainty="measured",
            score=NONFINITE + 1.0,
            advice="Look at the batch and the layer of that step. A GradScaler withholds such steps (BF16 has none:"
            " check the gradient norm before optimizer.step()); go on from a checkpoint before it, since weights,"
            " buffers and optimizer state may hold NaN for good.",
        )
    ]


def _applied(view: RunView) -> StepTable:
    return view.bad.of(APPLIED, LOSS_APPLIED)


def _layer(view: RunView, attempt: int, step: int) -> str:
    """The layer that the event of that step names."""
    for event in view.store.events(view.run_id, kinds=KINDS, first_step=step, last_step=step, limit=20):
        if event.attempt == attempt and event.where:
            return str(event.where[0])
    return ""


REASON = Mechanism(id="nonfinite_applied", find=find)
