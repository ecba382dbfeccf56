"""`Layers`, `Sketches` and `Slices` records checked: declarations known, columns of one length, counts that add up.

Owns every check on what an agent says of its layers. Must not import the tables. Invariant: a record that passes can be
unfolded into cells, packed into tiles and read back without a further check, and unfolding it takes bounded memory.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container, Mapping
from typing import Any

import msgspec
import numpy as np
from halfscope.wire.messages import Layer, Sketches, Slices

from halfscope_server.store.checks import (
    MAX_NAME_CHARS,
    MAX_STEP,
    MAX_TIME_US,
    BadBatch,
    check_kind,
    check_number,
)

MAX_LAYERS = 65_536
"""Layers of one stream."""
MAX_RECORD_LAYERS = 512
"""Layers of one record: what is unfolded at once is at most so many times MAX_BINS counts."""
MAX_DIMENSIONS = 32
MAX_BUCKET = 65_535
MAX_SLICE_LAYERS = 4096
"""Layers of one record of slices."""
MAX_RANKS = 65_536
MAX_BINS = 2400
MAX_EXPONENT = 1100
"""Magnitude of a bin's exponent; float64 reaches from -1074 to 1023."""
MAX_COUNT = 1 << 48
"""Elements of one tensor: 280 terabytes of bytes. The bins of a layer then add up inside int64."""
WIDTHS: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}
"""Types of bins, by bytes a count."""


def layer_id(name: str) -> int:
    """The id of a layer, the same in every run and on every replica: 63 bits of BLAKE2b."""
    key = msgspec.msgpack.encode(name)
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1


def check_layer(declared: Layer) -> None:
    """Raises BadBatch where a declaration cannot be kept."""
    check_number("a layer's number", declared.lid, MAX_LAYERS - 1)
    if not 0 < len(declared.name) <= MAX_NAME_CHARS or "\x00" in declared.name:
        raise BadBatch(f"a layer name that is empty, holds NUL or is longer than {MAX_NAME_CHARS} characters")
    check_kind(f"the dtype of layer {declared.name!r}", declared.dtype)
    if len(declared.part) > MAX_NAME_CHARS or "\x00" in declared.part:
        raise BadBatch(
            f"a part of layer {declared.name!r} that holds NUL or is longer than {MAX_NAME_CHARS} characters"
        )
    if len(declared.shape) > MAX_DIMENSIONS:
        raise BadBatch(f"layer {declared.name!r} has {len(declared.shape)} dimensions; expected up to {MAX_DIMENSIONS}")
    for size in declared.shape:
        check_number(f"a dimension of layer {declared.name!r}", size, MAX_COUNT)


def check_slices(record: Slices, known: Mapping[int, int]) -> list[int]:
    """Check a record of slices.

    Args:
        record: as decoded.
        known: lid -> layer_id of the layers that the stream has declared.

    Returns:
        The ids of its layers.

    Raises:
        BadBatch: it cannot be kept.
    """
    check_number("step", record.step, MAX_STEP)
    check_number("time_us", record.time_us, MAX_TIME_US)
    check_number("a bucket's number", record.bucket, MAX_BUCKET)
    num_layers, rest = divmod(len(record.lids), 4)
    if rest or not 1 <= num_layers <= MAX_SLICE_LAYERS or len(record.counts) != len(record.lids):
        raise BadBatch(
            f"slices with {len(record.lids)} bytes of layers and {len(record.counts)} of counts; "
            f"expected 4 in both for each of 1 to {MAX_SLICE_LAYERS} layers"
        )
    # Plain integers: a record has a dozen layers, of which arrays are several times as slow.
    num_elements = sum(struct.unpack(f"<{num_layers}I", record.counts))
    if not len(record.local) == len(record.reduced) == 4 * num_elements:
        raise BadBatch(
            f"slices with {len(record.local)} and {len(record.reduced)} bytes; expected {4 * num_elements} in both"
        )
    if len(record.ranks) > MAX_RANKS:
        raise BadBatch(f"slices of a group of {len(record.ranks)} ranks; expected up to {MAX_RANKS}")
    try:
        return [known[lid] for lid in struct.unpack(f"<{num_layers}I", record.lids)]
    except KeyError as error:
        raise BadBatch(f"slices of layer {error.args[0]}, which the stream has not declared") from error


