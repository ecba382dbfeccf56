"""Group commits: exactly once, whatever is resent, reordered, altered, fenced or undone."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import sqlalchemy as sa
from halfscope.wire.messages import Batch, Event, Facts, Gone, Points, Welcome
from halfscope_server.errors import Unavailable
from halfscope_server.store import events
from halfscope_server.store.records import series_id
from halfscope_server.store.store import Store

LOSS = series_id("loss", {})
Make = Callable[..., Any]


def values(store: Store, run_id: str) -> list[float]:
    return store.points(run_id, LOSS).value.tolist()


def one(make_points: Make, step: int) -> Points:
    """A record of one point whose value is its step."""
    record: Points = make_points([step], {0: [step]})
    return record


def test_a_batch_is_applied_and_acknowledged_by_the_cursor(store: Store, begun: Make, make_points: Make) -> None:
    """The answer holds the cursor as it was read back, and what was applied."""
    sender = begun()
    result = store.commit([sender.batch(one(make_points, 5), one(make_points, 6))], now_us=9)
    assert result.next == {sender.key: 4}
    assert (result.refused, result.gone) == ([], [])
    (applied,) = result.applied
    assert (applied.next, applied.first_step, applied.last_step, applied.num_points) == (4, 5, 6, 2)
    assert applied.series_ids == {LOSS}
    (row,) = store.streams(sender.run_id)
    assert (row.next, row.digest, row.epoch, row.seen_us) == (4, sender.digest, 1, 9)


def test_a_resent_batch_is_acknowledged_and_not_applied_again(store: Store, begun: Make, make_points: Make) -> None:
    """Alone, twice in one group, and by a store that remembers nothing."""
    sender = begun()
    batch = sender.batch(one(make_points, 1))
    first = store.commit([batch, batch], now_us=3)
    again = store.commit([batch], now_us=4)
    assert first.next == again.next == {sender.key: 3}
    assert (len(first.applied), len(again.applied), again.refused) == (1, 0, [])
    assert values(store, sender.run_id) == [1.0]


def test_an_overlap_is_never_applied(store: Store, begun: Make, make_points: Make) -> None:
    """A batch that begins before the cursor and ends behind it is answered with the cursor."""
    sender = begun()
    before, digest = sender.next, sender.digest
    store.commit([sender.batch(one(make_points, 1))], now_us=3)
    sender.next, sender.digest = before, digest
    overlapping = sender.batch(one(make_points, 1), one(make_points, 2))
    result = store.commit([overlapping], now_us=4)
    assert result.next == {sender.key: 3}
    assert (result.applied, result.refused) == ([], [])
    assert values(store, sender.run_id) == [1.0]


def test_a_gap_is_not_applied(store: Store, begun: Make, make_points: Make) -> None:
    """Out of order within a group, only what fits the cursor is taken."""
    sender = begun()
    batches = [sender.batch(one(make_points, step)) for step in range(3)]
    result = store.commit([batches[0], batches[2], batches[1]], now_us=3)
    assert result.next == {sender.key: 4}
    assert values(store, sender.run_id) == [0.0, 1.0]


def test_an_older_connection_is_fenced(store: Store, begun: Make, make_points: Make) -> None:
    """Only the newest greeting may write; the older one is told so and harms nothing."""
    sender = begun()
    stale = sender.batch(one(make_points, 1))
    welcome = sender.greet(store)
    assert (welcome.epoch, welcome.next, welcome.digest) == (2, 2, sender.digest)
    fresh = sender.batch(one(make_points, 2))
    result = store.commit([stale, fresh], now_us=3)
    assert [refuse.code for refuse in result.refused] == ["fenced"]
    assert result.epochs == {sender.key: 2}
    assert values(store, sender.run_id) == [2.0]


def test_an_altered_batch_is_refused_alone(store: Store, begun: Make, make_points: Make) -> None:
    """Others in the group are committed, and so is what the same stream sent before."""
    bad, good = begun(run_id="bad"), begun(run_id="good")
    fine = bad.batch(one(make_points, 1))
    altered = msgspec.structs.replace(bad.batch(one(make_points, 2)), digest=bytes(16))
    after = bad.batch(one(make_points, 3))
    result = store.commit([fine, altered, after, good.batch(one(make_points, 7))], now_us=3)
    assert [(refuse.code, refuse.run_id) for refuse in result.refused] == [("bad_batch", "bad")]
    assert result.next == {bad.key: 3, good.key: 3}
    assert (values(store, "bad"), values(store, "good")) == ([1.0], [7.0])


def test_what_only_the_database_refuses_is_singled_out(
    store: Store, begun: Make, make_points: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should a value pass our checks and not the database's, the one stream is refused, not the group."""
    bad, good = begun(run_id="bad"), begun(run_id="good")
    batch = bad.batch(Event("skip", 1, 1))
    original = events.of_record
    monkeypatch.setattr(events, "of_record", lambda *given: original(*given) | {"kind": None})
    result = store.commit([batch, good.batch(one(make_points, 7))], now_us=3)
    assert [(refuse.code, refuse.run_id) for refuse in result.refused] == [("bad_batch", "bad")]
    assert result.next == {bad.key: 2, good.key: 3}
    assert values(store, "good") == [7.0]


