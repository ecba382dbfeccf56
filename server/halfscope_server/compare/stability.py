"""How each member fared with its numbers: skips by class, NaN and Inf held back or let through, range of the scale.

Must not import the store's tables. Invariant: skips are those of the run's own page, class by class; a step that was
withheld and one that was applied are never the same step.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from halfscope_server.compare.types import Stability
from halfscope_server.query.skips import SKIP_CLASSES, StepTable, longest_row, member, step_table
from halfscope_server.query.strip import APPLIED, LOSS_APPLIED, LOSS_CAUGHT
from halfscope_server.query.summary import current_scale
from halfscope_server.query.view import WIDE_ROLLUP, RunView

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison


def count(comparison: Comparison) -> list[Stability]:
    """Of every member, the baseline's first."""
    return [view.memo("stability", partial(_stability, view)) for view in comparison.views]


def _stability(view: RunView) -> Stability:
    skips = view.skips
    counts = np.bincount(skips.kind, minlength=len(SKIP_CLASSES)).tolist()
    applied = view.bad.of(APPLIED, LOSS_APPLIED)
    low, high = _scale_range(view)
    return Stability(
        run=view.run_id,
        num_steps=view.num_attempted_steps,
        skips=dict(zip(SKIP_CLASSES, counts, strict=True)),
        nonfinite_caught=_num_caught(view, applied),
        nonfinite_applied=applied.size,
        longest_streak=longest_row(skips),
        scale_min=low,
        scale_max=high,
        scale_last=_finite(current_scale(view)),
    )


def _num_caught(view: RunView, applied: StepTable) -> int:
    """Withheld steps, and those whose bad loss came to nothing; without what another optimizer applied."""
    skips, losses = view.skips, view.bad.of(LOSS_CAUGHT)
    attempt = np.concatenate([skips.attempt, losses.attempt])
    caught = step_table(attempt, np.concatenate([skips.step, losses.step]), np.zeros(attempt.size, np.int8))
    return int((~member(caught.attempt, caught.step, applied)).sum())


def _scale_range(view: RunView) -> tuple[float | None, float | None]:
    rollups = [view.store.rollup(view.run_id, s.series_id, WIDE_ROLLUP) for s in view.named("amp.scale")]
    lows = [float(value) for rollup in rollups for value in rollup.minimum if np.isfinite(value)]
    highs = [float(value) for rollup in rollups for value in rollup.maximum if np.isfinite(value)]
    return (min(lows), max(highs)) if lows else (None, None)


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
