"""The format of a journal segment: bytes to frames and back. No files are touched here.

A segment is a header frame and record frames, each `magic, length u32, seq u64, crc u32, payload`, little-endian. The
CRC-32 covers everything else, the magic too: it tells a header from a record. The magic begins with 0xC1, the one byte
that msgpack never writes as a type: after damage the next record is found by it. Must not import torch or numpy.
Invariant: a frame is given out only if its CRC is right.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import msgspec

from halfscope.wire.codec import MAX_RECORD_BYTES
from halfscope.wire.messages import Lost, StreamInfo

FORMAT_VERSION = 1

_RECORD_MAGIC = b"\xc1HSR"
_HEADER_MAGIC = b"\xc1HSH"
_HEAD = struct.Struct("<4sIQI")
HEAD_BYTES = _HEAD.size
_CRC_AT = HEAD_BYTES - 4


class SegmentHeader(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Stands at the start of each segment, so that one segment alone says whose it is and where it belongs."""

    version: int
    run_id: str
    stream: str
    info: StreamInfo
    first_seq: int
    digest: bytes
    """The digest chain just before the segment's first record, over the payloads as they were written."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole record as it lies in a segment."""

    seq: int
    payload: bytes
    end: int
    """Offset just behind it."""


_header_decoder = msgspec.msgpack.Decoder(SegmentHeader)


def pack(seq: int, payload: bytes) -> bytes:
    """A record as a frame."""
    return _pack(_RECORD_MAGIC, seq, payload)


def pack_header(header: SegmentHeader) -> bytes:
    """A segment header as a frame."""
    return _pack(_HEADER_MAGIC, header.first_seq, msgspec.msgpack.encode(header))


def read_header(data: bytes) -> tuple[SegmentHeader | None, int]:
    """The header at the start of a segment and the offset behind it; (None, 0) where it is damaged, cut or of a later
    format."""
    frame = _read(_HEADER_MAGIC, data, 0)
    if frame is None:
        return None, 0
    try:
        header = _header_decoder.decode(frame.payload)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None, frame.end
    return (header, frame.end) if header.version == FORMAT_VERSION else (None, frame.end)


def read_frame(data: bytes, at: int) -> Frame | None:
    """The whole and undamaged record frame at an offset, or None."""
    return _read(_RECORD_MAGIC, data, at)


def find_frame(data: bytes, at: int) -> int | None:
    """Offset of the first whole and undamaged record frame at or after `at`."""
    while (at := data.find(_RECORD_MAGIC, at)) >= 0:
        if _read(_RECORD_MAGIC, data, at) is not None:
            return at
        at += 1
    return None


def covers(seq: int, payload: bytes) -> int:
    """The last seq that a record stands for: its own, but for a `Lost` that replaced many."""
    if payload[1:6] != b"\xa4lost":  # array_like with the tag first: nothing else begins so
        return seq
    try:
        lost = _lost_decoder.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return seq
    return max(seq, lost.last_seq)


_lost_decoder = msgspec.msgpack.Decoder(Lost)


def _pack(magic: bytes, seq: int, payload: bytes) -> bytes:
    if len(payload) > MAX_RECORD_BYTES:
        raise ValueError(f"a record of {len(payload)} bytes; at most {MAX_RECORD_BYTES} fit a journal")
    crc = zlib.crc32(payload, zlib.crc32(_HEAD.pack(magic, len(payload), seq, 0)[:_CRC_AT]))
    return _HEAD.pack(magic, len(payload), seq, crc) + payload


def _read(expected_magic: bytes, data: bytes, at: int) -> Frame | None:
    if len(data) - at < HEAD_BYTES:
        return None
    magic, length, seq, crc = _HEAD.unpack_from(data, at)
    end = at + HEAD_BYTES + length
    if magic != expected_magic or length > MAX_RECORD_BYTES or end > len(data):
        return None
    payload = data[at + HEAD_BYTES : end]
    if zlib.crc32(payload, zlib.crc32(data[at : at + _CRC_AT])) != crc:
        return None
    return Frame(seq, payload, end)
