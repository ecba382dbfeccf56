"""The one thread that writes: frames in, group commits, answers out; compaction and lost contact in between.

Owns the bounded queue, the shape of a group and what each sender is told. Must not know sockets, nor tables.
Invariant: every frame that was taken in is answered exactly once, and an `Ack` says only what the store read back
after COMMIT.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from halfscope.wire.messages import Ack, AgentFrame, Batch, Bye, Hello, Live, Refuse, ServerFrame

from halfscope_server.errors import Unavailable
from halfscope_server.store.store import Store
from halfscope_server.store.types import Applied, CommitResult, noted

log = logging.getLogger(__name__)

GROUP_BYTES = 4 * 1024 * 1024
"""A group is committed when it holds so much,"""
GROUP_S = 0.020
"""or when its first frame has waited so long,"""
GROUP_GAP_S = 0.005
"""or when nothing more has come for so long: one sender alone need not wait for others."""
QUEUE_BYTES = 32 * 1024 * 1024
"""Frames that may wait; beyond it senders are not read from."""
QUEUE_FRAMES = 8192

IDLE_S = 0.2
"""How often an idle writer looks whether something is due."""
COMPACT_EVERY_S = 0.25
IDLE_BUDGET_S = 0.1
BUSY_BUDGET_S = 0.03
"""Time given to compaction at once: it adds to the wait of whoever sends meanwhile."""
FAILED_AFTER_S = 5.0
"""When compaction is tried again after the database did not answer."""
CONTACT_EVERY_S = 10.0
"""How often open connections count as a sign of life of their streams."""
RETRY_AFTER_S = 2.0
"""When a sender may try again after the database did not answer."""

Key = tuple[str, str]


class Client(Protocol):
    """Whoever sent frames and is to be answered. Called from the writer's thread; must return at once."""

    def answer(self, frames: Sequence[ServerFrame], *, num_frames: int, num_bytes: int) -> None:
        """Take answers; `num_frames` frames of `num_bytes` together are settled by them."""


@dataclass(frozen=True, slots=True)
class _Item:
    frame: AgentFrame
    num_bytes: int
    client: Client


@dataclass(slots=True, kw_only=True)
class IngestMetrics:
    """Counters since the server started; the queue's are of now."""

    frames: int = 0
    bytes: int = 0
    batches: int = 0
    points: int = 0
    sketches: int = 0
    """Layers' sketches, over all frames."""
    events: int = 0
    commits: int = 0
    commit_s: float = 0.0
    refused: int = 0
    errors: int = 0
    """Times the database did not answer, or something unforeseen happened."""
    listener_errors: int = 0
    merges: int = 0
    merge_s: float = 0.0
    lost_contacts: int = 0
    queue_frames: int = 0
    queue_bytes: int = 0


