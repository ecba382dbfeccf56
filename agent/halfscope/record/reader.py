"""Reading a stream's journal: records in order, whatever happened to the files.

Owns the search for a seq, following a journal that grows, and the accounting of what is missing. Must not import
torch or numpy. Invariant: seqs that come out are consecutive. Where records are damaged or gone, a `Lost` takes their
place and names them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from halfscope.record import segment
from halfscope.record.layout import StreamPlace
from halfscope.wire.codec import decode_record, encode
from halfscope.wire.messages import Lost, Record, StreamInfo

DAMAGED = "damaged"
MAX_HEADER_BYTES = 4096
MISSING = "not in the journal any more"


@dataclass(frozen=True, slots=True)
class Entry:
    """One record, or the `Lost` that stands for some."""

    seq: int
    last_seq: int
    """Equal to seq, but for a `Lost` that stands for many."""
    payload: bytes
    is_missing: bool = False
    """Let go of by the journal, so that another reading may word it differently; damage reads the same each time."""


class JournalReader:
    """Follows one stream from a seq on. Remembers its place, so that each call goes on where the last one stopped."""

    def __init__(self, place: StreamPlace, seq: int = 0) -> None:
        self.next_seq = seq
        """Seq of the next entry."""
        self._place = place
        self._segment: int | None = None
        self._descriptor = -1
        self._data = b""
        self._data_offset = 0
        """Offset, in the segment's file, of the first byte held."""
        self._at = 0

    def read(self, *, final: bool = False) -> Iterator[Entry]:
        """Entries that are there now.

        Args:
            final: the writer is gone. What is cut or damaged at the very end then counts as lost; before, it may
            still be on
                its way.
        """
        while True:
            yield from self._read_segment()
            following = self._following()
            if following is None:
                break
            yield from self._leave_for(following)
        if final and self._segment is not None and self._fill():
            self._at = len(self._data)
            yield self._lost(self.next_seq, DAMAGED)

    def seek(self, seq: int) -> None:
        """Go on from another seq."""
        self.close()
        self.next_seq = seq

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._segment, self._descriptor, self._data, self._data_offset, self._at = None, -1, b"", 0, 0

    def _following(self) -> int | None:
        """The segment to read next: the one that holds the next seq, or else the first behind it."""
        firsts = self._place.segments()
        if self._segment is None:
            held = [first for first in firsts if first <= self.next_seq]
            return held[-1] if held else next(iter(firsts), None)
        return next((first for first in firsts if first > self._segment), None)

    def _leave_for(self, first_seq: int) -> Iterator[Entry]:
        reason = MISSING
        if self._segment is not None:
            yield from self._read_segment()  # what was appended between the last read and the next segment's beginning
            reason = DAMAGED if self._fill() else MISSING
        descriptor = self._open(first_seq)
        if descriptor is None:
            return
        self.close()
        self._segment, self._descriptor = first_seq, descriptor
        self._fill()
        _, self._at = segment.read_header(self._data)
        if first_seq > self.next_seq:
            yield self._lost(first_seq - 1, reason)

    def _open(self, first_seq: int) -> int | None:
        try:
            return os.open(self._place.segment(first_seq), os.O_RDONLY)
        except FileNotFoundError:
            return None  # the quota took it just now; the next look finds what follows

    def _read_segment(self) -> Iterator[Entry]:
        if self._segment is None:
            return
        while True:
            frame = segment.read_frame(self._data, self._at)
            if frame is None:
                if self._fill():
                    continue
                found = segment.find_frame(self._data, self._at)
                if found is None:
                    # Read again when there is more: a writer that could not write all of a record cuts it off.
                    self._data = self._data[: self._at]
                    return
                self._at = found  # damage: seqs tell how many records it cost
                continue
            self._at = frame.end
            last_seq = segment.covers(frame.seq, frame.payload)
            if last_seq < self.next_seq:
                continue
            if frame.seq > self.next_seq:
                yield self._lost(frame.seq - 1, DAMAGED)
            payload = frame.payload
            if frame.seq < self.next_seq:  # into the middle of a range that is lost
                payload = _rest_of_lost(payload, self.next_seq)
            first_seq, self.next_seq = self.next_seq, last_seq + 1
            yield Entry(first_seq, last_seq, payload)

    def _fill(self) -> bool:
        """Read what the segment's file has gained; False where that is nothing."""
        if self._at > 1 << 20:
            self._data, self._data_offset, self._at = self._data[self._at :], self._data_offset + self._at, 0
        held = self._data_offset + len(self._data)
        gained = os.fstat(self._descriptor).st_size - held
        if gained <= 0:
            return False
        new = os.pread(self._descriptor, min(gained, 4 << 20), held)
        self._data += new
        return bool(new)

    def _lost(self, last_seq: int, reason: str) -> Entry:
        first_seq, self.next_seq = self.next_seq, last_seq + 1
        payload = encode(Lost(first_seq=first_seq, last_seq=last_seq, reason=reason))
        return Entry(first_seq, last_seq, payload, is_missing=reason == MISSING)


def read_stream(place: StreamPlace, *, first_seq: int = 0) -> Iterator[tuple[int, Record]]:
    """Every record of a journal that nobody writes any more, decoded, with its seq."""
    reader = JournalReader(place, first_seq)
    try:
        for entry in reader.read(final=True):
            yield entry.seq, decode_record(entry.payload)
    finally:
        reader.close()


def read_info(place: StreamPlace) -> StreamInfo:
    """Who writes a stream, from the first segment whose header can be read."""
    for first_seq in place.segments():
        header = _header(place.segment(first_seq))
        if header is not None:
            return header.info
    return StreamInfo()


def read_checkpoint(place: StreamPlace, seq: int) -> tuple[int, bytes] | None:
    """(first seq, digest chain before it) of the segment that holds a seq, as its writer noted it."""
    held = [first for first in place.segments() if first <= seq]
    header = _header(place.segment(held[-1])) if held else None
    return None if header is None else (header.first_seq, header.digest)


def _header(path: Path) -> segment.SegmentHeader | None:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_HEADER_BYTES)
    except OSError:
        return None
    return segment.read_header(data)[0]


def _rest_of_lost(payload: bytes, first_seq: int) -> bytes:
    lost = decode_record(payload)
    assert isinstance(lost, Lost)
    return encode(Lost(first_seq=first_seq, last_seq=lost.last_seq, reason=lost.reason, time_us=lost.time_us))
