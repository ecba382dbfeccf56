"""How good each run is beside the baseline: level at the end, difference, the noise it is judged by, where they part.

Owns what may be called worse or better. Must not import the store's tables. Invariants: a difference is told as one
only where it lies beyond the tolerance and beyond the noise that was measured; where noise cannot be measured, only
what no other seed does counts; repeats of the baseline are never called worse or better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from halfscope_server.compare import align, judging
from halfscope_server.compare.align import Floats, NoAxis, Track
from halfscope_server.compare.beside import Pair, final_cells
from halfscope_server.compare.judging import Judgement
from halfscope_server.compare.members import lower_is_better
from halfscope_server.compare.noise import INTERVAL_SHARE, error_of_mean
from halfscope_server.compare.types import Estimate, NoiseKind, Outcome, Quality
from halfscope_server.query.format import MISSING, integer, nonfinite_name, number, plural, share
from halfscope_server.query.skips import STREAK_IN_A_ROW
from halfscope_server.query.view import RunView

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

OSCILLATION_STEPS = 200
"""Steps of the running median, and of the percentiles of what is left."""
FEWEST_STEPS = 20
"""Of what both have; fewer show a difference, but show nobody to be equal."""
UNKNOWN_DIRECTION = "whether more or less of {} is better is not known from its name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruin:
    """From a step on a metric has no finite value any more."""

    step: int
    value: float

    @property
    def words(self) -> str:
        return f"{nonfinite_name(self.value)} from step {integer(self.step)}"


def assess(comparison: Comparison) -> list[Quality]:
    """Every member, the baseline first."""
    return [_baseline(comparison), *(_member(comparison, at) for at in range(1, len(comparison.views)))]


def _baseline(comparison: Comparison) -> Quality:
    view, metric = comparison.baseline, comparison.options.metric
    ruin, final = ruined(view, metric), None
    track = align.track(view, metric, comparison.options.align)
    if ruin is None and isinstance(track, Track):
        final = _level(_until_common_end(comparison, track))
    return _quality(comparison, 0, outcome="equal", final=final, ruin=ruin, reason=_absent(track))


def _until_common_end(comparison: Comparison, track: Track) -> Track:
    """What all members reach of the baseline's metric, its places without a finite value left out."""
    track = track.select(track.count > 0)
    ends = [
        float(other.x[-1])
        for view in comparison.views[1:]
        if isinstance(other := align.track(view, comparison.options.metric, comparison.options.align), Track)
    ]
    reached = track.x <= min([*ends, np.inf])
    return track.select(reached) if reached.any() else track


def _member(comparison: Comparison, index: int) -> Quality:
    metric = comparison.options.metric
    ruins = [ruined(view, metric) for view in (comparison.baseline, comparison.views[index])]
    later = [_is_later(comparison, index, ruin, is_member=at == 1) for at, ruin in enumerate(ruins)]
    if any(ruin and not is_later for ruin, is_later in zip(ruins, later, strict=True)):
        return _of_ruined(comparison, index, *ruins)
    judged = judging.judge(comparison, index)
    warnings = [
        _later_words(metric, ruin, whose) for ruin, whose in zip(ruins, ("the baseline", "the run"), strict=True)
    ]
    if isinstance(judged, NoAxis):
        return _quality(
            comparison, index, outcome="unknown", reason="; ".join(filter(None, [judged.reason, *warnings]))
        )
    outcome, why = _outcome(judged, lower_is_better(metric), metric)
    first = judged.leaves() if outcome in ("worse", "better") else None
    kept = judged.pair
    return _quality(
        comparison,
        index,
        outcome=outcome,
        final=_level(kept.member),
        judged=judged,
        first_x=None if first is None else float(kept.x[first]),
        first_step=None if first is None else int(kept.member.step[first]),
        reason="; ".join(filter(None, [why, judged.reason, _bad_words(kept), *warnings])),
    )


def _is_later(comparison: Comparison, index: int, ruin: Ruin | None, *, is_member: bool) -> bool:
    """Whether a run stopped being a number only where the other of the two had ended: of that the other tells
    nothing."""
    views, how = (comparison.baseline, comparison.views[index]), comparison.options.align
    own, other = views[is_member], views[not is_member]
    along, reached = align.axis(own, how), align.track(other, comparison.options.metric, how)
    if ruin is None or isinstance(along, NoAxis) or isinstance(reached, NoAxis):
        return False
    return bool(along.x_at(np.array([ruin.step]))[0] > reached.x[-1])


