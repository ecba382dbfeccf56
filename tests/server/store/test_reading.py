"""Reads against a plain list, whatever the batching was and wherever compaction struck."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest
from halfscope.wire.codec import encode
from halfscope.wire.messages import (
    Batch,
    Column,
    Declare,
    Points,
    Series,
    Start,
    StreamInfo,
)
from halfscope_server.store import compactor, reading
from halfscope_server.store.records import series_id
from halfscope_server.store.store import Store
from halfscope_server.store.types import Rollup
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.stream import Stream

Make = Callable[..., Any]
NAMES = ("loss", "grad.norm", "lr")
IDS = [series_id(name, {}) for name in NAMES]
FOREVER_US = 10**15


@dataclass
class Written:
    """One value, as it was sent."""

    sid: int
    step: int
    time_us: int
    value: float
    rank: int
    attempt: int
    stream: str


@dataclass
class Model:
    """The list that a store must read like."""

    written: list[Written] = field(default_factory=list)

    def points(self, sid: int, **bounds: int | None) -> list[Written]:
        """In the order (step, attempt, rank, stream, arrival)."""
        chosen = [
            one
            for one in self.written
            if one.sid == sid
            and (bounds.get("first_step") is None or one.step >= bounds["first_step"])
            and (bounds.get("last_step") is None or one.step <= bounds["last_step"])
            and (bounds.get("rank") is None or one.rank == bounds["rank"])
            and (bounds.get("attempt") is None or one.attempt == bounds["attempt"])
        ]
        return sorted(chosen, key=lambda one: (one.step, one.attempt, one.rank, one.stream))


class Agent:
    """One stream into a store and into the model."""

    def __init__(self, store: Store, run_id: str, rank: int, attempt: int) -> None:
        self.run_id, self.stream, self.rank, self.attempt = run_id, f"{attempt:02x}{rank:02x}", rank, attempt
        self.sender = Stream(run_id, self.stream, StreamInfo(rank=rank, attempt=attempt))
        self.sender.welcomed(store.grant(self.sender.hello(), now_us=1))
        self.pending = [
            encode(Start(1, "p", "n")),
            encode(Declare([Series(sid, name) for sid, name in enumerate(NAMES)])),
        ]

    def record(
        self, model: Model, rows: list[tuple[int, int]], columns: list[tuple[int, list[int] | None, list[float]]]
    ) -> None:
        """Rows are (step, time); a column is (sid, row numbers or None, values)."""
        packed = []
        for sid, chosen, values in columns:
            numbers = range(len(rows)) if chosen is None else chosen
            packed.append(
                Column(
                    sid, np.array(values, "<f8").tobytes(), b"" if chosen is None else np.array(chosen, "<u4").tobytes()
                )
            )
            model.written += [
                Written(sid, *rows[row], value, self.rank, self.attempt, self.stream)
                for row, value in zip(numbers, values, strict=True)
            ]
        steps, times = (np.array([row[at] for row in rows], "<i8").tobytes() for at in (0, 1))
        self.pending.append(encode(Points(steps, times, packed)))

    def batch(self) -> Batch:
        batch, self.pending = self.sender.batch_of(self.pending), []
        return batch


@st.composite
def record_parts(draw: st.DrawFn) -> tuple[Any, Any]:
    """Rows and columns of one record: mostly the next steps, at times late ones, sparse ones, one step many times."""
    start = draw(st.integers(0, 20) | st.integers(0, 300))
    gaps = draw(st.lists(st.sampled_from([0, 1, 1, 1, 3, 64]), min_size=1, max_size=8))
    steps = [start + sum(gaps[: at + 1]) for at in range(len(gaps))]
    rows = [(step, 1000 * step + draw(st.integers(0, 2))) for step in steps]
    columns = []
    for sid in draw(st.lists(st.integers(0, len(NAMES) - 1), min_size=1, max_size=4)):
        chosen = draw(st.none() | st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=4))
        num = len(rows) if chosen is None else len(chosen)
        value = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e300])
        columns.append((sid, chosen, draw(st.lists(value, min_size=num, max_size=num))))
    return rows, columns


ACTIONS = st.lists(
    st.tuples(st.just("record"), st.integers(0, 2), record_parts())
    | st.tuples(st.just("send"), st.booleans(), st.none())
    | st.tuples(st.just("compact"), st.none(), st.none())
    | st.tuples(st.just("read"), st.integers(0, len(NAMES) - 1), st.none()),
    min_size=4,
    max_size=25,
)


RUNS = iter(range(10**9))


@pytest.mark.parametrize("seal_steps", [4, 8192])
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS)
def test_reads_equal_a_list_whatever_compaction_did(
    store: Store, monkeypatch: pytest.MonkeyPatch, seal_steps: int, actions: list[Any]
) -> None:
    """Random records of two ranks and a second attempt, random frames and merges, tiny chunks and usual ones."""
    monkeypatch.setattr(compactor, "SEAL_STEPS", seal_steps)
    monkeypatch.setattr(compactor, "SEAL_ROWS", 4 * seal_steps)
    monkeypatch.setattr(compactor, "MAX_SEGMENTS", 3)
    model = Model()
    run_id = f"run{next(RUNS)}"
    agents = [Agent(store, run_id, rank, attempt) for rank, attempt in ((0, 0), (1, 0), (0, 1))]
    sent = Model()
    for kind, argument, parts in actions:
        if kind == "record":
            agents[argument].record(model, *parts)
        elif kind == "send":
            batches = [agent.batch() for agent in agents if agent.pending]
            if batches:
                assert not store.commit(batches, now_us=2).refused
            sent.written = list(model.written)
        elif kind == "compact":
            store.compact(now_us=FOREVER_US, budget_s=60)
        else:
            check_points(store, sent, run_id, argument)
    batches = [agent.batch() for agent in agents if agent.pending]
    assert not batches or not store.commit(batches, now_us=3).refused
    for sid in range(len(NAMES)):
        check_points(store, model, run_id, sid)
        check_points(store, model, run_id, sid, first_step=70, last_step=150)
        check_points(store, model, run_id, sid, rank=0)
        check_points(store, model, run_id, sid, attempt=1, first_step=64)
        check_stretches(store, model, run_id, sid, [(3, 30), (64, 64), (90, 140)])
        for bounds in ({}, {"rank": 0}, {"attempt": 1}):
            check_extent(store, model, run_id, sid, **bounds)
        for width in (64, 128, 4096):
            check_rollup(store, model, run_id, sid, width)
        check_rollup(store, model, run_id, sid, 64, first_step=70, last_step=150, rank=0)


def check_points(store: Store, model: Model, run_id: str, sid: int, **bounds: int | None) -> None:
    found = store.points(run_id, IDS[sid], **bounds)
    wanted = model.points(sid, **bounds)
    assert found.step.tolist() == [one.step for one in wanted]
    assert found.time_us.tolist() == [one.time_us for one in wanted]
    assert found.rank.tolist() == [one.rank for one in wanted]
    assert found.attempt.tolist() == [one.attempt for one in wanted]
    bits = np.array([one.value for one in wanted], "<f8").view("<i8")
    assert found.value.view("<i8").tolist() == bits.tolist()


def check_stretches(store: Store, model: Model, run_id: str, sid: int, stretches: list[tuple[int, int]]) -> None:
    """One read of several stretches is what they are one by one."""
    found = store.points(run_id, IDS[sid], stretches=stretches)
    wanted = [one for first, last in stretches for one in model.points(sid, first_step=first, last_step=last)]
    assert found.step.tolist() == [one.step for one in wanted]
    assert found.rank.tolist() == [one.rank for one in wanted]
    bits = np.array([one.value for one in wanted], "<f8").view("<i8")
    assert found.value.view("<i8").tolist() == bits.tolist()


def check_extent(store: Store, model: Model, run_id: str, sid: int, **bounds: int) -> None:
    """First, last, number and maximum of what a list of the points holds."""
    found, wanted = store.extent(run_id, IDS[sid], **bounds), model.points(sid, **bounds)
    if not wanted:
        assert found is None
        return
    assert found is not None
    steps, finite = [one.step for one in wanted], [one.value for one in wanted if math.isfinite(one.value)]
    assert (found.first_step, found.last_step, found.num_points) == (min(steps), max(steps), len(steps))
    assert found.maximum == max(finite, default=None)


def check_rollup(store: Store, model: Model, run_id: str, sid: int, width: int, **bounds: int | None) -> None:
    """Against brute force over whole buckets."""
    found = store.rollup(run_id, IDS[sid], width, **bounds)
    first, last = bounds.get("first_step"), bounds.get("last_step")
    wanted = model.points(sid, rank=bounds.get("rank"))
    buckets = sorted({one.step // width for one in wanted})
    if first is not None and last is not None:
        buckets = [bucket for bucket in buckets if first // width <= bucket <= last // width]
    assert found.step.tolist() == [bucket * width for bucket in buckets]
    for at, bucket in enumerate(buckets):
        inside = [one for one in wanted if one.step // width == bucket]
        finite = [one.value for one in inside if math.isfinite(one.value)]
        assert found.count[at] == len(inside)
        assert found.time_us[at] == inside[0].time_us
        assert found.num_nan[at] == sum(math.isnan(one.value) for one in inside)
        assert found.num_pos_inf[at] == sum(one.value == math.inf for one in inside)
        assert found.num_neg_inf[at] == sum(one.value == -math.inf for one in inside)
        expected = [min(finite), max(finite), finite[0], finite[-1]] if finite else [math.nan] * 4
        np.testing.assert_array_equal(
            [getattr(found, n)[at] for n in ("minimum", "maximum", "first", "last")], expected
        )
        size = sum(map(abs, finite))
        np.testing.assert_allclose(
            found.total[at], math.fsum(finite) if finite else math.nan, rtol=1e-9, atol=1e-9 * size
        )


def test_values_of_one_step_are_ordered_by_attempt_rank_and_arrival(
    store: Store, begun: Make, make_points: Make
) -> None:
    """Whoever came first, in chunks and out of them; the first and last of a bucket follow the same order."""
    streams = {
        (attempt, rank): begun(["loss"], stream=f"{9 - attempt}{9 - rank}", rank=rank, attempt=attempt)
        for attempt in (1, 0)
        for rank in (1, 0)
    }
    run_id = streams[0, 0].run_id
    for turn in range(2):
        for (attempt, rank), sender in streams.items():
            value = 100 * attempt + 10 * rank + turn
            store.commit([sender.batch(make_points([7], {0: [value]}))], now_us=2)
        if turn == 0:
            store.compact(now_us=FOREVER_US, budget_s=60)
    assert store.points(run_id, IDS[0]).value.tolist() == [0, 1, 10, 11, 100, 101, 110, 111]
    rollup = store.rollup(run_id, IDS[0], 64)
    assert (rollup.first.tolist(), rollup.last.tolist(), rollup.count.tolist()) == ([0.0], [111.0], [8])


def test_what_was_merged_is_no_longer_read_from_the_tail(store: Store, begun: Make, make_points: Make) -> None:
    """A tail that was kept from before a merge is not added to what is in chunks now."""
    sender = begun(["loss"])
    for turn in range(3):
        for step in (2 * turn, 2 * turn + 1):
            store.commit([sender.batch(make_points([step], {0: [step]}))], now_us=2)
            assert store.points(sender.run_id, IDS[0]).step.tolist() == list(range(step + 1))
        store.compact(now_us=FOREVER_US, budget_s=60)
        assert store.points(sender.run_id, IDS[0]).step.tolist() == list(range(2 * turn + 2))


def test_a_series_that_is_not_there_reads_empty(store: Store, begun: Make) -> None:
    """Declared and never written, and never declared; arrays of the right types all the same."""
    sender = begun(["loss"])
    for unknown in (IDS[0], 123):
        found = store.points(sender.run_id, unknown)
        assert [len(getattr(found, n)) for n in ("step", "time_us", "value", "rank", "attempt")] == [0] * 5
        assert found.step.dtype == np.int64
        assert len(store.rollup(sender.run_id, unknown, 64).step) == 0
        assert store.extent(sender.run_id, unknown) is None


@pytest.mark.parametrize("width", [0, -64, 1, 100])
def test_only_multiples_of_64_are_rolled_up(store: Store, width: int) -> None:
    """Buckets are aligned to the fine ones."""
    with pytest.raises(ValueError, match="expected a multiple of 64"):
        store.rollup("run", 1, width)


def test_a_reader_sees_one_snapshot_while_compaction_goes_on(store: Store, begun: Make, make_points: Make) -> None:
    """A read that began before a merge and goes on after it loses and doubles nothing."""
    sender = begun(["loss"])
    for step in range(6):
        store.commit([sender.batch(make_points([step], {0: [step]}))], now_us=2)
    database: Any = store._database
    with database.reading() as connection:
        streams = list(reading.streams_of(connection, sender.run_id))
        store.compact(now_us=FOREVER_US, budget_s=60)
        assert store.points(sender.run_id, IDS[0]).step.tolist() == list(range(6))
        ((_, hot),) = streams
        assert hot is not None
        block = store._tails.block(connection, hot, [IDS[0]])
        wanted = reading.Selection(run_id=sender.run_id, series_id=IDS[0])
        chunks = reading._chunks_by_stream(connection, wanted, (), with_axis=False)
    assert block.axis.steps.tolist() == list(range(6))
    assert chunks == {}


def test_tails_are_kept_within_a_bound(
    store: Store, begun: Make, make_points: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least recently read go first, and are decoded again when they are asked for."""
    monkeypatch.setattr("halfscope_server.store.tails.MAX_TAIL_BYTES", 100)
    senders = [begun(["loss"], run_id=f"run{at}") for at in range(4)]
    store.commit([sender.batch(make_points([1, 2, 3], {0: [1, 2, 3]})) for sender in senders], now_us=2)
    for sender in senders * 2:
        assert store.points(sender.run_id, IDS[0]).step.tolist() == [1, 2, 3]
        assert len(store._tails._tails) <= 1 + 100 // 72


