"""Arrays as compressed bytes: byte-shuffled, zstd, float32 where that loses nothing.

Owns the layout of chunk columns, axes and rollups. Must not import the tables. Invariant: unpacking gives back every
value bit for bit, NaN payloads and signed zeros included.

Byte-shuffling puts byte k of all numbers side by side: exponents compress well there, and the noise of mantissas is
left alone.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
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
_HAS_STEPS = 4
_IS_INT32 = 8
_IS_SPLIT = 16
SPLIT_SHARE = 0.96
"""Of the bytes of one frame, what two may take to be worth their reading."""
_INT32 = np.iinfo(np.int32)

_VALUES_HEAD = struct.Struct("<BI")
_LENGTH = struct.Struct("<I")
_AXIS_HEAD = struct.Struct("<BIqqqI")
_BUCKETS_HEAD = struct.Struct("<IIqqB")


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
        rows = compress(shuffled(np.diff(column.rows, prepend=0).astype("<i4")), level)
    narrow = as_float32(column.values)
    if narrow is not None:
        flags |= _IS_FLOAT32
    raw = shuffled(column.values if narrow is None else narrow)
    values = compress(raw, level)
    if level == SEALED_LEVEL:
        # Noise beside exponents spoils the one code that zstd makes for both: the halves have one each.
        halves = [compress(half, level) for half in (raw[: len(raw) // 2], raw[len(raw) // 2 :])]
        if sum(map(len, halves)) + _LENGTH.size < SPLIT_SHARE * len(values):
            flags |= _IS_SPLIT
            values = _LENGTH.pack(len(halves[0])) + b"".join(halves)
    return _VALUES_HEAD.pack(flags, len(rows)) + rows + values


def unpack_values(data: bytes) -> SeriesColumn:
    """What `pack_values` was given."""
    flags, rows_bytes = _VALUES_HEAD.unpack_from(data)
    view = memoryview(data)[_VALUES_HEAD.size :]
    rest = view[rows_bytes:]
    if flags & _IS_SPLIT:
        end = _LENGTH.size + _LENGTH.unpack_from(rest)[0]
        raw = _codecs.decompress(rest[_LENGTH.size : end]) + _codecs.decompress(rest[end:])
    else:
        raw = _codecs.decompress(rest)
    values = unshuffled(raw, "<f4" if flags & _IS_FLOAT32 else "<f8")
    rows = None
    if flags & _HAS_ROWS:
        rows = np.cumsum(unshuffled(_codecs.decompress(view[:rows_bytes]), "<i4"), dtype=np.int64)
    return SeriesColumn(rows=rows, values=values.astype(np.float64))


def pack_axis(axis: Axis, *, level: int) -> bytes:
    """Steps and times of a chunk. Evenly spaced steps, which most are, take no bytes of their own."""
    deltas = np.diff(axis.steps)
    stride = int(deltas[0]) if len(deltas) else 1
    is_even = bool((deltas == stride).all())
    steps = b"" if is_even else compress(shuffled(deltas), level)
    times, is_narrow = _deltas(axis.times_us)
    head = _AXIS_HEAD.pack(
        (0 if is_even else _HAS_STEPS) | (_IS_INT32 if is_narrow else 0),
        len(axis.steps),
        int(axis.steps[0]),
        stride,
        int(axis.times_us[0]),
        len(steps),
    )
    return head + steps + compress(shuffled(times), level)


def unpack_axis(data: bytes) -> Axis:
    """What `pack_axis` was given."""
    flags, num_rows, first_step, stride, first_us, steps_bytes = _AXIS_HEAD.unpack_from(data)
    view = memoryview(data)[_AXIS_HEAD.size :]
    if flags & _HAS_STEPS:
        steps = _summed(unshuffled(_codecs.decompress(view[:steps_bytes]), "<i8"), first_step)
    elif stride:
        steps = np.arange(first_step, first_step + stride * num_rows, stride, dtype=np.int64)
    else:
        steps = np.full(num_rows, first_step, np.int64)
    times = unshuffled(_codecs.decompress(view[steps_bytes:]), "<i4" if flags & _IS_INT32 else "<i8")
    return Axis(steps=steps, times_us=_summed(times, first_us))


def pack_buckets(buckets: Buckets, *, width: int, level: int) -> bytes:
    """Summaries of one series in a chunk, all columns in one zstd frame; at least one bucket.

    Columns of one type lie together, so that packing and unpacking cost a handful of array operations.
    """
    start = buckets.bucket * width
    has_finite = buckets.last_step >= 0
    integers = np.concatenate(
        (
            np.diff(buckets.bucket, prepend=buckets.bucket[0]),
            buckets.head_step - start,
            np.where(has_finite, buckets.first_step - start, -1),
            np.where(has_finite, buckets.last_step - start, -1),
            buckets.count,
            buckets.num_nan,
            buckets.num_pos_inf,
            buckets.num_neg_inf,
        )
    ).astype("<i4")
    floats = np.concatenate((buckets.minimum, buckets.maximum, buckets.first, buckets.last))
    narrow = as_float32(floats)
    times, is_narrow = _deltas(buckets.time_us)
    flags = (0 if narrow is None else _IS_FLOAT32) | (_IS_INT32 if is_narrow else 0)
    head = _BUCKETS_HEAD.pack(len(start), width, int(buckets.bucket[0]), int(buckets.time_us[0]), flags)
    columns = (integers, times, floats if narrow is None else narrow, buckets.total)
    return compress(head + b"".join(shuffled(column) for column in columns), level)


def unpack_buckets(packed: Sequence[bytes]) -> Buckets:
    """What `pack_buckets` was given, of several chunks one behind the other; at least one.

    Those laid out alike are unpacked together: of one chunk nearly all the time would go into calls.
    """
    opened = [_codecs.decompress(data) for data in packed]
    heads = [_BUCKETS_HEAD.unpack_from(raw) for raw in opened]
    alike: dict[tuple[int, int, int], list[int]] = {}
    for place, (num_buckets, width, _, _, flags) in enumerate(heads):
        alike.setdefault((num_buckets, width, flags), []).append(place)
    found = {layout: _unpack_alike([opened[at] for at in places], *layout) for layout, places in alike.items()}
    if len(found) == 1:
        (columns,) = found.values()
        return Buckets(**{name: column.reshape(-1) for name, column in columns.items()})
    ends = np.cumsum([num_buckets for num_buckets, *_ in heads])
    joined = {name: np.empty(ends[-1], column.dtype) for name, column in next(iter(found.values())).items()}
    for layout, places in alike.items():
        at = ends[places][:, None] + np.arange(-layout[0], 0)
        for name, column in found[layout].items():
            joined[name][at] = column
    return Buckets(**joined)


def _unpack_alike(opened: Sequence[bytes], num_buckets: int, width: int, flags: int) -> dict[str, NDArray[Any]]:
    """The columns of chunks of one layout: [chunks, buckets]."""
    raw = np.frombuffer(opened[0] if len(opened) == 1 else b"".join(opened), "u1").reshape(len(opened), -1)
    first_bucket, first_us = raw[:, 8 : _BUCKETS_HEAD.size - 1].copy().view("<i8").T[..., None]
    at = _BUCKETS_HEAD.size

    def taken(dtype: str, num_values: int) -> NDArray[Any]:
        nonlocal at
        size = int(dtype[-1])
        planes = raw[:, at : at + size * num_values].reshape(len(opened), size, num_values)
        at += size * num_values
        values = np.empty((len(opened), num_values, size), "u1")
        for k in range(size):
            values[:, :, k] = planes[:, k]
        return values.reshape(len(opened), -1).view(dtype)

    def by_column(values: NDArray[Any], dtype: type) -> NDArray[Any]:
        return values.reshape(len(opened), -1, num_buckets).transpose(1, 0, 2).astype(dtype, order="C")

    integers = by_column(taken("<i4", 8 * num_buckets), np.int64)
    deltas = taken("<i4" if flags & _IS_INT32 else "<i8", num_buckets - 1)
    floats = by_column(taken("<f4" if flags & _IS_FLOAT32 else "<f8", 4 * num_buckets), np.float64)
    total = taken("<f8", num_buckets)
    bucket = np.cumsum(integers[0], axis=1) + first_bucket
    integers[1:4] += bucket * width
    head_step, first_step, last_step = integers[1:4]
    has_none = last_step < bucket * width
    if bool(has_none.any()):
        first_step[has_none] = NEVER
        last_step[has_none] = -1
    time_us = np.zeros((len(opened), num_buckets), np.int64)
    np.cumsum(deltas, axis=1, out=time_us[:, 1:])
    time_us += first_us
    return {
        "bucket": bucket,
        "head_step": head_step,
        "time_us": time_us,
        "count": integers[4],
        "num_nan": integers[5],
        "num_pos_inf": integers[6],
        "num_neg_inf": integers[7],
        "first_step": first_step,
        "last_step": last_step,
        "minimum": floats[0],
        "maximum": floats[1],
        "first": floats[2],
        "last": floats[3],
        "total": total,
    }


def as_float32(values: Float64s) -> NDArray[np.float32] | None:
    """The values as float32, or None where any of them would come back with other bits."""
    with np.errstate(all="ignore"):
        narrow = values.astype("<f4")
        same = bool((narrow.astype("<f8").view("<i8") == values.view("<i8")).all())
    return narrow if same else None


def _deltas(values: Int64s) -> tuple[NDArray[Any], bool]:
    """Differences of consecutive values, as int32 where they fit (True)."""
    deltas = np.diff(values)
    fits = not len(deltas) or (int(deltas.min()) >= _INT32.min and int(deltas.max()) <= _INT32.max)
    return (deltas.astype("<i4"), True) if fits else (deltas, False)


def _summed(deltas: NDArray[Any], first: int) -> Int64s:
    result = np.empty(len(deltas) + 1, np.int64)
    result[0] = first
    np.cumsum(deltas, out=result[1:])
    result[1:] += first
    return result


def shuffled(values: NDArray[Any]) -> bytes:
    """Byte k of all numbers side by side; the array must be contiguous."""
    return values.view("u1").reshape(-1, values.itemsize).T.tobytes()


def unshuffled(data: bytes | memoryview, dtype: str) -> NDArray[Any]:
    """What `shuffled` was given, flat."""
    # Plane by plane: eight times as fast as letting numpy transpose, whose inner loop is as short as a number.
    size = int(dtype[-1])
    if size == 1:
        return np.frombuffer(data, dtype)
    planes = np.frombuffer(data, "u1").reshape(size, -1)
    result = np.empty((planes.shape[1], size), "u1")
    for k in range(size):
        result[:, k] = planes[k]
    return result.reshape(-1).view(dtype)


def compress(data: bytes, level: int) -> bytes:
    """As a zstd frame of this thread's own context."""
    return _codecs.compress[level](data)


def decompress(data: bytes | memoryview) -> bytes:
    """What `compress` was given."""
    return _codecs.decompress(data)
