"""Whether a difference is more than noise: the band it is held against, at the end and all along.

Owns the choice of noise (repeats, the pair itself, none) and its sizes. Must not import the store's tables.
Invariants: the band is never narrower than the tolerance; a difference within it is never told as one.

A pair of one seed and data order differs by chance too: rounding parts two trainings, and from then on they wander
apart. Within the last tenth that hardly shows (they stay parted), so the error of the paired mean calls healthy runs
different: in 36 pairs of healthy FP16 and FP32 trainings of three kinds, each looked at after 250, 500 and 1,200 steps,
the difference reached 18 times that error. What it stays within is how much it changes from one batch to the next (that
tells how different the two models are) and from one tenth to the next: those lay below 1.9 times the two together,
trainings with a fault above 3.5 times. `make calibrate` tries the band on trainings that it was not chosen on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from halfscope_server.compare import fairness, reasons
from halfscope_server.compare.align import Floats, NoAxis
from halfscope_server.compare.beside import Pair, pair
from halfscope_server.compare.noise import (
    BAND_SHARE,
    INTERVAL_SHARE,
    Error,
    error_between_neighbours,
    error_of_mean,
    error_of_prediction,
    root_mean_square,
    t_quantile,
)
from halfscope_server.compare.types import Estimate, NoiseKind
from halfscope_server.query.format import plural

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

MIN_CELLS = 4
GAIN_TOLERANCE = 0.2
"""The tolerance of what the baseline gained in all, as a share of that of its level: late in a training that has fit
its data, levels are next to nothing and healthy runs differ by tens of percent of them."""
LOST_GAIN = 0.25
"""So much of what the other run gained is lost by no seed alone."""
FLAT_SHARE = 1e-3
"""A level below this share of the metric's range is no level to be relative to: the range is taken."""
CURVE_SHARE = 0.02
SHARED = 0.5
"""Correlation of the two runs' changes from place to place, from which on the same batches are behind them."""
UNSHARED_ERRORS = 3.0
MIN_NOISE_CELLS = 20
CALM_SHARE = 0.1
"""Where the baseline scatters from step to step by less than this share of what the difference wanders by, batches do
not tell how different the two runs are by chance (all data in one batch): what wanders by itself comes as far as the
root of the number of stretches says, times its steps, and is held against that."""
FAR = 10.0
"""Times the baseline's level: a larger difference is told as it is, for `+4,000%` only tells that the level is next to
nothing."""
NUM_SCALES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The smoothed difference at some places, with half the width of the band there; all [N], absolute."""

    at: NDArray[np.int64]
    """Cells of the pair."""
    difference: Floats
    half: Floats
    reference: Floats
    """What is relative is relative to this."""

    def last_inside(self) -> int:
        """The last place within the band, or on the other side of it than the end; -1: none."""
        outside = (np.abs(self.difference) > self.half) & (np.sign(self.difference) == np.sign(self.difference[-1]))
        inside = np.flatnonzero(~outside)
        return int(inside[-1]) if inside.size else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A pair, its difference at the end and the noise that it is held against."""

    pair: Pair
    noise: NoiseKind
    difference: float
    """Member's level less the baseline's, at the end of what both have."""
    judged: float
    """What is held against the band: of repeats the difference of their means."""
    half: float
    """Half of the band's width at the end, absolute."""
    reference: float
    """The baseline's level there (its range where that is next to nothing), positive."""
    tolerance: float
    """Absolute."""
    wander: float
    """What the difference wanders by from tenth to tenth, relative to the level; of repeats the whole error."""
    batch_share: float
    """How much of the scatter from cell to cell counts: that of a single step, where batches are the same."""
    freedom: float
    interval: float | None
    """Half of the 95% interval of the difference, absolute."""
    options_tolerance: float
    gain: float
    is_repeat: bool
    reason: str

    @property
    def is_beyond(self) -> bool:
        """Whether the difference is more than noise and tolerance."""
        if self.noise != "none":
            return abs(self.judged) > self.half
        return not self.is_repeat and self.gain > 0 and abs(self.judged) > max(self.half, LOST_GAIN * self.gain)

    @property
    def num_steps(self) -> int:
        """Of the baseline, from the first to the last of what both have."""
        return int(self.pair.baseline.step[-1] - self.pair.baseline.step[0]) + 1

    @property
    def is_far(self) -> bool:
        """Whether the difference is many times the level that it would be relative to."""
        return abs(self.difference) > FAR * self.reference

    @property
    def is_blind(self) -> bool:
        """Whether the band is so wide that what no seed does would be within it: nothing is shown to be equal then."""
        return self.noise != "none" and self.half > LOST_GAIN * max(self.gain, self.reference)

    def estimate(self) -> Estimate:
        """The difference relative to the baseline's level."""
        value, half = self.difference / self.reference, self.interval
        return Estimate(
            value=value,
            low=None if half is None else value - half / self.reference,
            high=None if half is None else value + half / self.reference,
            count=self.pair.x[self.pair.final].size,
        )

    def leaves(self) -> int | None:
        """The cell from which on the difference stays out of the band; None: it does not.

        Over the mean of one cell, of two, four ... and of as many as the end has before each place: what shows in the
        finest counts, and behind none of them the difference is seen before it is there.
        """
        end = self.pair.x[self.pair.final].size
        found = []
        for scale in sorted({max(1, round(end / 2**k)) for k in range(NUM_SCALES + 1)}):
            curve = self.curve(scale)
            last = curve.last_inside() if curve.at.size else -1
            if curve.at.size and last + 1 < curve.at.size:
                found.append(int(curve.at[last + 1]))
        return min(found, default=None)

    def curve(self, scale: int | None = None) -> Curve:
        """The difference as the mean of `scale` cells up to each place, with its band.

        Args:
            scale: None: a fiftieth of all cells.
        """
        kept = self.pair
        size = max(1, round(CURVE_SHARE * kept.x.size)) if scale is None else scale
        difference, level = _trailing(kept.difference, size), _trailing(kept.baseline.mean, size)
        reference = np.maximum(np.abs(level), FLAT_SHARE * _range(kept.baseline.mean))
        reference = np.where(reference > 0, reference, 1.0)
        at = np.arange(size - 1, kept.x.size)
        if self.noise == "none":
            return Curve(at=at, difference=difference, half=np.full(at.size, np.inf), reference=reference)
        own = np.zeros(at.size)
        if self.noise == "paired":
            own = self.batch_share * _scatter_nearby(kept.difference, _noise_cells(kept))[at]
        spread = t_quantile(0.5 + BAND_SHARE / 2, self.freedom) * np.hypot(own, self.wander * reference)
        tolerance = self.options_tolerance * np.maximum(np.abs(level), GAIN_TOLERANCE * self.gain)
        return Curve(at=at, difference=difference, half=np.maximum(spread, tolerance), reference=reference)


