"""Summaries over buckets of steps: made of points, merged, and kept as one compressed block.

Owns the algebra of `Rollup`. Must not import the tables. Invariant: merging summaries of any parts of the data, in any
split, equals the summary of all of it, because each part remembers at which step its first, first finite and last
finite value lay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.store.types import Rollup

FINE_WIDTH = 64
COARSE_WIDTH = 4096

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

NEVER = np.iinfo(np.int64).max
"""`first_step` of a bucket without a finite value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Summaries of one part of a series, one per bucket that has points; ascending by bucket after `summarise` and
    `merge`.

    Numbers are over finite values; where a bucket has none they are 0 and its `first_step` lies behind every step.
    """

    bucket: Int64s
    """Step of its start, divided by the width."""
    head_step: Int64s
    """Step of its first point, finite or not; with its time."""
    time_us: Int64s
    count: Int64s
    num_nan: Int64s
    num_pos_inf: Int64s
    num_neg_inf: Int64s
    first_step: Int64s
    last_step: Int64s
    minimum: Float64s
    maximum: Float64s
    first: Float64s
    last: Float64s
    total: Float64s


COLUMNS = tuple(field.name for field in fields(Buckets))


def summarise(steps: Int64s, times_us: Int64s, values: Float64s, width: int) -> Buckets:
    """Summaries of points.

    Args:
        steps: ascending; equal steps in arrival order.
        times_us: one per point.
        values: one per point, non-finite ones as they came.
        width: steps per bucket.
    """
    bucket = steps // width
    starts = (
        np.flatnonzero(np.concatenate(([True], bucket[1:] != bucket[:-1]))) if len(bucket) else np.empty(0, np.int64)
    )
    if not len(starts):
        return _empty()
    ends = np.append(starts[1:], len(steps)) - 1
    common: dict[str, Any] = {
        "bucket": bucket[starts],
        "head_step": steps[starts],
        "time_us": times_us[starts],
        "count": ends - starts + 1,
    }
    is_finite = np.isfinite(values)
    if not bool(is_finite.all()):
        return Buckets(**common, **_of_mixed(steps, values, is_finite, starts))
    zeros = np.zeros(len(starts), np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduceat(values, starts)
    return Buckets(
        **common,
        num_nan=zeros,
        num_pos_inf=zeros,
        num_neg_inf=zeros,
        first_step=steps[starts],
        last_step=steps[ends],
        minimum=np.minimum.reduceat(values, starts),
        maximum=np.maximum.reduceat(values, starts),
        first=values[starts],
        last=values[ends],
        total=total,
    )


def _of_mixed(steps: Int64s, values: Float64s, is_finite: NDArray[np.bool_], starts: Int64s) -> dict[str, Any]:
    """The columns that look at values, where some are not finite."""
    positions = np.arange(len(values))
    first_at = np.minimum.reduceat(np.where(is_finite, positions, len(values)), starts)
    last_at = np.maximum.reduceat(np.where(is_finite, positions, -1), starts)
    has_finite = last_at >= 0
    first_at, last_at = np.where(has_finite, first_at, 0), np.where(has_finite, last_at, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduceat(np.where(is_finite, values, 0.0), starts)
    return {
        "num_nan": np.add.reduceat(np.isnan(values).astype(np.int64), starts),
        "num_pos_inf": np.add.reduceat(np.isposinf(values).astype(np.int64), starts),
        "num_neg_inf": np.add.reduceat(np.isneginf(values).astype(np.int64), starts),
        "first_step": np.where(has_finite, steps[first_at], NEVER),
        "last_step": np.where(has_finite, steps[last_at], -1),
        "minimum": np.where(has_finite, np.minimum.reduceat(np.where(is_finite, values, np.inf), starts), 0.0),
        "maximum": np.where(has_finite, np.maximum.reduceat(np.where(is_finite, values, -np.inf), starts), 0.0),
        "first": np.where(has_finite, values[first_at], 0.0),
        "last": np.where(has_finite, values[last_at], 0.0),
        "total": total,
    }


def merge(parts: Sequence[Buckets], *, from_width: int, to_width: int) -> Buckets:
    """One summary out of several, in wider buckets or the same.

    Args:
        parts: in the order that decides between values of one step: attempt, rank, stream, seq.
        from_width: steps per bucket of the parts.
        to_width: a multiple of it.
    """
    if to_width % from_width:
        raise ValueError(f"buckets of {from_width} steps cannot be merged into buckets of {to_width}")
    if not parts:
        return _empty()
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    bucket = joined["bucket"] = joined["bucket"] // (to_width // from_width)
    if len(bucket) < 2 or bool((bucket[1:] > bucket[:-1]).all()):
        return Buckets(**joined)
    # lexsort is stable, so among equal steps the order of the parts decides.
    by_head = np.lexsort((joined["head_step"], bucket))
    by_first = np.lexsort((joined["first_step"], bucket))
    by_last = np.lexsort((joined["last_step"], bucket))
    in_order = bucket[by_head]
    starts = np.flatnonzero(np.concatenate(([True], in_order[1:] != in_order[:-1])))
    ends = np.append(starts[1:], len(bucket)) - 1
    has_finite = (joined["last_step"] >= 0)[by_head]

    def added(name: str) -> NDArray[np.int64]:
        return np.add.reduceat(joined[name][by_head], starts)

    minimum = np.minimum.reduceat(np.where(has_finite, joined["minimum"][by_head], np.inf), starts)
    maximum = np.maximum.reduceat(np.where(has_finite, joined["maximum"][by_head], -np.inf), starts)
    any_finite = np.maximum.reduceat(has_finite, starts)
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduceat(joined["total"][by_head], starts)
    return Buckets(
        bucket=in_order[starts],
        head_step=joined["head_step"][by_head][starts],
        time_us=joined["time_us"][by_head][starts],
        count=added("count"),
        num_nan=added("num_nan"),
        num_pos_inf=added("num_pos_inf"),
        num_neg_inf=added("num_neg_inf"),
        first_step=joined["first_step"][by_first][starts],
        last_step=joined["last_step"][by_last][ends],
        minimum=np.where(any_finite, minimum, 0.0),
        maximum=np.where(any_finite, maximum, 0.0),
        first=joined["first"][by_first][starts],
        last=joined["last"][by_last][ends],
        total=total,
    )


def select(buckets: Buckets, keep: NDArray[np.bool_]) -> Buckets:
    """Those of the buckets that are to be kept."""
    return Buckets(**{name: getattr(buckets, name)[keep] for name in COLUMNS})


def as_rollup(buckets: Buckets, width: int) -> Rollup:
    """What readers get: NaN where a bucket has no finite value."""
    has_finite = buckets.last_step >= 0
    return Rollup(
        width=width,
        step=buckets.bucket * width,
        time_us=buckets.time_us,
        count=buckets.count,
        minimum=np.where(has_finite, buckets.minimum, np.nan),
        maximum=np.where(has_finite, buckets.maximum, np.nan),
        total=np.where(has_finite, buckets.total, np.nan),
        first=np.where(has_finite, buckets.first, np.nan),
        last=np.where(has_finite, buckets.last, np.nan),
        num_nan=buckets.num_nan,
        num_pos_inf=buckets.num_pos_inf,
        num_neg_inf=buckets.num_neg_inf,
    )


def _empty() -> Buckets:
    columns: dict[str, Any] = {
        name: np.empty(0, np.float64 if name in ("minimum", "maximum", "first", "last", "total") else np.int64)
        for name in COLUMNS
    }
    return Buckets(**columns)
