"""One value per step out of those of all ranks, by the reduction that a series declares.

Owns the reductions, and which rank stands apart. Must not import plotly or the store's tables. Invariant: a value
stands for all ranks: where one of them has not told its part yet, a sum or a norm has no value.

Suffixes: R ranks, C columns (steps, or stretches of steps).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query.downsample import safe_mean
from halfscope_server.store.types import Points, Rollup

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

WHOLE = ("sum", "norm")
"""Reductions of which every rank has a part."""
APART_SHARE = 0.9
"""A rank stands apart when it has the smallest or the largest value in so many of the columns."""
APART_COLUMNS = 20
"""That there must be at least."""
APART_DISTANCE = 0.05
"""And so far from the median rank, of that one's value."""
_LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Tellers:
    """The ranks that a series comes from, in one attempt."""

    num_ranks: int
    complete_to: int
    """The last step that all of them have told that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """A value per step, with the smallest and largest rank's."""

    step: Ints
    time_us: Ints
    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A rank whose values are nearly always the lowest or the highest."""

    rank: int
    is_high: bool
    value: float
    """Its median, and that of the median rank."""
    usual: float


def reduced(points: Points, reduction: str, tellers: Tellers | None = None) -> Reduced:
    """The finite values of each step, of all ranks that have one.

    Args:
        points: in any order of ranks within a step; of a value sent twice the later counts.
        tellers: without, whoever tells is taken for all.
    """
    step, time_us, value, _ = ordered(points, np.isfinite(points.value))
    if not step.size:
        return Reduced(step=step, time_us=time_us, value=value, low=value, high=value)
    starts = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    counts = np.diff(np.append(starts, step.size))
    low, high = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
    one = Reduced(
        step=step[starts],
        time_us=time_us[starts],
        value=_reduce(value, starts, counts, reduction),
        low=low,
        high=high,
    )
    return one if tellers is None else _kept(one, _is_whole(one.step, counts, reduction, tellers))


def per_step(points: Points, reduction: str) -> tuple[Ints, Floats]:
    """The steps that every rank has told which tells most steps, with their values; not finite where any rank's is
    not."""
    step, _, value, rank = ordered(points)
    if not step.size:
        return step, value
    if reduction == "last":
        own = rank == rank.min()
        return step[own], value[own]
    starts = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    counts = np.diff(np.append(starts, step.size))
    finite = np.isfinite(value)
    with np.errstate(invalid="ignore"):
        bad = np.add.reduceat(np.where(finite, 0.0, value), starts)
    found = np.where(bad == 0, _reduce(np.where(finite, value, 0.0), starts, counts, reduction), bad)
    whole = counts == counts.max()
    return step[starts][whole], found[whole]


def ordered(points: Points, keep: Bools | None = None) -> tuple[Ints, Ints, Floats, NDArray[np.int32]]:
    """Steps, times, values and ranks, by step and rank; of a value sent twice the later.

    Args:
        points: in the order of arrival within a step and rank.
        keep: which of them count; None: all.
    """
    if keep is None and (np.diff(points.step) > 0).all():  # of one rank, mostly
        return points.step, points.time_us, points.value, points.rank
    order = np.lexsort((points.rank, points.step))
    if keep is not None:
        order = order[keep[order]]
    step, rank = points.step[order], points.rank[order]
    newest = np.ones(step.size, np.bool_)
    newest[:-1] = (step[1:] != step[:-1]) | (rank[1:] != rank[:-1])
    order = order[newest]
    return points.step[order], points.time_us[order], points.value[order], points.rank[order]


def _reduce(value: Floats, starts: Ints, counts: Ints, reduction: str) -> Floats:
    low, high = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        match reduction:
            case "mean":
                return safe_mean(np.add.reduceat(value, starts), counts, low, high)
            case "sum":
                return np.clip(np.add.reduceat(value, starts), -_LARGEST, _LARGEST)
            case "norm":
                largest = np.maximum(np.maximum(-low, high), np.finfo(np.float64).tiny)
                parts = (value / np.repeat(largest, counts)) ** 2
                root: Floats = largest * np.sqrt(np.add.reduceat(parts, starts))
                return np.minimum(root, _LARGEST)
            case "min":
                return low
            case "max":
                return high
    return value[starts]


def _is_whole(step: Ints, counts: Ints, reduction: str, tellers: Tellers) -> Bools:
    if reduction == "norm":
        # A rank that has ended leaves a part that nobody knows.
        return np.asarray(counts == tellers.num_ranks)
    if reduction == "sum":
        return np.asarray(step <= tellers.complete_to)
    return np.ones(step.size, np.bool_)


def _kept(one: Reduced, keep: Bools) -> Reduced:
    return one if keep.all() else Reduced(**{name: getattr(one, name)[keep] for name in Reduced.__slots__})


# ---- stretches of steps ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankGrid:
    """A series of every rank over stretches of steps; NaN where a rank has no finite value."""

    width: int
    ranks: tuple[int, ...]
    step: Ints
    """[C] first step of each stretch; likewise the time of the first rank that has a point in it."""
    time_us: Ints
    count: Ints
    """[R, C] points, those that are not finite included; so are all below."""
    num_bad: Ints
    mean: Floats
    low: Floats
    high: Floats


def grid_of_rollups(found: Mapping[int, Rollup], width: int) -> RankGrid:
    """What the store has of every rank, side by side."""
    ranks = tuple(found)
    step = np.unique(np.concatenate([found[rank].step for rank in ranks] or [np.empty(0, np.int64)]))
    shape = (len(ranks), step.size)
    time_us, count, num_bad = (np.zeros(shape, np.int64) for _ in range(3))
    mean, low, high = (np.full(shape, np.nan) for _ in range(3))
    parts = list(found.values())
    row = np.repeat(np.arange(len(parts)), [one.step.size for one in parts])
    at = np.searchsorted(step, np.concatenate([one.step for one in parts] or [step]))
    for target, name in ((time_us, "time_us"), (count, "count"), (low, "minimum"), (high, "maximum"), (mean, "total")):
        target[row, at] = np.concatenate([getattr(one, name) for one in parts] or [np.empty(0)])
    for name in ("num_nan", "num_pos_inf", "num_neg_inf"):
        num_bad[row, at] += np.concatenate([getattr(one, name) for one in parts] or [step])
    mean = safe_mean(mean, count - num_bad, low, high)
    first = np.argmax(count > 0, axis=0) if ranks else np.empty(0, np.int64)
    return RankGrid(
        width=width,
        ranks=ranks,
        step=step,
        time_us=time_us[first, np.arange(step.size)],
        count=count,
        num_bad=num_bad,
        mean=mean,
        low=low,
        high=high,
    )


def grid_of_points(points: Points) -> RankGrid:
    """Every step of its own."""
    step, time_us, value, rank = ordered(points)
    steps, column = np.unique(step, return_inverse=True)
    ranks, row = np.unique(rank, return_inverse=True)
    shape = (ranks.size, steps.size)
    finite = np.isfinite(value)
    values, count, bad = np.full(shape, np.nan), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    values[row[finite], column[finite]] = value[finite]
    count[row, column], bad[row[~finite], column[~finite]] = 1, 1
    first = np.searchsorted(step, steps)
    return RankGrid(
        width=1,
        ranks=tuple(ranks.tolist()),
        step=steps,
        time_us=time_us[first] if steps.size else steps,
        count=count,
        num_bad=bad,
        mean=values,
        low=values,
        high=values,
    )


def reduced_grid(grid: RankGrid, reduction: str, tellers: Tellers) -> Reduced:
    """One value per stretch: of the ranks' means, between bounds that no step of it leaves."""
    num_told = (~np.isnan(grid.mean)).sum(axis=0)
    there = num_told > 0
    if reduction == "norm":
        there = num_told == tellers.num_ranks
    elif reduction == "sum":
        there &= grid.step <= tellers.complete_to
    mean, low, high = grid.mean[:, there], grid.low[:, there], grid.high[:, there]
    if reduction in WHOLE:
        value, bottom, top = (_whole(part, reduction) for part in (mean, low, high))
    else:
        bottom, top = np.fmin.reduce(low, axis=0), np.fmax.reduce(high, axis=0)
        value = _middle(mean, (grid.count - grid.num_bad)[:, there], reduction, bottom, top)
    return Reduced(step=grid.step[there], time_us=grid.time_us[there], value=value, low=bottom, high=top)


