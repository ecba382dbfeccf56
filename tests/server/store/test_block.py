"""Gathering points: nothing is lost and arrival order is kept, against a plain list."""

from __future__ import annotations

import numpy as np
from halfscope.wire.messages import Column, Points
from halfscope_server.store.block import Block, Collector
from hypothesis import given
from hypothesis import strategies as st

SIDS = {0: 100, 1: 101, 2: 102}


@st.composite
def records(draw: st.DrawFn) -> Points:
    """A record as an agent may send it: ascending steps, whole and sparse columns, a series twice."""
    steps = sorted(draw(st.lists(st.integers(0, 20), min_size=1, max_size=6)))
    times = [draw(st.sampled_from([1000 * step, 1000 * step + 1])) for step in steps]
    columns = []
    for sid in draw(st.lists(st.sampled_from(sorted(SIDS)), max_size=4)):
        rows = draw(st.none() | st.lists(st.integers(0, len(steps) - 1), min_size=1, max_size=6))
        values = draw(
            st.lists(st.floats(), min_size=len(steps), max_size=len(steps))
            if rows is None
            else st.lists(st.floats(), min_size=len(rows), max_size=len(rows))
        )
        packed = b"" if rows is None else np.array(rows, "<u4").tobytes()
        columns.append(Column(sid, np.array(values, "<f8").tobytes(), packed))
    return Points(np.array(steps, "<i8").tobytes(), np.array(times, "<i8").tobytes(), columns)


def expected(gathered: list[Points], sid: int) -> list[tuple[int, int, int]]:
    """(step, time, bits) of a series, by brute force: as they came, sorted stably by step."""
    found = []
    for record in gathered:
        steps, times = np.frombuffer(record.steps, "<i8"), np.frombuffer(record.times_us, "<i8")
        for column in record.columns:
            rows = np.frombuffer(column.rows, "<u4") if column.rows else np.arange(len(steps))
            if column.sid == sid:
                bits = np.frombuffer(column.values, "<i8")
                found += [(int(steps[row]), int(times[row]), int(value)) for row, value in zip(rows, bits, strict=True)]
    return sorted(found, key=lambda point: point[0])


def read(block: Block, series_id: int) -> list[tuple[int, int, int]]:
    column = block.series.get(series_id)
    if column is None:
        return []
    rows = np.arange(len(block.axis.steps)) if column.rows is None else column.rows
    return list(
        zip(
            block.axis.steps[rows].tolist(),
            block.axis.times_us[rows].tolist(),
            column.values.view("<i8").tolist(),
            strict=True,
        )
    )


@given(gathered=st.lists(records(), min_size=1, max_size=6), cut=st.integers(0, 6))
def test_a_block_holds_every_value_in_order_of_step_and_arrival(gathered: list[Points], cut: int) -> None:
    """Also when what came before some record was made a block first, as compaction does."""
    collector = Collector()
    for record in gathered[:cut]:
        collector.add(record, SIDS)
    if cut:
        again = Collector()
        again.add_block(collector.block())
        collector = again
    for record in gathered[cut:]:
        collector.add(record, SIDS)
    block = collector.block()
    for sid, series_id in SIDS.items():
        assert read(block, series_id) == expected(gathered, sid)
    rows = list(zip(block.axis.steps.tolist(), block.axis.times_us.tolist(), strict=True))
    assert rows == sorted(set(rows))
    assert collector.num_steps() == len({step for step, _ in rows})


def test_whole_columns_over_ascending_steps_need_no_row_numbers() -> None:
    """The usual case costs no bytes for rows, and late values of the same steps share the axis."""
    collector = Collector()
    for first in (0, 3):
        steps = np.arange(first, first + 3, dtype="<i8")
        values = np.arange(3, dtype="<f8").tobytes()
        collector.add(Points(steps.tobytes(), steps.tobytes(), [Column(0, values)]), SIDS)
        collector.add(Points(steps.tobytes(), steps.tobytes(), [Column(1, values)]), SIDS)
    block = collector.block()
    assert block.axis.steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert block.series[100].rows is None
    assert block.series[101].rows is None


def test_a_series_absent_in_one_record_and_twice_in_the_next_is_not_taken_for_whole() -> None:
    """It has as many values as there are rows, and they lie elsewhere."""
    collector = Collector()
    values = np.array([1.0, 2.0]).tobytes()
    early, late = np.array([0, 1], "<i8").tobytes(), np.array([2, 3], "<i8").tobytes()
    collector.add(Points(early, early, [Column(1, values)]), SIDS)
    collector.add(Points(late, late, [Column(0, values), Column(0, values)]), SIDS)
    one, two = np.array([1.0, 2.0]).view("<i8").tolist()
    assert read(collector.block(), 100) == [(2, 2, one), (2, 2, one), (3, 3, two), (3, 3, two)]
