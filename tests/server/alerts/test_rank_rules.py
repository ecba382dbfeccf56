"""Rules on what the server finds of many ranks: from its events to episodes, with the recommended rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.alerts.presets import presets
from halfscope_server.alerts.rule import TOLD_ONLY
from halfscope_server.alerts.service import AlertService
from halfscope_server.ranks.reports import Ranks
from halfscope_server.ranks.service import RankService
from halfscope_server.store.store import Store
from halfscope_server.store.types import Applied, EpisodeRow

from tests.server.conftest import BEGAN_US, RunWriter
from tests.server.ranks.conftest import ranks_of, slices

__all__ = ["ranks_of"]
SECOND_US = 1_000_000
OF_RANKS = [preset.rule for preset in presets() if preset.group == "Many ranks"]


class Served:
    """A store with the rules of many ranks, and both services on it."""

    def __init__(self, store: Store) -> None:
        self.store, self.now_us = store, BEGAN_US
        for rule in OF_RANKS:
            of_rank = rule.model_copy(update={"group_by": ["run", "rank"]})
            store.alerts.put_rule(rule.id, of_rank.model_dump(), now_us=1, told_only=TOLD_ONLY)
        self.alerts = AlertService(store, clock_us=lambda: self.now_us)
        self.ranks = RankService(store, Ranks(store), tell=self.alerts.notify, clock_us=lambda: self.now_us)

    def commit(self, *writers: RunWriter) -> None:
        for writer in writers:
            self.now_us += SECOND_US
            applied: list[Applied] = writer.commit(now_us=self.now_us)
            self.alerts.notify(applied)
        for service in (self.alerts, self.ranks, self.alerts):
            self.now_us += 3 * SECOND_US
            service.round()

    def fired(self) -> list[tuple[str, int | None, int]]:
        rows: list[EpisodeRow] = self.store.alerts.episodes(states=["firing", "resolved"])
        return sorted((row.rule_id, row.rank, row.first_step) for row in rows)


@pytest.fixture
def served(lite: Store) -> Served:
    return Served(lite)


def rows(writers: list[RunWriter], first: int, last: int, scale: Callable[[int], float] = lambda _rank: 1.0) -> None:
    for rank, writer in enumerate(writers):
        writer.points("time.step_s", range(first, last), 0.1)
        writer.points("amp.scale", [first], scale(rank), kind="state")


def test_a_disagreement_fires_of_the_rank_that_parts_and_is_over_when_it_stays_away(
    served: Served, lite: Store
) -> None:
    """Rank 1 has half the scale for a hundred steps, and the others' again."""
    writers = [RunWriter(lite, rank=rank, world_size=4) for rank in range(4)]
    rows(writers, 0, 100)
    served.commit(*writers)
    assert served.fired() == []
    rows(writers, 100, 200, lambda rank: 0.5 if rank == 1 else 1.0)
    served.commit(*writers)
    # The rows were judged before it was known.
    assert [(rule, rank) for rule, rank, _ in served.fired()] == [("rank-disagreement", 1)]
    rows(writers, 200, 400)
    served.commit(*writers)
    (row,) = lite.alerts.episodes()
    assert row.state == "resolved"


def test_healthy_ranks_fire_nothing(served: Served, lite: Store) -> None:
    """To the end."""
    writers = [RunWriter(lite, rank=rank, world_size=4) for rank in range(4)]
    rng = np.random.default_rng(0)
    for first in range(0, 500, 100):
        rows(writers, first, first + 100)
        for writer in writers:
            writer.points("rank.busy_s", range(first, first + 100), 0.1 * np.exp(0.1 * rng.standard_normal(100)))
        served.commit(*writers)
    for writer in writers:
        writer.end("finished", 499)
    served.commit(*writers)
    assert served.fired() == []


def test_an_inexact_reduction_fires_above_its_mark_and_is_over_below_it(
    served: Served, lite: Store, ranks_of: Callable[..., Any]
) -> None:
    """A tenth of the gradient is lost from step 200 to 400."""
    rng = np.random.default_rng(1)
    writers = ranks_of(2)
    for first in range(0, 600, 100):
        rows(writers, first, first + 100)
        for step in range(first, first + 100, 20):
            local = rng.normal(size=(2, 16)).astype(np.float32)
            right = (local[0] + local[1]) / 2
            for writer, own in zip(writers, local, strict=True):
                writer.record(slices(step, own, right * (0.9 if 200 <= step < 400 else 1.0)))
        served.commit(*writers)
    (row,) = lite.alerts.episodes()
    assert (row.rule_id, row.state) == ("comm-error", "resolved")
    assert row.worst == pytest.approx(0.1, rel=1e-4)
