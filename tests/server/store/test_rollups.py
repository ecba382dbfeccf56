"""Summaries against plain Python over lists; merging any split equals summarising the whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
from halfscope_server.store.rollups import COARSE_WIDTH, FINE_WIDTH, Buckets, as_rollup, merge, select, summarise
from halfscope_server.store.types import Rollup
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.floats(allow_nan=True, allow_infinity=True, width=32)
POINTS = st.lists(st.tuples(st.integers(0, 9000), VALUES), max_size=60).map(
    lambda points: sorted(points, key=lambda point: point[0])
)


def brute_force(points: list[tuple[int, float]], width: int) -> list[dict[str, object]]:
    """Bucket by bucket, over lists."""
    rows = []
    for bucket in sorted({step // width for step, _ in points}):
        inside = [(step, value) for step, value in points if step // width == bucket]
        finite = [value for _, value in inside if math.isfinite(value)]
        rows.append(
            {
                "step": bucket * width,
                "time_us": inside[0][0] * 1000,
                "count": len(inside),
                "minimum": min(finite, default=math.nan),
                "maximum": max(finite, default=math.nan),
                "first": finite[0] if finite else math.nan,
                "last": finite[-1] if finite else math.nan,
                "num_nan": sum(math.isnan(value) for _, value in inside),
                "num_pos_inf": sum(value == math.inf for _, value in inside),
                "num_neg_inf": sum(value == -math.inf for _, value in inside),
                "total": math.fsum(finite) if finite else math.nan,
            }
        )
    return rows


def assert_equal(rollup: Rollup, rows: list[dict[str, object]], sizes: float) -> None:
    assert rollup.step.tolist() == [row["step"] for row in rows]
    for name in ("time_us", "count", "num_nan", "num_pos_inf", "num_neg_inf"):
        assert getattr(rollup, name).tolist() == [row[name] for row in rows], name
    for name in ("minimum", "maximum", "first", "last"):
        np.testing.assert_array_equal(getattr(rollup, name), [row[name] for row in rows], err_msg=name)
    np.testing.assert_allclose(rollup.total, [row["total"] for row in rows], rtol=1e-12, atol=1e-12 * sizes)


def made(points: list[tuple[int, float]], width: int) -> Buckets:
    steps = np.array([step for step, _ in points], np.int64)
    return summarise(steps, steps * 1000, np.array([value for _, value in points], np.float64), width)


def sizes(points: list[tuple[int, float]]) -> float:
    return sum(abs(value) for _, value in points if math.isfinite(value))


@given(points=POINTS, width=st.sampled_from([64, 128, 4096]))
def test_a_summary_equals_brute_force(points: list[tuple[int, float]], width: int) -> None:
    """Non-finite values are counted and enter nothing else."""
    assert_equal(as_rollup(made(points, width), width), brute_force(points, width), sizes(points))


@given(
    parts=st.lists(POINTS, min_size=1, max_size=4),
    widths=st.sampled_from([(64, 64), (64, 128), (64, 4096), (4096, 4096), (4096, 8192)]),
)
def test_merging_parts_equals_summarising_all(parts: list[list[tuple[int, float]]], widths: tuple[int, int]) -> None:
    """Parts that overlap in steps, like ranks and attempts: of equal steps the order of the parts decides."""
    fine, wide = widths
    merged = merge([made(part, fine) for part in parts], from_width=fine, to_width=wide)
    together = sorted((point for part in parts for point in part), key=lambda point: point[0])
    assert_equal(as_rollup(merged, wide), brute_force(together, wide), sizes(together))


def test_sums_beyond_the_largest_float_do_not_warn() -> None:
    """A hostile or diverged run may hold anything; it must not raise or warn."""
    huge = made([(0, 1.7e308), (1, 1.7e308), (2, math.inf)], FINE_WIDTH)
    merged = merge([huge, huge], from_width=FINE_WIDTH, to_width=COARSE_WIDTH)
    assert as_rollup(merged, COARSE_WIDTH).total.tolist() == [math.inf]


def test_buckets_can_be_picked() -> None:
    """What a reader's bounds leave of a summary."""
    buckets = made([(0, 1.0), (64, 2.0), (128, 3.0)], FINE_WIDTH)
    assert select(buckets, np.array([False, True, False])).first.tolist() == [2.0]


def test_buckets_only_merge_into_multiples() -> None:
    """64 into 100 would need the points again."""
    with pytest.raises(ValueError, match="64 steps cannot be merged into buckets of 100"):
        merge([], from_width=64, to_width=100)
