"""Fewer points that show the same: lines thinned without losing a spike, and marks for what is not finite.

Owns thinning, bucketing and smoothing of plain arrays. Must not import the store or plotly.
Invariants: the smallest and largest finite value of every drawn bucket are drawn; every non-finite value is counted in
exactly one mark and is in no line, band or average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tsdownsample import MinMaxDownsampler

from halfscope_server.query.window import MAX_POINTS, Span

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What is drawn as a line: finite values only, ascending by step."""

    step: Ints
    time_us: Ints
    value: Floats

    @property
    def size(self) -> int:
        return int(self.step.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Smallest and largest value per place: of a bucket of steps, or over ranks."""

    step: Ints
    time_us: Ints
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class BadMarks:
    """Where a series was not finite, and how often; one entry per place on the axis."""

    step: Ints
    last_step: Ints
    time_us: Ints
    num_nan: Ints
    num_pos_inf: Ints
    num_neg_inf: Ints

    @property
    def total(self) -> int:
        return int(self.num_nan.sum() + self.num_pos_inf.sum() + self.num_neg_inf.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Summaries of stretches of steps; entries without a finite value are left out of `curve` and `band`."""

    step: Ints
    time_us: Ints
    count: Ints
    """Finite values."""
    minimum: Floats
    maximum: Floats
    mean: Floats
    first: Floats
    last: Floats


def empty_curve() -> Curve:
    """A line with no point."""
    nothing = np.empty(0, np.int64)
    return Curve(step=nothing, time_us=nothing, value=np.empty(0))


def bad_marks(step: Ints, time_us: Ints, value: Floats) -> BadMarks:
    """One mark per step that was not finite."""
    bad = ~np.isfinite(value)
    step, time_us, value = step[bad], time_us[bad], value[bad]
    return BadMarks(
        step=step,
        last_step=step,
        time_us=time_us,
        num_nan=np.isnan(value).astype(np.int64),
        num_pos_inf=np.isposinf(value).astype(np.int64),
        num_neg_inf=np.isneginf(value).astype(np.int64),
    )


def merge_marks(marks: BadMarks, span: Span, num_places: int) -> BadMarks:
    """Join marks that fall into the same of `num_places` equal parts of the span; counts add up.

    Args:
        marks: ascending by step, all within the span.
    """
    if marks.step.size <= 1:
        return marks
    place = (marks.step - span.first_step) * num_places // span.num_steps
    starts = np.flatnonzero(np.diff(place, prepend=place[0] - 1))
    ends = np.append(starts[1:], place.size) - 1

    def added(counts: Ints) -> Ints:
        return np.add.reduceat(counts, starts)

    return BadMarks(
        step=marks.step[starts],
        last_step=np.maximum(marks.last_step[ends], marks.step[starts]),
        time_us=marks.time_us[starts],
        num_nan=added(marks.num_nan),
        num_pos_inf=added(marks.num_pos_inf),
        num_neg_inf=added(marks.num_neg_inf),
    )


def join_marks(parts: list[BadMarks]) -> BadMarks:
    """All marks of several pieces, ascending by step."""
    if len(parts) == 1:
        return parts[0]
    names = ("step", "last_step", "time_us", "num_nan", "num_pos_inf", "num_neg_inf")
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts] or [np.empty(0, np.int64)]) for name in names
    }
    order = np.argsort(columns["step"], kind="stable")
    return BadMarks(**{name: column[order] for name, column in columns.items()})


def thin(step: Ints, time_us: Ints, value: Floats, limit: int = MAX_POINTS) -> Curve:
    """Keep at most `limit` of finite points: the smallest and largest of every stretch, and both ends.

    Args:
        step: ascending.
        value: finite.
    """
    assert limit >= 8, "tsdownsample panics with fewer than two stretches"
    if step.size <= limit:
        return Curve(step=step, time_us=time_us, value=value)
    kept = MinMaxDownsampler().downsample(  # type: ignore[no-untyped-call]
        step, value, n_out=(limit - 2) // 2 * 2
    )
    chosen = np.union1d(np.asarray(kept, np.int64), [0, step.size - 1])
    return Curve(step=step[chosen], time_us=time_us[chosen], value=value[chosen])


def bucketed(step: Ints, time_us: Ints, value: Floats, width: int) -> Buckets:
    """Summarise finite values over stretches of `width` steps, aligned to step 0 like the store's rollups."""
    if step.size == 0:
        floats = np.empty(0)
        return Buckets(
            step=step,
            time_us=time_us,
            count=step,
            minimum=floats,
            maximum=floats,
            mean=floats,
            first=floats,
            last=floats,
        )
    bucket = step // width
    starts = np.flatnonzero(np.diff(bucket, prepend=bucket[0] - 1))
    ends = np.append(starts[1:], step.size) - 1
    count = ends - starts + 1
    with np.errstate(over="ignore"):
        # A sum may overflow where the values do not; the bucket's middle then stands in for its mean.
        total = np.add.reduceat(value, starts)
    minimum, maximum = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
    return Buckets(
        step=step[starts],
        time_us=time_us[starts],
        count=count,
        minimum=minimum,
        maximum=maximum,
        mean=safe_mean(total, count, minimum, maximum),
        first=value[starts],
        last=value[ends],
    )


def safe_mean(total: Floats, count: Ints, minimum: Floats, maximum: Floats) -> Floats:
    """total / count, kept between minimum and maximum, also where the total overflowed."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = total / count
    mean = np.where(np.isfinite(mean), mean, minimum / 2 + maximum / 2)
    return np.clip(mean, minimum, maximum)


def changes(step: Ints, time_us: Ints, value: Floats) -> Curve:
    """The points where a held value changes, with the first and the last: all that a stepped line needs."""
    if step.size <= 2:
        return Curve(step=step, time_us=time_us, value=value)
    keep = np.empty(step.size, np.bool_)
    keep[0] = keep[-1] = True
    keep[1:-1] = value[1:-1] != value[:-2]
    return Curve(step=step[keep], time_us=time_us[keep], value=value[keep])


def corners(buckets: Buckets, width: int) -> Curve:
    """Stepped line through buckets: first, smallest, largest and last value of each in which the value moved.

    Where in its bucket a value lay is not known, so the four stand a quarter of a bucket apart, which is no more than a
    pixel or two.
    """
    if buckets.step.size == 0:
        return empty_curve()
    step = np.repeat(buckets.step, 4) + np.tile(np.arange(4) * width // 4, buckets.step.size)
    value = np.stack([buckets.first, buckets.minimum, buckets.maximum, buckets.last], axis=1).reshape(-1)
    return changes(step, np.repeat(buckets.time_us, 4), value)


def smoothed(value: Floats, weight: float) -> Floats:
    """Exponential moving average, corrected for its empty start. What is not finite is skipped and leaves no trace.

    The weight is per drawn point, so a line looks equally smooth at every zoom.
    """
    result = np.empty_like(value)
    average, mass = 0.0, 0.0
    for index, x in enumerate(value.tolist()):
        if x - x == 0:  # finite
            mass = weight * mass + (1 - weight)
            part = (1 - weight) / mass
            # A weighted mean of two, never a difference: nothing overflows and it stays between them.
            average = average * (1 - part) + x * part
        result[index] = average if mass else np.nan
    return result
