"""Two servers on one PostgreSQL: each takes some ranks' batches, either judges, and every event is there once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from halfscope.wire.messages import Layer, Layers
from halfscope_server.ranks.reports import Ranks
from halfscope_server.ranks.service import RankService
from halfscope_server.store.leading import LEASE_S
from halfscope_server.store.store import Store

from tests.server.conftest import RunWriter
from tests.server.ranks.conftest import slices
from tests.server.ranks.test_service import Clock, report_of, written

NUM_RANKS = 4
NUM_STEPS = 300
STEPS_AT_ONCE = 50


@dataclass(kw_only=True)
class Served:
    """A server as far as ranks are concerned, with a clock of its own."""

    store: Store
    clock: Clock
    service: RankService

    @classmethod
    def on(cls, url: str) -> Served:
        store, clock = Store.open(url), Clock()
        return cls(store=store, clock=clock, service=RankService(store, Ranks(store), clock_us=clock))


@pytest.fixture
def servers(postgres_url: str) -> Iterator[list[Served]]:
    """Two of them."""
    opened = [Served.on(postgres_url) for _ in range(2)]
    yield opened
    for one in opened:
        one.store.close()


def told(writer: RunWriter, rank: int, first: int) -> None:
    """Fifty steps of a job in which most goes wrong: a scaler of its own, a rank that skips alone, an overflow that
    only the reduction can have made, a slow rank, and a reduction that loses a tenth."""
    rng = np.random.default_rng([rank, first])
    steps = np.arange(first, first + STEPS_AT_ONCE)
    scale = np.where((rank == 3) & (steps >= 120), 512.0, 1024.0)
    norm = np.where((steps >= 180) & (steps < 190), np.inf, 1.0)
    busy = 0.1 * (1.5 if rank == 1 and first >= 200 else 1.0) * np.exp(0.02 * rng.standard_normal(steps.size))
    writer.points("time.step_s", steps, 0.15)
    writer.points("amp.scale", steps, scale, kind="state")
    writer.points("amp.skipped", steps, ((rank == 2) & (steps == 70)).astype(float), kind="state")
    writer.points("grad.nonfinite_local", steps, 0.0)
    writer.points("rank.busy_s", steps, busy)
    if rank == 0:
        writer.points("grad.norm", steps, norm, reduction="norm")
    for step in range(first, first + STEPS_AT_ONCE, 25):
        local = np.random.default_rng(step).normal(size=(NUM_RANKS, 4)).astype(np.float32)
        right = local.sum(axis=0) / NUM_RANKS
        reduced = right * (0.9 if 100 <= step < 200 else 1.0)
        writer.record(slices(step, local[rank], reduced, divisor=NUM_RANKS))


def writers_on(stores: Sequence[Store]) -> list[RunWriter]:
    """Of each rank, into the server that its node is connected to."""
    writers = [RunWriter(stores[rank % len(stores)], rank=rank, world_size=NUM_RANKS) for rank in range(NUM_RANKS)]
    for writer in writers:
        writer.record(Layers([Layer(0, "fc.weight", [4], "float32")]))
    return writers


def events_of(store: Store) -> list[tuple[Any, ...]]:
    """What the server wrote, without the order in which it did."""
    rows = [(e.kind, e.attempt, e.step, e.rank, tuple(sorted(map(repr, e.attributes.items())))) for e in written(store)]
    return sorted(rows)


@pytest.fixture
def expected(lite: Store) -> list[tuple[Any, ...]]:
    """What one server on SQLite writes that is given everything before it judges for the first time."""
    writers = writers_on([lite])
    for first in range(0, NUM_STEPS, STEPS_AT_ONCE):
        for rank, writer in enumerate(writers):
            told(writer, rank, first)
            writer.commit()
    clock = Clock()
    service = RankService(lite, Ranks(lite), clock_us=clock)
    for _ in range(3):
        service.round()
        clock.pass_s(3)
    found = events_of(lite)
    assert {kind for kind, *_ in found} == {"rank_disagreement", "comm_overflow", "straggler", "comm_error"}
    return found


def together(servers: Sequence[Served]) -> None:
    """One round on each, at the same time."""
    failures: list[BaseException] = []

    def work(one: Served) -> None:
        try:
            one.service.round()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [one.service.metrics().errors for one in servers] == [0] * len(servers)


def test_each_event_is_written_once_whoever_leads(servers: list[Served], expected: list[tuple[Any, ...]]) -> None:
    """Both look at each step; the one that leads is killed halfway, and the other goes on when its lease is over."""
    writers = writers_on([one.store for one in servers])
    alive = list(servers)
    for first in range(0, NUM_STEPS, STEPS_AT_ONCE):
        for rank, writer in enumerate(writers):
            told(writer, rank, first)
            writer.commit()
        together(alive)
        report_of(servers[1].store)  # a page judges too, and saves nothing
        if first == 3 * STEPS_AT_ONCE:
            (leader,) = (one for one in servers if one.service._leader.leads)
            alive = [one for one in servers if one is not leader]
            for one in alive:
                one.clock.pass_s(LEASE_S)
        for one in alive:
            one.clock.pass_s(3)
    for _ in range(3):
        together(alive)
        alive[0].clock.pass_s(LEASE_S)
    assert events_of(servers[0].store) == expected


def test_a_server_that_does_not_know_it_lost_the_lease_writes_nothing_twice(
    servers: list[Served], expected: list[tuple[Any, ...]]
) -> None:
    """Its process stood still for longer than the lease; by its own clock it still leads."""
    late, other = servers
    writers = writers_on([one.store for one in servers])
    for first in range(0, NUM_STEPS, STEPS_AT_ONCE):
        for rank, writer in enumerate(writers):
            told(writer, rank, first)
            writer.commit()
        if first == 0:
            late.service.round()
            other.clock.pass_s(2 * LEASE_S)
        together(servers)
        assert [one.service._leader.leads for one in servers] == [True, True]
        for one in servers:
            late.clock.pass_s(0.1)
            one.service.changed({"run1"})
        other.clock.pass_s(2.5)
    for _ in range(3):
        together([other])
        other.clock.pass_s(3)
    assert events_of(other.store) == expected
