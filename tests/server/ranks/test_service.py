"""The service: what was found is in the run's events, once, whoever judged and however often it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from halfscope_server.query.view import Views
from halfscope_server.ranks.reports import Ranks
from halfscope_server.ranks.service import RankService
from halfscope_server.ranks.types import RanksReport
from halfscope_server.store.store import Store
from halfscope_server.store.types import SERVER_STREAM, Applied, EventRow

from tests.server.conftest import BEGAN_US, RunWriter
from tests.server.ranks.conftest import slices
from tests.server.ranks.test_following import write

SECOND_US = 1_000_000


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_us = BEGAN_US + 60 * SECOND_US

    def __call__(self) -> int:
        return self.now_us

    def pass_s(self, seconds: float) -> None:
        self.now_us += int(seconds * SECOND_US)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def service_of(store: Store, clock: Clock, **options: Any) -> RankService:
    return RankService(store, Ranks(store), clock_us=clock, **options)


def stand(writers: Sequence[RunWriter], places: Mapping[int, tuple[int, str]]) -> None:
    """Ranks say the last step that is complete, and what they do since."""
    for rank, (step, phase) in places.items():
        writers[rank].points("rank.standing_s", [step], 3.0, unit="s", phase=phase)
        writers[rank].commit()


def written(store: Store, run_id: str = "run1") -> list[EventRow]:
    return [event for event in store.events(run_id) if event.stream == SERVER_STREAM]


def report_of(store: Store, run_id: str = "run1") -> RanksReport:
    view = Views(store).get(run_id)
    assert view is not None
    return Ranks(store).report(view)


def test_a_disagreement_is_written_once_however_often_it_is_judged(
    lite: Store, ranks_of: Callable[..., Any], clock: Clock
) -> None:
    """By one server after the other, each from what was saved, and by two that were never told of each other."""
    told: list[Applied] = []
    for rank, writer in enumerate(ranks_of(2)):
        write(writer, rank, {"amp.scale": [1024.0 * (rank + 1)] * 30}, 0, 30)
    other = service_of(lite, clock)
    for _ in range(3):
        service = service_of(lite, clock, tell=told.extend)
        service.round()
        service.stop()
    other.round()
    (event,) = written(lite)
    assert (event.kind, event.step, event.attempt, event.rank) == ("rank_disagreement", 0, 0, 1)
    assert event.attributes["values"] == [2048.0]
    assert event.severity == "critical"
    assert [one.run_id for one in told] == ["run1"]


def test_healthy_ranks_of_two_and_four_leave_no_event(lite: Store, ranks_of: Callable[..., Any], clock: Clock) -> None:
    """To the end of the run, which is then done with."""
    for num_ranks in (2, 4):
        run_id = f"healthy{num_ranks}"
        writers = ranks_of(num_ranks, run_id=run_id)
        service = service_of(lite, clock)
        for first in range(0, 300, 100):
            for rank, writer in enumerate(writers):
                write(
                    writer,
                    rank,
                    {"amp.scale": [1.0] * 300, "lr": [0.1 / (1 + s) for s in range(300)]},
                    first,
                    first + 100,
                )
            clock.pass_s(3)
            service.round()
        for writer in writers:
            writer.end("finished", 299)
            writer.commit()
        clock.pass_s(3)
        service.round()
        assert written(lite, run_id) == []
        assert run_id not in lite.ranks.unjudged()
        assert report_of(lite, run_id).role == "healthy"


def test_a_frozen_rank_is_named_within_ten_seconds_and_once(
    lite: Store, ranks_of: Callable[..., Any], clock: Clock
) -> None:
    """It alone does not say where it stands, though steps are so short that all seem to be at the same; it is heard."""
    writers = ranks_of(4)
    service = service_of(lite, clock)
    for rank, writer in enumerate(writers):
        write(writer, rank, {}, 0, 19)
    service.round()
    stand(writers, {0: (19, "reduction"), 1: (19, "reduction"), 3: (18, "attempt")})
    keys = [("run1", f"{0:08x}{rank:08x}") for rank in range(4)]
    for _ in range(20):
        clock.pass_s(2)
        lite.touch(keys, now_us=clock.now_us)
        service.round()
        if written(lite):
            break
    (event,) = written(lite)
    assert (event.kind, event.rank, event.step) == ("rank_stuck", 2, 18)
    assert event.attributes["ranks"] == [2]
    assert event.attributes["silent_s"] <= 10
    report = report_of(lite)
    assert [row.state for row in report.ranks] == ["waiting", "waiting", "stuck", "waiting"]
    assert report.sentence == "Rank 2 completes no step since step 18; the others wait."
    for _ in range(10):
        clock.pass_s(2)
        service.round()
    assert len(written(lite)) == 1
    for rank, writer in enumerate(writers):
        write(writer, rank, {}, 19, 30)
    service.round()
    assert {row.state for row in report_of(lite).ranks} == {"training"}


@pytest.mark.parametrize(
    ("places", "named"),
    [
        ({0: (20, "reduction"), 1: (20, "attempt"), 2: (20, "reduction"), 3: (20, "reduction")}, [1]),
        ({0: (20, "reduction"), 1: (20, "between"), 2: (20, "reduction"), 3: (20, "reduction")}, [1]),
        ({0: (20, "reduction"), 1: (20, "attempt"), 2: (20, "attempt"), 3: (20, "attempt")}, [1, 2, 3]),
        ({0: (20, "attempt"), 1: (20, "attempt"), 2: (19, "attempt"), 3: (20, "attempt")}, [2]),
        ({0: (20, "attempt"), 1: (20, "attempt"), 2: (20, "attempt"), 3: (20, "between")}, [3]),
        ({0: (20, "attempt"), 1: (20, "between"), 2: (20, "between"), 3: (20, "between")}, None),
        (dict.fromkeys(range(4), (20, "attempt")), None),
        (dict.fromkeys(range(4), (20, "between")), None),
        (dict.fromkeys(range(4), (20, "reduction")), None),
        ({}, None),
        # They have gone on since: the word of then says nothing of now.
        (dict.fromkeys(range(3), (5, "reduction")), None),
    ],
)
def test_who_is_stuck_follows_from_where_ranks_stand(
    lite: Store,
    ranks_of: Callable[..., Any],
    clock: Clock,
    places: dict[int, tuple[int, str]],
    named: list[int] | None,
) -> None:
    """Rows of short steps are as many as 16 late; by their own word it is known who waits, and else nobody is named."""
    writers = ranks_of(4)
    service = service_of(lite, clock)
    for rank, writer in enumerate(writers):
        write(writer, rank, {}, 0, 20 - 5 * rank)
    service.round()
    stand(writers, places)
    for _ in range(10):
        clock.pass_s(2)
        lite.touch([("run1", f"{0:08x}{rank:08x}") for rank in range(4)], now_us=clock.now_us)
        service.round()
    assert [event.attributes["ranks"] for event in written(lite)] == ([] if named is None else [named])


def test_what_comes_before_the_first_steps_is_no_pause(lite: Store, ranks_of: Callable[..., Any], clock: Clock) -> None:
    """A job that takes minutes to begin is not given three times as long when a rank freezes."""
    writers = ranks_of(2)
    service = service_of(lite, clock)
    for writer in writers:
        writer.commit()
    service.round()
    clock.pass_s(120)
    for rank, writer in enumerate(writers):
        write(writer, rank, {}, 0, 20)
    stand(writers, {0: (19, "reduction")})
    service.round()
    for _ in range(5):
        clock.pass_s(2)
        lite.touch([("run1", f"{0:08x}{rank:08x}") for rank in range(2)], now_us=clock.now_us)
        service.round()
    assert [event.attributes["ranks"] for event in written(lite)] == [[1]]


@pytest.mark.parametrize(("pause_s", "phase", "named_after_s"), [(5, None, 8), (30, None, 46), (5, "between", 16)])
def test_a_frozen_rank_is_not_given_the_time_of_a_validation(
    lite: Store, ranks_of: Callable[..., Any], clock: Clock, pause_s: float, phase: str | None, named_after_s: float
) -> None:
    """The run has paused before. Who is silent does not run at all, and is named sooner than who says that it is at
    something of its own."""
    writers = ranks_of(2)
    keys = [("run1", f"{0:08x}{rank:08x}") for rank in range(2)]
    service = service_of(lite, clock)
    for first in (0, 20):
        for rank, writer in enumerate(writers):
            write(writer, rank, {}, first, first + 20)
        service.round()
        clock.pass_s(pause_s * (first == 0))
    stand(writers, {0: (39, "reduction"), **({} if phase is None else {1: (39, phase)})})
    seconds = 0
    while not written(lite):
        assert seconds < 100
        seconds += 1
        clock.pass_s(1)
        lite.touch(keys, now_us=clock.now_us)
        service.round()
    assert written(lite)[0].attributes["ranks"] == [1]
    assert named_after_s - 2 <= seconds <= named_after_s


@pytest.mark.parametrize("behind", [0, 4])
def test_a_pause_of_all_ranks_or_of_unheard_ones_is_no_stuck_rank(
    lite: Store, ranks_of: Callable[..., Any], clock: Clock, behind: int
) -> None:
    """A validation of all ranks leaves nobody behind; a node that is cut off has lost contact and is not stuck."""
    writers = ranks_of(4)
    service = service_of(lite, clock)
    for rank, writer in enumerate(writers):
        write(writer, rank, {}, 0, 20 - behind * (rank == 2))
    for _ in range(30):
        clock.pass_s(2)
        heard = [("run1", f"{0:08x}{rank:08x}") for rank in range(4) if not (behind and rank == 2)]
        lite.touch(heard, now_us=clock.now_us)
        service.round()
    assert [event for event in written(lite) if event.kind == "rank_stuck"] == []


def test_ranks_that_never_came_are_said_to_be_missing_and_the_others_judged(
    lite: Store, ranks_of: Callable[..., Any], clock: Clock
) -> None:
    """A program that watches two ranks of four: after a minute, and told once."""
    service = service_of(lite, clock)
    for rank, writer in enumerate(ranks_of(2, world_size=4)):
        write(writer, rank, {"lr": [0.1 * (rank + 1)] * 30}, 0, 30)
    for _ in range(100):
        clock.pass_s(2)
        service.round()
    assert [(event.kind, event.attributes.get("ranks")) for event in written(lite)] == [
        ("ranks_missing", [2, 3]),
        ("rank_disagreement", [1]),
    ]


def test_the_service_judges_what_comes_without_being_asked(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Its own thread, told of commits as the writer tells."""
    import threading

    told = threading.Event()
    service = RankService(lite, Ranks(lite), tell=lambda _applied: told.set())
    service.start()
    try:
        for rank, writer in enumerate(ranks_of(2)):
            write(writer, rank, {"amp.scale": [1024.0 * (rank + 1)] * 30}, 0, 30)
        service.changed(["run1"])
        assert told.wait(15)
        assert [event.kind for event in written(lite)] == ["rank_disagreement"]
    finally:
        service.stop()


def test_the_error_of_a_reduction_is_told_where_it_changes_by_much(
    lite: Store, ranks_of: Callable[..., Any], clock: Clock
) -> None:
    """Rounding errors of FP32 are told to nobody; then every tenth is lost, and nothing more is told of that."""
    rng = np.random.default_rng(3)
    writers = ranks_of(2)
    service = service_of(lite, clock)
    local = rng.normal(size=(2, 100, 64)).astype(np.float32)
    for rank, writer in enumerate(writers):
        write(writer, rank, {}, 0, 1000)
        for number, step in enumerate(range(0, 1000, 10)):
            right = (local[0, number] + local[1, number]) / 2
            writer.record(slices(step, local[rank, number], right if step < 500 else 0.9 * right))
        writer.commit()
    for _ in range(3):
        clock.pass_s(3)
        service.round()
    (event,) = written(lite)
    assert (event.kind, event.step, event.severity) == ("comm_error", 500, "warning")
    assert event.attributes["error"] == pytest.approx(0.1, rel=1e-5)
    assert event.attributes["worst_layer"] == "fc.weight"
