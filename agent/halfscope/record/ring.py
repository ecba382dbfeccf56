"""The memory ring between the training thread and the journal thread.

The training thread only appends (one deque append: no lock, no system call); the journal thread drains and turns rows
into columns. Must not import torch. Invariant: what is appended leaves in the order it came, or is counted as
dropped.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from halfscope.wire.messages import Column, Points

MAX_ROWS = 50_000
"""Some 60 MB at ten values a row: reached only if the journal thread is stuck in a write for minutes."""

MAX_ROWS_PER_RECORD = 512
"""Keeps a record of fifteen series near the 64 KiB at which a frame is cut."""
MAX_POINTS_PER_RECORD = 16_384

Row = tuple[int, int, Sequence[tuple[int, float]]]
"""(step, time in microseconds, (series, value) pairs)."""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of the same series, column by column: what most steps are told by."""

    steps: Sequence[int]
    """Ascending, each once. Where this and all else are views of memory (int64, float64), it is never read."""
    times_us: Sequence[int]
    sids: tuple[int, ...]
    """Each once."""
    columns: Sequence[Sequence[float]]
    """Of each series the values, one per step."""

    @property
    def num_points(self) -> int:
        return len(self.steps) * len(self.sids)

    def rows(self) -> Iterator[Row]:
        """One by one."""
        for step, time_us, values in zip(self.steps, self.times_us, zip(*self.columns, strict=True), strict=True):
            yield step, time_us, tuple(zip(self.sids, values, strict=True))


