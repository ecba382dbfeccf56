"""Encoded records on their way to the journal, held while it cannot be written.

Must not import torch or numpy. Invariant: order is kept, and of what is dropped for want of memory only points are,
each time leaving a `Gap` that counts them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from halfscope.record.journal import Gap

MAX_BYTES = 32 * 1024 * 1024
"""What a full disk may cost in memory."""
WRITE_BYTES = 1024 * 1024
"""Most bytes handed to the journal at once: well below a segment."""


class Backlog:
    """A queue of records, and of marks that are called when all before them is written."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._records: deque[tuple[bytes | Gap, int]] = deque()
        self._marks: deque[tuple[int, Callable[[], object]]] = deque()
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._num_appended = 0
        self._num_written = 0
        self._num_in_head = 0

    def append(self, record: bytes | Gap, *, num_points: int = 0) -> None:
        """Add a record; with `num_points` above 0 it is one that may be dropped."""
        self._records.append((record, num_points))
        self._num_bytes += _size(record)
        self._num_appended += 1

    def mark(self, written: Callable[[], object]) -> None:
        """Have something called once all that was appended before is written."""
        self._marks.append((self._num_appended, written))
        self._call_marks()

    def head(self) -> list[bytes | Gap]:
        """The oldest records, as many as one write takes."""
        head: list[bytes | Gap] = []
        num_bytes = 0
        for record, _ in self._records:
            num_bytes += _size(record)
            if head and num_bytes > WRITE_BYTES:
                break
            head.append(record)
        self._num_in_head = len(head)
        return head

    def pop_head(self) -> None:
        """The records of the last `head` are written."""
        for _ in range(self._num_in_head):
            record, _ = self._records.popleft()
            self._num_bytes -= _size(record)
        self._num_written += self._num_in_head
        self._num_in_head = 0
        self._call_marks()

    def bound(self, now_us: int) -> None:
        """Drop the oldest points where all takes too much memory."""
        if self._num_bytes <= self._max_bytes:
            return
        kept: deque[tuple[bytes | Gap, int]] = deque()
        num_records = num_points = num_bytes = 0
        gap_at = 0
        for record, points in self._records:
            # Down to three quarters, so that this walk is not taken for every record that follows.
            if points and self._num_bytes - num_bytes > self._max_bytes * 3 // 4:
                if not num_records:
                    gap_at = len(kept)
                num_records, num_points, num_bytes = num_records + 1, num_points + points, num_bytes + _size(record)
            else:
                kept.append((record, points))
        self._records = kept
        self._num_bytes -= num_bytes
        self._num_written += num_records
        if num_records:
            counts = {"records": num_records, "points": num_points, "bytes": num_bytes}
            kept.insert(gap_at, (Gap(reason="journal could not be written", time_us=now_us, counts=counts), 0))
            self._num_written -= 1

    def _call_marks(self) -> None:
        while self._marks and self._marks[0][0] <= self._num_written:
            self._marks.popleft()[1]()

    def __len__(self) -> int:
        return len(self._records)


def _size(record: bytes | Gap) -> int:
    return 100 if isinstance(record, Gap) else len(record)
