"""Events: pages in order, counts, and marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from halfscope.wire.messages import Event
from halfscope_server.store.store import Store
from halfscope_server.store.types import SKIP_CLASSES

Make = Callable[..., Any]


@pytest.fixture
def eventful(store: Store, begun: Make) -> str:
    """Two ranks and a second attempt with skips, growths and a NaN."""
    streams = [begun(stream="0a"), begun(stream="0b", rank=1), begun(stream="0c", attempt=1)]
    for sender in streams:
        records = []
        for step in range(12):
            attributes = {"class": SKIP_CLASSES[step % 5], "scale": 65536.0}
            records.append(Event("skip", step, 10 * step, "warning", ["Adam"], attributes))
            if step % 4 == 0:
                records.append(Event("scale_growth", step, 10 * step + 1))
        records.append(Event("loss_nonfinite", 3, 999, "critical", [], {"value": "NaN"}))
        store.commit([sender.batch(*records)], now_us=2)
    return str(streams[0].run_id)


def order(events: list[Any]) -> list[tuple[int, int, str, int]]:
    return [(event.attempt, event.step, event.stream, event.seq) for event in events]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("kinds", [None, ["skip"], ["scale_growth", "joined", "restarted"], []], ids=str)
def test_pages_give_every_event_once_and_in_order(
    store: Store, eventful: str, newest_first: bool, kinds: list[str] | None
) -> None:
    """In either direction, with and without a filter."""
    everything = store.events(eventful, kinds=kinds, newest_first=newest_first)
    assert order(everything) == sorted(order(everything), reverse=newest_first)
    paged: list[Any] = []
    after = None
    while page := store.events(eventful, kinds=kinds, newest_first=newest_first, after=after, limit=7):
        paged += page
        after = order(page)[-1]
    assert paged == everything
    assert (
        len(everything)
        == {"None": 50, "['skip']": 36, "['scale_growth', 'joined', 'restarted']": 11, "[]": 0}[str(kinds)]
    )


def test_bounds_are_inclusive_and_counts_agree(store: Store, eventful: str) -> None:
    """For events and counts alike."""
    found = store.events(eventful, first_step=3, last_step=4)
    assert {event.step for event in found} == {3, 4}
    counts = store.count_events(eventful, first_step=3, last_step=4)
    assert counts == {"loss_nonfinite": 3, "scale_growth": 3, "skip": 6}
    of_rank = store.events(eventful, first_step=3, last_step=4, rank=1)
    assert of_rank == [event for event in found if event.rank == 1]
    assert store.count_events(eventful, first_step=3, last_step=4, rank=1) == {
        "loss_nonfinite": 1, "scale_growth": 1, "skip": 2,
    }  # fmt: skip
    assert sum(store.count_events(eventful).values()) == 50
    assert store.count_events("nobody") == {}


def test_an_event_comes_back_whole(store: Store, begun: Make) -> None:
    """Names, numbers, non-finite ones included."""
    sender = begun(rank=2, attempt=1)
    attributes = {"class": "probe", "scale": float("inf"), "nonfinite": ["fc1", "fc2"], "num_finite": 14}
    store.commit([sender.batch(Event("skip", 7, 70, "info", ["Adam"], attributes))], now_us=2)
    (event,) = store.events(sender.run_id)
    assert (event.kind, event.step, event.time_us, event.severity) == ("skip", 7, 70, "info")
    assert (event.stream, event.seq, event.rank, event.attempt) == (sender.stream, 2, 2, 1)
    assert (event.where, event.attributes) == (["Adam"], attributes)


def test_marks_are_arrays_of_what_was_asked_for(store: Store, eventful: str) -> None:
    """Ascending by attempt and step, with class, rank and attempt."""
    marks = store.event_marks(eventful, ["loss_nonfinite", "skip", "never"])
    assert marks.kinds == ("loss_nonfinite", "skip", "never")
    rows = list(zip(marks.attempt.tolist(), marks.step.tolist(), marks.kind.tolist(), marks.rank.tolist(), strict=True))
    assert rows == sorted(rows)
    assert len(rows) == 39
    skips = marks.kind == 1
    assert marks.skip_class[skips].tolist() == [step % 5 for step in marks.step[skips].tolist()]
    assert set(marks.skip_class[~skips].tolist()) == {0}
    assert (marks.step[~skips].tolist(), marks.rank[~skips].tolist()) == ([3, 3, 3], [0, 1, 0])
    assert len(store.event_marks(eventful, []).step) == 0


def test_a_class_nobody_knows_is_no_class(store: Store, begun: Make) -> None:
    """A later agent may have more, and a hostile one may send a list."""
    sender = begun()
    classes: list[Any] = ["streak", "brand new", ["streak"], None]
    store.commit([sender.batch(*(Event("skip", 1, 1, attributes={"class": name}) for name in classes))], now_us=2)
    found = sorted(store.event_marks(sender.run_id, ["skip"]).skip_class.tolist())
    assert found == [0, 0, 0, SKIP_CLASSES.index("streak")]
