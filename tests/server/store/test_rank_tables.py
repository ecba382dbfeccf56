"""Against plain dictionaries of everything that was sent: newest values, medians and largest values of each rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from halfscope_server.query.ranks import rank_cells
from halfscope_server.query.view import Views
from halfscope_server.query.window import Window
from halfscope_server.store import rank_tables, schema
from halfscope_server.store.records import series_id
from halfscope_server.store.store import Store
from numpy.testing import assert_array_equal

from tests.server.conftest import BEGAN_US, STEP_US, RunWriter

RUN = "run1"
STEP_S = series_id("time.step_s", {})
BUCKET = series_id("comm.time_s", {"bucket": "0"})
BYTES = series_id("comm.bytes", {"bucket": "0"})
RECENT = 200
Told = dict[int, dict[int, float]]
"""Rank and step to the value that came last."""


def nexts(store: Store) -> dict[str, int]:
    return {row.stream: row.next for row in store.streams(RUN)}


@pytest.fixture
def job(lite: Store) -> tuple[Store, Told]:
    """Three ranks at different paces through 700 steps, read now and then; rank 2 joins late, values repeat and come
    late, some are not finite, some steps are left out."""
    rng = np.random.default_rng(7)
    told: Told = {0: {}, 1: {}, 2: {}}
    writers = {rank: RunWriter(lite, rank=rank, world_size=3) for rank in (0, 1)}
    at = {0: 0, 1: 0, 2: 0}
    while min(at.values()) < 700:
        if at[0] > 100 and 2 not in writers:
            writers[2] = RunWriter(lite, rank=2, world_size=3)
        for rank, writer in writers.items():
            if rng.random() < 0.3 or at[rank] >= 700:
                continue
            steps = np.arange(at[rank], min(700, at[rank] + int(rng.integers(1, 90))))
            at[rank] = int(steps[-1]) + 1
            steps = steps[rng.random(steps.size) < 0.9]
            if rng.random() < 0.3:  # again, or late
                steps = np.sort(np.append(steps, rng.integers(0, at[rank], 3)))
            if not steps.size:
                continue
            values = rng.choice([1.0, 2.5, -3.0, np.nan, np.inf], steps.size) * rng.random(steps.size)
            writer.points("time.step_s", steps, values)
            writer.points("comm.time_s", steps, values, bucket="0")
            writer.points("comm.bytes", steps[:1], values[:1], kind="state", bucket="0")
            writer.commit()
            told[rank] |= dict(zip(steps.tolist(), values.tolist(), strict=True))
        if rng.random() < 0.3:
            with lite.rank_table(RUN, 0, nexts(lite)) as table:
                assert table is not None
    return lite, told


def test_recent_values_are_those_that_came_last(job: tuple[Store, Told]) -> None:
    """The newest step's value, also where an earlier step came after it, and medians of the finite ones."""
    store, told = job
    with store.rank_table(RUN, 0, nexts(store)) as table:
        assert table is not None
        assert table.last_steps() == {rank: max(steps) for rank, steps in told.items()}
        newest = {rank: steps[max(steps)] for rank, steps in told.items()}
        assert_array_equal(list(table.newest(STEP_S).values()), list(newest.values()))
        ends = {rank: max(steps) for rank, steps in told.items()}
        for last in (None, {rank: end + 30 for rank, end in ends.items()}):  # of a rank that told other series since
            expected = {
                rank: float(np.median([v for s, v in steps.items() if s > end - RECENT and np.isfinite(v)]))
                for (rank, steps), end in zip(told.items(), (last or ends).values(), strict=True)
            }
            assert table.medians(STEP_S, RECENT, last=last) == pytest.approx(expected, rel=1e-12)
        assert table.medians(series_id("rank.busy_s", {}), RECENT) == {}


@pytest.mark.parametrize(("of", "by_rank"), [(STEP_S, True), (BUCKET, False)])
def test_the_largest_value_of_each_stretch_is_there(job: tuple[Store, Told], of: int, by_rank: bool) -> None:
    """Stretches get wider as the job gets longer; each keeps its largest finite value and counts the others."""
    store, told = job
    with store.rank_table(RUN, 0, nexts(store)) as table:
        assert table is not None
        found = table.stretches(of)
    assert found is not None
    assert found.width == 4
    assert found.step.size <= rank_tables.MAX_STRETCHES
    sent = _everything_sent(store, of)
    rows = [[rank] for rank in told] if by_rank else [list(told)]
    for row, ranks in enumerate(rows):
        for column, first in enumerate(found.step.tolist()):
            values = [v for r, s, _, v in sent if r in ranks and first <= s < first + found.width]
            finite = [v for v in values if np.isfinite(v)]
            assert_array_equal(found.high[row, column], max(finite, default=np.nan))
            assert found.num_bad[row, column] == len(values) - len(finite)
    times = [min(t for _, s, t, _ in sent if f <= s < f + found.width) for f in found.step.tolist()]
    assert found.time_us.tolist() == times


def _everything_sent(store: Store, of: int) -> list[tuple[int, int, int, float]]:
    """Rank, step, time and value of every point, repeated ones too."""
    points = store.points(RUN, of)
    return list(
        zip(points.rank.tolist(), points.step.tolist(), points.time_us.tolist(), points.value.tolist(), strict=True)
    )