def judge(comparison: Comparison, index: int) -> Judgement | NoAxis:
    """A member's metric held against the noise that is there to be had.

    Args:
        index: 1 or more.
    """
    return comparison.memo(("judged", index), lambda: _judge(comparison, index))


def _judge(comparison: Comparison, index: int) -> Judgement | NoAxis:
    kept = pair(comparison, index)
    if isinstance(kept, NoAxis):
        return kept
    if kept.x.size < MIN_CELLS:
        seen = plural(kept.x.size, "place")
        return NoAxis(reason=f"both have {comparison.options.metric} at {seen}; at least {MIN_CELLS} are needed")
    is_repeat = comparison.members[index].group == 0
    repeats, wander = _repeats(comparison, index, is_repeat), _wander(kept)
    why = fairness.why_unpaired(comparison.baseline, comparison.views[index])
    found = []
    if repeats is not None:
        words, shift = repeats.words, repeats.shift
        found = [_held(comparison, kept, "repeats", repeats.error, shift=shift, is_repeat=is_repeat, why=words)]
    if not why and wander is not None and not (found and is_repeat):
        # Of one seed and data order, what seeds do is in neither: repeats beside the pair make it no less certain.
        found.append(_held(comparison, kept, "paired", wander, is_repeat=False, why="one run each"))
    if found:
        return min(found, key=lambda judged: judged.half)
    if not why:
        why = "too few places to tell noise by"
    elif is_repeat:
        why = "a repeat of the baseline, one run each: what they differ by is noise"
    return _held(comparison, kept, "none", None, is_repeat=is_repeat, why=why)


