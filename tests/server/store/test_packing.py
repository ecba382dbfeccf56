"""Packed arrays: bit for bit what went in, in few bytes."""

from __future__ import annotations

import numpy as np
import pytest
from halfscope_server.store.block import Axis, SeriesColumn
from halfscope_server.store.packing import (
    OPEN_LEVEL,
    SEALED_LEVEL,
    pack_axis,
    pack_buckets,
    pack_values,
    unpack_axis,
    unpack_buckets,
    unpack_values,
)
from halfscope_server.store.rollups import COLUMNS, Buckets, summarise
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

LEVELS = st.sampled_from([OPEN_LEVEL, SEALED_LEVEL])
BITS = arrays.arrays(np.int64, st.integers(1, 40), elements=st.integers(-(2**63), 2**63 - 1))
NARROW = arrays.arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32))


@given(values=BITS.map(lambda bits: bits.view("<f8")) | NARROW.map(lambda v: v.astype("<f8")), level=LEVELS)
def test_values_come_back_bit_for_bit(values: np.ndarray, level: int) -> None:
    """NaN payloads, signed zeros and subnormals included, whether or not float32 would do."""
    column = unpack_values(pack_values(SeriesColumn(rows=None, values=values), level=level))
    assert column.rows is None
    assert column.values.view("<i8").tolist() == values.view("<i8").tolist()


def test_noise_takes_little_more_than_the_bits_that_it_has() -> None:
    """float32 noise around 2 has 2.7 bytes of information a value; it comes back bit for bit, and so do one NaN's
    payload and one negative zero in it."""
    values = np.random.default_rng(1).normal(2.0, 0.1, 8192).astype(np.float32)
    values.view("<u4")[[5, 8000]] = 0x7FC01234, 0x80000000
    packed = pack_values(SeriesColumn(rows=np.arange(8192) * 2, values=values.astype("<f8")), level=SEALED_LEVEL)
    assert len(packed) / values.size < 2.95
    column = unpack_values(packed)
    assert column.values.astype(np.float32).view("<u4").tolist() == values.view("<u4").tolist()
    assert column.rows is not None
    assert column.rows.tolist() == list(range(0, 2 * 8192, 2))


@given(rows=st.lists(st.integers(0, 10**6), min_size=1, max_size=40), level=LEVELS)
def test_rows_come_back_in_any_order(rows: list[int], level: int) -> None:
    """Arrival order among values of one step makes row numbers go back."""
    given_column = SeriesColumn(rows=np.array(rows), values=np.zeros(len(rows)))
    column = unpack_values(pack_values(given_column, level=level))
    assert column.rows is not None
    assert column.rows.tolist() == rows


@given(
    steps=st.lists(st.integers(0, 2**53), min_size=1, max_size=40).map(sorted),
    times=st.lists(st.integers(0, 2**56), min_size=40, max_size=40),
    level=LEVELS,
)
def test_axes_come_back(steps: list[int], times: list[int], level: int) -> None:
    """Uneven steps, and clocks that were set back."""
    axis = unpack_axis(pack_axis(Axis(steps=np.array(steps), times_us=np.array(times[: len(steps)])), level=level))
    assert axis.steps.tolist() == steps
    assert axis.times_us.tolist() == times[: len(steps)]


@pytest.mark.parametrize("stride", [0, 1, 100])
def test_evenly_spaced_steps_take_no_bytes(stride: int) -> None:
    """Every step, every hundredth, or one step many times."""
    steps = 7 + stride * np.arange(8192)
    packed = pack_axis(Axis(steps=steps, times_us=np.zeros(8192, np.int64)), level=SEALED_LEVEL)
    assert len(packed) < 100
    assert unpack_axis(packed).steps.tolist() == steps.tolist()


PARTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 1000), min_size=1, max_size=60).map(sorted),
        st.lists(st.floats() | st.floats(width=32), min_size=60, max_size=60),
        st.sampled_from([1, 1000, 2**40]),
    ),
    min_size=1,
    max_size=4,
)


@given(
    parts=PARTS,
    places=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    level=LEVELS,
    width=st.sampled_from([64, 4096]),
)
def test_summaries_come_back_bit_for_bit(
    parts: list[tuple[list[int], list[float], int]], places: list[int], level: int, width: int
) -> None:
    """Of chunks of the same and of other layouts, in their order; buckets without a finite value among them."""
    chunks: list[Buckets] = []
    for steps, values, us_per_step in (parts[place % len(parts)] for place in places):
        step = np.array(steps) + 1000 * len(chunks)
        chunks.append(summarise(step, step * us_per_step, np.array(values[: step.size]), width))
    again = unpack_buckets([pack_buckets(buckets, width=width, level=level) for buckets in chunks])
    for name in COLUMNS:
        wanted, column = np.concatenate([getattr(chunk, name) for chunk in chunks]), getattr(again, name)
        assert column.dtype == wanted.dtype
        assert column.view("<i8").tolist() == wanted.view("<i8").tolist(), name


def test_noise_of_float32_takes_three_bytes() -> None:
    """23 bits of mantissa are noise, sign and exponent are not: more than 3.1 bytes would be waste."""
    values = np.random.default_rng(0).normal(1, 0.1, 8192).astype("f4").astype("<f8")
    packed = pack_values(SeriesColumn(rows=None, values=values), level=SEALED_LEVEL)
    assert len(packed) / 8192 < 3.1