class Ring:
    """Rows and other items in the order they came."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._items: deque[Any] = deque()
        self._max_rows = max_rows
        self.append = self._items.append
        """For what is rare and never dropped: events, facts, declarations."""
        self.num_dropped_rows = 0
        self.num_dropped_points = 0

    def row(self, row: Row) -> None:
        """For what comes every step; dropped and counted while the ring is full."""
        if len(self._items) < self._max_rows:
            self.append(row)
        else:
            self.num_dropped_rows += 1
            self.num_dropped_points += len(row[2])

    def block(self, block: Block) -> None:
        """Likewise of several steps; as if each item in the ring were as large."""
        if len(self._items) * len(block.steps) < self._max_rows:
            self.append(block)
        else:
            self.num_dropped_rows += len(block.steps)
            self.num_dropped_points += block.num_points

    def take_dropped(self) -> tuple[int, int]:
        """(rows, points) dropped since the last call."""
        dropped = self.num_dropped_rows, self.num_dropped_points
        self.num_dropped_rows -= dropped[0]
        self.num_dropped_points -= dropped[1]
        return dropped

    def drain(self) -> Iterator[Any]:
        """What has been appended until now: runs of rows and blocks as lists, everything else one by one."""
        rows: list[Row | Block] = []
        num_rows = num_points = 0
        for _ in range(len(self._items)):
            item = self._items.popleft()
            is_row = isinstance(item, tuple | Block)
            if is_row:
                rows.append(item)
                num_rows += 1 if isinstance(item, tuple) else len(item.steps)
                num_points += len(item[2]) if isinstance(item, tuple) else item.num_points
                if num_rows < MAX_ROWS_PER_RECORD and num_points < MAX_POINTS_PER_RECORD:
                    continue
            if rows:
                yield rows
                rows, num_rows, num_points = [], 0, 0
            if not is_row:
                yield item
        if rows:
            yield rows


def to_points(rows: Iterable[Row | Block]) -> Points:
    """Rows and blocks as columns, ascending by step. Rows of one step become one row where no series would stand twice
    in it.

    Raises:
        TypeError, ValueError, OverflowError: a step or value that is no number, or a step beyond 64 bits.
    """
    items = list(rows)
    joined = _joined(items)
    if joined is not None:
        return joined
    table = _Table()
    for item in _ascending(items):
        if isinstance(item, Block):
            table.add_block(item)
            continue
        step, time_us, values = item
        sids, numbers = zip(*values, strict=True) if values else ((), ())
        if table.is_repeating(sids):  # a series twice in one row: each value on its own
            for sid, number in values:
                table.add(step, time_us, (sid,), (number,))
        else:
            table.add(step, time_us, sids, numbers)
    return table.points()


def _joined(items: Sequence[Row | Block]) -> Points | None:
    """Of blocks in memory as it lies, each behind the one before and of the same series: their bytes one after the
    other, so that no number is made of them. None of anything else."""
    blocks = [item for item in items if isinstance(item, Block) and isinstance(item.steps, memoryview)]
    if not blocks or len(blocks) < len(items) or sys.byteorder == "big":
        return None
    sids = blocks[0].sids
    if any(block.sids != sids for block in blocks) or any(
        one.steps[-1] >= other.steps[0] for one, other in pairwise(blocks)
    ):
        return None
    return Points(
        steps=b"".join(block.steps for block in blocks),  # type: ignore[misc]
        times_us=b"".join(block.times_us for block in blocks),  # type: ignore[misc]
        columns=[
            Column(sid=sids[at], values=b"".join(block.columns[at] for block in blocks), rows=b"")  # type: ignore[misc]
            for at in sorted(range(len(sids)), key=sids.__getitem__)
        ],
    )


class _Table:
    """Rows, gathered by which series they hold: mostly all hold the same ones, and whole columns are turned at once."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._times_us: list[int] = []
        self._taken: frozenset[int] = frozenset()
        """Series that have a value in the last row."""
        self._sets: dict[tuple[int, ...], frozenset[int]] = {}
        self._groups: dict[tuple[int, ...], tuple[list[int], list[tuple[float, ...]]]] = {}
        """Series -> (row numbers, values of each row)."""

    def is_repeating(self, sids: tuple[int, ...]) -> bool:
        members = self._sets.get(sids)
        if members is None:
            members = self._sets[sids] = frozenset(sids)
        return len(members) != len(sids)

    def add(self, step: int, time_us: int, sids: tuple[int, ...], numbers: tuple[float, ...]) -> None:
        members = self._sets.get(sids) or frozenset(sids)
        if self._steps and step == self._steps[-1] and self._taken.isdisjoint(members):
            self._taken |= members
        else:
            self._steps.append(step)
            self._times_us.append(time_us)
            self._taken = members
        group = self._groups.get(sids)
        if group is None:
            group = self._groups[sids] = ([], [])
        group[0].append(len(self._steps) - 1)
        group[1].append(numbers)

    def add_block(self, block: Block) -> None:
        """Of steps behind all that are here."""
        start = len(self._steps)
        self._steps += block.steps
        self._times_us += block.times_us
        self._taken = frozenset(block.sids)
        rows, numbers = self._groups.setdefault(block.sids, ([], []))
        rows += range(start, len(self._steps))
        numbers += zip(*block.columns, strict=True)

    def points(self) -> Points:
        columns: dict[int, tuple[list[int], tuple[float, ...]]] = {}
        for sids, (rows, numbers) in self._groups.items():
            for sid, values in zip(sids, zip(*numbers, strict=True), strict=True):
                if sid in columns:  # in rows of different make-up: bring both into the order of rows
                    held_rows, held_values = columns[sid]
                    pairs = sorted(zip([*held_rows, *rows], [*held_values, *values], strict=True), key=_row_number)
                    columns[sid] = ([row for row, _ in pairs], tuple(value for _, value in pairs))
                else:
                    columns[sid] = (rows, values)
        return Points(
            steps=_little_endian(array("q", self._steps)),
            times_us=_little_endian(array("q", self._times_us)),
            columns=[
                Column(
                    sid=sid,
                    values=_little_endian(array("d", values)),
                    rows=b"" if len(rows) == len(self._steps) else _little_endian(array("I", rows)),
                )
                for sid, (rows, values) in sorted(columns.items())
            ],
        )


def _row_number(pair: tuple[int, float]) -> int:
    return pair[0]


def _ascending(items: Iterable[Row | Block]) -> Sequence[Row | Block]:
    """In the order of steps; blocks as they are where each begins behind all before it."""
    items = list(items)
    last: int | None = None
    for item in items:
        is_block = isinstance(item, Block)
        first = item.steps[0] if isinstance(item, Block) else item[0]
        if last is not None and (first < last or (is_block and first == last)):
            rows = list(expanded(items))
            rows.sort(key=_step)  # stable: rows of one step stay in the order they came
            return rows
        last = item.steps[-1] if isinstance(item, Block) else first
    return items


def expanded(items: Iterable[Row | Block]) -> Iterator[Row]:
    """Row by row."""
    for item in items:
        if isinstance(item, Block):
            yield from item.rows()
        else:
            yield item


def _step(row: Row) -> int:
    return row[0]


def _little_endian(values: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


assert array("I").itemsize == 4
