"""Points of one stream gathered in arrival order: what an unsealed tail is read from and what chunks are built of.

Must not import the tables or do I/O. Invariant: every value of a series is kept, and a series comes out ascending by
step with the arrival order kept among equal steps, whatever the boundaries of records and frames were.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from halfscope.wire.messages import Points
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesColumn:
    """One series of a block, ascending by (step, arrival)."""

    rows: Int64s | None
    """Row of the block's axis for each value; None: one value on every row, in order."""
    values: Float64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The rows that the series of a block share: ascending by step; no (step, time) twice."""

    steps: Int64s
    times_us: Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    axis: Axis
    series: Mapping[int, SeriesColumn]


class _Gathered:
    """Values of one series as they arrive: bytes and row numbers.

    One growing array, for a list of single values would take fifteen times their size; and rows that follow one another
    are one stretch.
    """

    __slots__ = ("num_values", "rows", "values")

    def __init__(self) -> None:
        self.values = bytearray()
        self.rows: list[tuple[int, int] | Int64s] = []
        """(first row, count) of a column that covers its whole record, else explicit row numbers; none as long as each
        of the first rows has one value."""
        self.num_values = 0

    def add_whole(self, first_row: int, num_rows: int) -> None:
        """Note that the values just added are one for each of some rows."""
        # A second column of the same series in one record makes more values than rows: no longer one on every row.
        if self.rows or self.num_values != first_row:
            last = self._stretches()[-1] if self.num_values else None
            if isinstance(last, tuple) and last[0] + last[1] == first_row:
                self.rows[-1] = (last[0], last[1] + num_rows)
            else:
                self.rows.append((first_row, num_rows))
        self.num_values += num_rows

    def add_rows(self, rows: Int64s) -> None:
        """Note that those just added are of these rows."""
        self._stretches().append(rows)
        self.num_values += len(rows)

    def _stretches(self) -> list[tuple[int, int] | Int64s]:
        if not self.rows and self.num_values:
            self.rows.append((0, self.num_values))
        return self.rows

    def row_numbers(self) -> Int64s:
        """Of every value."""
        parts = [np.arange(at[0], at[0] + at[1]) if isinstance(at, tuple) else at for at in self._stretches()]
        return np.concatenate(parts)


class Collector:
    """Gathers records; `block` sorts them out. Adding costs a list append per column.

    Args:
        only: series ids that are gathered at all; None: all.
    """

    def __init__(self, only: Container[int] | None = None) -> None:
        self._only = only
        self.num_rows = 0
        self.num_bytes = 0
        self._steps, self._times_us = bytearray(), bytearray()
        self._series: dict[int, _Gathered] = {}
        self._axis: tuple[int, Axis, Int64s | None] | None = None

    def add(self, points: Points, sids: Mapping[int, int]) -> None:
        """Append a record that was checked when it was taken in.

        Args:
            points: the record.
            sids: sid -> series_id for each of its columns.
        """
        num_rows = len(points.steps) // 8
        first_row = self.num_rows
        self._add_rows(points.steps, points.times_us, num_rows)
        series, only, num_bytes = self._series, self._only, 0
        for column in points.columns:
            series_id = sids[column.sid]
            if only is not None and series_id not in only:
                continue
            gathered = series.get(series_id)
            if gathered is None:
                gathered = self._gathered(series_id)
            gathered.values += column.values
            num_bytes += len(column.values)
            if column.rows:
                gathered.add_rows(np.frombuffer(column.rows, "<u4").astype(np.int64) + first_row)
            elif gathered.rows or gathered.num_values != first_row:
                gathered.add_whole(first_row, num_rows)
            else:
                gathered.num_values += num_rows  # what nearly all columns are, of a thousand streams
        self.num_bytes += num_bytes

    def add_block(self, block: Block) -> None:
        """Append what an open chunk holds; it was there before the records that follow."""
        num_rows = len(block.axis.steps)
        first_row = self.num_rows
        self._add_rows(block.axis.steps.tobytes(), block.axis.times_us.tobytes(), num_rows)
        for series_id, column in block.series.items():
            gathered = self._gathered(series_id)
            gathered.values += column.values.tobytes()
            self.num_bytes += 8 * len(column.values)
            if column.rows is None:
                gathered.add_whole(first_row, num_rows)
            else:
                gathered.add_rows(column.rows + first_row)

    def num_steps(self) -> int:
        """How many different steps there are."""
        return len(np.unique(_joined(self._steps)))

    def block(self, only: Sequence[int] | None = None) -> Block:
        """Everything so far, sorted.

        Args:
            only: series ids to bring out; None: all.
        """
        axis, row_of = self._sorted_axis()
        series = {}
        for series_id in self._series if only is None else only:
            gathered = self._series.get(series_id)
            if gathered is not None:
                series[series_id] = _sorted(gathered, self.num_rows, axis.steps, row_of)
        return Block(axis=axis, series=series)

    def _sorted_axis(self) -> tuple[Axis, Int64s | None]:
        """Kept until more rows come: of a thousand streams it is most of the work of reading a series."""
        held = self._axis
        if held is None or held[0] != self.num_rows:
            axis, row_of = _deduplicated(_joined(self._steps), _joined(self._times_us))
            held = self._axis = (self.num_rows, axis, row_of)
        return held[1], held[2]

    def _add_rows(self, steps: bytes, times_us: bytes, num_rows: int) -> None:
        self._steps += steps
        self._times_us += times_us
        self.num_rows += num_rows
        self.num_bytes += 2 * len(steps)

    def _gathered(self, series_id: int) -> _Gathered:
        gathered = self._series.get(series_id)
        if gathered is None:
            gathered = self._series[series_id] = _Gathered()
        return gathered


def _joined(gathered: bytearray) -> Int64s:
    # A copy: an array that lies in it would keep it from growing.
    return np.frombuffer(bytes(gathered), "<i8")


def _deduplicated(steps: Int64s, times_us: Int64s) -> tuple[Axis, Int64s | None]:
    """The axis, and for each gathered row its row of the axis (None: the same).

    A late value repeats the step, and mostly the time, of a row that is there already.
    """
    if len(steps) < 2 or bool((steps[1:] > steps[:-1]).all()):
        return Axis(steps=steps, times_us=times_us), None
    order = np.lexsort((times_us, steps))
    steps, times_us = steps[order], times_us[order]
    is_new = np.ones(len(steps), bool)
    is_new[1:] = (steps[1:] != steps[:-1]) | (times_us[1:] != times_us[:-1])
    row_of = np.empty(len(steps), np.int64)
    row_of[order] = np.cumsum(is_new) - 1
    return Axis(steps=steps[is_new], times_us=times_us[is_new]), row_of


def _sorted(gathered: _Gathered, num_rows: int, axis_steps: Int64s, row_of: Int64s | None) -> SeriesColumn:
    values = np.frombuffer(bytes(gathered.values), "<f8")
    if row_of is None and not gathered.rows and gathered.num_values == num_rows:
        return SeriesColumn(rows=None, values=values)
    rows = gathered.row_numbers()
    if row_of is not None:
        rows = row_of[rows]
    steps = axis_steps[rows]
    if bool((steps[1:] < steps[:-1]).any()):
        order = np.argsort(steps, kind="stable")
        rows, values = rows[order], values[order]
    if len(rows) == len(axis_steps) and bool((rows == np.arange(len(rows))).all()):
        return SeriesColumn(rows=None, values=values)
    return SeriesColumn(rows=rows, values=values)
