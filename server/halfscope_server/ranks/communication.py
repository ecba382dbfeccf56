"""What a reduction got wrong: slices of all ranks against the sum that they should have given, in float64.

Must not read the store. Invariant: a reduction is judged only where every rank that took part has told its own
gradient, and only in elements whose right value is a finite number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfscope_server.store.bucket_slices import BucketSlice

TOLERATED = 0.018
"""From here on practitioners take the error of a reduction for harmful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketError:
    """|reduced - right| / |right| over the sampled elements of one bucket at one step."""

    attempt: int
    step: int
    bucket: int
    error: float
    worst_layer_id: int
    worst_error: float


def bucket_errors(slices: Iterable[BucketSlice], world_size: int) -> list[BucketError]:
    """The errors of all reductions that can be judged, by (attempt, step, bucket).

    Args:
        slices: of whole steps.
        world_size: ranks that take part where a slice does not say which do.
    """
    groups: dict[tuple[int, int, int], list[BucketSlice]] = {}
    for one in slices:
        groups.setdefault((one.attempt, one.step, one.bucket), []).append(one)
    found = (_judged(members, world_size) for _, members in sorted(groups.items()))
    return [error for error in found if error is not None]


def _judged(members: Sequence[BucketSlice], world_size: int) -> BucketError | None:
    """The largest error among the groups of ranks that reduced this bucket with each other."""
    groups: dict[tuple[int, ...], dict[int, BucketSlice]] = {}
    everybody = tuple(range(world_size))
    own: dict[int, BucketSlice] = {}
    for one in members:
        # Hashing a thousand numbers a thousand times would be most of the work.
        (groups.setdefault(one.ranks, {}) if one.ranks else own)[one.rank] = one
    groups[everybody] = groups.get(everybody, {}) | own
    errors = [
        error
        for ranks, told in sorted(groups.items())
        if told.keys() >= set(ranks) and (error := _error([told[rank] for rank in ranks])) is not None
    ]
    return max(errors, key=lambda error: error.error, default=None)


def _error(told: Sequence[BucketSlice]) -> BucketError | None:
    first = told[0]
    if any(not _is_alike(first, one) for one in told) or not math.isfinite(first.divisor) or first.divisor == 0:
        return None
    with np.errstate(invalid="ignore"):  # infinities of both signs
        right = np.sum([one.local.astype(np.float64) for one in told], axis=0) / first.divisor
    reduced = first.reduced.astype(np.float64)
    counted = np.isfinite(right) & np.isfinite(reduced)
    right = np.where(counted, right, 0.0)
    off = np.where(counted, reduced, 0.0) - right
    layer = np.repeat(np.arange(first.layer_ids.size), first.counts)
    off_sq, right_sq = (np.bincount(layer, values**2, minlength=first.layer_ids.size) for values in (off, right))
    if not right_sq.sum() > 0:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        by_layer: NDArray[np.float64] = np.where(right_sq > 0, np.sqrt(off_sq / right_sq), 0.0)
    worst = int(by_layer.argmax())
    return BucketError(
        attempt=first.attempt,
        step=first.step,
        bucket=first.bucket,
        error=float(np.sqrt(off_sq.sum() / right_sq.sum())),
        worst_layer_id=int(first.layer_ids[worst]),
        worst_error=float(by_layer[worst]),
    )


def _is_alike(one: BucketSlice, other: BucketSlice) -> bool:
    return (
        one.divisor == other.divisor
        and np.array_equal(one.layer_ids, other.layer_ids)
        and np.array_equal(one.counts, other.counts)
    )