def _middle(mean: Floats, count: Ints, reduction: str, low: Floats, high: Floats) -> Floats:
    """[C] of ranks' means; each has at least one."""
    if reduction == "mean":
        weight = np.where(np.isnan(mean), 0, count)
        with np.errstate(over="ignore", invalid="ignore"):
            total: Floats = (np.nan_to_num(mean) * weight).sum(axis=0)
        return safe_mean(total, weight.sum(axis=0), low, high)
    if reduction in ("min", "max"):
        return np.asarray((np.fmin if reduction == "min" else np.fmax).reduce(mean, axis=0))
    return np.asarray(mean[np.argmax(~np.isnan(mean), axis=0), np.arange(mean.shape[1])])


def _whole(part: Floats, reduction: str) -> Floats:
    part = np.nan_to_num(part, nan=0.0)
    with np.errstate(over="ignore"):
        if reduction == "sum":
            return np.asarray(np.clip(part.sum(axis=0), -_LARGEST, _LARGEST))
        largest = np.maximum(np.abs(part).max(axis=0, initial=0.0), np.finfo(np.float64).tiny)
        return np.asarray(np.minimum(largest * np.sqrt(((part / largest) ** 2).sum(axis=0)), _LARGEST))


# ---- who stands apart ------------------------------------------------------------------------


def apart(grid: RankGrid) -> Apart | None:
    """The rank that is nearly always the lowest or the highest, and by enough to see; None: no rank is. A rank whose
    values are merely noisy is neither for long."""
    full = ~np.isnan(grid.mean).any(axis=0)
    value = grid.mean[:, full]
    if len(grid.ranks) < 2 or value.shape[1] < APART_COLUMNS:
        return None
    usual = float(_middle_of(_middle_of(value)))
    found = []
    for is_high, place in ((True, value.argmax(axis=0)), (False, value.argmin(axis=0))):
        row = int(np.bincount(place).argmax())
        own = float(_middle_of(value[row]))
        often = float((place == row).mean()) >= APART_SHARE
        # Ranks with one value have no order.
        differ = float((value.max(axis=0) > value.min(axis=0)).mean()) >= APART_SHARE
        if often and differ and abs(own / 2 - usual / 2) > APART_DISTANCE / 2 * abs(usual):
            found.append(Apart(rank=grid.ranks[row], is_high=is_high, value=own, usual=usual))
    return max(found, key=lambda one: abs(one.value / 2 - one.usual / 2), default=None)


def _middle_of(values: Floats) -> Floats:
    """The median along the first axis, of two the lower: nothing is added, so nothing overflows."""
    return np.asarray(np.sort(values, axis=0)[(values.shape[0] - 1) // 2])
