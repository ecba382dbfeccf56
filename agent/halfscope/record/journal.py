"""The writer of one stream's journal: append-only segments, one writer, crash-safe.

Owns the stream's lock, its seqs, its digest chain and the open segment. Knows no threads: the recorder's journal
thread is the only one that calls it. Must not import torch or numpy. Invariant: what `append` returned from is
written (a `kill -9` does not take it back), and a failed `append` leaves the journal as it was.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from halfscope.record import quota, segment
from halfscope.record.errors import StreamBusyError
from halfscope.record.layout import StreamPlace, check_ids, make_directory, try_lock, write_all
from halfscope.wire.codec import chain, encode
from halfscope.wire.messages import GENESIS_DIGEST, Lost, StreamInfo

SEGMENT_BYTES = 8 * 1024 * 1024
"""A segment is the unit of the quota and of a search: what a reader scans at most to find one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Stands in the sequence for what was dropped before it got a seq of its own."""

    reason: str
    time_us: int
    counts: Mapping[str, int] = field(default_factory=dict)

    def payload(self, seq: int) -> bytes:
        return encode(
            Lost(first_seq=seq, last_seq=seq, reason=self.reason, time_us=self.time_us, counts=dict(self.counts))
        )


class JournalWriter:
    """Appends records to the segments of one stream."""

    def __init__(
        self,
        place: StreamPlace,
        info: StreamInfo,
        heads: Callable[[], Sequence[bytes]],
        *,
        quota_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Prepare; nothing is touched before `open`.

        Args:
            place: where the journal lies.
            info: who writes it; part of every segment's header.
            heads: payloads of the records that every segment begins with: `Start` and all declarations so far.
            quota_bytes: what all segments together may take.
            segment_bytes: a new segment is begun where an append would go beyond; never above a quarter of the quota.

        Raises:
            ValueError: ids that are no ids.
        """
        check_ids(place.run_id, place.stream)
        self.next_seq = 0
        self.num_torn_bytes = 0
        """Bytes cut from the end when an existing journal was taken up again."""
        self._place = place
        self._info = info
        self._heads = heads
        self._quota_bytes = quota_bytes
        self._segment_bytes = max(1, min(segment_bytes, quota_bytes // 4))
        self._digest = GENESIS_DIGEST
        self._lock: int | None = None
        self._segment: int | None = None
        self._segment_size = 0
        self._broken = False
        self._without_sketches: set[int] = set()

    @property
    def is_open(self) -> bool:
        return self._lock is not None

    def open(self) -> None:
        """Make the directory, take the lock, find the end of what is there and begin a segment behind it.

        Raises:
            StreamBusyError: another writer holds the stream.
            OSError: the directory cannot be made or written; calling again later is fine.
        """
        make_directory(self._place.path)
        lock = self._take_lock()
        if lock is None:
            raise StreamBusyError(
                f"stream {self._place.stream} of run {self._place.run_id} is already being written "
                f"(by process {_holder(self._place.lock)}); a stream has one writer: "
                "use a new stream id for each process"
            )
        try:
            with contextlib.suppress(OSError):  # a word for people: whoever holds the lock is the writer without it
                os.ftruncate(lock, 0)
                write_all(lock, f"{os.getpid()}\n".encode())
            self._take_up()
            self._begin_segment([])
        except OSError:
            os.close(lock)
            raise
        self._lock = lock

    def append(self, records: Sequence[bytes | Gap]) -> None:
        """Write records with the next seqs, in one write where they fit one segment.

        Raises:
            OSError: nothing of it was written.
        """
        if not records:
            return
        if self._segment is None or self._broken:
            self._begin_segment(records)
            return
        data, next_seq, digest = _frames(records, self.next_seq, self._digest)
        if self._segment_size + len(data) > self._segment_bytes:
            self._begin_segment(records)
            return
        try:
            write_all(self._segment, data)
        except OSError:
            # A part may have been written. Where it cannot be cut off, the segment is left as it is: its reader stops
            # at the torn record, and the next segment says in its name where the sequence goes on.
            try:
                os.ftruncate(self._segment, self._segment_size)
            except OSError:
                self._broken = True
            raise
        self._segment_size += len(data)
        self.next_seq, self._digest = next_seq, digest

    def close(self) -> None:
        """Let go of the segment and the lock. Closing twice is fine."""
        for descriptor in (self._segment, self._lock):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._segment = self._lock = None

    def _take_lock(self) -> int | None:
        # A sender that looks whether the writer lives holds the lock for some microseconds: one refusal proves nothing.
        for _ in range(5):
            lock = try_lock(self._place.lock)
            if lock is not None:
                return lock
            time.sleep(0.005)
        return None

    def _begin_segment(self, records: Sequence[bytes | Gap]) -> None:
        header = segment.SegmentHeader(
            version=segment.FORMAT_VERSION,
            run_id=self._place.run_id,
            stream=self._place.stream,
            info=self._info,
            first_seq=self.next_seq,
            digest=self._digest,
        )
        data, next_seq, digest = _frames([*self._heads(), *records], self.next_seq, self._digest)
        data = segment.pack_header(header) + data
        path = self._place.segment(self.next_seq)
        room_bytes = self._quota_bytes - max(len(data), self._segment_bytes)
        quota.make_room(self._place, room_bytes, self._without_sketches)
        # A file is there only where an earlier try was torn and could not be removed.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            write_all(descriptor, data)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        if self._segment is not None:
            os.close(self._segment)
        self._segment, self._segment_size, self._broken = descriptor, len(data), False
        self.next_seq, self._digest = next_seq, digest

    def _take_up(self) -> None:
        """Cut the torn tail of what an earlier writer left, and go on behind it in a new segment."""
        for first_seq in reversed(self._place.segments()):
            path = self._place.segment(first_seq)
            data = path.read_bytes()
            header, at = segment.read_header(data)
            if header is None and segment.find_frame(data, 0) is None:
                with contextlib.suppress(OSError):  # where it stays, it is written over
                    path.unlink()  # its writer died before the first record was whole
                continue
            self.next_seq, self._digest, end = _walk(data, at, first_seq, header)
            if end < len(data):
                self.num_torn_bytes = len(data) - end
                with contextlib.suppress(OSError):  # where it stays, readers pass it over
                    os.truncate(path, end)
            return


def _frames(records: Sequence[bytes | Gap], seq: int, digest: bytes) -> tuple[bytes, int, bytes]:
    """Records as frames from a seq on; with the seq and the digest behind them."""
    frames = []
    for record in records:
        payload = record.payload(seq) if isinstance(record, Gap) else record
        frames.append(segment.pack(seq, payload))
        digest = chain(digest, payload)
        seq += 1
    return b"".join(frames), seq, digest


def _walk(data: bytes, at: int, first_seq: int, header: segment.SegmentHeader | None) -> tuple[int, bytes, int]:
    """Seq and digest behind the last whole record of a segment, and the offset there. Damage in between is passed
    over."""
    seq, digest, end = first_seq, GENESIS_DIGEST if header is None else header.digest, at
    found = segment.find_frame(data, at)
    while found is not None:
        frame = segment.read_frame(data, found)
        assert frame is not None
        seq, digest, end = segment.covers(frame.seq, frame.payload) + 1, chain(digest, frame.payload), frame.end
        found = segment.find_frame(data, end)
    return seq, digest, end


def _holder(lock: Path) -> str:
    try:
        return lock.read_text().strip() or "unknown"
    except OSError:
        return "unknown"