def _later_words(metric: str, ruin: Ruin | None, whose: str) -> str:
    return f"later {whose}'s {metric} is {ruin.words}, which the other had not reached" if ruin else ""


def _outcome(judged: Judgement, is_lower_better: bool | None, metric: str) -> tuple[Outcome, str]:
    if not judged.is_beyond:
        if judged.is_blind:
            return "unknown", f"noise of ±{share(judged.half / judged.reference)} hides any difference that matters"
        if judged.noise == "none":
            return "unknown", ""
        if judged.num_steps < FEWEST_STEPS:
            return "unknown", f"{plural(judged.num_steps, 'step')} that both have show no two runs to be equal"
        return "equal", _coarse_words(judged, metric)
    if judged.is_repeat:
        return "unknown", "a repeat of the baseline that lies outside of the others"
    if is_lower_better is None:
        return "unknown", UNKNOWN_DIRECTION.format(metric)
    return ("worse" if (judged.difference > 0) == is_lower_better else "better"), ""


def _coarse_words(judged: Judgement, metric: str) -> str:
    """What is within a band that is wide beside the level, though not beside what the baseline gained to get there."""
    if judged.half <= judging.LOST_GAIN * judged.reference:
        return ""
    of_level, of_gain = share(judged.half / judged.reference), share(judged.half / judged.gain)
    return (
        f"the {metric} is small beside what the baseline gained: noise is ±{of_level} of it (±{of_gain} of the gain),"
        " and less than that is not seen"
    )


def _of_ruined(comparison: Comparison, index: int, baseline: Ruin | None, member: Ruin | None) -> Quality:
    if baseline is not None and member is not None:
        return _quality(comparison, index, outcome="unknown", ruin=member, reason="neither of the two ends as a number")
    if member is None:
        track = align.track(comparison.views[index], comparison.options.metric, comparison.options.align)
        final = _level(track.select(track.count > 0)) if isinstance(track, Track) else None
        reason = "the baseline does not end as a number"
        if final is None:
            return _quality(comparison, index, outcome="unknown", reason=reason)
        return _quality(comparison, index, outcome="better", final=final, reason=reason)
    along = align.axis(comparison.views[index], comparison.options.align)
    first_x = None if isinstance(along, NoAxis) else float(along.x_at(np.array([member.step]))[0])
    has_baseline = isinstance(align.track(comparison.baseline, comparison.options.metric, "attempts"), Track)
    return _quality(
        comparison,
        index,
        outcome="worse" if has_baseline else "unknown",
        ruin=member,
        first_x=first_x,
        first_step=member.step,
        reason="" if has_baseline else f"the baseline has no {comparison.options.metric}",
    )


def _quality(
    comparison: Comparison,
    index: int,
    *,
    outcome: Outcome,
    final: Estimate | None = None,
    ruin: Ruin | None = None,
    judged: Judgement | None = None,
    first_x: float | None = None,
    first_step: int | None = None,
    reason: str = "",
) -> Quality:
    view, metric = comparison.views[index], comparison.options.metric
    noise: NoiseKind = judged.noise if judged else "none"
    far = judged if judged is not None and judged.is_far else None
    return Quality(
        run=view.run_id,
        metric=metric,
        outcome=outcome,
        lower_is_better=lower_is_better(metric) is not False,
        final=final,
        final_words=ruin.words if ruin else (MISSING if final is None else number(final.value)),
        difference=judged.estimate() if judged else None,
        first_x=first_x,
        first_step=first_step,
        noise=noise,
        noise_share=judged.half / judged.reference if judged and noise != "none" else None,
        absolute=far.difference if far else None,
        noise_absolute=far.half if far and noise != "none" else None,
        oscillation=oscillation(view) if metric == "loss" else None,
        reason=reason,
    )


def _absent(track: Track | NoAxis) -> str:
    return track.reason if isinstance(track, NoAxis) else ""


def _bad_words(kept: Pair) -> str:
    total = sum(kept.num_bad)
    return f"{plural(total, 'value')} that {'is' if total == 1 else 'are'} no number left out" if total else ""


