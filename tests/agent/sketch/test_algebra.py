"""The algebra of sketches, against casting and against plain arithmetic on the elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from halfscope.formats import BF16, FP8_E4M3, FP8_E5M2, FP16, FP32, NumberFormat
from halfscope.sketch import (
    Sketch,
    concatenate,
    excess_zero_share,
    headroom,
    merge,
    of_array,
    share,
    stack,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

Check = Callable[..., None]

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
NEAR_FP16 = st.builds(
    lambda sign, m, e: sign * math.ldexp(m, e), st.sampled_from([-1, 1]), st.floats(1, 2), st.integers(-30, 18)
)
VALUES = hnp.arrays(np.float32, st.integers(1, 60), elements=(NEAR_FP16 | FINITE | st.just(0.0)).map(np.float32))
ANY = hnp.arrays(np.uint32, st.integers(0, 40)).map(lambda bits: bits.view(np.float32))
SCALES_LOG2 = st.integers(-20, 24)


def scaled(values: Any, scale: float) -> Any:
    """In float64, where nothing of it rounds."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return values.astype(np.float64) * scale


# ---- what rounding does ---------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(VALUES, SCALES_LOG2)
def test_fp16_shares_are_those_of_casting(values: Any, k: int) -> None:
    """Flushed exactly, but for ties at 2^-25; subnormal exactly; overflow exactly, but for its last half bin."""
    x = scaled(values, 2.0**k)
    with np.errstate(over="ignore", under="ignore"):
        cast = x.astype(np.float16).astype(np.float64)
    sketch = of_array(values)
    ties = np.count_nonzero(np.abs(x) == 2.0**-25)
    assert sketch.flushed(2.0**k) + ties == np.count_nonzero((cast == 0) & (x != 0))
    below_normal = np.count_nonzero((np.abs(x) < FP16.smallest_normal) & (x != 0))
    assert sketch.subnormal(2.0**k) == below_normal - sketch.flushed(2.0**k)
    least, most = sketch.overflow(2.0**k)
    overflowed = np.count_nonzero(np.isinf(cast))
    assert least <= overflowed <= most
    in_last_bin = np.count_nonzero((np.abs(x) >= 32768) & (np.abs(x) < 65536))
    assert in_last_bin or least == overflowed == most


@pytest.mark.parametrize(
    ("to", "dtype"), [(BF16, torch.bfloat16), (FP8_E4M3, torch.float8_e4m3fn), (FP8_E5M2, torch.float8_e5m2)],
    ids=["BF16", "E4M3", "E5M2"],
)  # fmt: skip
@settings(deadline=None, max_examples=60)
@given(values=VALUES, k=SCALES_LOG2)
def test_other_formats_flush_what_casting_flushes(values: Any, k: int, to: NumberFormat, dtype: torch.dtype) -> None:
    """Small values cast alike in every version of torch; large ones do not, so overflow is counted by magnitude."""
    x = scaled(values, 2.0**k)
    small = np.where(np.abs(x) < to.largest, x, 0.0)
    single = small.astype(np.float32)  # exact where it is not subnormal, and torch rounds float64 twice
    kept = single == small
    cast = torch.from_numpy(single[kept]).to(dtype).double().numpy()
    flushed = np.count_nonzero((cast == 0) & (single[kept] != 0))
    ties = np.count_nonzero(np.abs(small[kept]) == to.flushed_at)
    assert of_array(small[kept]).flushed(1.0, to) + ties == flushed
    least, most = of_array(values).overflow(2.0**k, to)
    too_large = np.abs(x) >= to.overflows_at if to.tie_overflows else np.abs(x) > to.overflows_at
    assert least <= np.count_nonzero(too_large) <= most
    assert bool(least) == bool(too_large.any())


@settings(deadline=None, max_examples=60)
@given(VALUES, st.floats(1e-3, 1e6))
def test_bounds_hold_at_a_scale_that_is_no_power_of_two(values: Any, scale: float) -> None:
    """Overflow is bounded; what is flushed is off by no more than the one bin that is split."""
    x = np.abs(scaled(values, scale))
    sketch = of_array(values)
    least, most = sketch.overflow(scale)
    assert least <= np.count_nonzero(x >= FP16.overflows_at) <= most
    flushed = np.count_nonzero((x < 2.0**-25) & (x > 0))
    split = np.count_nonzero((x >= 2.0**-26) & (x < 2.0**-24))
    assert abs(sketch.flushed(scale) - flushed) <= split


