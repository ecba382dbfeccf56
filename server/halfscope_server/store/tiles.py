"""Tiles as bytes: up to 64 frames of up to 25 layers, counts apart from histograms, one zstd block per layer.

Owns the layout of the `slab` and `tile` tables' blobs. Must not import the tables. Invariant: unpacking gives back
every count and every float bit for bit; one layer's histograms are unpacked without touching the others'.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halfscope_server.store.block import Axis, SeriesColumn
from halfscope_server.store.cells import COUNTS, FLOATS, Float64s
from halfscope_server.store.dense import Columns, Dense, Histograms, Moments, Place
from halfscope_server.store.packing import (
    as_float32,
    compress,
    decompress,
    pack_axis,
    pack_values,
    shuffled,
    unpack_axis,
    unpack_values,
    unshuffled,
)

BAND_LAYERS = 25
"""Layers of one tile, by number within their stream: a page of one layer reads 24 others' moments, which are small."""
SLAB_FRAMES = 64

_MOMENTS_HEAD = struct.Struct(f"<HB{len(COUNTS)}B{len(FLOATS)}B")
"""Frames (with `_OWN_SCALES`), layers, bytes per value of each column; 0: all values are 0."""
_OWN_SCALES = 0x8000
"""The layers' own loss scales follow the columns: some are not those of their frame."""
_FLOATS_APART = 0x4000
"""The floats lie behind the histograms, in a zstd frame of their own: they are most of the bytes, and a heatmap of
counts reads none of them. In tiles of earlier builds they follow the counts."""
_FLAGS = _OWN_SCALES | _FLOATS_APART
_BLOCK_HEAD = struct.Struct("<hHB")
"""Exponent of the first bin, number of bins, bytes a count."""
_OFFSET = np.dtype("<u4")


def pack_frames(axis: Axis, scales: Float64s, *, level: int) -> tuple[bytes, bytes]:
    """A slab's steps and times, and its loss scales."""
    return pack_axis(axis, level=level), pack_values(SeriesColumn(rows=None, values=scales), level=level)


def unpack_frames(axis: bytes, scales: bytes) -> tuple[Axis, Float64s]:
    """What `pack_frames` was given."""
    return unpack_axis(axis), unpack_values(scales).values


def pack_tile(dense: Dense, *, level: int) -> tuple[bytes, bytes] | None:
    """(moments, histograms) of a band's layers over a slab's frames; None where none was sketched.

    Args:
        dense: its layers are the slots of the band, in order.
    """
    slots = np.flatnonzero(dense.flags.any(axis=1))
    if not len(slots):
        return None
    lowest, counts = dense.counts()
    blocks = [_pack_block(lowest, counts[:, slot], dense.flags[slot] > 0, level) for slot in slots.tolist()]
    ends = np.cumsum([len(block) for block in blocks], dtype=_OFFSET)
    moments, floats = _pack_moments(dense, slots, level)
    return moments, ends.tobytes() + b"".join(blocks) + floats


def unpack_moments(data: bytes, histograms: bytes | None = None) -> Moments:
    """A tile without its histograms.

    Args:
        data: its moments.
        histograms: its histograms, behind which the floats are; None: the floats are not wanted.
    """
    raw = np.frombuffer(decompress(data), "u1")
    head = raw[: _MOMENTS_HEAD.size].tobytes()
    flags, num_layers = _MOMENTS_HEAD.unpack(head)[:2]
    counts, floats, end = _places(head)
    at = _MOMENTS_HEAD.size + num_layers
    shape = (num_layers, flags & ~_FLAGS)
    unpacked: Columns | None = Columns(raw, floats)
    if flags & _FLOATS_APART:
        unpacked = None
        if histograms is not None:
            last = int(np.frombuffer(histograms, _OFFSET, count=num_layers)[-1])
            behind = memoryview(histograms)[num_layers * _OFFSET.itemsize + last :]
            unpacked = Columns(np.frombuffer(decompress(behind), "u1"), floats)
    return Moments(
        slots_K=raw[_MOMENTS_HEAD.size : at],
        flags_KT=raw[at : at + shape[0] * shape[1]].reshape(shape),
        counts=Columns(raw, counts),
        floats=unpacked,
        scales_KT=unshuffled(raw[end:].tobytes(), "<f8").reshape(shape) if flags & _OWN_SCALES else None,
    )