def test_versions_move_with_every_commit_and_with_the_servers_own_events(
    store: Store, begun: Make, make_points: Make
) -> None:
    """What a reader keeps is good as long as the versions are the same."""
    sender = begun(["loss"])
    seen = [store.versions(sender.run_id)]
    store.commit([sender.batch(make_points([1], {0: [1]}))], now_us=2)
    seen.append(store.versions(sender.run_id))
    store.mark_lost_contact(silent_since_us=100, now_us=200)
    seen.append(store.versions(sender.run_id))
    store.compact(now_us=FOREVER_US, budget_s=60)
    assert store.versions(sender.run_id) == seen[-1]
    assert seen == [{sender.stream: 2}, {sender.stream: 3}, {sender.stream: 3, "~server": 1}]


@pytest.mark.parametrize("width", [64, 192, 4096])
def test_all_ranks_read_at_once_are_each_read_alone(
    store: Store, begun: Callable[..., Any], make_points: Callable[..., Any], width: int
) -> None:
    """Summaries and extents of ranks of unlike length, of several attempts and frames, with NaN, within bounds or
    not."""
    rng = np.random.default_rng(0)
    for rank, attempt, num_steps in ((0, 0, 700), (3, 0, 5000), (1, 0, 40), (3, 1, 300)):
        sender = begun(stream=f"{rank:08x}{attempt:08x}", rank=rank, attempt=attempt)
        values = rng.normal(size=num_steps)
        values[rng.random(num_steps) < 0.1] = np.nan
        for part in np.array_split(np.arange(num_steps) + 100 * rank, 3):
            store.commit([sender.batch(make_points(part, {0: values[part - 100 * rank]}))], now_us=3)
        if rank == 0:
            while store.compact(now_us=10**15, budget_s=5.0):
                pass
    (series,) = store.series(sender.run_id)
    for bounds in ({}, {"first_step": 333, "last_step": 2000}, {"attempt": 1}, {"first_step": 10**6}):
        found = store.rank_rollups(series.run_id, series.series_id, width, **bounds)
        alone = {r: store.rollup(series.run_id, series.series_id, width, rank=r, **bounds) for r in (0, 1, 3)}
        assert list(found) == [r for r, one in alone.items() if one.step.size]
        for rank, rollup in found.items():
            for item in fields(Rollup):
                np.testing.assert_array_equal(getattr(rollup, item.name), getattr(alone[rank], item.name), item.name)
    extents = store.rank_extents(series.run_id, series.series_id, attempt=0)
    assert extents == {r: store.extent(series.run_id, series.series_id, rank=r, attempt=0) for r in (0, 1, 3)}
