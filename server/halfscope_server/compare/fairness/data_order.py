"""Whether two runs were fed the same batches at the same steps, by the means of their inputs."""

from __future__ import annotations

import numpy as np

from halfscope_server.compare.fairness.base import Check, Confounds, Finding
from halfscope_server.query.format import MISSING, integer, plural
from halfscope_server.query.view import RunView
from halfscope_server.store.types import Points

SERIES = "input.mean"
MAX_STEPS = 20_000
"""From the first on: a training that began alike and parted later is found out within these."""
TOLERANCE = 1e-5
"""Relative to the largest mean: inputs that were stored in half precision and summed on another device differ by
less, other batches by more."""
NARROW_TOLERANCE = 4e-3
"""Where one of two was given its inputs in half precision: they are rounded."""
MIN_DISTINCT = 3
"""So many different means tell an order; of a data set that is one batch every order is the same."""


class _DataOrder:
    id, title, order = "data_order", "Data order", 20
    confounds: tuple[Confounds, ...] = ("quality",)
    is_intended = is_configuration = False

    def words(self, view: RunView) -> str:
        points = _means(view)
        if points is None or not points.step.size:
            return MISSING
        return f"seen at {plural(points.step.size, 'step')}"

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        one, two = _means(baseline), _means(other)
        if one is None or two is None:
            return Finding(state="unknown", text="the means of the input batches were not recorded")
        step, at_one, at_two = np.intersect1d(one.step, two.step, return_indices=True)
        if not step.size:
            return Finding(state="unknown", text="the input batches were measured at no step in common")
        first, second = one.value[at_one], two.value[at_two]
        scale = max(float(np.abs(first).max()), float(np.abs(second).max()), 1e-30)
        differs = np.flatnonzero(np.abs(first - second) > _tolerance(baseline, other) * scale)
        if differs.size:
            where = f"from step {integer(int(step[differs[0]]))} on" if differs[0] else "from the first step on"
            return Finding(state="different", text=f"they were fed other batches {where}")
        if step.size < MIN_DISTINCT:
            return Finding(state="unknown", text=f"measured at {plural(step.size, 'common step')} alone")
        return Finding(state="same")


def _means(view: RunView) -> Points | None:
    def read() -> Points | None:
        for series in view.named(SERIES)[:1]:
            span = view.span
            first = 0 if span is None else span.first_step
            found = view.store.points(view.run_id, series.series_id, last_step=first + MAX_STEPS, rank=_rank(view))
            finite = np.isfinite(found.value)
            # Of steps that were done again the newest.
            step, last = np.unique(found.step[finite][::-1], return_index=True)
            return Points(
                step=step,
                time_us=found.time_us[finite][::-1][last],
                value=found.value[finite][::-1][last],
                rank=found.rank[finite][::-1][last],
                attempt=found.attempt[finite][::-1][last],
            )
        return None

    return view.memo("input means", read)


def _rank(view: RunView) -> int | None:
    return view.ranks[0] if view.ranks else None


def _tolerance(*views: RunView) -> float:
    is_narrow = any(str(view.row.facts.get("precision")) in ("FP16", "BF16", "mixed") for view in views)
    return NARROW_TOLERANCE if is_narrow else TOLERANCE


CHECK: Check = _DataOrder()
