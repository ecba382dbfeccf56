"""Tiles as bytes: every count and float comes back, however wide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.store import cells
from halfscope_server.store.dense import Dense, Run
from halfscope_server.store.tiles import BAND_LAYERS, pack_tile, unpack_histograms, unpack_moments

Make = Callable[..., Any]
STEPS = np.array([3, 5, 9])
SCALES = np.array([65536.0, np.nan, 65536.0])
EARLIER_MOMENTS = (
    "28b52ffd2091e50200f204111cb0271d87e4a404a9021304a0622160582073c7c94c6ab4462384ec14449dbbed651ab16759"
    "686db6b2000265387ee86f7ee4377ee7b627ed98d4ef3d75ae4c1c319d0209006020300c1801e6f6921d372065009c510300"
    "07"
)


@pytest.mark.parametrize("largest", [0, 1, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**47])
def test_counts_of_any_width_come_back(make_sketches: Make, make_cell: Make, largest: int) -> None:
    """Either side of each type's limit, in a tile whose other layers and frames are smaller or missing."""
    cell_type = type(make_cell([]))
    wide = cell_type({-30: largest, 4: 1}, (largest, 0, 1, 0), (np.nan, -0.0, 16.0, 5e-324))
    records = [
        make_sketches(3, {2: wide, 24: make_cell([0.0])}),
        make_sketches(9, {2: make_cell([1.0]), 7: make_cell([8.0, 0.1])}, point="clip", clipped="maybe"),
    ]
    sent = cells.of_records(records)
    dense = Dense(BAND_LAYERS, SCALES)
    dense.put_cells(np.searchsorted(STEPS, sent.step_C), sent.lid_C, sent)
    packed = pack_tile(dense, level=3)
    assert packed is not None
    moments = unpack_moments(*packed)
    assert moments.slots_K.tolist() == [2, 7, 24]
    assert (moments.flags_KT > 0).tolist() == [[True, False, True], [False, False, True], [True, False, False]]
    assert moments.flags_KT[1, 2] & cells.MAYBE_CLIPPED
    back = Dense(BAND_LAYERS, SCALES)
    frames = Run.of(np.arange(3))
    back.put_tile(frames, Run.of(moments.slots_K.astype(np.int64)), moments, SCALES, is_first=True)
    for at, slot in enumerate(moments.slots_K.tolist()):
        back.put_histograms(frames, slot, unpack_histograms(packed[1], at, moments))
    assert back.column("n")[0, 2] == 2 * largest + 2
    assert np.array_equal(dense.flags, back.flags)
    for name in cells.COUNTS:
        assert np.array_equal(dense.column(name), back.column(name))
    for name in cells.FLOATS:
        assert np.array_equal(dense.column(name).view("<i8"), back.column(name).view("<i8"))
    (lowest, counts), (back_lowest, back_counts) = dense.counts(), back.counts()
    assert lowest == back_lowest == (-30 if largest else -4)
    assert np.array_equal(counts, back_counts)
    assert counts[0, 2].tolist()[-lowest + 4] == 1
    assert int(counts[0, 2].max()) == max(largest, 1)


def test_a_layer_is_read_without_touching_the_others(make_sketches: Make, make_cell: Make) -> None:
    """Its bytes alone are decompressed: all others may be garbage."""
    sent = cells.of_records([make_sketches(1, {lid: make_cell([2.0**lid, 1.0]) for lid in range(BAND_LAYERS)})])
    dense = Dense(BAND_LAYERS, SCALES[:1])
    dense.put_cells(np.zeros(BAND_LAYERS, np.int64), sent.lid_C, sent)
    packed = pack_tile(dense, level=1)
    assert packed is not None
    moments = unpack_moments(packed[0])
    ends = np.frombuffer(packed[1], "<u4", count=BAND_LAYERS)
    garbled = bytearray(packed[1])
    start, end = ends.nbytes + int(ends[6]), ends.nbytes + int(ends[7])
    garbled[ends.nbytes : start] = bytes(start - ends.nbytes)
    garbled[end:] = bytes(len(garbled) - end)
    found = unpack_histograms(bytes(garbled), 7, moments)
    assert (found.lowest, found.bins_TB.tolist()) == (0, [[1, 0, 0, 0, 0, 0, 0, 1]])


def test_a_band_without_sketches_makes_no_tile() -> None:
    """Layers of another optimizer that did not step in these frames take no room."""
    assert pack_tile(Dense(BAND_LAYERS, np.ones(64)), level=1) is None


def test_a_tile_of_an_earlier_build_reads_as_before() -> None:
    """Made before layers had scales of their own: 2 frames of 2 layers, its bytes kept here."""
    moments = unpack_moments(bytes.fromhex(EARLIER_MOMENTS))
    assert moments.slots_K.tolist() == [0, 3]
    assert moments.scales_KT is None
    dense = Dense(BAND_LAYERS, SCALES[:2])
    dense.put_tile(Run.of(np.arange(2)), Run.of(moments.slots_K.astype(np.int64)), moments, SCALES[:2], is_first=True)
    assert dense.column("n")[:, [0, 3]].tolist() == [[3, 1], [2, 0]]
    assert dense.column("zeros")[:, [0, 3]].tolist() == [[1, 0], [0, 0]]
    assert dense.column("sum")[:, [0, 3]].tolist() == [[3.1, 5.0], [0.5 - 3.0, 0.0]]
    assert dense.column("absmax")[:, [0, 3]].tolist() == [[3.0, 5.0], [3.0, 0.0]]
    assert np.array_equal(dense.scale, SCALES[:2, None], equal_nan=True)


def test_a_layers_own_scale_comes_back(make_sketches: Make, make_cell: Make) -> None:
    """Where it is that of the frame the tile takes no byte more."""
    records = [make_sketches(3, {0: make_cell([1.0]), 1: make_cell([2.0])}, scale=65536.0)]
    sizes = []
    for scale in (65536.0, 8.0):
        sent = cells.of_records([*records, make_sketches(3, {2: make_cell([4.0])}, scale=scale)])
        dense = Dense(BAND_LAYERS, SCALES[:1])
        dense.put_cells(np.zeros(3, np.int64), sent.lid_C, sent)
        packed = pack_tile(dense, level=3)
        assert packed is not None
        sizes.append(len(packed[0]))
        back = Dense(BAND_LAYERS, SCALES[:1])
        moments = unpack_moments(*packed)
        back.put_tile(
            Run.of(np.arange(1)), Run.of(moments.slots_K.astype(np.int64)), moments, SCALES[:1], is_first=True
        )
        assert np.broadcast_to(back.scale, (1, BAND_LAYERS))[0, :4].tolist() == [65536.0, 65536.0, scale, 65536.0]
    assert sizes[0] < sizes[1]
