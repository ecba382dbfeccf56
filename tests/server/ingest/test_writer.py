"""The writer thread: groups, answers, back-pressure, contact, and that nothing stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from halfscope.wire.messages import Ack, Bye, Gone, Live, Refuse, Welcome
from halfscope_server.errors import Unavailable
from halfscope_server.ingest import writer as module
from halfscope_server.ingest.writer import Writer
from halfscope_server.store.records import series_id
from halfscope_server.store.store import Store

Make = Callable[..., Any]
LOSS = series_id("loss", {})


@pytest.fixture
def held(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[int]]]:
    """The store waits in each commit until the event is set; the sizes of its groups."""
    go, groups = threading.Event(), []
    commit = file_store.commit

    def waiting(batches: Any, *, now_us: int) -> Any:
        groups.append(len(batches))
        assert go.wait(30)
        return commit(batches, now_us=now_us)

    monkeypatch.setattr(file_store, "commit", waiting)
    yield go, groups
    go.set()


def test_frames_are_answered_in_order(writer: Writer, make_feed: Make, make_inbox: Make, applied: list[Any]) -> None:
    """Greeting, records, farewell; listeners hear of what was committed."""
    feed, inbox = make_feed(), make_inbox()
    for frame in (feed.hello(), feed.begin(), feed.step(4), Bye(*feed.key, "ended")):
        assert writer.submit(frame, 10, inbox)
    frames = inbox.wait_for(4)
    assert frames[0] == Welcome(*feed.key, 1, 0, bytes(16))
    assert frames[-1] == Ack(*feed.key, 3, 1)
    assert inbox.settled_bytes == 40
    assert [one.num_points for one in applied if one.stream == feed.stream] == [1]
    metrics = writer.metrics()
    assert (metrics.frames, metrics.batches, metrics.points, metrics.bytes, metrics.errors) == (4, 2, 1, 40, 0)


def test_what_waits_together_is_committed_together(
    writer: Writer, held: Any, make_feed: Make, make_inbox: Make, file_store: Store, wait_until: Make
) -> None:
    """While one commit goes on, the batches of all streams gather for the next; each client is told once."""
    go, groups = held
    feeds, inboxes = [make_feed(run_id=f"run{at}") for at in range(5)], [make_inbox() for _ in range(5)]
    for feed, inbox in zip(feeds, inboxes, strict=True):
        writer.submit(feed.hello(), 1, inbox)
        inbox.wait_for(1)
    writer.submit(feeds[0].begin(), 1, inboxes[0])
    wait_until(lambda: groups == [1])
    for feed, inbox in zip(feeds[1:], inboxes[1:], strict=True):
        for frame in (feed.begin(), feed.step(1), feed.step(2)):
            writer.submit(frame, 1, inbox)
    go.set()
    for feed, inbox in zip(feeds[1:], inboxes[1:], strict=True):
        inbox.wait_for(4)
        assert inbox.calls[1:] == [[Ack(*feed.key, 4, 1)]]
        assert file_store.points(feed.run_id, LOSS).value.tolist() == [1.0, 2.0]
    assert groups == [1, 12]
    assert writer.metrics().commits == 2


def test_a_group_ends_when_it_is_large(
    writer: Writer, held: Any, make_feed: Make, make_inbox: Make, wait_until: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction does not grow with the backlog."""
    monkeypatch.setattr(module, "GROUP_BYTES", 30)
    go, groups = held
    feed, inbox = make_feed(), make_inbox()
    writer.submit(feed.hello(), 1, inbox)
    inbox.wait_for(1)
    writer.submit(feed.begin(), 10, inbox)
    wait_until(lambda: groups == [1])
    for step in range(7):
        writer.submit(feed.step(step), 10, inbox)
    go.set()
    assert inbox.wait_for(9)[-1] == Ack(*feed.key, 9, 1)
    assert groups == [1, 3, 3, 1]