def test_a_split_bin_is_split_evenly_in_its_logarithm() -> None:
    """At a scale of sqrt(2) times a power of two, half of the bin at the floor."""
    sketch = of_array(np.full(8, 1.5 * 2.0**-26, np.float32))
    assert sketch.flushed(math.sqrt(2.0)) == pytest.approx(4.0)
    assert sketch.flushed(1.0) == 8
    assert sketch.flushed(2.0) == 0


def test_a_million_normal_values() -> None:
    """2.4 % of normal values of standard deviation 1e-6 are flushed, by casting as by counting, to the last element."""
    values = (np.random.default_rng(0).standard_normal(1_000_000) * 1e-6).astype(np.float32)
    with np.errstate(under="ignore"):
        lost = np.count_nonzero(values.astype(np.float16) == 0)
    sketch = of_array(values)
    assert sketch.flushed() == lost - np.count_nonzero(values == 0)
    assert 0.0235 < float(sketch.would_flush_share(1.0)) < 0.0242


def test_shares_are_of_what_they_say() -> None:
    """Flushed, near the floor and piled up: shares of nonzero finite elements, at the scale given."""
    values = np.array([2.0**-26, 2.0**-25, 2.0**-24, 2.0**-23, 2.0**-15, 2.0**-14, 1.0, 0.0, -0.0, math.inf, math.nan])
    sketch = of_array(values.astype(np.float32))
    assert (sketch.n, sketch.zeros, sketch.nonzero, sketch.nonfinite) == (11, 2, 7, 2)
    assert sketch.would_flush_share(1.0) == pytest.approx(1 / 7)
    assert sketch.near_floor_share(1.0) == pytest.approx(4 / 7)
    assert sketch.pile_up_share(1.0) == pytest.approx(2 / 7)
    assert sketch.would_flush_share(2.0) == 0
    assert sketch.would_flush_share(0.5) == pytest.approx(2 / 7)


def test_default_scale_is_the_one_of_gradscaler() -> None:
    """What is said without a scale is said at torch's own initial one."""
    scale = torch.amp.GradScaler("cpu")._init_scale
    sketch = of_array((np.random.default_rng(1).standard_normal(999) * 1e-9).astype(np.float32))
    assert sketch.would_flush_share() == sketch.would_flush_share(scale) > 0
    assert sketch.near_floor_share() == sketch.near_floor_share(scale)


@settings(deadline=None, max_examples=60)
@given(ANY)
def test_shifting_by_a_power_of_two_is_multiplying(assert_is_sketch_of: Check, values: Any) -> None:
    """`shifted(k)` is the sketch of 2^k times the values, to the bit."""
    assert_is_sketch_of(of_array(values).shifted(-37), scaled(values, 2.0**-37).tolist())


# ---- nothing is made up ---------------------------------------------------------------------------------


def test_what_has_no_meaning_is_nan() -> None:
    """Shares of nothing, headroom of nothing, and anything at an unknown scale."""
    zeros, nothing = of_array(np.zeros(3, np.float32)), Sketch.empty()
    for sketch in (zeros, nothing):
        for value in (sketch.would_flush_share(), sketch.near_floor_share(), sketch.pile_up_share(), sketch.headroom()):
            assert np.isnan(value)
    some = of_array(np.ones(3, np.float32))
    assert np.isnan([some.flushed(math.nan), some.subnormal(math.nan), *some.overflow(math.nan)]).all()
    assert np.isnan(share(0, 0))
    assert np.isnan(excess_zero_share(0, 0, 0))


def test_headroom_counts_doublings() -> None:
    """15 minus the exponent of the largest scaled magnitude; -1 where an element is infinite already."""
    for value, expected in ((1.0, 15), (1.99, 15), (2.0, 14), (65504.0, 0), (65536.0, -1), (2.0**-20, 35)):
        assert of_array(np.float32([value, -value, 0.0])).headroom(1.0) == expected
    assert of_array(np.float32([1.0, math.inf])).headroom(1.0) == -1
    assert of_array(np.float32([1.0, math.nan])).headroom(2.0) == 14
    np.testing.assert_array_equal(headroom([1.0, 0.0, 4.0], [0, 0, 1], 1.0), [15, np.nan, -1])
    assert of_array(np.float32([1.0])).headroom(1.0, FP32) == 127