def _held(
    comparison: Comparison,
    kept: Pair,
    noise: NoiseKind,
    error: Error | None,
    *,
    shift: float = 0.0,
    is_repeat: bool,
    why: str,
) -> Judgement:
    """
    Args:
        error: relative to the reference.
        shift: by how much (relative) what is judged differs from the difference of these two runs.
    """
    tolerance_share, final = comparison.options.tolerance_share, kept.final
    level, difference = float(kept.baseline.mean[final].mean()), float(kept.difference[final].mean())
    reference, gain = _reference(kept), _gain(kept)
    tolerance = tolerance_share * max(abs(level), GAIN_TOLERANCE * gain)
    batch, batch_share = _batch_noise(kept)
    if noise == "paired" and error is not None and _own_scatter(kept) < CALM_SHARE * error.value * reference:
        error = Error(value=error.value * math.sqrt(2 * (error.freedom + 1)), freedom=error.freedom)
    if error is None:  # nothing is known of other seeds: what batches do to the two levels is the least
        error = _error_of_levels(kept, kept.final) or Error(value=batch / reference, freedom=1.0)
        batch = 0.0
    wander, freedom = error.value, error.freedom
    spread = wander * reference if noise == "repeats" else math.hypot(batch, wander * reference)
    interval = None if noise == "none" else t_quantile(0.5 + INTERVAL_SHARE / 2, freedom) * spread
    half = max(tolerance, t_quantile(0.5 + BAND_SHARE / 2, freedom) * spread)
    return Judgement(
        pair=kept,
        noise=noise,
        difference=difference,
        judged=difference + shift * reference,
        half=half,
        reference=reference,
        tolerance=tolerance,
        wander=wander,
        batch_share=batch_share,
        freedom=freedom,
        interval=interval,
        options_tolerance=tolerance_share,
        gain=gain if noise != "none" else max(gain, _gain(kept, of_member=True)),
        is_repeat=is_repeat,
        reason=why,
    )


# ---- sizes of noise ------------------------------------------------------------------------------


def _batch_noise(kept: Pair) -> tuple[float, float]:
    """By how much the difference changes from one step to the next, absolute, and how many times its change from cell
    to cell that is.

    Where the two were not given the same batches at the same places (no correlation), it is mostly what batches do to
    either: a few times the error of the mean is then enough.
    """
    part = slice(kept.x.size - _noise_cells(kept), kept.x.size)
    one, two, difference = kept.baseline.mean[part], kept.member.mean[part], kept.difference[part]
    found = error_between_neighbours(difference)
    if found is None or found.value == 0:
        return 0.0, 1.0
    scatter = found.value
    if one.min() > 0 and two.min() > 0:
        # A run that is worse by a share moves by that share of what batches do: its ratio does not.
        ratio = error_between_neighbours(np.log(two / one))
        scatter = min(scatter, ratio.value * _reference(kept) if ratio else scatter)
    steps_per_cell = float(np.median(np.minimum(kept.baseline.count[part], kept.member.count[part])))
    value = scatter * math.sqrt(max(1.0, steps_per_cell))
    if not (kept.is_in_step and _correlation(np.diff(one), np.diff(two)) >= SHARED):
        levels = _error_of_levels(kept, part)
        value = min(value, UNSHARED_ERRORS * levels.value * _reference(kept)) if levels else value
    return value, value / found.value


def _own_scatter(kept: Pair) -> float:
    """What the baseline's cells scatter by about a smooth curve, absolute."""
    values = kept.baseline.mean[kept.x.size - _noise_cells(kept) :]
    # The variance of a second difference is six times that of its values.
    return root_mean_square(np.diff(values, 2)) / math.sqrt(6) if values.size > 2 else 0.0


def _error_of_levels(kept: Pair, part: slice) -> Error | None:
    """The error of the difference of two levels that have nothing in common, relative to the reference."""
    one, two = (error_of_mean(run.mean[part], without_trend=True) for run in (kept.baseline, kept.member))
    if one is None or two is None:
        return None
    value = math.hypot(one.value, two.value)
    # Welch and Satterthwaite.
    below = sum((each.value / value) ** 4 / each.freedom for each in (one, two)) if value > 0 else 0.0
    freedom = 1 / below if below > 0 else min(one.freedom, two.freedom)
    return Error(value=value / _reference(kept), freedom=freedom)


def _correlation(one: Floats, two: Floats) -> float:
    """Of changes, whose mean is about zero; 1 where nothing changes."""
    largest = [float(np.abs(values).max(initial=0.0)) for values in (one, two)]
    if min(largest) == 0:
        return 1.0
    one, two = one / largest[0], two / largest[1]
    return float((one * two).sum()) / math.sqrt(float((one**2).sum() * (two**2).sum()))


def _noise_cells(kept: Pair) -> int:
    """Cells that noise is measured over: those of the end, or a few more where it is short."""
    return max(kept.x[kept.final].size, min(MIN_NOISE_CELLS, kept.x.size))