def check_sketches(record: Sketches, known: Container[int]) -> int:
    """Check a record of sketches.

    Args:
        record: as decoded.
        known: numbers of the layers that the stream has declared.

    Returns:
        How many sketches it holds.

    Raises:
        BadBatch: anything in it is not as agreed.
    """
    check_number("the step of sketches", record.step, MAX_STEP)
    check_number("the time of sketches", record.time_us, MAX_TIME_US)
    check_kind("the kind of sketched tensors", record.of, least_chars=1)
    check_kind("the point of sketches", record.point)
    check_kind("what sketches say about clipping", record.clipped)
    num_layers = len(record.lids) // 4
    lengths = {"lids": 4, "counts": 40, "moments": 32, "lowest": 2, "num_bins": 2}
    if not 1 <= num_layers <= MAX_RECORD_LAYERS:
        raise BadBatch(f"sketches of {num_layers} layers in one record; expected 1 to {MAX_RECORD_LAYERS}")
    for name, size in lengths.items():
        seen = len(getattr(record, name))
        if seen != size * num_layers:
            raise BadBatch(f"sketches of {num_layers} layers with {seen} bytes of {name}; expected {size} for each")
    lids = np.frombuffer(record.lids, "<u4").tolist()
    if len(set(lids)) != num_layers:
        raise BadBatch("sketches with a layer twice in one record")
    undeclared = [lid for lid in lids if lid not in known]
    if undeclared:
        raise BadBatch(f"sketches of layer {undeclared[0]}, which the stream has not declared")
    _check_counts(record, num_layers)
    return num_layers


def _check_counts(record: Sketches, num_layers: int) -> None:
    """Bins within their limits, and all elements of every layer accounted for."""
    if record.width not in WIDTHS:
        raise BadBatch(f"bins of {record.width} bytes a count; expected 1, 2, 4 or 8")
    lowest = np.frombuffer(record.lowest, "<i2").astype(np.int64)
    num_bins = np.frombuffer(record.num_bins, "<u2").astype(np.int64)
    if int(num_bins.max()) > MAX_BINS:
        raise BadBatch(f"a sketch of {int(num_bins.max())} bins; expected up to {MAX_BINS}")
    if int(lowest.min()) < -MAX_EXPONENT or int((lowest + np.maximum(num_bins, 1) - 1).max()) > MAX_EXPONENT:
        raise BadBatch(f"a sketch with exponents outside -{MAX_EXPONENT}..{MAX_EXPONENT}")
    ends = np.cumsum(num_bins)
    if len(record.bins) != int(ends[-1]) * record.width:
        raise BadBatch(
            f"{len(record.bins)} bytes of bins; expected {record.width} for each of the {int(ends[-1])} that are named"
        )
    counts = np.frombuffer(record.counts, "<i8").reshape(num_layers, 5)
    bins = np.frombuffer(record.bins, WIDTHS[record.width])
    if int(counts.min()) < 0 or int(counts.max()) > MAX_COUNT or int(bins.max(initial=0)) > MAX_COUNT:
        raise BadBatch(f"a count of elements outside 0..{MAX_COUNT}")
    # The running total may wrap around; the difference of two of its values is right all the same.
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(bins, dtype=np.uint64)))
    inside = (total[ends] - total[ends - num_bins]).astype(np.int64)
    wrong = np.flatnonzero(counts[:, 1:].sum(axis=1) + inside != counts[:, 0])
    if wrong.size:
        at = int(wrong[0])
        raise BadBatch(
            f"a sketch of {int(counts[at, 0])} elements whose zeros, NaN, infinities and bins add up to "
            f"{int(counts[at, 1:].sum() + inside[at])}"
        )
