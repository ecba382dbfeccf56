"""What is not in chunks yet, decoded once and kept: the segments of each stream behind its last compaction.

Must not write. Invariant: a tail holds exactly the segments from `compacted` on, each once; it only ever grows, until
the next compaction starts another. A reader may see segments committed after its own snapshot, never fewer.

What this process commits is handed over as it was decoded (`bring`), so that following a job of a thousand ranks
does not read a thousand streams back from the database; what was not handed over is read there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import sqlalchemy as sa
from halfscope.wire.messages import Points, Sketches

from halfscope_server.store import schema
from halfscope_server.store.block import Block, Collector
from halfscope_server.store.cells import Cells, join, of_records
from halfscope_server.store.records import Decoded, measured_of

MAX_TAIL_BYTES = 256 * 1024 * 1024
"""Decoded tails kept by one process; the least recently read go first."""

SETTLE_BYTES = 4 * 1024 * 1024
"""Records that wait to be taken into their tails; beyond it that is done by whoever commits."""
MAX_BROUGHT_BYTES = 32 * 1024 * 1024
"""Where readers are at the tails all the while; beyond it all of them go, and are read from the database."""

MAX_UNREAD = 512
"""Batches that a tail grows by without being read; by then they have been merged, and it would begin anew."""

Key = tuple[str, str]
"""(run_id, stream)"""

segment = schema.segment
stream_series = schema.stream_series

# Made once: of a thousand streams, making them would cost as much as executing them.
_SEGMENTS = (
    sa.select(segment.c.raw_bytes, segment.c.body)
    .where(
        segment.c.run_id == sa.bindparam("b_run"),
        segment.c.attempt == sa.bindparam("b_attempt"),
        segment.c.stream == sa.bindparam("b_stream"),
        segment.c.first_seq >= sa.bindparam("b_since"),
    )
    .order_by(segment.c.first_seq)
)
_SIDS = sa.select(stream_series.c.sid, stream_series.c.series_id).where(
    stream_series.c.run_id == sa.bindparam("b_run"), stream_series.c.stream == sa.bindparam("b_stream")
)


class SketchCollector:
    """Sketch records of one stream as they arrive, laid flat only when they are asked for."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._waiting: dict[str, list[Sketches]] = {}
        self._joined: dict[str, Cells] = {}

    def add(self, record: Sketches) -> None:
        """Append a record that was checked when it was taken in."""
        self._waiting.setdefault(record.of, []).append(record)
        self.num_bytes += len(record.lids) + len(record.counts) + len(record.moments) + len(record.bins)

    @property
    def kinds(self) -> list[str]:
        """The kinds of tensors there are."""
        return sorted(self._waiting.keys() | self._joined.keys())

    def cells(self, kind: str) -> Cells | None:
        """Everything of one kind so far; None: there is none."""
        waiting = self._waiting.pop(kind, None)
        if waiting:
            held = self._joined.get(kind)
            new = of_records(waiting)
            self.num_bytes -= sum(len(r.lids) + len(r.counts) + len(r.moments) + len(r.bins) for r in waiting)
            self.num_bytes += new.num_bytes
            self._joined[kind] = new if held is None else join([held, new])
        return self._joined.get(kind)


@dataclass(slots=True, kw_only=True)
class _Tail:
    compacted: int
    upto: int
    """First seq that is not in it yet."""
    num_unread: int = 0
    """Batches that were taken in since it was read."""
    collector: Collector = field(default_factory=Collector)
    sketches: SketchCollector = field(default_factory=SketchCollector)
    sids: dict[int, int] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        return self.collector.num_bytes + self.sketches.num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Brought:
    """What a tail takes of a batch that was committed."""

    first: int
    end_seq: int
    points: Sequence[Points]
    sketches: Sequence[Sketches]
    sids: Mapping[int, int]
    num_bytes: int


class HotStream(NamedTuple):
    """A stream with segments, as a reader's snapshot has it."""

    run_id: str
    stream: str
    attempt: int
    next: int
    compacted: int