class Writer:
    """The writer thread and its queue.

    Args:
        store: what is written to; its writing methods are called from nowhere else.
        on_applied: told after each commit, in the writer's thread; it must return at once.
        on_live: told of live frames, which are not stored.
        lost_contact_s: silence after which a stream's contact is lost.
        clock_us: wall clock, microseconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        on_applied: Callable[[list[Applied]], None],
        *,
        on_live: Callable[[Live], None] | None = None,
        lost_contact_s: float = 90.0,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._store = store
        self._on_applied = on_applied
        self._on_live = on_live
        self._lost_contact_us = int(lost_contact_s * 1e6)
        self._clock_us = clock_us
        self._condition = threading.Condition()
        self._queue: deque[_Item] = deque()
        self._queue_bytes = 0
        self._room_listeners: list[Callable[[], object]] = []
        self._held: Counter[Key] = Counter()
        self._heard: set[Key] = set()
        self._stopping = False
        self._metrics = IngestMetrics()
        self._thread = threading.Thread(target=self._run, name="halfscope-writer", daemon=True)
        self._started_us = clock_us()
        self._contact_at_s = time.monotonic() + CONTACT_EVERY_S
        self._compact_at_s = 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Take no more frames, commit those that wait, end the thread."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def submit(self, frame: AgentFrame, num_bytes: int, client: Client) -> bool:
        """Queue a frame; from any thread.

        Returns:
            False: there is no room (see `when_room`), or the writer is stopping; the frame was not taken.
        """
        with self._condition:
            if self._stopping or self._queue_bytes >= QUEUE_BYTES or len(self._queue) >= QUEUE_FRAMES:
                return False
            self._queue.append(_Item(frame, num_bytes, client))
            self._queue_bytes += num_bytes
            self._condition.notify()
        return True

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs: frames that are taken in will be committed."""
        return self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def when_room(self, listener: Callable[[], object]) -> None:
        """Call back once, from the writer's thread, when the queue has been emptied or the writer stops."""
        with self._condition:
            if self._queue and not self._stopping:
                self._room_listeners.append(listener)
                return
        listener()

    def hold(self, key: Key) -> None:
        """A connection that was granted this stream is open: as long as it is, the stream's agent is there."""
        with self._condition:
            self._held[key] += 1

    def release(self, key: Key) -> None:
        """Such a connection was closed."""
        with self._condition:
            self._held[key] -= 1
            if self._held[key] <= 0:
                del self._held[key]

    def metrics(self) -> IngestMetrics:
        """The counters as they are now."""
        with self._condition:
            return IngestMetrics(
                **{name: getattr(self._metrics, name) for name in IngestMetrics.__slots__}
                | {"queue_frames": len(self._queue), "queue_bytes": self._queue_bytes}
            )

    def _run(self) -> None:
        while True:
            items = self._gather()
            if items:
                self._guarded(functools.partial(self._process, items))
            elif self._stopping:
                return
            self._guarded(functools.partial(self._maintain, is_idle=not items))

    def _guarded(self, work: Callable[[], object]) -> None:
        """This thread must outlive anything: without it nothing is taken in any more."""
        try:
            work()
        except Unavailable:
            self._metrics.errors += 1
            log.exception("the writer could not do its work; it goes on")
        except Exception:
            self._metrics.errors += 1
            log.exception("unexpected error in the writer; it goes on")

    def _gather(self) -> list[_Item]:
        """The next group: waits for its first frame up to IDLE_S, then for more up to GROUP_S."""
        with self._condition:
            if not self._queue and not self._stopping:
                self._condition.wait(IDLE_S)
            if not self._queue:
                return []
            deadline_s = time.monotonic() + GROUP_S
            while self._queue_bytes < GROUP_BYTES and not self._stopping:
                num_before = len(self._queue)
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    break
                self._condition.wait(min(left_s, GROUP_GAP_S))
                if len(self._queue) == num_before:
                    break
            items: list[_Item] = []
            num_bytes = 0
            while self._queue and num_bytes < GROUP_BYTES:
                items.append(self._queue.popleft())
                num_bytes += items[-1].num_bytes
            self._queue_bytes -= num_bytes
            listeners, self._room_listeners = self._room_listeners, []
        for listener in listeners:
            listener()
        self._metrics.frames += len(items)
        self._metrics.bytes += num_bytes
        return items

    def _process(self, items: Sequence[_Item]) -> None:
        """Frames in their order; batches that follow one another are one group, and so are greetings."""
        for kind, run in itertools.groupby(items, key=lambda item: type(item.frame)):
            alike = list(run)
            if kind is Batch:
                self._commit([(item, item.frame) for item in alike if isinstance(item.frame, Batch)])
            elif kind is Hello:
                self._grant([(item, item.frame) for item in alike if isinstance(item.frame, Hello)])
            else:
                for item in alike:
                    self._note(item)

    def _grant(self, group: Sequence[tuple[_Item, Hello]]) -> None:
        answers: Sequence[ServerFrame]
        try:
            answers = self._store.grant_all([hello for _, hello in group], now_us=self._clock_us())
        except Exception as error:
            self._metrics.errors += 1
            log.exception("%d greetings were not answered; their senders will greet again", len(group))
            answers = [_busy(hello, _reason(error)) for _, hello in group]
        for (item, _), answer in zip(group, answers, strict=True):
            item.client.answer([answer], num_frames=1, num_bytes=item.num_bytes)

    def _commit(self, group: Sequence[tuple[_Item, Batch]]) -> None:
        if not group:
            return
        before_s = time.monotonic()
        batches = [batch for _, batch in group]
        try:
            result = self._store.commit(batches, now_us=self._clock_us())
        except Exception as error:
            self._metrics.errors += 1
            log.exception("a group of %d batches was not committed; their senders will send them again", len(group))
            reason = _reason(error)
            _send(group, lambda batch: [_busy(batch, reason)])
            return
        metrics = self._metrics
        metrics.commits += 1
        metrics.commit_s += time.monotonic() - before_s
        metrics.refused += len(result.refused)
        metrics.batches += len(batches)
        metrics.points += sum(applied.num_points for applied in result.applied)
        metrics.sketches += sum(applied.num_sketches for applied in result.applied)
        metrics.events += sum(applied.num_events for applied in result.applied)
        _send(group, lambda batch: _verdict(result, batch))
        self._tell(list(result.applied))

    def _note(self, item: _Item) -> None:
        """A frame that is answered only when it cannot be taken."""
        frame = item.frame
        answers: list[ServerFrame] = []
        try:
            if isinstance(frame, Bye):
                self._store.bye(frame, now_us=self._clock_us())
                self._tell([noted(frame.run_id)])
            elif isinstance(frame, Live):
                self._heard.add((frame.run_id, frame.stream))
                if self._on_live is not None:
                    self._on_live(frame)
        except Exception as error:
            self._metrics.errors += 1
            log.exception("a %s was not taken", type(frame).__name__)
            answers = [_busy(frame, _reason(error))]
        item.client.answer(answers, num_frames=1, num_bytes=item.num_bytes)

    def _maintain(self, *, is_idle: bool) -> None:
        now_s = time.monotonic()
        if now_s >= self._compact_at_s:
            budget_s = IDLE_BUDGET_S if is_idle else BUSY_BUDGET_S
            self._compact_at_s = now_s + FAILED_AFTER_S  # where the next line raises
            merges = self._store.compact(now_us=self._clock_us(), budget_s=budget_s)
            self._metrics.merges += merges
            self._metrics.merge_s += time.monotonic() - now_s
            # While there is more to do and nobody waits, go on.
            self._compact_at_s = 0.0 if merges and is_idle else time.monotonic() + COMPACT_EVERY_S
        if now_s >= self._contact_at_s:
            self._contact_at_s = now_s + CONTACT_EVERY_S
            self.judge_contact()

    def judge_contact(self) -> None:
        """Note who is there, and mark as lost who has been silent for too long. Called by the writer's own timer."""
        now_us = self._clock_us()
        with self._condition:
            present = self._held.keys() | self._heard
            self._heard = set()
        if present:
            self._store.touch(present, now_us=now_us)
        # After a start nobody is lost before everybody has had the time to come back.
        if now_us - self._started_us >= self._lost_contact_us:
            lost = self._store.mark_lost_contact(silent_since_us=now_us - self._lost_contact_us, now_us=now_us)
            self._metrics.lost_contacts += len(lost)
            self._tell([noted(run_id) for run_id in lost])

    def _tell(self, applied: list[Applied]) -> None:
        if not applied:
            return
        try:
            self._on_applied(applied)
        except Exception:
            self._metrics.listener_errors += 1
            log.exception("a listener failed on what was committed")