def _wander(kept: Pair) -> Error | None:
    """What the difference moves by from one stretch as long as the end to the next, relative to the level there."""
    size = kept.x[kept.final].size
    # Of few places stretches are shorter, and scatter more.
    size = min(size, kept.x.size // MIN_CELLS)
    count = kept.x.size // size
    first = kept.x.size - count * size
    means = [values[first:].reshape(count, size).mean(axis=1) for values in (kept.difference, kept.baseline.mean)]
    level = np.maximum(np.abs(means[1]), FLAT_SHARE * _range(kept.baseline.mean))
    if abs(float(means[0][-1])) > FAR * level[-1]:
        level[:] = level[-1]  # or what stays as it is would wander because the level falls away below it
    return error_between_neighbours(means[0] / np.where(level > 0, level, 1.0))


def _reference(kept: Pair) -> float:
    level = abs(float(kept.baseline.mean[kept.final].mean()))
    return max(level, FLAT_SHARE * _range(kept.baseline.mean)) or 1.0


def _gain(kept: Pair, *, of_member: bool = False) -> float:
    """By how much a run's level at the end differs from that at its start."""
    run, size = kept.member if of_member else kept.baseline, kept.x[kept.final].size
    return abs(float(run.mean[:size].mean() - run.mean[kept.final].mean()))


def _range(values: Floats) -> float:
    return float(values.max() - values.min())


def _trailing(values: Floats, size: int) -> Floats:
    """Means of `size` neighbours, the first of them ending at place `size - 1`."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    return np.asarray((total[size:] - total[:-size]) / size, np.float64)


def _scatter_nearby(values: Floats, size: int) -> Floats:
    """The standard deviation of single cells around each place, by the steps between neighbours."""
    steps = np.abs(np.diff(values, prepend=values[:1]))
    largest = float(steps.max()) or 1.0  # squares of what is beyond 1e154 are no numbers
    square = (steps / largest) ** 2 / 2
    if square.size > 1:
        square[0] = square[1]
    reach = np.minimum(np.arange(values.size) + size, values.size)
    total = np.cumsum(np.concatenate([[0.0], square]))
    before = np.maximum(np.arange(values.size) - size, 0)
    return np.asarray(largest * np.sqrt(np.maximum(total[reach] - total[before], 0.0) / (reach - before)), np.float64)


# ---- repeats -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """What repeats of configurations say of a member's difference."""

    error: Error
    """Relative."""
    shift: float
    """Difference of the groups' means less that of the two runs, relative."""
    words: str


MIN_FREEDOM = 2
"""Of two repeats alone the interval is so wide (64 times their scatter) that it says nothing."""


def _repeats(comparison: Comparison, index: int, is_repeat: bool) -> Repeats | None:
    """None: there are too few repeats."""
    members = comparison.members
    groups: dict[int, dict[int, float]] = {}
    for at, member in enumerate(members):
        kept = None if at == 0 else pair(comparison, at)
        if at == 0:
            groups.setdefault(member.group, {})[at] = 0.0
        elif isinstance(kept, Pair) and kept.x.size >= MIN_CELLS:
            share = float(kept.difference[kept.final].mean()) / _reference(kept)
            groups.setdefault(member.group, {})[at] = share
    own = groups.get(members[index].group, {})
    most = [own] if is_repeat else [own, groups[0]]
    if index not in own or sum(len(group) - 1 for group in most) < MIN_FREEDOM:
        return None
    faulty = _faulty(comparison)
    others = _distinct(value for at, value in own.items() if at != index and at not in faulty)
    if is_repeat:  # held against the others
        error = error_of_prediction([others], (1, len(others))) if others else None
        shift, count = -float(np.mean(others)) if others else 0.0, (1, len(others))
    else:
        baseline = _distinct(value for at, value in groups[0].items() if at not in faulty)
        # A run with a fault of its own stands alone; what is wrong with it is no scatter of its repeats.
        mean_of = [own[index]] if index in faulty else _distinct([own[index], *others])
        count = (len(mean_of), len(baseline))
        error = error_of_prediction([others if index in faulty else mean_of, baseline], count)
        shift = float(np.mean(mean_of)) - own[index] - float(np.mean(baseline))
    if error is None or error.freedom < MIN_FREEDOM:
        return None
    return Repeats(error=error, shift=shift, words=f"{count[0]} against {count[1]} repeats")


def _faulty(comparison: Comparison) -> set[int]:
    """Members in which a mechanism was measured that makes a run worse."""

    def look() -> set[int]:
        return {
            at
            for at in range(1, len(comparison.views))
            if any(reason.certainty == "measured" for reason in reasons.find(comparison, at))
        }

    return comparison.memo("faulty", look)


def _distinct(values: Iterable[float]) -> list[float]:
    """Without copies: a training done again with the same seed on the same machine gives the same numbers, and tells
    nothing of chance."""
    return list(dict.fromkeys(values))
