"""Arrays as compressed bytes: byte-shuffled, zstd, float32 where that loses nothing.

Owns the layout of chunk columns, axes and rollups. Must not import the tables. Invariant: unpacking gives back every
value bit for bit, NaN payloads and signed zeros included.

Byte-shuffling puts byte k of all numbers side by side: exponents compress well there, and the noise of mantissas is
left alone.
"""

from __future__ import annotations

import struct
import threading
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from halfscope_server.store.block import Axis, SeriesColumn
from halfscope_server.store.rollups import NEVER, Buckets

OPEN_LEVEL = 1
"""zstd level of what will be rewritten soon."""
SEALED_LEVEL = 3
"""zstd level of what stays."""

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

_IS_FLOAT32 = 1
_HAS_ROWS = 2
_HAS_STEPS = 1

_VALUES_HEAD = struct.Struct("<BI")
_AXIS_HEAD = struct.Struct("<BIqqqI")
_BUCKETS_HEAD = struct.Struct("<IIqqB")

_COUNTS = ("count", "num_nan", "num_pos_inf", "num_neg_inf")
_NARROWED = ("minimum", "maximum", "first", "last")
"""Columns of summaries that are float32 where the points are."""


class _Codecs(threading.local):
    """zstd contexts of one thread: they may not be shared, and making one costs more than a small column."""

    def __init__(self) -> None:
        self.decompress = zstandard.ZstdDecompressor().decompress
        self.compress = {level: zstandard.ZstdCompressor(level=level).compress for level in (OPEN_LEVEL, SEALED_LEVEL)}


_codecs = _Codecs()


def pack_values(column: SeriesColumn, *, level: int) -> bytes:
    """The values of one series in a chunk, with their rows of the axis where they are not on all of them."""
    flags = 0
    rows = b""
    if column.rows is not None:
        flags |= _HAS_ROWS
        rows = _pack_integers(np.diff(column.rows, prepend=0), "<i4", level)
    narrow = _as_float32(column.values)
    if narrow is not None:
        flags |= _IS_FLOAT32
    values = _compress(_shuffled(column.values if narrow is None else narrow), level)
    return _VALUES_HEAD.pack(flags, len(rows)) + rows + values


def unpack_values(data: bytes) -> SeriesColumn:
    """What `pack_values` was given."""
    flags, rows_bytes = _VALUES_HEAD.unpack_from(data)
    view = memoryview(data)[_VALUES_HEAD.size :]
    values = _unshuffled(_codecs.decompress(view[rows_bytes:]), "<f4" if flags & _IS_FLOAT32 else "<f8")
    rows = None
    if flags & _HAS_ROWS:
        rows = np.cumsum(_unshuffled(_codecs.decompress(view[:rows_bytes]), "<i4"), dtype=np.int64)
    return SeriesColumn(rows=rows, values=values.astype(np.float64))


def pack_axis(axis: Axis, *, level: int) -> bytes:
    """Steps and times of a chunk. Evenly spaced steps, which most are, take no bytes of their own."""
    deltas = np.diff(axis.steps)
    stride = int(deltas[0]) if len(deltas) else 1
    is_even = bool((deltas == stride).all())
    steps = b"" if is_even else _pack_integers(deltas, "<i8", level)
    times = _pack_integers(np.diff(axis.times_us), "<i8", level)
    head = _AXIS_HEAD.pack(
        0 if is_even else _HAS_STEPS, len(axis.steps), int(axis.steps[0]), stride, int(axis.times_us[0]), len(steps)
    )
    return head + steps + times


def unpack_axis(data: bytes) -> Axis:
    """What `pack_axis` was given."""
    flags, num_rows, first_step, stride, first_us, steps_bytes = _AXIS_HEAD.unpack_from(data)
    view = memoryview(data)[_AXIS_HEAD.size :]
    if flags & _HAS_STEPS:
        steps = _summed(first_step, _unshuffled(_codecs.decompress(view[:steps_bytes]), "<i8"))
    else:
        steps = first_step + stride * np.arange(num_rows, dtype=np.int64)
    times_us = _summed(first_us, _unshuffled(_codecs.decompress(view[steps_bytes:]), "<i8"))
    return Axis(steps=steps, times_us=times_us)