def _send(group: Iterable[tuple[_Item, Batch]], verdict: Callable[[Batch], list[ServerFrame]]) -> None:
    """Answer each client once for all of its batches of a group; one verdict per stream and epoch."""
    settled: dict[int, tuple[Client, list[_Item], list[ServerFrame], set[tuple[str, str, int]]]] = {}
    for item, batch in group:
        _, items, frames, seen = settled.setdefault(id(item.client), (item.client, [], [], set()))
        items.append(item)
        subject = (batch.run_id, batch.stream, batch.epoch)
        if subject not in seen:
            seen.add(subject)
            frames += verdict(batch)
    for client, items, frames, _ in settled.values():
        client.answer(frames, num_frames=len(items), num_bytes=sum(item.num_bytes for item in items))


def _verdict(result: CommitResult, batch: Batch) -> list[ServerFrame]:
    """What the sender of a batch is told about its stream: how far it is, then what is wrong with it."""
    key = (batch.run_id, batch.stream)
    gone: list[ServerFrame] = [said for said in result.gone if (said.run_id, said.stream) == key]
    if gone:
        return gone[:1]
    epoch = result.epochs.get(key)
    if epoch == batch.epoch:
        bad = [said for said in result.refused if (said.run_id, said.stream) == key and said.code == "bad_batch"]
        return [Ack(*key, result.next[key], epoch), *bad[:1]]
    fenced = [said for said in result.refused if (said.run_id, said.stream) == key and said.code == "fenced"]
    return [*fenced[:1]]


def _busy(frame: AgentFrame, reason: str) -> Refuse:
    return Refuse("busy", reason, frame.run_id, frame.stream, RETRY_AFTER_S)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Unavailable) else "an unexpected error; the server's log has it"