@lru_cache(maxsize=1024)
def _places(head: bytes) -> tuple[dict[str, Place], dict[str, Place], int]:
    """Where the counts and the floats of a tile with this head lie, and where the last of them ends that follow the
    head. Most tiles have one of a few heads."""
    flags, num_layers, *widths = _MOMENTS_HEAD.unpack(head)
    num_cells = (flags & ~_FLAGS) * num_layers
    found: list[dict[str, Place]] = []
    at = end = len(head) + num_layers + num_cells
    for names, named in ((COUNTS, widths[: len(COUNTS)]), (FLOATS, widths[len(COUNTS) :])):
        is_apart = names is FLOATS and bool(flags & _FLOATS_APART)
        at = 0 if is_apart else at
        found.append({})
        for width, columns in _by_width(named):
            found[-1] |= {names[column]: Place(at, width, len(columns), k) for k, column in enumerate(columns)}
            at += width * len(columns) * num_cells
        end = end if is_apart else at
    return found[0], found[1], end


def unpack_histograms(data: bytes, index: int, moments: Moments) -> Histograms:
    """The histograms of one layer of a tile.

    Args:
        data: the tile's histograms.
        index: which of its layers, as `moments.slots_K` counts them.
        moments: of the same tile: says in which frames the layer was sketched.
    """
    ends = np.frombuffer(data, _OFFSET, count=len(moments.slots_K))
    start = ends.nbytes + (int(ends[index - 1]) if index else 0)
    block = memoryview(data)[start : ends.nbytes + int(ends[index])]
    lowest, num_bins, width = _BLOCK_HEAD.unpack_from(block)
    flags_T = moments.flags_KT[index]
    if not num_bins:
        return Histograms(lowest=lowest, bins_TB=np.zeros((len(flags_T), 0), "u1"))
    bins = unshuffled(decompress(block[_BLOCK_HEAD.size :]), f"<u{width}").reshape(num_bins, -1).T
    if bins.shape[0] == len(flags_T):
        return Histograms(lowest=lowest, bins_TB=bins)
    whole = np.zeros((len(flags_T), num_bins), bins.dtype)
    whole[flags_T > 0] = bins
    return Histograms(lowest=lowest, bins_TB=whole)


def _pack_moments(dense: Dense, slots: NDArray[np.int64], level: int) -> tuple[bytes, bytes]:
    """Counts and floats. Columns of one width lie together: a tile is unpacked in a handful of array operations."""
    numbers = np.stack([dense.column(name).T[slots] for name in COUNTS])
    floats = np.stack([dense.column(name).T[slots] for name in FLOATS])
    widths = [_width(column) for column in numbers]
    narrow = [as_float32(column.reshape(-1)) for column in floats]
    float_widths = [8 if column is None else 4 for column in narrow]
    parts = [numbers[columns].astype(f"<u{width}") for width, columns in _by_width(widths)]
    apart = [floats[columns].astype(f"<f{width}") for width, columns in _by_width(float_widths)]
    own_scales = dense.own_scales
    if own_scales is not None:
        parts.append(np.ascontiguousarray(own_scales[slots]))
    flags = dense.num_frames | _FLOATS_APART | (0 if own_scales is None else _OWN_SCALES)
    head = _MOMENTS_HEAD.pack(flags, len(slots), *widths, *float_widths)
    body = [slots.astype("u1").tobytes(), dense.flags[slots].tobytes(), *map(shuffled, parts)]
    return compress(head + b"".join(body), level), compress(b"".join(map(shuffled, apart)), level)


def _by_width(widths: Sequence[int]) -> list[tuple[int, list[int]]]:
    """(width, columns that have it), widths ascending; columns of no width are left out."""
    return [(width, [at for at, one in enumerate(widths) if one == width]) for width in sorted({*widths} - {0})]


def _pack_block(lowest: int, counts_TB: NDArray[np.int64], is_present_T: NDArray[np.bool_], level: int) -> bytes:
    """A layer's histograms over the frames it was sketched in, bin after bin: neighbouring frames look alike."""
    used = np.flatnonzero(counts_TB.any(axis=0))
    if not len(used):
        return _BLOCK_HEAD.pack(0, 0, 1)
    first, end = int(used[0]), int(used[-1]) + 1
    bins = counts_TB[is_present_T, first:end].T
    width = _width(bins)
    packed = compress(shuffled(np.ascontiguousarray(bins, f"<u{width}")), level)
    return _BLOCK_HEAD.pack(lowest + first, end - first, width) + packed


def _width(column: NDArray[np.int64]) -> int:
    """Bytes per value of the narrowest unsigned type that holds a column; 0: it is all zeros."""
    largest = int(column.max(initial=0))
    return next(width for width in (0, 1, 2, 4, 8) if largest < 1 << 8 * width)
