"""One stream on its way to one server: journal seqs to wire seqs, what goes next, what is acknowledged, whether it
has forked.

Owns a stream's ship lock, its place in the journal and its entry in `ack.json`. Knows no sockets. Must not import
torch or numpy. Invariant: records leave in order and unread, and nothing is called acknowledged that the server did
not acknowledge.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from halfscope._version import __version__
from halfscope.record.acks import NOTHING, Checkpoint, ServerAck, read_acks, write_ack
from halfscope.record.layout import StreamPlace, is_locked, try_lock
from halfscope.record.reader import Entry, JournalReader, read_checkpoint, read_info
from halfscope.send.endpoint import is_alive
from halfscope.send.fork import make_fork
from halfscope.wire.codec import chain, decode_record, encode
from halfscope.wire.messages import GENESIS_DIGEST, Batch, Hello, Lost

BATCH_BYTES = 64 * 1024
BACKLOG_BATCH_BYTES = 256 * 1024
MAX_REBASES = 16
ORPHAN_QUIET_S = 600.0
"""A journal of another host, whose process cannot be looked at, counts as left once nothing was written for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What one batch is made of."""

    count: int
    payloads: list[bytes]
    is_substitute: bool
    """A `Lost` that another reading of the journal would not give again."""


class Outbox:
    """The records of one stream that are still to be shipped."""

    @classmethod
    def open(cls, place: StreamPlace, server: str) -> Outbox | None:
        """Take the stream's ship lock; None where somebody else ships it.

        A directory that cannot be written (a backup) is shipped without a lock, and without memory of what was
        acknowledged.
        """
        try:
            lock = try_lock(place.ship_lock)
        except OSError:
            return cls(place, server, -1)
        return None if lock is None else cls(place, server, lock)

    def __init__(self, place: StreamPlace, server: str, lock: int) -> None:
        """Use `open`."""
        self.place = place
        self.info = read_info(place)
        self.ack = read_acks(place.acks).servers.get(server, NOTHING)
        self.end_seen = False
        """An End record has been read."""
        self.writer_gone = False
        self._server = server
        self._lock = lock
        self._reader = JournalReader(place)
        self._queue: deque[Entry] = deque()
        self._queued_bytes = 0
        self._read_next = 0
        """Seq, on the wire, of the next record to be queued."""
        self._exhausted = False
        self._sent: dict[int, bytes] = {}
        """Digest as sent at the ends of batches that are not acknowledged."""
        self._substituted: deque[int] = deque()
        self._refused: dict[int, bytes] = {}
        """Records that the server will not take, by wire seq, with what is sent in their place."""
        self._max_records = 1 << 30
        self._unsaved = False
        self.due_s = 0.0
        """When the next batch goes at the latest."""
        self.live_due_s = 0.0
        """When it is looked next whether so much waits that the newest numbers are told beside it."""

    @property
    def key(self) -> tuple[str, str]:
        return self.place.run_id, self.place.stream if self.ack.fork is None else self.ack.fork.stream

    @property
    def num_waiting_bytes(self) -> int:
        """Of what has been read and not sent."""
        return self._queued_bytes

    @property
    def is_shipped(self) -> bool:
        """Everything that is in the journal now is acknowledged."""
        return self._exhausted and not self._queue and self.ack.acked.seq >= self._read_next

    @property
    def outcome(self) -> str:
        """How the stream ended: `ended`, `killed`, or empty while it may go on."""
        if self.end_seen:
            return "ended"
        return "killed" if self.writer_gone else ""

    @property
    def is_settled(self) -> bool:
        """It was shipped to its end, or its run deleted, and nothing has been written since."""
        is_older = self._last_written_s() * 1e6 <= self.ack.updated_us
        return self.ack.gone or (bool(self.ack.ended) and is_older)

    def hello(self) -> Hello:
        info = self.info
        if self.ack.fork is not None:
            info = msgspec.structs.replace(info, forked_from=self.ack.fork.forked_from)
        return Hello(
            run_id=self.key[0],
            stream=self.key[1],
            info=info,
            first_seq=0 if self.ack.fork is None else self.ack.fork.base,
            agent_version=__version__,
        )

    def matches(self, next_seq: int, digest: bytes) -> bool:
        """Whether the journal's digest chain just before a seq is the server's."""
        if self._sent.get(next_seq) == digest:
            return True
        if next_seq < self.ack.acked.seq and self._to_journal(next_seq) < next(iter(self.place.segments()), 0):
            # It went back to before anything that the journal still holds: there is nothing to compare, and a server
            # that asks for what is gone gets a `Lost` and all that is left.
            return True
        return any(self._chain(base, next_seq) == digest for base in self._bases(next_seq))

    def start_at(self, next_seq: int, digest: bytes) -> None:
        """Send from a seq on; what is before it is acknowledged."""
        self._acknowledge(Checkpoint(seq=next_seq, digest=digest))
        self._queue.clear()
        self._queued_bytes = 0
        self._read_next = next_seq
        self._substituted.clear()
        self._sent.clear()
        self._reader.seek(self._to_journal(next_seq))
        self._exhausted = False

    def fork(self, next_seq: int) -> bool:
        """Go on under another stream: the server has something else under this one.

        Args:
            next_seq: the server's, for the event.

        Returns:
            False where there is nothing to go on with: everything here was acknowledged, and nobody writes any more.
        """
        at = self.ack.journal_next
        self.look_at_writer(time.time())
        if self.writer_gone and next(iter(self._read_from(at)), None) is None:
            return False
        fork = make_fork(self.place, self.key[1], self.ack, next_seq)
        self.ack = ServerAck(acked=Checkpoint(seq=fork.base, digest=GENESIS_DIGEST), fork=fork)
        self._sent.clear()
        self._unsaved = True
        self.save()
        return True

    def fill(self) -> int:
        """Read ahead, up to one batch; gives the bytes that wait."""
        while self._queued_bytes < BACKLOG_BATCH_BYTES:
            entry = self._next_entry()
            if entry is None:
                self._exhausted = True
                return self._queued_bytes
            self._queue.append(entry)
            self._queued_bytes += len(entry.payload)
            self._read_next = entry.last_seq + 1
        self._exhausted = False
        return self._queued_bytes

    def cut(self) -> Cut | None:
        """The next batch, out of what `fill` has read; None where nothing waits."""
        if not self._queue:
            return None
        first = self._queue[0]
        if first.last_seq > first.seq or first.seq in self._refused:
            # Alone in its batch: a Lost covers many seqs, and where the chain goes on is known at the ends of batches
            # only.
            return self._cut_single(self._take())
        payloads: list[bytes] = []
        num_bytes = 0
        while self._queue and len(payloads) < self._max_records:
            entry = self._queue[0]
            num_bytes += len(entry.payload)
            special = entry.last_seq > entry.seq or entry.seq in self._refused
            if payloads and (num_bytes > BACKLOG_BATCH_BYTES or special):
                break
            payloads.append(self._take().payload)
        return Cut(count=len(payloads), payloads=payloads, is_substitute=False)

    def sent(self, batch: Batch, cut: Cut) -> None:
        """Remember a batch that is on its way."""
        self._sent[batch.first + batch.count] = batch.digest
        if cut.is_substitute:
            self._substituted.append(batch.first + batch.count)

    def acked(self, next_seq: int, digest: bytes) -> None:
        """The server has committed everything before a seq."""
        while self._substituted and self._substituted[0] <= next_seq:
            seq = self._substituted.popleft()
            rebases = [*self.ack.rebases, Checkpoint(seq=seq, digest=self._sent[seq])][-MAX_REBASES:]
            self.ack = msgspec.structs.replace(self.ack, rebases=rebases)
        self._acknowledge(Checkpoint(seq=next_seq, digest=digest))
        for seq in [seq for seq in self._sent if seq <= next_seq]:
            del self._sent[seq]
        self._max_records = min(1 << 30, self._max_records * 2)

    def refused(self, first: int, count: int, code: str, message: str) -> None:
        """A batch cannot be taken: try less of it, and where it is a single record, tell in its place that it is
        lost."""
        if count > 1:
            self._max_records = max(1, count // 2)
            return
        reason = f"refused by the server ({code}): {message}"[:500]
        self._refused[first] = encode(Lost(first_seq=first, last_seq=first, reason=reason))

    def set_gone(self) -> None:
        """The run was deleted on the server."""
        self.ack = msgspec.structs.replace(self.ack, gone=True)
        self._unsaved = True

    def set_ended(self, outcome: str) -> None:
        """Everything is acknowledged and the farewell was sent."""
        if outcome != self.ack.ended or not self.is_settled:  # else it stays as old as it is: journals go by that
            self.ack = msgspec.structs.replace(self.ack, ended=outcome)
            self._unsaved = True

    def look_at_writer(self, wall_s: float) -> None:
        """Find out whether the training process still holds its journal."""
        if self.end_seen or self.writer_gone:
            return
        locked = is_locked(self.place.lock)
        is_ours = self.info.host in ("", socket.gethostname())
        if locked or (locked is None and is_ours and is_alive(self.info.pid)):
            return
        if is_ours or wall_s - self._last_written_s() >= ORPHAN_QUIET_S:
            self.writer_gone = True
            # The end may have been shipped by an earlier sender, and lie before where this one reads.
            self.end_seen = any(_is_end(entry) for entry in self._read_from((self.place.segments() or [0])[-1]))

    def save(self) -> None:
        """Write what is acknowledged to disk. Where that cannot be, it is asked of the server again next time."""
        if self._unsaved:
            self.ack = msgspec.structs.replace(self.ack, updated_us=time.time_ns() // 1000)
            with contextlib.suppress(OSError):
                write_ack(self.place.acks, self._server, self.ack)
                self._unsaved = False

    def close(self) -> None:
        """Save, and let go of the stream."""
        self.save()
        self._reader.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _acknowledge(self, checkpoint: Checkpoint) -> None:
        if checkpoint != self.ack.acked:
            self.ack = msgspec.structs.replace(self.ack, acked=checkpoint)
            self._unsaved = True

    def _take(self) -> Entry:
        entry = self._queue.popleft()
        self._queued_bytes -= len(entry.payload)
        return entry

    def _cut_single(self, entry: Entry) -> Cut:
        refusal = self._refused.get(entry.seq)
        return Cut(
            count=entry.last_seq - entry.seq + 1,
            payloads=[entry.payload if refusal is None else refusal],
            is_substitute=entry.is_missing or refusal is not None,
        )

    def _next_entry(self) -> Entry | None:
        prelude = self._prelude_entry(self._read_next)
        if prelude is not None:
            return prelude
        for entry in self._reader.read(final=self.writer_gone):
            self.end_seen |= _is_end(entry)
            return self._to_wire(entry)
        return None

    def _prelude_entry(self, seq: int) -> Entry | None:
        fork = self.ack.fork
        if fork is None or not fork.base <= seq < fork.base + len(fork.prelude):
            return None
        return Entry(seq, seq, fork.prelude[seq - fork.base])

    def _to_journal(self, seq: int) -> int:
        fork = self.ack.fork
        return seq if fork is None else max(fork.at, seq - fork.shift)

    def _to_wire(self, entry: Entry) -> Entry:
        shift = 0 if self.ack.fork is None else self.ack.fork.shift
        if shift == 0:
            return entry
        payload = entry.payload
        if payload[1:6] == b"\xa4lost":
            lost = decode_record(payload)
            assert isinstance(lost, Lost)
            payload = encode(
                msgspec.structs.replace(lost, first_seq=lost.first_seq + shift, last_seq=lost.last_seq + shift)
            )
        return Entry(entry.seq + shift, entry.last_seq + shift, payload, is_missing=entry.is_missing)

    def _bases(self, next_seq: int) -> Iterator[Checkpoint]:
        """Places where the chain is known, the most likely first."""
        if self.ack.acked.seq <= next_seq:
            yield self.ack.acked
        if self.ack.fork is None:
            header = read_checkpoint(self.place, next_seq)
            if header is not None:
                yield Checkpoint(seq=header[0], digest=header[1])
        yield from (rebase for rebase in reversed(self.ack.rebases) if rebase.seq <= next_seq)
        base = 0 if self.ack.fork is None else self.ack.fork.base
        if base <= next_seq:
            yield Checkpoint(seq=base, digest=GENESIS_DIGEST)

    def _chain(self, base: Checkpoint, to_seq: int) -> bytes | None:
        """The digest chain at a seq, from a place where it is known; None where the journal ends before, or no record
        ends there."""
        seq, digest = base.seq, base.digest
        while seq < to_seq:
            prelude = self._prelude_entry(seq)
            if prelude is None:
                break
            seq, digest = seq + 1, chain(digest, prelude.payload)
        if seq == to_seq:
            return digest
        for entry in self._read_from(self._to_journal(seq)):
            wire = self._to_wire(entry)
            if wire.last_seq >= to_seq:
                return None
            digest = chain(digest, self._refused.get(wire.seq, wire.payload))
            if wire.last_seq + 1 == to_seq:
                return digest
        return None

    def _read_from(self, journal_seq: int) -> Iterator[Entry]:
        with contextlib.closing(JournalReader(self.place, journal_seq)) as reader:
            yield from reader.read(final=self.writer_gone)

    def _last_written_s(self) -> float:
        firsts = self.place.segments()
        try:
            return self.place.segment(firsts[-1]).stat().st_mtime if firsts else 0.0
        except OSError:
            return 0.0


def _is_end(entry: Entry) -> bool:
    return entry.payload[1:5] == b"\xa3end"  # array_like with the tag first: nothing else begins so
