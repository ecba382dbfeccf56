"""Gradients that became zero below FP16's floor.

Must not import the store's tables. Invariant: only zeros beyond the baseline's, of a run that computes in FP16, are
called lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from halfscope.formats import FP16
from halfscope.sketch import Sketch

from halfscope_server.compare.numerics import side_by_side
from halfscope_server.compare.reasons.base import UNDERFLOW, Mechanism, named
from halfscope_server.compare.types import LayerDivergence, Reason
from halfscope_server.query.format import integer, layer_words, power_of_two, share
from halfscope_server.query.underflow import run_underflow

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

KEPT_SHARE = 0.99
"""Of the baseline's nonzero gradients that a loss scale should keep."""
SCALES_LOG2 = range(-10, 33)


def find(comparison: Comparison, index: int) -> list[Reason]:
    """The layer that lost most first, with how many others did."""
    numerics = comparison.numerics[index]
    lost = [layer for layer in numerics.layers if layer.what == "zeros" and _lost(layer) > 0]
    if not lost:
        return []
    found = run_underflow(comparison.views[index])
    if found is None or not found.is_measured:
        return []
    worst, first_step, others = named(lost, numerics.first_layer, _lost)
    scale = _scale(comparison, index)
    is_measured = worst.would_flush_share is not None
    return [
        Reason(
            id="underflow",
            text=f"{layer_words(worst.layer)} lost {share(_lost(worst))} of its gradient below FP16's floor{scale} from"
            f" step {integer(first_step)} on{others}",
            layer=worst.layer,
            step=first_step,
            certainty="measured" if is_measured else "likely",
            score=UNDERFLOW + _lost(worst),
            advice=_advice(comparison, index, worst),
        )
    ]


def _lost(layer: LayerDivergence) -> float:
    """Share of the layer's elements: what the run's own frames tell, or what it has fewer than the baseline."""
    zeros, before = layer.zero_share or 0.0, layer.baseline_zero_share or 0.0
    excess = (zeros - before) / (1.0 - before) if before < 1 else 0.0
    return max(layer.underflow_share or 0.0, excess)


def _scale(comparison: Comparison, index: int) -> str:
    """The loss scale at the end, in words; empty without a scaler."""
    measured = side_by_side(comparison, index)
    if measured is None:
        return ""
    scale = float(np.max(measured.pairs.frames.table.scale[measured.pairs.rows[-1]]))
    return f" at loss scale {power_of_two(scale)}" if np.isfinite(scale) else ""


def _advice(comparison: Comparison, index: int, layer: LayerDivergence) -> str:
    """The loss scale that would have kept the layer's gradients, by the baseline's."""
    measured, name = side_by_side(comparison, index), layer_words(layer.layer)
    usual = f"A larger loss scale, or {name} outside autocast, keeps them"
    if measured is None or layer.would_flush_share is None:
        return f"{usual}."
    before = measured.ends.baseline
    needed = _smallest_scale(before[measured.pairs.names.index(layer.layer)])
    if needed is None:
        return f"{usual}; by the baseline's gradients no loss scale up to 2³² would."
    kept = (
        f"By the baseline's gradients a loss scale of at least {power_of_two(needed)} keeps {share(KEPT_SHARE)} of them"
    )
    if float(before.absmax.max()) * needed >= FP16.overflows_at:
        return f"{kept}, but others overflow at it: no single scale serves this model. Keep {name} outside autocast."
    return f"{kept}; more may be needed, because what is lost on the way to them is not in it."


def _smallest_scale(sketch: Sketch) -> float | None:
    nonzero = float(sketch.nonzero)
    for power in SCALES_LOG2:
        if nonzero and float(sketch.flushed(2.0**power)) <= (1 - KEPT_SHARE) * nonzero:
            return float(np.ldexp(1.0, power))
    return None


REASON = Mechanism(id="underflow", find=find)
