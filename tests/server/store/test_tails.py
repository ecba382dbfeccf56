"""What was committed here is read without going back to the database; what was not handed over, from there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import sqlalchemy as sa
from halfscope_server.store import tails
from halfscope_server.store.store import Store

from tests.server.store.conftest import RUN, Sender, points


@contextmanager
def segment_reads(store: Store) -> Iterator[list[str]]:
    """The statements that read segments meanwhile."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
        if statement.startswith("SELECT") and "FROM segment" in statement:
            seen.append(statement)

    engine = store._database._reader
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


def commit(store: Store, sender: Sender, first: int, last: int, value: float) -> None:
    """Steps of the series 0, in one batch each."""
    for step in range(first, last):
        batch = sender.batch(points([step], {0: value + step}))
        assert not store.commit([batch], now_us=step + 2).refused


def read(store: Store) -> dict[int, tuple[list[int], list[float]]]:
    """The only series, by rank."""
    (series,) = store.series(RUN)
    found = store.rank_points(RUN, [series.series_id], attempt=0)[series.series_id]
    return {rank: (step.tolist(), value.tolist()) for rank, (step, value) in found.items()}


@pytest.fixture
def senders(store: Store) -> list[Sender]:
    """Two ranks with three steps each."""
    found = [Sender(stream=f"{rank:016x}", rank=rank) for rank in range(2)]
    for rank, sender in enumerate(found):
        sender.greet(store)
        store.commit([sender.begin("loss")], now_us=2)
        commit(store, sender, 0, 3, 100.0 * rank)
    return found


def expected(num_steps: int) -> dict[int, tuple[list[int], list[float]]]:
    return {rank: (list(range(num_steps)), (100.0 * rank + np.arange(num_steps)).tolist()) for rank in range(2)}


def test_what_is_committed_after_the_first_reading_is_not_read_back(store: Store, senders: list[Sender]) -> None:
    """A job of a thousand ranks is followed without a query per rank."""
    assert read(store) == expected(3)
    for rank, sender in enumerate(senders):
        commit(store, sender, 3, 6, 100.0 * rank)
    with segment_reads(store) as seen:
        assert read(store) == expected(6)
        assert read(store) == expected(6)
    assert seen == []


def test_a_compaction_between_two_readings_loses_and_doubles_nothing(store: Store, senders: list[Sender]) -> None:
    """What was handed over belongs to a tail that is no more; the new one begins behind the chunks."""
    assert read(store) == expected(3)
    for rank, sender in enumerate(senders):
        commit(store, sender, 3, 5, 100.0 * rank)
    store.compact(now_us=10**12, budget_s=10.0)
    for rank, sender in enumerate(senders):
        commit(store, sender, 5, 7, 100.0 * rank)
    assert read(store) == expected(7)
    for rank, sender in enumerate(senders):
        commit(store, sender, 7, 9, 100.0 * rank)
    assert read(store) == expected(9)


def test_what_did_not_fit_is_read_from_the_database(
    store: Store, senders: list[Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that wait for a reader take bounded memory."""
    assert read(store) == expected(3)
    monkeypatch.setattr(tails, "MAX_BROUGHT_BYTES", 16)
    commit(store, senders[0], 3, 5, 0.0)  # the second is too much, and both go
    assert store._tails._brought_bytes == 0
    monkeypatch.undo()
    commit(store, senders[0], 5, 6, 0.0)  # waits behind a gap
    commit(store, senders[1], 3, 6, 100.0)
    with segment_reads(store) as seen:
        assert read(store) == expected(6)
    assert len(seen) == 1
    assert store._tails._brought_bytes == 0


def test_nothing_waits_of_streams_that_nobody_read(store: Store, senders: list[Sender]) -> None:
    """Most runs are not looked at."""
    commit(store, senders[0], 3, 5, 0.0)
    assert store._tails._brought == {}


def test_what_waits_for_long_is_taken_in_by_whoever_commits(
    store: Store, senders: list[Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a reader is at it; and a tail that nobody reads any more goes instead of growing."""
    assert read(store) == expected(3)
    monkeypatch.setattr(tails, "SETTLE_BYTES", 0)
    commit(store, senders[0], 3, 6, 0.0)
    assert store._tails._brought == {}
    with store._tails._lock:
        commit(store, senders[1], 3, 6, 100.0)
    assert [stream for _, stream in store._tails._brought] == [senders[1].stream]
    with segment_reads(store) as seen:
        assert read(store) == expected(6)
    assert seen == []
    monkeypatch.setattr(tails, "MAX_UNREAD", 2)
    for last in range(6, 9):
        commit(store, senders[0], last, last + 1, 0.0)
    assert [stream for _, stream in store._tails._tails] == [senders[1].stream]
    commit(store, senders[1], 6, 9, 100.0)
    assert read(store) == expected(9)