def pack_buckets(buckets: Buckets, *, width: int, level: int) -> bytes:
    """Summaries of one series in a chunk, all columns in one zstd frame; at least one bucket."""
    start = buckets.bucket * width
    narrow = {name: _as_float32(getattr(buckets, name)) for name in _NARROWED}
    flags = sum(1 << at for at, name in enumerate(_NARROWED) if narrow[name] is not None)
    head = _BUCKETS_HEAD.pack(len(start), width, int(buckets.bucket[0]), int(buckets.time_us[0]), flags)
    has_finite = buckets.last_step >= 0
    columns = [
        np.diff(buckets.bucket, prepend=buckets.bucket[0]),
        buckets.head_step - start,
        np.where(has_finite, buckets.first_step - start, -1),
        np.where(has_finite, buckets.last_step - start, -1),
        *(getattr(buckets, name) for name in _COUNTS),
    ]
    parts = [head, *(_shuffled(column.astype("<i4")) for column in columns)]
    parts += [_shuffled(np.diff(buckets.time_us, prepend=buckets.time_us[0])), _shuffled(buckets.total)]
    for name in _NARROWED:
        column = narrow[name]
        parts.append(_shuffled(getattr(buckets, name) if column is None else column))
    return _compress(b"".join(parts), level)


def unpack_buckets(data: bytes) -> Buckets:
    """What `pack_buckets` was given."""
    raw = memoryview(_codecs.decompress(data))
    num_buckets, width, first_bucket, first_us, flags = _BUCKETS_HEAD.unpack_from(raw)
    at = _BUCKETS_HEAD.size

    def column(dtype: str) -> NDArray[Any]:
        nonlocal at
        size = num_buckets * int(dtype[-1])
        at += size
        return _unshuffled(raw[at - size : at], dtype)

    bucket = first_bucket + np.cumsum(column("<i4"), dtype=np.int64)
    start = bucket * width
    head_step, first_step, last_step = (column("<i4").astype(np.int64) for _ in range(3))
    integers: dict[str, Any] = {name: column("<i4").astype(np.int64) for name in _COUNTS}
    time_us = first_us + np.cumsum(column("<i8"), dtype=np.int64)
    total = column("<f8")
    floats: dict[str, Any] = {
        name: column("<f4" if flags >> place & 1 else "<f8").astype(np.float64) for place, name in enumerate(_NARROWED)
    }
    return Buckets(
        bucket=bucket,
        head_step=head_step + start,
        time_us=time_us,
        first_step=np.where(last_step < 0, NEVER, first_step + start),
        last_step=np.where(last_step < 0, -1, last_step + start),
        total=total,
        **integers,
        **floats,
    )


def _as_float32(values: Float64s) -> NDArray[np.float32] | None:
    """The values as float32, or None where any of them would come back with other bits."""
    with np.errstate(all="ignore"):
        narrow = values.astype("<f4")
        same = bool((narrow.astype("<f8").view("<i8") == values.view("<i8")).all())
    return narrow if same else None


def _pack_integers(values: Int64s, dtype: str, level: int) -> bytes:
    return _compress(_shuffled(values.astype(dtype)), level)


def _summed(first: int, deltas: NDArray[Any]) -> Int64s:
    result = np.empty(len(deltas) + 1, np.int64)
    result[0] = first
    np.cumsum(deltas, out=result[1:])
    result[1:] += first
    return result


def _shuffled(values: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values).view("u1").reshape(-1, values.itemsize).T.tobytes()


def _unshuffled(data: bytes | memoryview, dtype: str) -> NDArray[Any]:
    size = int(dtype[-1])
    return np.ascontiguousarray(np.frombuffer(data, "u1").reshape(size, -1).T).reshape(-1).view(dtype)


def _compress(data: bytes, level: int) -> bytes:
    return _codecs.compress[level](data)