def test_a_full_queue_takes_nothing_and_says_when_there_is_room(
    writer: Writer, held: Any, make_feed: Make, make_inbox: Make, wait_until: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So sockets are not read from while the database is slow."""
    monkeypatch.setattr(module, "QUEUE_BYTES", 100)
    go, groups = held
    feed, inbox, room = make_feed(), make_inbox(), threading.Event()
    writer.submit(feed.hello(), 1, inbox)
    inbox.wait_for(1)
    writer.submit(feed.begin(), 1, inbox)
    wait_until(lambda: groups == [1])
    first, second = feed.step(1), feed.step(2)
    assert writer.submit(first, 100, inbox)
    assert not writer.submit(second, 1, inbox)
    writer.when_room(room.set)
    assert not room.is_set()
    assert writer.metrics().queue_bytes == 100
    go.set()
    assert room.wait(30)
    assert writer.submit(second, 1, inbox)
    assert inbox.wait_for(4)[-1] == Ack(*feed.key, 4, 1)


def test_a_bad_batch_is_refused_after_what_was_good(writer: Writer, make_feed: Make, make_inbox: Make) -> None:
    """The ack comes first, so that the sender knows which batch is meant."""
    feed, inbox = make_feed(), make_inbox()
    for frame in (feed.hello(), feed.begin(), feed.event(kind="x" * 100)):
        writer.submit(frame, 1, inbox)
    frames = inbox.wait_for(3)
    assert isinstance(frames[-1], Refuse)
    assert frames[-1].code == "bad_batch"
    assert Ack(*feed.key, 2, 1) in frames[:-1]
    assert writer.metrics().refused == 1


def test_each_connection_hears_its_own_verdict(writer: Writer, make_feed: Make, make_inbox: Make) -> None:
    """In one group the fenced connection is refused and the newer one acknowledged."""
    old, new = make_feed(), make_feed()
    old_inbox, new_inbox = make_inbox(), make_inbox()
    writer.submit(old.hello(), 1, old_inbox)
    writer.submit(new.hello(), 1, new_inbox)
    new.epoch = 2
    writer.submit(old.begin(), 1, old_inbox)
    writer.submit(new.begin(), 1, new_inbox)
    last = old_inbox.wait_for(2)[-1]
    assert isinstance(last, Refuse)
    assert (last.code, last.stream) == ("fenced", old.stream)
    assert new_inbox.wait_for(2)[-1] == Ack(*new.key, 2, 2)


def test_senders_of_a_deleted_run_are_told(
    writer: Writer, file_store: Store, make_feed: Make, make_inbox: Make
) -> None:
    """By batch and by greeting."""
    feed, inbox = make_feed(), make_inbox()
    writer.submit(feed.hello(), 1, inbox)
    writer.submit(feed.begin(), 1, inbox)
    inbox.wait_for(2)
    file_store.delete_run(feed.run_id, now_us=1)
    writer.submit(feed.step(1), 1, inbox)
    inbox.wait_for(3)
    writer.submit(feed.hello(), 1, inbox)
    assert inbox.wait_for(4)[-2:] == [Gone(*feed.key), Gone(*feed.key)]


@pytest.mark.parametrize("error", [Unavailable("the disk is full"), ZeroDivisionError("a bug")], ids=["known", "not"])
def test_a_failing_store_makes_senders_wait_and_the_writer_go_on(
    writer: Writer,
    file_store: Store,
    make_feed: Make,
    make_inbox: Make,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """Nothing is acknowledged; the same batch works later. What is not meant for outside stays in the log."""
    feed, inbox = make_feed(), make_inbox()
    writer.submit(feed.hello(), 1, inbox)
    inbox.wait_for(1)
    batch = feed.begin()

    def broken(*_args: object, **_kwargs: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        for name in ("commit", "grant_all", "bye"):
            patch.setattr(file_store, name, broken)
        for at, frame in enumerate((batch, feed.hello(), Bye(*feed.key, "killed"))):
            writer.submit(frame, 1, inbox)
            said = inbox.wait_for(2 + at)[-1]
            assert isinstance(said, Refuse)
            assert (said.code, said.run_id, said.retry_after_s > 0) == ("busy", feed.run_id, True)
            assert ("disk is full" in said.message) == isinstance(error, Unavailable)
            assert "a bug" not in said.message
    writer.submit(batch, 1, inbox)
    assert inbox.wait_for(5)[-1] == Ack(*feed.key, 2, 1)
    assert writer.metrics().errors == 3


def test_a_failing_listener_does_not_stop_the_writer(file_store: Store, make_feed: Make, make_inbox: Make) -> None:
    """The ack is out before it is asked."""

    def broken(_applied: Any) -> None:
        raise ZeroDivisionError("a listener's bug")

    writer = Writer(file_store, broken)
    writer.start()
    feed, inbox = make_feed(), make_inbox()
    for frame in (feed.hello(), feed.begin(), feed.step(1)):
        writer.submit(frame, 1, inbox)
    assert inbox.wait_for(3)[-1] == Ack(*feed.key, 3, 1)
    writer.stop()
    assert writer.metrics().listener_errors >= 1


def test_stopping_commits_what_was_taken_and_takes_no_more(
    file_store: Store, held: Any, make_feed: Make, make_inbox: Make, wait_until: Make
) -> None:
    """A server that is told to stop loses nothing that it took in."""
    go, groups = held
    writer = Writer(file_store, lambda applied: None)
    writer.start()
    feed, inbox = make_feed(), make_inbox()
    writer.submit(feed.hello(), 1, inbox)
    inbox.wait_for(1)
    writer.submit(feed.begin(), 1, inbox)
    wait_until(lambda: groups == [1])
    writer.submit(feed.step(1), 1, inbox)
    stopping = threading.Thread(target=writer.stop)
    stopping.start()
    wait_until(lambda: writer.is_stopping)
    assert not writer.submit(feed.step(2), 1, inbox)
    called = threading.Event()
    writer.when_room(called.set)
    assert called.is_set()
    go.set()
    stopping.join()
    assert inbox.frames[-1] == Ack(*feed.key, 3, 1)
    assert file_store.points(feed.run_id, LOSS).value.tolist() == [1.0]


def test_live_frames_are_passed_on_and_not_stored(file_store: Store, make_feed: Make, make_inbox: Make) -> None:
    """They are replaced by what is stored later."""
    seen: list[Live] = []
    writer = Writer(file_store, lambda applied: None, on_live=seen.append)
    writer.start()
    feed, inbox = make_feed(), make_inbox()
    live = Live(*feed.key, 5, 5, {0: 1.0})
    for frame in (feed.hello(), feed.begin(), live):
        writer.submit(frame, 1, inbox)
    inbox.wait_for(3)
    writer.stop()
    assert seen == [live]
    assert len(file_store.points(feed.run_id, LOSS).step) == 0


class Clock:
    """A wall clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now_us = 1_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def pass_s(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)


def state(store: Store, run_id: str) -> str:
    row = store.get_run(run_id)
    assert row is not None
    return row.state


def test_contact_is_lost_after_silence_and_kept_by_a_connection_or_a_live_frame(
    file_store: Store, make_feed: Make, make_inbox: Make
) -> None:
    """Nobody is lost right after a start; a held stream is there; listeners hear of runs that were lost."""
    clock, told = Clock(), []
    writer = Writer(file_store, told.extend, lost_contact_s=90, clock_us=clock)
    held, live, silent = (make_feed(run_id=name) for name in ("held", "live", "silent"))
    inbox = make_inbox()
    writer._process([module._Item(feed.hello(), 1, inbox) for feed in (held, live, silent)])
    writer._process([module._Item(feed.begin(), 1, inbox) for feed in (held, live, silent)])
    clock.pass_s(89)
    writer.judge_contact()
    writer.hold(held.key)
    writer.hold(held.key)
    writer.release(held.key)
    writer._process([module._Item(Live(*live.key, 1, 1), 1, inbox)])
    told.clear()
    clock.pass_s(2)
    writer.judge_contact()
    assert [state(file_store, name) for name in ("held", "live", "silent")] == ["waiting", "waiting", "lost"]
    assert [(one.run_id, one.stream) for one in told] == [("silent", "~server")]
    clock.pass_s(91)
    writer.judge_contact()
    assert [state(file_store, name) for name in ("held", "live", "silent")] == ["waiting", "lost", "lost"]
    writer.release(held.key)
    clock.pass_s(91)
    writer.judge_contact()
    assert state(file_store, "held") == "lost"
    assert writer.metrics().lost_contacts == 3


def test_a_server_that_was_away_gives_agents_time_to_come_back(
    file_store: Store, make_feed: Make, make_inbox: Make
) -> None:
    """Their last word is old because the server was not there."""
    clock = Clock()
    before, feed = Writer(file_store, lambda applied: None, clock_us=clock), make_feed()
    for frame in (feed.hello(), feed.begin()):
        before._process([module._Item(frame, 1, make_inbox())])
    clock.pass_s(3600)
    after = Writer(file_store, lambda applied: None, lost_contact_s=90, clock_us=clock)
    clock.pass_s(89)
    after.judge_contact()
    assert state(file_store, feed.run_id) == "waiting"
    clock.pass_s(1)
    after.judge_contact()
    assert state(file_store, feed.run_id) == "lost"


def test_an_idle_writer_compacts(
    file_store: Store, make_feed: Make, make_inbox: Make, wait_until: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without being asked, once a stream is due."""
    monkeypatch.setattr("halfscope_server.store.compactor.MAX_SEGMENTS", 3)
    writer = Writer(file_store, lambda applied: None)
    writer.start()
    feed, inbox = make_feed(), make_inbox()
    for frame in (feed.hello(), feed.begin(), *(feed.step(step) for step in range(5))):
        writer.submit(frame, 1, inbox)
    inbox.wait_for(7)
    wait_until(lambda: writer.metrics().merges >= 1)
    writer.stop()
    assert file_store.points(feed.run_id, LOSS).value.tolist() == [0, 1, 2, 3, 4]


def test_a_failing_compaction_does_not_stop_the_writer(
    file_store: Store, make_feed: Make, make_inbox: Make, wait_until: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames are taken all the same, and it is not tried again at once."""
    tries: list[int] = []

    def broken(**_kwargs: object) -> int:
        tries.append(1)
        raise Unavailable("the disk is full")

    monkeypatch.setattr(file_store, "compact", broken)
    writer = Writer(file_store, lambda applied: None)
    writer.start()
    wait_until(lambda: tries)
    feed, inbox = make_feed(), make_inbox()
    for frame in (feed.hello(), feed.begin(), feed.step(1)):
        writer.submit(frame, 1, inbox)
    assert inbox.wait_for(3)[-1] == Ack(*feed.key, 3, 1)
    writer.stop()
    assert (len(tries), writer.metrics().errors) == (1, 1)
