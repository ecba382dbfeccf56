"""Streams that end without their own word, and come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halfscope.wire.messages import Bye, End, Facts
from halfscope_server.store.store import Store

Make = Callable[..., Any]


def state(store: Store, run_id: str) -> tuple[str, str, int | None]:
    row = store.get_run(run_id)
    assert row is not None
    return row.state, row.outcome, row.ended_us


def kinds(store: Store, run_id: str) -> list[str]:
    return [event.kind for event in store.events(run_id)]


def test_silence_is_lost_contact_once(store: Store, begun: Make, make_points: Make) -> None:
    """The clock decides once: an event in the run, with the stream it is about; asking again changes nothing."""
    sender = begun(rank=3)
    store.commit([sender.batch(make_points([4], {0: [1]}))], now_us=100)
    assert store.mark_lost_contact(silent_since_us=100, now_us=200) == []
    assert state(store, sender.run_id) == ("live", "", None)
    assert store.mark_lost_contact(silent_since_us=101, now_us=200) == [sender.run_id]
    assert store.mark_lost_contact(silent_since_us=101, now_us=300) == []
    assert state(store, sender.run_id) == ("lost", "lost_contact", 100)
    (event,) = store.events(sender.run_id)
    assert (event.kind, event.step, event.time_us, event.rank, event.severity) == ("lost_contact", 4, 200, 3, "warning")
    assert (event.stream, event.attributes["stream"]) == ("~server", sender.stream)
    assert [row.stream for row in store.streams(sender.run_id)] == [sender.stream]


def test_a_stream_that_sends_again_is_live_again(store: Store, begun: Make, make_points: Make) -> None:
    """With an event, once."""
    sender = begun()
    store.commit([sender.batch(make_points([4], {0: [1]}))], now_us=100)
    store.mark_lost_contact(silent_since_us=101, now_us=200)
    for step in (5, 6):
        store.commit([sender.batch(make_points([step], {0: [1]}))], now_us=300)
    assert state(store, sender.run_id) == ("live", "", None)
    assert kinds(store, sender.run_id) == ["lost_contact", "contact_regained"]
    store.mark_lost_contact(silent_since_us=301, now_us=400)
    assert kinds(store, sender.run_id) == ["lost_contact", "contact_regained", "lost_contact"]


def test_a_greeting_is_a_sign_of_life(store: Store, begun: Make) -> None:
    """Also of a trainer that has nothing new to send yet."""
    sender = begun()
    store.mark_lost_contact(silent_since_us=101, now_us=200)
    sender.greet(store, now_us=300)
    assert state(store, sender.run_id) == ("waiting", "", None)
    assert kinds(store, sender.run_id) == ["lost_contact", "contact_regained"]
    assert store.mark_lost_contact(silent_since_us=300, now_us=400) == []


def test_an_open_connection_is_a_sign_of_life(store: Store, begun: Make) -> None:
    """Touching keeps open streams, brings lost ones back, and leaves ended ones alone."""
    second = 1_000_000
    silent, lost, ended = begun(run_id="silent"), begun(run_id="lost"), begun(run_id="ended")
    store.commit([ended.batch(End("finished", 1, 50))], now_us=3)
    store.touch([silent.key], now_us=50 * second)
    assert store.mark_lost_contact(silent_since_us=20 * second, now_us=60 * second) == ["lost"]
    store.touch([silent.key, lost.key, ended.key, ("nobody", "00")], now_us=70 * second)
    assert [state(store, run_id)[0] for run_id in ("silent", "lost", "ended")] == ["waiting", "waiting", "finished"]
    assert kinds(store, "lost") == ["lost_contact", "contact_regained"]
    assert store.mark_lost_contact(silent_since_us=70 * second, now_us=80 * second) == []
    assert not store.commit([lost.batch(Facts(1, {}))], now_us=90 * second).refused
    assert kinds(store, "lost") == ["lost_contact", "contact_regained"]


def test_a_killed_trainer_is_told_by_its_sender(store: Store, begun: Make, make_points: Make) -> None:
    """Said twice, it is noted once; whoever comes after the kill does not take it back by its tail."""
    sender = begun()
    store.commit([sender.batch(make_points([4], {0: [1]}))], now_us=100)
    for _ in range(2):
        store.bye(Bye(*sender.key, "killed", 150), now_us=160)
    assert state(store, sender.run_id) == ("killed", "killed", 150)
    (event,) = store.events(sender.run_id)
    assert (event.kind, event.severity, event.attributes["outcome"]) == ("run_ended", "critical", "killed")
    store.commit([sender.batch(make_points([5], {0: [1]}))], now_us=170)
    assert state(store, sender.run_id)[0] == "killed"


def test_what_is_told_of_a_killed_rank_names_its_own_newest_step(store: Store, begun: Make, make_points: Make) -> None:
    """Not the one that the others had come to; also where its steps have been merged. Of one that made none, theirs."""
    first = begun(rank=0)
    second = begun(run_id=first.run_id, stream="11" * 8, rank=1)
    third = begun(run_id=first.run_id, stream="22" * 8, rank=2)
    begun(run_id=first.run_id, stream="33" * 8, rank=3)
    store.commit([third.batch(make_points([0, 1, 2, 3, 4, 5], {0: [1] * 6}))], now_us=100)
    store.commit([second.batch(make_points([0, 1, 2, 3], {0: [1] * 4}))], now_us=100)
    store.commit([first.batch(make_points([*range(9)], {0: [1] * 9}))], now_us=100)
    store.bye(Bye(*second.key, "killed", 150), now_us=160)
    while store.compact(now_us=10**12, budget_s=10.0):
        pass
    assert store.mark_lost_contact(silent_since_us=10**13, now_us=10**13) == [first.run_id]
    ends = store.events(first.run_id, kinds=["run_ended", "lost_contact"])
    told = {(event.kind, event.rank): event.step for event in ends}
    assert told == {("run_ended", 1): 3, ("lost_contact", 0): 8, ("lost_contact", 2): 5, ("lost_contact", 3): 8}


def test_a_farewell_after_an_end_record_changes_nothing(store: Store, begun: Make) -> None:
    """The End record has said how; and a farewell of an unknown stream is nothing."""
    sender = begun()
    store.commit([sender.batch(End("finished", 1, 50))], now_us=3)
    store.bye(Bye(*sender.key, "ended", 60), now_us=60)
    store.bye(Bye(*sender.key, "killed", 60), now_us=60)
    store.bye(Bye("nobody", "00", "killed", 60), now_us=60)
    assert state(store, sender.run_id) == ("finished", "finished", 50)
    assert kinds(store, sender.run_id) == ["run_ended"]


def test_an_end_record_that_comes_late_has_the_last_word(store: Store, begun: Make) -> None:
    """The server lost contact, the trainer went on and finished; its journal arrives afterwards."""
    sender = begun()
    store.mark_lost_contact(silent_since_us=101, now_us=200)
    store.commit([sender.batch(End("finished", 9, 190))], now_us=300)
    assert state(store, sender.run_id) == ("finished", "finished", 190)
