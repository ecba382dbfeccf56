"""The sketch of an array, against one made element by element."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope.sketch import ArraySketcher, of_array
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

Check = Callable[..., None]

TYPES = {np.float16: np.uint16, np.float32: np.uint32, np.float64: np.uint64}


def exact(values: Any) -> list[float]:
    """As Python's floats; a signalling NaN among them is no error."""
    with np.errstate(invalid="ignore"):
        return np.asarray(values, np.float64).ravel().tolist()


def bits_as_floats(dtype: Any, max_size: int = 40) -> st.SearchStrategy[Any]:
    """Arrays of any bits at all: subnormals, both zeros, infinities and every NaN as likely as ordinary numbers."""
    unsigned = TYPES[dtype]
    top = np.iinfo(unsigned).max
    info = np.finfo(dtype)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, info.tiny, info.smallest_subnormal, -info.max, info.max, 1.0]
    words = [int(np.array(value, dtype).view(unsigned)) for value in special]
    any_bits = st.integers(0, top) | st.sampled_from(words)
    return hnp.arrays(unsigned, st.integers(0, max_size), elements=any_bits).map(lambda array: array.view(dtype))


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.__name__)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_bits_are_counted_exactly(dtype: Any, assert_is_sketch_of: Check, data: st.DataObject) -> None:
    """Whatever the bits say: exponents, -0, subnormals, NaN, and both infinities apart."""
    values = data.draw(bits_as_floats(dtype))
    assert_is_sketch_of(of_array(values), exact(values))


@settings(deadline=None, max_examples=60)
@given(hnp.arrays(np.uint16, st.integers(0, 40)))
def test_bits_of_bf16_are_counted_as_bf16(assert_is_sketch_of: Check, bits: Any) -> None:
    """NumPy has no such type; its bits are the upper half of a float32."""
    assert_is_sketch_of(of_array(bits), exact((bits.astype(np.uint32) << 16).view(np.float32)))


def test_every_fp16_number_is_in_its_bin(assert_is_sketch_of: Check) -> None:
    """All 65,536 of them."""
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    assert_is_sketch_of(of_array(values), exact(values))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_blocks_groups_and_neighbours_do_not_show(assert_is_sketch_of: Check, data: st.DataObject) -> None:
    """Many arrays of several types and sizes at once, in blocks of any size: each row is its own array's sketch."""
    kinds = st.sampled_from([np.float16, np.float32, np.float32, np.float64])
    arrays = data.draw(st.lists(kinds.flatmap(lambda kind: bits_as_floats(kind, 9)), max_size=6))
    sketches = ArraySketcher(data.draw(st.integers(1, 12)))(arrays)
    assert sketches.shape == (len(arrays),)
    for row, array in enumerate(arrays):
        assert_is_sketch_of(sketches[row], exact(array))


@pytest.mark.parametrize("scale", [2.0**16, 2.0**-4, 1.0, 3.0, 1000.0, 2.0**-140, 0.1])
@settings(deadline=None, max_examples=40)
@given(st.lists(bits_as_floats(np.float32, 12), max_size=3))
def test_division_by_a_scale_is_that_of_float64(assert_is_sketch_of: Check, scale: float, arrays: list[Any]) -> None:
    """Exact, also where the quotient is no float32 any more."""
    sketches = ArraySketcher()(arrays, divide_by=scale)
    for row, array in enumerate(arrays):
        assert_is_sketch_of(sketches[row], [value / scale for value in exact(array)])


@pytest.mark.parametrize("size", [4096, 4097, 32_768, 32_769, 100_003])
def test_a_large_array_is_the_sum_of_its_blocks(assert_is_sketch_of: Check, size: int) -> None:
    """Sizes on both sides of every limit, with something of each kind in it."""
    rng = np.random.default_rng(size)
    values = (rng.standard_normal(size) * 2.0 ** rng.uniform(-150, 20, size)).astype(np.float32)
    values[rng.integers(0, size, 50)] = rng.choice([0.0, -0.0, math.nan, math.inf, -math.inf], 50)
    assert_is_sketch_of(of_array(values), exact(values))


def test_order_in_memory_does_not_matter(assert_is_sketch_of: Check) -> None:
    """Transposed, strided, reversed, read-only and big-endian arrays."""
    base = np.arange(-60, 60, dtype=np.float32).reshape(4, 5, 6) * 1e-3
    read_only = base.copy()
    read_only.flags.writeable = False
    for view in (base.transpose(2, 0, 1), base[::2, ::-1, 1:4], read_only, base.astype(">f4"), base[0, 0, 0]):
        assert_is_sketch_of(of_array(view), exact(view))


def test_nothing_at_all_has_an_empty_sketch(assert_is_sketch_of: Check) -> None:
    """No element and no array."""
    assert_is_sketch_of(of_array(np.empty((0, 3), np.float32)), [])
    assert ArraySketcher()([]).shape == (0,)


def test_sums_stay_exact_where_float32_would_not(assert_is_sketch_of: Check) -> None:
    """Squares of 1e-24 read 0 in float32, those of 1e20 infinity; a sum of 2^25 ones stops at 2^24."""
    assert of_array(np.full(10, 1e-24, np.float32)).norm == pytest.approx(1e-24 * math.sqrt(10))
    assert of_array(np.full(10, 1e20, np.float32)).norm == pytest.approx(1e20 * math.sqrt(10))
    assert of_array(np.ones((1 << 24) + 3, np.float32)).sum == (1 << 24) + 3


def test_flushing_of_subnormals_by_the_processor_does_not_show(assert_is_sketch_of: Check) -> None:
    """`torch.set_flush_denormal` changes how this thread computes; bits are bits."""
    torch = pytest.importorskip("torch")
    values = np.array([1e-40, -3e-42, 0.0, 1e-38, 1.0], np.float32)
    expected = values.astype(np.float64).tolist()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormals")
    try:
        sketch = of_array(values)
    finally:
        torch.set_flush_denormal(False)
    assert (sketch.zeros, sketch.absmin_nonzero) == (1, expected[1] * -1)
    assert sketch.counts.sum() == 4


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.complex64, np.dtype("O")])
def test_types_that_are_no_floats_are_refused_by_name(dtype: Any) -> None:
    """With what is expected in the message, also for an empty array."""
    for size in (0, 3):
        with pytest.raises(TypeError, match="expected float16, float32, float64"):
            of_array(np.zeros(size, dtype))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_that_divides_nothing_is_refused(scale: float) -> None:
    """Zero, negative, infinite and NaN scales."""
    with pytest.raises(ValueError, match="finite number above 0"):
        ArraySketcher()([np.ones(3)], divide_by=scale)


def test_no_temporary_is_as_large_as_the_array() -> None:
    """16 MB of gradient are sketched in less than 2 MB."""
    values = np.ones(4_000_000, np.float32)
    sketcher = ArraySketcher()
    tracemalloc.start()
    sketcher([values])
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 2_000_000
