"""Encoded records on their way to the journal, held while it cannot be written.

Must not import torch or numpy. Invariant: order is kept, and of what is dropped for want of memory only sketches and
then points are, each run of them leaving a `Gap` that counts them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from halfscope.record.journal import Gap
from halfscope.record.losing import merged, steps_of_payload

MAX_BYTES = 32 * 1024 * 1024
"""What a full disk may cost in memory."""
WRITE_BYTES = 1024 * 1024
"""Most bytes handed to the journal at once: well below a segment."""

Kind = Literal["kept", "points", "sketches"]


@dataclass(frozen=True, slots=True)
class _Held:
    """A record and what it is; all but `kept` may be dropped."""

    index: int
    """How many were appended before it."""
    record: bytes | Gap
    kind: Kind
    count: int
    """How many points or sketches it holds."""

    @property
    def num_bytes(self) -> int:
        return 100 if isinstance(self.record, Gap) else len(self.record)


@dataclass(slots=True)
class _Dropped:
    """A run of records of one kind that were dropped."""

    index: int
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, held: _Held) -> None:
        counts = {"records": 1, held.kind: held.count, "bytes": held.num_bytes}
        where = steps_of_payload(held.record) if isinstance(held.record, bytes) else {}
        self.counts = merged(self.counts, counts | where)


class Backlog:
    """A queue of records, and of marks that are called when all before them is written."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._records: deque[_Held] = deque()
        self._marks: deque[tuple[int, Callable[[], object]]] = deque()
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._num_appended = 0
        self._num_in_head = 0

    def append(self, record: bytes | Gap, *, num_points: int = 0, num_sketches: int = 0) -> None:
        """Add a record; with `num_points` or `num_sketches` above 0 it is one that may be dropped."""
        kind: Kind = "sketches" if num_sketches else "points" if num_points else "kept"
        held = _Held(self._num_appended, record, kind, num_sketches or num_points)
        self._records.append(held)
        self._num_bytes += held.num_bytes
        self._num_appended += 1

    def mark(self, written: Callable[[], object]) -> None:
        """Have something called once all that was appended before is written."""
        self._marks.append((self._num_appended, written))
        self._call_marks()

    def head(self) -> list[bytes | Gap]:
        """The oldest records, as many as one write takes."""
        head: list[bytes | Gap] = []
        num_bytes = 0
        for held in self._records:
            num_bytes += held.num_bytes
            if head and num_bytes > WRITE_BYTES:
                break
            head.append(held.record)
        self._num_in_head = len(head)
        return head

    def pop_head(self) -> None:
        """The records of the last `head` are written."""
        for _ in range(self._num_in_head):
            self._num_bytes -= self._records.popleft().num_bytes
        self._num_in_head = 0
        self._call_marks()

    def bound(self, now_us: int) -> None:
        """Drop the oldest sketches, and where that is not enough the oldest points, where all takes too much
        memory."""
        kinds: tuple[Kind, ...] = ("sketches", "points")
        for kind in kinds:
            if self._num_bytes > self._max_bytes:
                # Down to three quarters, so that this walk is not taken for every record that follows.
                self._drop(kind, self._max_bytes * 3 // 4, now_us)

    def _drop(self, kind: Kind, max_bytes: int, now_us: int) -> None:
        """Of one kind the oldest, until no more than so many bytes are left."""
        kept: deque[_Held] = deque()
        run: _Dropped | None = None
        for held in self._records:
            if held.kind == kind and self._num_bytes > max_bytes:
                run = run or _Dropped(held.index)
                run.add(held)
                self._num_bytes -= held.num_bytes
                continue
            if run is not None and self._num_bytes <= max_bytes:
                kept.append(_gap(run, now_us))
                run = None
            kept.append(held)
        if run is not None:
            kept.append(_gap(run, now_us))
        kept = deque(sorted(kept, key=lambda held: held.index))
        self._num_bytes = sum(held.num_bytes for held in kept)
        self._records = kept

    def _call_marks(self) -> None:
        while self._marks and (not self._records or self._records[0].index >= self._marks[0][0]):
            self._marks.popleft()[1]()

    def __len__(self) -> int:
        return len(self._records)


def _gap(run: _Dropped, now_us: int) -> _Held:
    return _Held(run.index, Gap(reason="journal could not be written", time_us=now_us, counts=run.counts), "kept", 0)
