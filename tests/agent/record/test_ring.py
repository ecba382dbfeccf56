"""The ring and its columns, against a plain reading row by row."""

from __future__ import annotations

import math
import struct
from array import array
from collections import Counter

import pytest
from halfscope.record.ring import MAX_POINTS_PER_RECORD, MAX_ROWS_PER_RECORD, Block, Ring, Row, expanded, to_points
from halfscope.wire.messages import Points
from hypothesis import given
from hypothesis import strategies as st

Triple = tuple[int, int, bytes]

rows_strategy = st.lists(
    st.tuples(
        st.integers(-5, 20),
        st.integers(0, 2**50),
        st.lists(st.tuples(st.integers(0, 4), st.floats()), max_size=4),
    ),
    max_size=20,
)


def decoded(points: Points) -> list[Triple]:
    """(step, sid, value bits) of every point, by the wire's definition."""
    num_rows = len(points.steps) // 8
    steps = struct.unpack(f"<{num_rows}q", points.steps)
    found = []
    for column in points.columns:
        count = len(column.values) // 8
        rows = struct.unpack(f"<{count}I", column.rows) if column.rows else range(num_rows)
        assert len(rows) == count
        found += [(steps[row], column.sid, column.values[8 * at : 8 * at + 8]) for at, row in enumerate(rows)]
    return found


@given(rows_strategy)
def test_columns_hold_every_value_bit_for_bit(rows: list[Row]) -> None:
    """As many points as were given, NaN and infinities included, each at its step and series."""
    given_points = Counter((step, sid, struct.pack("<d", value)) for step, _, values in rows for sid, value in values)
    assert Counter(decoded(to_points(rows))) == given_points


@given(rows_strategy)
def test_steps_ascend_and_no_row_holds_a_series_twice(rows: list[Row]) -> None:
    """Late values of an earlier step go where they belong; two values of one series at one step stay two."""
    points = to_points(rows)
    steps = struct.unpack(f"<{len(points.steps) // 8}q", points.steps)
    assert list(steps) == sorted(steps)
    for column in points.columns:
        rows_of_column = struct.unpack(f"<{len(column.rows) // 4}I", column.rows)
        assert list(rows_of_column) == sorted(set(rows_of_column))


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Steps of the same series, column by column."""
    steps = sorted(draw(st.sets(st.integers(-5, 20), min_size=1, max_size=6)))
    sids = tuple(draw(st.lists(st.integers(0, 4), unique=True, min_size=1, max_size=4)))
    values = st.lists(st.floats(), min_size=len(steps), max_size=len(steps))
    block = Block(steps, [step + 100 for step in steps], sids, [draw(values) for _ in sids])
    return in_memory(block) if draw(st.booleans()) else block


def in_memory(block: Block) -> Block:
    """The same as views of memory."""
    steps, times_us = (memoryview(array("q", numbers)) for numbers in (block.steps, block.times_us))
    return Block(steps, times_us, block.sids, [memoryview(array("d", column)) for column in block.columns])


@given(st.lists(blocks() | rows_strategy.map(tuple), max_size=5))
def test_blocks_give_the_points_of_their_rows(drawn: list[Block | tuple[Row, ...]]) -> None:
    """Whatever stands before and behind them, ascending or not: the same points, and steps that ascend."""
    items: list[Row | Block] = []
    for each in drawn:
        items += [each] if isinstance(each, Block) else each
    points = to_points(items)
    rows = [
        (step, sid, struct.pack("<d", value))
        for item in items
        for step, values in (
            [(step, [(sid, column[at]) for sid, column in zip(item.sids, item.columns, strict=True)])
             for at, step in enumerate(item.steps)]
            if isinstance(item, Block) else [(item[0], item[2])]
        )
        for sid, value in values
    ]  # fmt: skip
    assert Counter(decoded(points)) == Counter(rows)
    steps = struct.unpack(f"<{len(points.steps) // 8}q", points.steps)
    assert list(steps) == sorted(steps)
    assert [step for step, _, _ in expanded(items)] == [
        step for item in items for step in (item.steps if isinstance(item, Block) else [item[0]])
    ]


@given(st.lists(blocks(), min_size=1, max_size=4))
def test_blocks_in_memory_give_the_points_of_numbers(drawn: list[Block]) -> None:
    """One behind the other, of the same series in whatever order: byte for byte what lists give."""
    items = [
        Block([step + 100 * at for step in each.steps], each.times_us, (4, 0, 7), [each.columns[0]] * 3)
        for at, each in enumerate(drawn)
    ]
    assert to_points([in_memory(item) for item in items]) == to_points(list(expanded(items)))


def test_a_full_ring_drops_whole_blocks_and_counts_them() -> None:
    """A block counts as many rows as it has steps."""
    ring = Ring(max_rows=4)
    for step in range(0, 8, 2):
        ring.block(Block([step, step + 1], [0, 0], (0, 1, 2), [[0.0, 0.0]] * 3))
    assert ring.take_dropped() == (4, 12)
    assert [len(block.steps) for run in ring.drain() for block in run] == [2, 2]


def test_late_values_share_the_row_of_their_step() -> None:
    """A step whose device values arrive later is one row, with the time of its first part."""
    points = to_points([(0, 10, [(0, 1.0)]), (1, 20, [(0, 2.0)]), (0, 30, [(1, 3.0)]), (1, 40, [(1, 4.0)])])
    assert struct.unpack("<2q", points.steps) == (0, 1)
    assert struct.unpack("<2q", points.times_us) == (10, 20)
    assert [column.rows for column in points.columns] == [b"", b""]


def test_the_order_of_rows_and_events_is_kept() -> None:
    """What stands between two rows ends the record of the first."""
    ring = Ring()
    event = object()
    ring.row((0, 0, ()))
    ring.append(event)
    ring.row((1, 0, ()))
    assert list(ring.drain()) == [[(0, 0, ())], event, [(1, 0, ())]]
    assert list(ring.drain()) == []


def test_records_stay_of_a_size_that_can_be_sent() -> None:
    """Many rows, or rows of many series, become several records."""
    ring = Ring()
    for step in range(MAX_ROWS_PER_RECORD + 1):
        ring.row((step, 0, ()))
    assert [len(rows) for rows in ring.drain()] == [MAX_ROWS_PER_RECORD, 1]
    wide = [(sid, math.pi) for sid in range(MAX_POINTS_PER_RECORD)]
    for step in range(2):
        ring.row((step, 0, wide))
    assert [len(rows) for rows in ring.drain()] == [1, 1]


def test_a_full_ring_counts_what_it_drops() -> None:
    """The newest rows are dropped, events never."""
    ring = Ring(max_rows=2)
    for step in range(5):
        ring.row((step, 0, [(0, 1.0), (1, 1.0)]))
    ring.append("event")
    assert list(ring.drain()) == [[(0, 0, [(0, 1.0), (1, 1.0)]), (1, 0, [(0, 1.0), (1, 1.0)])], "event"]
    assert ring.take_dropped() == (3, 6)
    assert ring.take_dropped() == (0, 0)


@pytest.mark.parametrize("row", [("x", 0, []), (0, 0, [(0, "x")]), (1 << 70, 0, [])])
def test_what_is_no_number_is_refused(row: Row) -> None:
    """With an error the recorder knows, so that one bad row does not cost the others."""
    with pytest.raises((TypeError, OverflowError)):
        to_points([row])
