"""Sketches as records: what comes back is what went in, in records that servers take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from halfscope.sketch import ArraySketcher, Sketch, pack, unpack
from halfscope.wire.codec import MAX_RECORD_BYTES, decode_record, encode
from halfscope.wire.messages import Sketches
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

ABOUT: dict[str, Any] = {"step": 5, "time_us": 6, "point": "step", "clipped": "maybe", "scale": float("nan")}
FIELDS = ("n", "zeros", "nan", "pos_inf", "neg_inf", "sum", "sumsq", "absmax", "absmin_nonzero")


def assert_same(one: Sketch, other: Sketch) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    one, other = one.trimmed(), other.trimmed()
    assert one.lowest == other.lowest
    np.testing.assert_array_equal(one.counts, other.counts)


@settings(deadline=None, max_examples=60)
@given(st.lists(hnp.arrays(np.uint32, st.integers(0, 12)), max_size=7), st.integers(1, 4))
def test_what_is_unpacked_is_what_was_packed(bits: list[Any], layers_per_record: int) -> None:
    """To the bit, through the encoding, however many records it takes."""
    sketches = ArraySketcher()([array.view(np.float32) for array in bits])
    lids = np.arange(len(bits))[::-1] * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halfscope.sketch.packing.RECORD_LAYERS", layers_per_record)
        records = [decode_record(encode(record)) for record in pack(sketches, lids, **ABOUT)]
    start = 0
    for record in records:
        assert isinstance(record, Sketches)
        assert (record.step, record.time_us, record.point, record.clipped, record.of) == (5, 6, "step", "maybe", "grad")
        found, part = unpack(record)
        assert found.tolist() == lids[start : start + len(found)].tolist()
        assert 1 <= len(found) <= layers_per_record
        assert_same(part, sketches[start : start + len(found)])
        start += len(found)
    assert start == len(bits)


@pytest.mark.parametrize(("count", "width"), [(255, 1), (256, 2), (65_536, 4), (1 << 32, 8)])
def test_counts_are_as_wide_as_the_largest_needs(count: int, width: int) -> None:
    """A byte each where that is enough."""
    one = ArraySketcher()([np.ones(1, np.float32)])
    sketches = Sketch(**{name: getattr(one, name) for name in FIELDS}, lowest=0, counts=np.array([[count, 1]]))
    (record,) = pack(sketches, np.array([0]), **ABOUT)
    assert (record.width, len(record.bins)) == (width, 2 * width)
    assert unpack(record)[1].counts.tolist() == [[count, 1]]


def test_wide_frames_stay_far_below_the_largest_record() -> None:
    """512 layers of float64 over all of its exponents."""
    values = np.ldexp(1.0, np.arange(-1074, 1024))
    sketches = ArraySketcher()([values] * 512)
    records = list(pack(sketches, np.arange(512), **ABOUT))
    assert max(len(encode(record)) for record in records) < MAX_RECORD_BYTES / 2
    assert sum(len(record.lids) // 4 for record in records) == 512
    assert unpack(records[0])[1].n.tolist() == [len(values)] * (len(records[0].lids) // 4)


def test_exponents_that_servers_refuse_are_told_as_the_last_they_take() -> None:
    """Nothing is lost, and no record costs its batch."""
    sketches = ArraySketcher()([np.array([5e-324, 1e-300, 1.0])]).shifted(-60)
    (record,) = pack(sketches, np.array([0]), **ABOUT)
    _, found = unpack(record)
    assert found.lowest == -1100
    assert found.nonzero == 3
    high = ArraySketcher()([np.array([1e308, 2.0])]).shifted(200)
    (record,) = pack(high, np.array([0]), **ABOUT)
    _, found = unpack(record)
    assert found.trimmed().lowest + found.trimmed().counts.shape[-1] == 1100
    assert found.nonzero == 2