class Tails:
    """A bounded memory of tails, shared by all readers of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tails: OrderedDict[Key, _Tail] = OrderedDict()
        self._counted: dict[Key, int] = {}
        """Bytes of each tail when it was last touched. A job of a thousand ranks is read stream by stream: adding up
        all of them each time would cost far more than reading does."""
        self._num_bytes = 0
        # Apart from the lock of the tails: whoever commits must not wait for a reader.
        self._brought_lock = threading.Lock()
        self._brought: dict[Key, list[_Brought]] = {}
        self._brought_bytes = 0

    def bring(self, key: Key, committed: Sequence[Decoded], sids: Mapping[int, int]) -> None:
        """Hand over what was committed of a stream; kept where the stream has a tail.

        Args:
            key: the stream.
            committed: its batches, in order.
            sids: sid -> series_id of all that it has declared.
        """
        if key not in self._tails:
            return
        brought = [_of_batch(decoded, sids) for decoded in committed]
        with self._brought_lock:
            self._brought.setdefault(key, []).extend(brought)
            self._brought_bytes += sum(one.num_bytes for one in brought)
            if self._brought_bytes > MAX_BROUGHT_BYTES:
                self._brought, self._brought_bytes = {}, 0
            is_much = self._brought_bytes > SETTLE_BYTES
        if is_much and self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def block(self, connection: sa.Connection, hot: HotStream, series_ids: Sequence[int]) -> Block:
        """These series of a stream's tail.

        Args:
            connection: a reading one; its snapshot must be the one that `hot` was read in.
            hot: the stream.
            series_ids: which series.
        """
        return self.block_to(connection, hot, series_ids)[0]

    def block_to(self, connection: sa.Connection, hot: HotStream, series_ids: Sequence[int]) -> tuple[Block, int]:
        """The same, and the first seq behind it."""
        # One lock for all: decoding holds the interpreter lock anyway, and readers of one stream must not decode it
        # twice.
        with self._lock:
            tail = self._extended(connection, hot)
            return tail.collector.block(series_ids), tail.upto

    def cells(self, connection: sa.Connection, hot: HotStream, kind: str) -> Cells | None:
        """The sketches of a stream's tail, likewise; None: it has none of this kind."""
        with self._lock:
            tail = self._extended(connection, hot)
            found = tail.sketches.cells(kind)
            self._count((hot.run_id, hot.stream), tail)
            return found

    def kinds(self, connection: sa.Connection, hot: HotStream) -> list[str]:
        """The kinds of tensors whose sketches the tail has."""
        with self._lock:
            return self._extended(connection, hot).sketches.kinds

    def _extended(self, connection: sa.Connection, hot: HotStream) -> _Tail:
        """The tail as the reader's snapshot has it, or newer."""
        key = (hot.run_id, hot.stream)
        tail = self._settled(key)
        if tail is None or tail.compacted < hot.compacted:
            tail = self._tails[key] = _Tail(compacted=hot.compacted, upto=hot.compacted)
        elif tail.compacted > hot.compacted:
            # This reader's snapshot is older than the last compaction: serve it, keep nothing.
            tail = _Tail(compacted=hot.compacted, upto=hot.compacted)
        else:
            self._tails.move_to_end(key)
            tail.num_unread = 0
        if tail.upto < hot.next:
            _extend(connection, tail, hot)
        self._count(key, tail)
        return tail

    def _settle(self) -> None:
        """Take in all that waits; what has long not been read is not worth it."""
        for key, brought in list(self._brought.items()):
            tail = self._settled(key)
            if tail is not None:
                tail.num_unread += len(brought)
                if tail.num_unread > MAX_UNREAD:
                    self._drop(key)

    def _settled(self, key: Key) -> _Tail | None:
        """A stream's tail with all that was handed over of it; None: there is none, or they are too large together."""
        brought, tail = self._take_brought(key), self._tails.get(key)
        if tail is not None and brought:
            for one in brought:
                _take(tail, one)
            self._count(key, tail)
        return self._tails.get(key)

    def _take_brought(self, key: Key) -> Sequence[_Brought]:
        with self._brought_lock:
            brought = self._brought.pop(key, ())
            self._brought_bytes -= sum(one.num_bytes for one in brought)
        return brought

    def forget(self, run_id: str) -> None:
        """Drop what is kept of a run that was deleted."""
        with self._lock:
            for key in [key for key in self._tails if key[0] == run_id]:
                self._drop(key)

    def _count(self, key: Key, tail: _Tail) -> None:
        """Note how large a tail is now, and drop those not read for longest where all are too large together."""
        if self._tails.get(key) is not tail:
            return
        self._num_bytes += tail.num_bytes - self._counted.get(key, 0)
        self._counted[key] = tail.num_bytes
        while self._num_bytes > MAX_TAIL_BYTES and len(self._tails) > 1:
            self._drop(next(iter(self._tails)))

    def _drop(self, key: Key) -> None:
        del self._tails[key]
        self._num_bytes -= self._counted.pop(key)
        self._take_brought(key)


def _of_batch(decoded: Decoded, sids: Mapping[int, int]) -> _Brought:
    return _Brought(
        first=decoded.batch.first,
        end_seq=decoded.end_seq,
        points=decoded.points,
        sketches=decoded.sketches,
        sids=sids,
        num_bytes=decoded.points_bytes + (decoded.batch.raw_bytes if decoded.sketches else 0),
    )


def _take(tail: _Tail, brought: _Brought) -> None:
    """Append a batch that was handed over, where it is the next."""
    if brought.first != tail.upto:
        return  # There already, or something before it was not handed over.
    for points in brought.points:
        tail.collector.add(points, brought.sids)
    for sketches in brought.sketches:
        tail.sketches.add(sketches)
    tail.upto = brought.end_seq


def _extend(connection: sa.Connection, tail: _Tail, hot: HotStream) -> None:
    tail.sids = sids_of(connection, hot.run_id, hot.stream)
    for record in records_of(connection, hot.run_id, hot.attempt, hot.stream, since=tail.upto):
        if isinstance(record, Points):
            tail.collector.add(record, tail.sids)
        else:
            tail.sketches.add(record)
    tail.upto = hot.next


def records_of(
    connection: sa.Connection, run_id: str, attempt: int, stream: str, *, since: int
) -> Iterator[Points | Sketches]:
    """What the segments of a stream that begin at a seq or behind it hold, in order."""
    names = {"b_run": run_id, "b_attempt": attempt, "b_stream": stream, "b_since": since}
    found = connection.execute(_SEGMENTS, names)
    for raw_bytes, body in found:
        yield from measured_of(body, raw_bytes)


def sids_of(connection: sa.Connection, run_id: str, stream: str) -> dict[int, int]:
    """sid -> series_id of everything a stream has declared."""
    rows = connection.execute(_SIDS, {"b_run": run_id, "b_stream": stream})
    return {row[0]: row[1] for row in rows}
