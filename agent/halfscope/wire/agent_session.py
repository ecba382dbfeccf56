"""The agent's side of `halfscope.v1`, without sockets, files or a clock of its own.

Owns, for many streams over one connection: who has been greeted, under which epoch what may be sent, which batches
are not yet acknowledged, when to try again. Whoever drives it moves frames and bytes: it feeds `receive`, asks
`hellos` and `room`, and compares the digests of a `Welcomed` with the journal. Must not import torch or numpy.
Invariant: a batch is built only for a stream that this connection was welcomed on, beginning exactly where the last
one ended, and at most `window` are unacknowledged.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from halfscope.wire.backoff import Backoff
from halfscope.wire.codec import chain, pack_body
from halfscope.wire.errors import SequenceError
from halfscope.wire.messages import Ack, Batch, Bye, Gone, Hello, Refuse, ServerFrame, Welcome

WINDOW_BATCHES = 8
"""Unacknowledged batches of one stream: at 256 KiB and a commit every 20 ms that is 100 MB/s, more than any link
here."""
HELLO_TIMEOUT_S = 20.0
ACK_TIMEOUT_S = 60.0
"""A server that answers pings but commits nothing for so long is left and greeted anew."""
REFUSED_BATCH_RETRY_S = 0.1
"""After `bad_batch` and `too_large` less is tried, so that the one record at fault is found: no reason to wait long."""
VERSION_RETRY_S = 600.0
"""After `version`: somebody has to install something first."""

Key = tuple[str, str]
"""(run_id, stream)"""


class Phase(enum.Enum):
    """Where a stream stands on this connection."""

    WAITING = "waiting"
    """To be greeted, now or later."""
    GREETED = "greeted"
    """`Hello` sent, no answer yet."""
    MATCHING = "matching"
    """Welcomed; whether the journal is the one the server knows is not decided yet."""
    OPEN = "open"
    GONE = "gone"
    """The run was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcomed:
    """The server has everything before `next`; `resume` if the journal's chain there is `digest`, else it has
    forked."""

    key: Key
    next: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """Everything before `next` is committed; `digest` is the chain there."""

    key: Key
    next: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGone:
    """The run was deleted: one event for each of its streams."""

    key: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRefused:
    """The oldest unacknowledged batch cannot be taken as it is (`bad_batch`, `too_large`)."""

    key: Key
    first: int
    count: int
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A stream (or the whole connection, where key is None) is not taken now; it is tried again by itself."""

    key: Key | None
    code: str
    message: str


SessionEvent = Welcomed | Acked | RunGone | BatchRefused | Refused


@dataclass(frozen=True, slots=True)
class _Sent:
    first: int
    next: int
    digest: bytes
    sent_s: float


@dataclass(slots=True)
class _Stream:
    hello: Hello
    backoff: Backoff
    phase: Phase = Phase.WAITING
    due_s: float = 0.0
    """WAITING: when to greet. GREETED: when to give up."""
    epoch: int = 0
    next: int = 0
    """Seq of the next batch."""
    digest: bytes = b""
    acked: int = 0
    unacked: deque[_Sent] = field(default_factory=deque)


class AgentSession:
    """Protocol state of one connection. Times are seconds of any monotonic clock."""

    def __init__(self, *, window: int = WINDOW_BATCHES, uniform: Callable[[], float] = random.random) -> None:
        self._window = window
        self._uniform = uniform
        self._streams: dict[Key, _Stream] = {}

    def add(self, hello: Hello, now_s: float) -> None:
        """Take up a stream; it is greeted with the next `hellos`."""
        backoff = Backoff(base_s=1.0, cap_s=60.0, uniform=self._uniform)
        self._streams[hello.run_id, hello.stream] = _Stream(hello, backoff, due_s=now_s)

    def remove(self, key: Key) -> None:
        """Forget a stream; what the server still says of it is passed over."""
        self._streams.pop(key, None)

    def phase(self, key: Key) -> Phase:
        return self._streams[key].phase

    def connected(self, now_s: float) -> None:
        """A new connection: nothing said before holds on it."""
        for stream in self._streams.values():
            if stream.phase is not Phase.GONE:
                stream.unacked.clear()
                # What was refused until later is not asked for sooner only because the connection is new.
                if stream.phase is not Phase.WAITING:
                    stream.phase, stream.due_s = Phase.WAITING, now_s

    def hellos(self, now_s: float) -> list[Hello]:
        """Greetings that are due; the caller sends them."""
        due = [s for s in self._streams.values() if s.phase is Phase.WAITING and s.due_s <= now_s]
        for stream in due:
            stream.phase, stream.due_s = Phase.GREETED, now_s + HELLO_TIMEOUT_S
        return [stream.hello for stream in due]

    def resume(self, key: Key) -> None:
        """The journal's chain is the server's: batches may go."""
        stream = self._streams[key]
        if stream.phase is not Phase.MATCHING:
            raise SequenceError(f"resume of {key} in phase {stream.phase.value}; expected matching")
        stream.phase = Phase.OPEN

    def room(self, key: Key) -> int:
        """How many batches of a stream may be sent now."""
        stream = self._streams.get(key)
        if stream is None or stream.phase is not Phase.OPEN:
            return 0
        return self._window - len(stream.unacked)

    def next_seq(self, key: Key) -> int:
        """Seq with which the next batch begins."""
        return self._streams[key].next

    def num_unacked(self, key: Key) -> int:
        return len(self._streams[key].unacked)

    def batch(self, key: Key, count: int, payloads: Sequence[bytes], now_s: float) -> Batch:
        """The next records of a stream as a batch.

        Args:
            count: how many seqs they cover; more than there are payloads only for a single `Lost`.

        Raises:
            SequenceError: the stream may not send now.
        """
        if self.room(key) <= 0:
            raise SequenceError(f"a batch of {key} with no room for it")
        if count != len(payloads) and len(payloads) != 1:
            raise SequenceError(f"{len(payloads)} records for {count} seqs; only a single Lost covers many")
        stream = self._streams[key]
        digest = stream.digest
        for payload in payloads:
            digest = chain(digest, payload)
        raw_bytes, body = pack_body(payloads)
        first, stream.next, stream.digest = stream.next, stream.next + count, digest
        stream.unacked.append(_Sent(first, stream.next, digest, now_s))
        return Batch(
            run_id=key[0],
            stream=key[1],
            epoch=stream.epoch,
            first=first,
            count=count,
            digest=digest,
            raw_bytes=raw_bytes,
            body=body,
        )

    def bye(self, key: Key, outcome: str, time_us: int) -> Bye:
        """The farewell of a stream of which everything is acknowledged.

        Raises:
            SequenceError: something is still on its way.
        """
        stream = self._streams[key]
        if stream.phase is not Phase.OPEN or stream.unacked:
            raise SequenceError(
                f"farewell of {key} in phase {stream.phase.value} with {len(stream.unacked)} batches unacknowledged"
            )
        return Bye(run_id=key[0], stream=key[1], outcome=outcome, time_us=time_us)

    def receive(self, frame: ServerFrame, now_s: float) -> list[SessionEvent]:
        """What a frame from the server means. Frames for streams not known here, and kinds not known yet, mean
        nothing."""
        if isinstance(frame, Ack):
            return self._ack(frame, now_s)
        if isinstance(frame, Welcome):
            return self._welcome(frame, now_s)
        if isinstance(frame, Refuse):
            return self._refuse(frame, now_s)
        if isinstance(frame, Gone):
            return self._gone(frame)
        return []

    def is_stuck(self, now_s: float) -> str:
        """Why this connection should be left, or an empty string."""
        for key, stream in self._streams.items():
            if stream.phase is Phase.GREETED and stream.due_s <= now_s:
                return f"no answer to the greeting of stream {key[1]} for {HELLO_TIMEOUT_S:.0f} s"
            if stream.unacked and now_s - stream.unacked[0].sent_s >= ACK_TIMEOUT_S:
                return f"no acknowledgement for stream {key[1]} for {ACK_TIMEOUT_S:.0f} s"
        return ""

    def _welcome(self, frame: Welcome, now_s: float) -> list[SessionEvent]:
        key = frame.run_id, frame.stream
        stream = self._streams.get(key)
        if stream is None or stream.phase is not Phase.GREETED:
            return []
        stream.phase, stream.epoch = Phase.MATCHING, frame.epoch
        stream.next = stream.acked = frame.next
        stream.digest = frame.digest
        stream.unacked.clear()
        return [Welcomed(key=key, next=frame.next, digest=frame.digest)]

    def _ack(self, frame: Ack, now_s: float) -> list[SessionEvent]:
        key = frame.run_id, frame.stream
        stream = self._streams.get(key)
        if stream is None or stream.phase is not Phase.OPEN or frame.epoch not in (0, stream.epoch):
            return []
        if frame.next <= stream.acked:
            return []  # a duplicate, or overtaken by a later one
        digest = next((sent.digest for sent in stream.unacked if sent.next == frame.next), None)
        if digest is None:
            # Not where any of our batches ends: somebody else writes this stream, or the server went back. Its welcome
            # tells.
            self._wait(stream, now_s, None)
            return []
        while stream.unacked and stream.unacked[0].next <= frame.next:
            stream.unacked.popleft()
        stream.acked = frame.next
        stream.backoff.reset()
        return [Acked(key=key, next=frame.next, digest=digest)]

    def _refuse(self, frame: Refuse, now_s: float) -> list[SessionEvent]:
        if not frame.stream:
            return [Refused(key=None, code=frame.code, message=frame.message)]
        key = frame.run_id, frame.stream
        stream = self._streams.get(key)
        if stream is None or stream.phase in (Phase.WAITING, Phase.GONE):
            return []  # the rest of what was sent before the first refusal: answered already
        oldest = stream.unacked[0] if stream.unacked else None
        if frame.code in ("bad_batch", "too_large") and oldest is not None:
            self._wait(stream, now_s, frame.retry_after_s or REFUSED_BATCH_RETRY_S)
            return [
                BatchRefused(
                    key=key,
                    first=oldest.first,
                    count=oldest.next - oldest.first,
                    code=frame.code,
                    message=frame.message,
                )
            ]
        if frame.code == "version":
            self._wait(stream, now_s, VERSION_RETRY_S)
        else:
            self._wait(stream, now_s, frame.retry_after_s or None)
        return [Refused(key=key, code=frame.code, message=frame.message)]

    def _gone(self, frame: Gone) -> list[SessionEvent]:
        events: list[SessionEvent] = []
        for key, stream in self._streams.items():
            if key[0] == frame.run_id and frame.stream in ("", key[1]) and stream.phase is not Phase.GONE:
                stream.phase = Phase.GONE
                stream.unacked.clear()
                events.append(RunGone(key=key))
        return events

    def _wait(self, stream: _Stream, now_s: float, delay_s: float | None) -> None:
        stream.unacked.clear()
        stream.phase = Phase.WAITING
        stream.due_s = now_s + (stream.backoff.delay_s() if delay_s is None else delay_s)
