"""What an agent says of its layers is hostile until checked: each thing that can be wrong is refused."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from halfscope.wire.messages import Layer, Sketches
from halfscope_server.store.checks import BadBatch
from halfscope_server.store.sketch_records import (
    MAX_BINS,
    MAX_COUNT,
    MAX_DIMENSIONS,
    MAX_LAYERS,
    MAX_RECORD_LAYERS,
    check_layer,
    check_sketches,
)
from hypothesis import given
from hypothesis import strategies as st

Make = Callable[..., Any]
KNOWN = range(MAX_RECORD_LAYERS + 1)


def int16s(*values: int) -> bytes:
    return np.array(values, "<i2").tobytes()


def uint16s(*values: int) -> bytes:
    return np.array(values, "<u2").tobytes()


GOOD = Sketches(
    step=3,
    time_us=4,
    point="unscale",
    clipped="no",
    scale=math.nan,
    lids=np.array([0, 5], "<u4").tobytes(),
    counts=np.array([[10, 1, 1, 0, 0], [4, 4, 0, 0, 0]], "<i8").tobytes(),
    moments=np.array([[math.nan, math.inf, -1.0, 0.0], [0.0, 0.0, 0.0, math.inf]]).tobytes(),
    lowest=int16s(-30, 0),
    num_bins=uint16s(3, 0),
    bins=bytes([5, 0, 3]),
    width=1,
)
"""Layers 0 and 5, the second all zeros; floats may be anything."""

CHANGES: dict[str, dict[str, Any]] = {
    "negative step": {"step": -1},
    "step beyond floats": {"step": 2**53 + 1},
    "time beyond all clocks": {"time_us": 2**60},
    "no kind of tensor": {"of": ""},
    "endless kind of tensor": {"of": "x" * 65},
    "NUL in the kind": {"of": "a\x00"},
    "endless point": {"point": "x" * 65},
    "NUL in clipped": {"clipped": "\x00"},
    "no layers": {
        "lids": b"", "counts": b"", "moments": b"", "lowest": b"", "num_bins": b"", "bins": b"",
    },
    "half a layer": {"lids": GOOD.lids[:-1]},
    "a layer without counts": {"counts": GOOD.counts[:40]},
    "a layer without moments": {"moments": GOOD.moments[:32]},
    "a layer without lowest": {"lowest": int16s(-30)},
    "a layer without num_bins": {"num_bins": uint16s(3)},
    "a layer twice": {"lids": np.array([5, 5], "<u4").tobytes()},
    "undeclared layer": {"lids": np.array([0, 600], "<u4").tobytes()},
    "width of three bytes": {"width": 3},
    "width of nothing": {"width": 0},
    "bins missing": {"bins": bytes([5, 3])},
    "bins left over": {"bins": bytes([5, 0, 3, 0])},
    "bins of another width": {"width": 2},
    "elements unaccounted for": {"bins": bytes([5, 0, 2])},
    "more elements than there are": {"bins": bytes([5, 1, 3])},
    "negative count": {"counts": np.array([[9, 1, 1, -1, 0], [4, 4, 0, 0, 0]], "<i8").tobytes()},
    "more elements than any tensor": {
        "counts": np.array([[MAX_COUNT + 11, MAX_COUNT + 2, 1, 0, 0], [4, 4, 0, 0, 0]], "<i8").tobytes()
    },
    "exponent below all floats": {"lowest": int16s(-1101, 0)},
    "exponent above all floats": {"lowest": int16s(1099, 0)},
    "exponent of no bins above all floats": {"lowest": int16s(-30, 1101)},
    "too many bins": {"num_bins": uint16s(MAX_BINS + 1, 0), "bins": bytes(MAX_BINS + 1), "lowest": int16s(-1100, 0)},
    "bins that wrap around": {
        "width": 8, "num_bins": uint16s(2, 0), "bins": np.array([2**63, 2**63 + 8], "<u8").tobytes(),
    },
}  # fmt: skip


def test_a_good_record_is_counted() -> None:
    """Both of its layers; floats are nobody's business."""
    assert check_sketches(GOOD, KNOWN) == 2


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_bad_record_is_refused(change: dict[str, Any]) -> None:
    """One thing wrong at a time."""
    with pytest.raises(BadBatch):
        check_sketches(msgspec.structs.replace(GOOD, **change), KNOWN)


def test_a_record_of_too_many_layers_is_refused(
    make_sketches: Callable[..., Any], make_cell: Callable[..., Any]
) -> None:
    """What is unfolded at once is bounded by it."""
    cells = {lid: make_cell([1.0]) for lid in range(MAX_RECORD_LAYERS + 1)}
    with pytest.raises(BadBatch, match="513 layers"):
        check_sketches(make_sketches(1, cells), KNOWN)
    del cells[0]
    assert check_sketches(make_sketches(1, cells), KNOWN) == MAX_RECORD_LAYERS


@pytest.mark.parametrize(
    "layer",
    [
        Layer(-1, "a"),
        Layer(MAX_LAYERS, "a"),
        Layer(0, ""),
        Layer(0, "x" * 513),
        Layer(0, "a\x00b"),
        Layer(0, "a", [], "x" * 65),
        Layer(0, "a", [-1]),
        Layer(0, "a", [2**63]),
        Layer(0, "a", [1] * (MAX_DIMENSIONS + 1)),
    ],
    ids=lambda layer: f"{layer.lid} {layer.name[:5]!r} {layer.shape[:2]} {layer.dtype[:5]}",
)
def test_a_layer_that_cannot_be_kept_is_refused(layer: Layer) -> None:
    """Numbers, names and shapes within their limits."""
    with pytest.raises(BadBatch):
        check_layer(layer)


@given(
    st.lists(st.binary(max_size=64), min_size=6, max_size=6),
    st.integers(-1, 9),
    st.integers(-(2**40), 2**40),
)
def test_no_bytes_do_anything_but_be_refused(columns: list[bytes], width: int, step: int) -> None:
    """Random columns raise BadBatch, or hold at least one sketch."""
    lids, counts, moments, lowest, num_bins, bins = columns
    record = Sketches(step, 0, "step", "no", 1.0, lids, counts, moments, lowest, num_bins, bins, width)
    with contextlib.suppress(BadBatch):
        assert check_sketches(record, KNOWN) > 0