def test_excess_zeros_are_beyond_the_structural_ones() -> None:
    """(zeros - structural) / (n - structural), never below 0, and unknown without a baseline."""
    found = excess_zero_share([60, 40, 60, 100, 100], [100] * 5, [50, 50, math.nan, 100, 0])
    np.testing.assert_array_equal(found, [0.2, 0.0, math.nan, 0.0, 1.0])


# ---- adding up ------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.lists(ANY, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_merged_in_any_order_and_split_equals_whole(assert_is_sketch_of: Check, parts: list[Any], random: Any) -> None:
    """Parts in any order, and merges of merges, give the sketch of the whole."""
    whole = scaled(np.concatenate(parts), 1.0).tolist()
    sketches = [of_array(part) for part in parts]
    random.shuffle(sketches)
    assert_is_sketch_of(merge(sketches), whole)
    at = random.randrange(len(sketches) + 1)
    assert_is_sketch_of(merge([merge(sketches[at:]), Sketch.empty(), merge(sketches[:at])]), whole)


@settings(deadline=None, max_examples=60)
@given(hnp.arrays(np.uint32, (2, 3, 5)).map(lambda bits: bits.view(np.float32)))
def test_a_stack_merges_along_any_axis(assert_is_sketch_of: Check, values: Any) -> None:
    """Rows, columns and all at once; and what is taken out of a stack is what went in."""
    sketches = stack([stack([of_array(cell) for cell in row]) for row in values])
    assert sketches.shape == (2, 3)
    exact = scaled(values, 1.0)
    assert_is_sketch_of(sketches.merged(), exact.ravel().tolist())
    for row in range(2):
        assert_is_sketch_of(sketches.merged(1)[row], exact[row].ravel().tolist())
        assert_is_sketch_of(sketches[row].merged(), exact[row].ravel().tolist())
        for column in range(3):
            assert_is_sketch_of(sketches[row, column], exact[row, column].tolist())
    for column in range(3):
        assert_is_sketch_of(sketches.merged(-2)[column], exact[:, column].ravel().tolist())
        assert_is_sketch_of(sketches[:, [column]].merged(), exact[:, column].ravel().tolist())
    assert_is_sketch_of(sketches[np.array([[True, False, False], [False, False, True]])].merged(),
                        [*exact[0, 0].tolist(), *exact[1, 2].tolist()])  # fmt: skip


def test_trimming_takes_empty_ends_off_and_nothing_else(assert_is_sketch_of: Check) -> None:
    """Bins that are empty in the whole stack, at the ends."""
    rows = [np.float32([1.0, 0.25]), np.float32([2.0**-9, math.nan])]
    padded = merge([of_array(np.float32([2.0**-40])), of_array(np.float32([2.0**40]))])
    sketches = stack([stack([of_array(row) for row in rows]), stack([padded, padded])])[0]
    assert sketches.counts.shape[-1] == 81
    trimmed = sketches.trimmed()
    assert (trimmed.lowest, trimmed.counts.shape[-1]) == (-9, 10)
    for row, values in enumerate(rows):
        assert_is_sketch_of(trimmed[row], values.astype(float).tolist())
    assert Sketch.empty((3,)).trimmed().counts.shape == (3, 0)


def test_a_stack_of_nothing_is_refused() -> None:
    """There is no shape that it could have; a merge of nothing is empty."""
    with pytest.raises(ValueError, match="at least one"):
        stack([])
    assert merge([]).n == 0


def test_norm_is_over_finite_elements() -> None:
    """One NaN poisons nothing."""
    assert of_array(np.float32([3.0, 4.0, math.nan, math.inf])).norm == 5.0


def test_stacks_are_put_behind_each_other() -> None:
    """Over the bins of all of them; one without any element takes none."""
    parts = [np.float32([1, 2]), np.float32([0, 0]), np.float32([2.0**-30, np.inf])]
    whole = concatenate([stack([of_array(parts[0]), of_array(parts[1])]), stack([of_array(parts[2])])])
    assert whole.shape == (3,)
    for at, values in enumerate(parts):
        alone, found = of_array(values), whole[at].trimmed()
        assert found.lowest == alone.lowest
        for name in ("counts", "n", "zeros", "pos_inf", "sumsq", "absmax", "absmin_nonzero"):
            np.testing.assert_array_equal(getattr(found, name), getattr(alone, name))
    empty = Sketch.empty((2,))
    assert concatenate([empty, empty]).shape == (4,)
    assert concatenate([empty, whole]).lowest == whole.lowest