def _level(track: Track) -> Estimate | None:
    """The mean at the end, with what its values scatter by."""
    value = track.mean[final_cells(track.x)]
    if not value.size:
        return None
    error = error_of_mean(value, without_trend=True)
    mean, half = float(value.mean()), error.half_width(INTERVAL_SHARE) if error else None
    return Estimate(
        value=mean,
        low=None if half is None else mean - half,
        high=None if half is None else mean + half,
        count=int(value.size),
    )


# ---- one run alone -------------------------------------------------------------------------------


def ruined(view: RunView, metric: str) -> Ruin | None:
    """From where on a metric is not finite up to its end; None: it ends with a number, or has none at all."""
    return view.memo(("ruined", metric), lambda: _ruined(view, metric))


def _ruined(view: RunView, metric: str) -> Ruin | None:
    track = align.track(view, metric, "attempts")
    if isinstance(track, NoAxis) or track.count[-1] > 0 or track.bad[-1] == 0:
        return None
    has = np.flatnonzero(track.count > 0)
    at = int(has[-1]) if has.size else 0
    if track.is_raw:
        first = int(track.step[at + 1 if has.size else 0])
        whole = align.track(view, metric, "attempts", align.between(view, first, first))
    else:
        # Within a stretch of 64 steps, or in the one behind it.
        whole = align.track(view, metric, "attempts", align.between(view, int(track.step[at]), None, 128))
        if isinstance(whole, NoAxis):
            return None
        good = np.flatnonzero(whole.count > 0)
        first = int(whole.step[int(good[-1]) + 1 if good.size else 0])
    last_bad = track.step[track.step >= first]
    if last_bad.size < STREAK_IN_A_ROW and np.isin(last_bad, view.skips.step).all() and track.is_raw:
        return None  # An overflow that the scaler withheld; the weights are what they were.
    return Ruin(step=first, value=_value_at(view, metric, first))


def _value_at(view: RunView, metric: str, step: int) -> float:
    """The non-finite value of a step: NaN where ranks differ."""
    series = align.series_of(view, metric)
    assert series is not None
    points = view.store.points(view.run_id, series.series_id, first_step=step, last_step=step)
    bad = points.value[~np.isfinite(points.value)]
    return float(bad[-1]) if bad.size and (bad == bad[-1]).all() else float("nan")


def oscillation(view: RunView) -> float | None:
    """`loss_oscillation` at the end of a run: (95th - 5th percentile of the loss less its running median) / (2 x that
    median), over 200 steps each; None before there are as many."""
    value = view.recent("loss", 2 * OSCILLATION_STEPS - 1)
    if value.size < 2 * OSCILLATION_STEPS - 1:
        return None
    median: NDArray[np.float64] = np.median(np.lib.stride_tricks.sliding_window_view(value, OSCILLATION_STEPS), axis=1)
    low, high = np.percentile(value[OSCILLATION_STEPS - 1 :] - median, [5, 95])
    level = abs(float(median[-1]))
    return float(high - low) / (2 * level) if level > 0 else None


# ---- what charts show ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceCurve:
    """The difference to the baseline along the axis, ascending by x."""

    x: Floats
    step: NDArray[np.int64]
    """The member's own."""
    relative: Floats
    """To the baseline's level there."""
    reference: Floats
    """What is relative is relative to this: times it, it is absolute."""
    low: Floats
    """Of the noise band, relative. Not finite where noise cannot be told: there is no band then."""
    high: Floats
    noise: NoiseKind


def difference_curve(comparison: Comparison, index: int) -> DifferenceCurve | NoAxis:
    """A member's difference to the baseline over all that both have, smoothed as finely as its noise allows drawing
    it: the mean of a fiftieth of what came before each place.

    Args:
        index: 1 or more.
    """
    judged = judging.judge(comparison, index)
    if isinstance(judged, NoAxis):
        return judged
    curve = judged.curve()
    return DifferenceCurve(
        x=judged.pair.x[curve.at],
        step=judged.pair.member.step[curve.at],
        relative=curve.difference / curve.reference,
        reference=curve.reference,
        low=-curve.half / curve.reference,
        high=curve.half / curve.reference,
        noise=judged.noise,
    )