def test_an_unknown_stream_must_greet_first(store: Store, make_sender: Make) -> None:
    """Nothing is written for a stream that was never granted."""
    sender = make_sender()
    sender.epoch = 1
    result = store.commit([sender.begin("loss")], now_us=3)
    assert [refuse.code for refuse in result.refused] == ["fenced"]
    assert (dict(result.next), store.list_runs()) == ({}, [])


def test_a_deleted_run_is_gone(store: Store, begun: Make, make_points: Make) -> None:
    """For greetings and for batches, whether or not they fit the cursor, and for streams never seen."""
    sender, other = begun(), begun(run_id="other")
    assert store.delete_run(sender.run_id, now_us=5)
    old = msgspec.structs.replace(sender.batch(one(make_points, 1)), first=0)
    result = store.commit([old, sender.batch(one(make_points, 2)), other.batch(one(make_points, 3))], now_us=6)
    assert result.gone == [Gone(*sender.key)]
    assert result.next == {other.key: 3}
    assert store.grant(sender.hello(), now_us=7) == Gone(*sender.key)


def test_a_stream_may_begin_behind_its_ancestors_records(store: Store, make_sender: Make, make_points: Make) -> None:
    """A fork starts after its ancestor's acknowledged part; its chain starts anew."""
    sender = make_sender()
    hello = msgspec.structs.replace(sender.hello(), first_seq=1000)
    welcome = store.grant(hello, now_us=1)
    assert isinstance(welcome, Welcome)
    assert (welcome.next, welcome.digest) == (1000, bytes(16))
    sender.epoch, sender.next = 1, 1000
    result = store.commit([sender.begin("loss"), sender.batch(one(make_points, 1))], now_us=2)
    assert result.next == {sender.key: 1003}
    assert values(store, sender.run_id) == [1.0]


def test_many_greetings_are_answered_in_their_order(store: Store, make_sender: Make, begun: Make) -> None:
    """Also where one of the runs was deleted and one stream greets twice."""
    begun(run_id="old")
    store.delete_run("old", now_us=1)
    senders = [make_sender(run_id=name) for name in ("zz", "old", "aa", "zz")]
    answers = store.grant_all([sender.hello() for sender in senders], now_us=3)
    assert [answer.run_id for answer in answers] == ["zz", "old", "aa", "zz"]
    assert isinstance(answers[1], Gone)
    assert [answer.epoch for answer in answers if isinstance(answer, Welcome)] == [1, 1, 2]


def test_a_store_opened_anew_goes_on_where_it_was(store_url: str, make_sender: Make, make_points: Make) -> None:
    """Nothing that matters is only in memory: series numbers, cursor, chain."""
    sender = make_sender()
    for step in range(4):
        store = Store.open(store_url)
        if step == 0:
            sender.greet(store)
            store.commit([sender.begin("loss")], now_us=1)
        store.commit([sender.batch(one(make_points, step))], now_us=2)
        store.close()
    store = Store.open(store_url)
    assert values(store, sender.run_id) == [0.0, 1.0, 2.0, 3.0]
    store.close()


@contextlib.contextmanager
def failing_once(store: Store, *, committed: bool) -> Iterator[list[int]]:
    """Lets one transaction that wrote segments fail as a broken connection does, before its COMMIT or after."""
    database: Any = store._database
    original = database.writing
    failures: list[int] = []

    @contextlib.contextmanager
    def writing() -> Iterator[sa.Connection]:
        wrote: list[bool] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if "INSERT INTO segment" in statement and not failures:
                wrote.append(True)

        error = sa.exc.OperationalError("COMMIT", {}, ConnectionError("lost"), connection_invalidated=False)
        with original() as connection:
            sa.event.listen(connection, "before_cursor_execute", note)
            yield connection
            if wrote and not committed:
                failures.append(1)
                raise error
        if wrote:
            failures.append(1)
            raise error

    database.writing = writing
    yield failures
    database.writing = original


