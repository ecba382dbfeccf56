"""The newest numbers of a journal, read from its end: what a sender tells of a stream whose backlog it still sends.

Must not import torch or numpy. Invariant: reads a bounded part of the journal, whatever its size, and believes only
records that are whole.
"""

from __future__ import annotations

import struct

from halfscope.record import segment
from halfscope.record.layout import StreamPlace
from halfscope.wire.codec import decode_record
from halfscope.wire.errors import DecodeError
from halfscope.wire.messages import Live, Points

TAIL_BYTES = 64 * 1024
MAX_VALUES = 256
"""A page shows a few of them while it catches up."""


def newest(place: StreamPlace, key: tuple[str, str]) -> Live | None:
    """The last step that was written; None where the end of the journal holds none.

    Args:
        key: under which the stream is known to the server.

    Raises:
        OSError: the journal cannot be read.
    """
    firsts = place.segments()
    if not firsts:
        return None
    with place.segment(firsts[-1]).open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
        data = file.read(TAIL_BYTES)
    found: bytes | None = None
    at = segment.find_frame(data, 0)
    while at is not None:
        frame = segment.read_frame(data, at)
        assert frame is not None
        if frame.payload[1:8] == b"\xa6points":  # array_like with the tag first: nothing else begins so
            found = frame.payload
        at = segment.find_frame(data, frame.end)
    return None if found is None else _of_points(found, key)


def _of_points(payload: bytes, key: tuple[str, str]) -> Live | None:
    try:
        record = decode_record(payload)
    except DecodeError:
        return None
    if not isinstance(record, Points) or len(record.steps) < 8 or len(record.times_us) < 8:
        return None
    values = {
        column.sid: struct.unpack("<d", column.values[-8:])[0]
        for column in record.columns[:MAX_VALUES]
        if len(column.values) >= 8
    }
    (step,), (time_us,) = struct.unpack("<q", record.steps[-8:]), struct.unpack("<q", record.times_us[-8:])
    return Live(*key, step, time_us, values)