def test_a_chart_of_a_short_job_is_the_same_as_out_of_the_store(lite: Store) -> None:
    """As long as each step is a stretch of its own nothing tells the two ways apart."""
    rng = np.random.default_rng(3)
    writers = [RunWriter(lite, rank=rank, world_size=5) for rank in range(5)]
    for first in range(0, 200, 40):
        for writer in writers:
            values = rng.random(40)
            values[rng.random(40) < 0.1] = np.nan
            writer.points("time.step_s", range(first, first + 40), values)
            writer.commit()
    view = Views(lite).get(RUN)
    assert view is not None
    with lite.rank_table(RUN, 0, nexts(lite)) as table:
        assert table is not None
    kept = rank_cells(view, view.named("time.step_s")[0], Window())
    lite._rank_tables.forget(RUN)
    again = Views(lite).get(RUN)
    assert again is not None
    read = rank_cells(again, again.named("time.step_s")[0], Window())
    assert kept is not None and read is not None  # noqa: PT018  (for mypy)
    for name in kept.__slots__:
        assert_array_equal(getattr(kept, name), getattr(read, name), err_msg=name)


def _of_everything(table: rank_tables.RankTable | None) -> list[object]:
    """All that can be asked of a table, ranks in their order."""
    assert table is not None
    stretches = table.stretches(STEP_S)
    assert stretches is not None
    return [
        table.last_steps(), table.newest(STEP_S), table.medians(STEP_S, RECENT), table.span(STEP_S), stretches.width,
        *(getattr(stretches, name).tolist() for name in ("ranks", "step", "time_us", "high", "num_bad")),
    ]  # fmt: skip


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_server_that_did_not_see_the_beginning_reads_it_once(job: tuple[Store, Told], is_compacted: bool) -> None:
    """After a restart: the same as of the server that saw all, of chunks and tails, and what comes then is taken in
    without a read."""
    store, told = job
    with store.rank_table(RUN, 0, nexts(store)) as table:
        expected = repr(_of_everything(table))
    now_us = BEGAN_US + 10**9
    while is_compacted and store.compact(now_us=now_us, budget_s=10.0):
        now_us += 10**9
    assert any(row.compacted for row in _streams(store)) == is_compacted
    store._rank_tables = store._committer._rank_tables = rank_tables.RankTables()
    with store.rank_table(RUN, 0, nexts(store)) as table:
        assert repr(_of_everything(table)) == expected
        read = table
    writer = RunWriter(store, rank=0, world_size=3)
    writer.points("time.step_s", [800], 1.0)
    writer.commit()
    with store._rank_tables.lock:
        assert read is not None
        assert store._rank_tables.table(RUN, 0) is read
        assert read.covers(nexts(store))
        assert read.last_steps() == {**{rank: max(steps) for rank, steps in told.items()}, 0: 800}


def _streams(store: Store) -> list[Any]:
    with store._reading() as connection:
        return list(connection.execute(sa.select(schema.stream)))


@pytest.mark.parametrize("is_compacted", [False, True])
def test_batches_that_another_server_took_are_read(lite: Store, is_compacted: bool) -> None:
    """What went past this server is missing until somebody asks, also where it is in a chunk by then."""
    writers = [RunWriter(lite, rank=rank, world_size=2) for rank in range(2)]

    def tell(first: int) -> None:
        for writer in writers:
            writer.points("time.step_s", range(first, first + 3), [1.0, np.nan, 2.0])
            writer.commit()

    tell(0)
    with lite.rank_table(RUN, 0, nexts(lite)) as table:
        assert table is not None
    held, lite._committer._rank_tables = lite._committer._rank_tables, rank_tables.RankTables()
    tell(3)
    while is_compacted and lite.compact(now_us=BEGAN_US + 10**12, budget_s=10.0):
        pass
    lite._committer._rank_tables = held
    tell(6)
    with lite.rank_table(RUN, 0, nexts(lite)) as table:
        assert table is not None
        assert table.last_steps() == {0: 8, 1: 8}
        stretches = table.stretches(STEP_S)
    assert stretches is not None
    assert stretches.num_bad.sum(axis=1).tolist() == [3, 3], "nothing twice"
    with lite.rank_table(RUN, 0, nexts(lite)) as again:
        assert again is table, "and not read once more"


def test_memory_is_bounded(lite: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that says it has two billion ranks gets no table, nor does one whose records nobody fetches while others
    are at the tables."""
    huge = RunWriter(lite, rank=0, world_size=2**31 - 1)
    huge.points("time.step_s", range(3), 1.0)
    huge.commit()
    with lite.rank_table(RUN, 0, nexts(lite)) as table:
        assert table is None
    monkeypatch.setattr(rank_tables, "MAX_WAITING_BYTES", 100)
    slow = RunWriter(lite, "run2", rank=0, world_size=2)
    with lite._rank_tables.lock:
        for first in range(0, 30, 3):
            slow.points("time.step_s", range(first, first + 3), 1.0)
            slow.commit()
    assert ("run2", 0) not in lite._rank_tables._queues
    monkeypatch.undo()
    monkeypatch.setattr(rank_tables, "SETTLE_BYTES", 1000)
    unseen = RunWriter(lite, "run3", rank=0, world_size=2)
    for first in range(0, 30, 3):
        unseen.points("time.step_s", range(first, first + 3), 1.0)
        unseen.commit()
    assert lite._rank_tables._queues["run3", 0].num_bytes <= 1000
    assert lite._rank_tables._tables["run3", 0].last_steps()[0] >= 20, "taken in by whoever commits"


def test_a_deleted_run_leaves_nothing(lite: Store) -> None:
    """Nor what waited."""
    writer = RunWriter(lite, rank=0, world_size=2)
    writer.points("time.step_s", range(3), 1.0)
    writer.commit()
    with lite.rank_table(RUN, 0, nexts(lite)) as table:
        assert table is not None
        assert table.last_steps() == {0: 2}
    lite.delete_run(RUN, now_us=BEGAN_US + STEP_US)
    assert not lite._rank_tables._queues
    assert not lite._rank_tables._tables