@pytest.mark.parametrize("committed", [True, False], ids=["after COMMIT", "before COMMIT"])
def test_a_commit_of_unknown_outcome_is_looked_up(
    store: Store, begun: Make, make_points: Make, committed: bool
) -> None:
    """The cursor says whether it happened; it is then acknowledged, or done again, and never doubled."""
    senders = [begun(run_id=name) for name in ("a", "b")]
    with failing_once(store, committed=committed) as failures:
        result = store.commit([sender.batch(one(make_points, 4)) for sender in senders], now_us=3)
    assert failures == [1]
    assert result.next == {sender.key: 3 for sender in senders}
    assert len(result.applied) == 2
    for sender in senders:
        store.commit([sender.batch(one(make_points, 5))], now_us=4)
        assert values(store, sender.run_id) == [4.0, 5.0]


def test_a_database_that_stays_away_is_said_to_be_unavailable(
    store: Store, begun: Make, make_points: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some tries the writer gives up; nothing was applied, and the next try works."""
    sender = begun()
    batch = sender.batch(one(make_points, 1))

    def broken(*_args: object) -> None:
        raise sa.exc.OperationalError("INSERT", {}, ConnectionError("lost"))

    with monkeypatch.context() as patch:
        patch.setattr("halfscope_server.store.committer._series_rows", broken)
        with pytest.raises(Unavailable, match="did not answer as it should"):
            store.commit([batch], now_us=3)
    assert values(store, sender.run_id) == []
    assert store.commit([batch], now_us=4).next == {sender.key: 3}
    assert values(store, sender.run_id) == [1.0]


def test_two_replicas_take_turns_on_one_stream(postgres_url: str, make_sender: Make, make_points: Make) -> None:
    """Batches of one stream under one epoch that reach two servers by turns are each applied once."""
    stores = [Store.open(postgres_url) for _ in range(2)]
    sender = make_sender()
    sender.greet(stores[0])
    batches = [sender.begin("loss"), *(sender.batch(one(make_points, step)) for step in range(6))]
    for at, batch in enumerate(batches):
        ours, other = stores[at % 2], stores[(at + 1) % 2]
        # The first try at a server may meet what it remembered from before; its answer says where the stream is.
        while ours.commit([batch], now_us=at).next[sender.key] < batch.first + batch.count:
            pass
        assert other.commit([batch], now_us=at).next == {sender.key: batch.first + batch.count}
    assert values(stores[0], sender.run_id) == values(stores[1], sender.run_id) == [0, 1, 2, 3, 4, 5]
    for store in stores:
        store.close()


def test_a_connection_to_another_replica_is_fenced_too(postgres_url: str, make_sender: Make, make_points: Make) -> None:
    """What this replica remembers is old; the row in the database decides, though the cursor is where it was."""
    ours, other = Store.open(postgres_url), Store.open(postgres_url)
    sender = make_sender()
    sender.greet(ours)
    ours.commit([sender.begin("loss")], now_us=1)
    stale = sender.batch(one(make_points, 1))
    sender.greet(other)
    result = ours.commit([stale], now_us=2)
    assert [refuse.code for refuse in result.refused] == ["fenced"]
    assert (result.applied, values(ours, sender.run_id)) == ([], [])
    assert other.commit([sender.batch(one(make_points, 2))], now_us=3).next == {sender.key: 3}
    assert values(ours, sender.run_id) == [2.0]
    ours.close()
    other.close()


def test_two_replicas_that_commit_the_same_streams_do_not_deadlock(
    postgres_url: str, make_sender: Make, make_points: Make
) -> None:
    """Each sends the same batches in an order of its own; both end, and everything is there once."""
    stores = [Store.open(postgres_url) for _ in range(2)]
    senders = [make_sender(run_id=f"run{at:02d}") for at in range(12)]
    rounds: list[list[Batch]] = []
    for sender in senders:
        sender.greet(stores[0])
    rounds.append([sender.begin("loss") for sender in senders])
    rounds += [
        [sender.batch(one(make_points, step), Facts(1, {str(step): step})) for sender in senders] for step in range(8)
    ]
    failures: list[BaseException] = []

    def replica(store: Store, seed: int) -> None:
        order = random.Random(seed)
        try:
            for batches in rounds:
                left = list(batches)
                while left:
                    order.shuffle(left)
                    result = store.commit(left, now_us=1)
                    assert not result.refused
                    left = [b for b in left if result.next[b.run_id, b.stream] < b.first + b.count]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=replica, args=(store, seed)) for seed, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for sender in senders:
        assert values(stores[0], sender.run_id) == list(range(8))
    for store in stores:
        store.close()


def test_more_streams_than_are_remembered(
    store: Store, begun: Make, make_points: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was forgotten is read again."""
    monkeypatch.setattr("halfscope_server.store.committer.MAX_REMEMBERED", 2)
    senders = [begun(run_id=f"run{at}") for at in range(5)]
    for step, sender in itertools.product(range(2), senders):
        assert store.commit([sender.batch(one(make_points, step))], now_us=1).next == {sender.key: 3 + step}
    assert all(np.array_equal(values(store, sender.run_id), [0, 1]) for sender in senders)
