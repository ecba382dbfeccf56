"""The learning rate and its schedule, at the steps that both runs have."""

from __future__ import annotations

import numpy as np

from halfscope_server.compare.fairness.base import Check, Confounds, Finding
from halfscope_server.query.format import MISSING, integer, number
from halfscope_server.query.view import RunView
from halfscope_server.store.types import Points, SeriesRow

RELATIVE = 1e-9
LAG_STEPS = 0.01
"""A schedule that is stepped only with applied steps lags by the skips: no more than a hundredth of the run counts as
the same."""
SETTLING_STEPS = 20
"""But so many skips as a scaler needs to settle explain a lag as long, however short the run is."""


class _LearningRate:
    id, title, order = "learning_rate", "Learning rate and schedule", 2
    confounds: tuple[Confounds, ...] = ("quality",)
    is_intended = False
    is_configuration = True

    def words(self, view: RunView) -> str:
        series = _series(view)
        if not series:
            return MISSING
        value = _read(view, next(iter(series.values()))).value
        value = value[np.isfinite(value)]
        if not value.size:
            return MISSING
        first, last, top = float(value[0]), float(value[-1]), float(value.max())
        if value.min() == top:
            return number(first)
        peak = f" up to {number(top)}" if top > max(first, last) else ""
        return f"{number(first)}{peak} to {number(last)}"

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        one, two = _series(baseline), _series(other)
        if not one or not two or baseline.span is None or other.span is None:
            return Finding(state="unknown", text="the learning rate was not recorded")
        if one.keys() != two.keys():
            return Finding(state="different", text="they have other optimizers or parameter groups")
        last = min(baseline.span.last_step, other.span.last_step)
        for key in one:
            finding = _compare(_read(baseline, one[key]), _read(other, two[key]), last, _explained(baseline, other))
            if finding.state != "same":
                return finding
        return Finding(state="same")


def _explained(*views: RunView) -> int:
    """The lag that skips explain."""
    return min(SETTLING_STEPS, max(view.skips.size for view in views))


def _compare(one: Points, two: Points, last_step: int, explained: int) -> Finding:
    step = np.unique(np.concatenate([one.step, two.step]))
    step = step[step <= last_step]
    if not one.step.size or not two.step.size:
        return Finding(state="unknown", text="the learning rate was not recorded")
    step = step[step >= max(one.step[0], two.step[0])]
    if not step.size:
        return Finding(state="unknown", text="the learning rate was recorded at no step in common")
    first, second = (p.value[np.searchsorted(p.step, step, "right") - 1] for p in (one, two))
    differs = np.flatnonzero(np.abs(first - second) > RELATIVE * np.maximum(np.abs(first), np.abs(second)))
    if not differs.size or _lags(one, two, last_step, explained):
        return Finding(state="same")
    at = differs[0]
    text = f"{number(float(second[at]))} against {number(float(first[at]))} at step {integer(int(step[at]))}"
    return Finding(state="different", text=text)


def _lags(one: Points, two: Points, last_step: int, explained: int) -> bool:
    """Whether the one goes through the same values a few steps later."""
    count = min(one.step.size, two.step.size)
    if count < 2 or not np.allclose(one.value[:count], two.value[:count], rtol=1e-6, atol=0):
        return False
    lag = np.abs(one.step[:count] - two.step[:count]).max()
    return bool(lag <= max(2, LAG_STEPS * last_step, explained)) and abs(one.step.size - two.step.size) <= lag


def _series(view: RunView) -> dict[tuple[tuple[str, str], ...], SeriesRow]:
    return {tuple(sorted(series.labels.items())): series for series in view.named("lr")}


def _read(view: RunView, series: SeriesRow) -> Points:
    def read() -> Points:
        rank = view.ranks[0] if view.ranks else None
        found = view.store.points(view.run_id, series.series_id, rank=rank)
        step, last = np.unique(found.step[::-1], return_index=True)  # of steps done again the newest
        columns = {name: getattr(found, name)[::-1][last] for name in ("time_us", "value", "rank", "attempt")}
        return Points(step=step, **columns)

    return view.memo(("learning rate", series.series_id), read)


CHECK: Check = _LearningRate()
