"""Run rows: what a Start makes of them, how ranks and attempts add up to a state, facts, odd text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from halfscope.wire.messages import FIRST_TIMED_ATTEMPT, Declare, End, Facts, Lost, Series, Start
from halfscope_server.store.runs import state_of
from halfscope_server.store.store import Store
from halfscope_server.store.types import RunRow

Make = Callable[..., Any]


def row(store: Store, run_id: str) -> RunRow:
    found = store.get_run(run_id)
    assert found is not None
    return found


def test_a_run_appears_with_its_start_record_not_with_the_greeting(store: Store, make_sender: Make) -> None:
    """The greeting says who writes; what the run is stands in the journal."""
    sender = make_sender()
    sender.greet(store)
    assert (store.list_runs(), store.get_run(sender.run_id)) == ([], None)
    config = {"lr": 1e-3, "odd": math.inf, "nested": {"a": [1, None, True]}}
    environment = {"torch": "2.13"}
    start = Start(77, "digits", "fp16", config, ["demo", "fp16"], environment, 10)
    store.commit([sender.batch(start)], now_us=90)
    found = row(store, sender.run_id)
    assert (found.project, found.name, list(found.tags)) == ("digits", "fp16", ["demo", "fp16"])
    assert (found.config, found.environment) == (config, environment)
    assert (found.created_us, found.updated_us, found.ended_us) == (77, 90, None)
    assert (found.state, found.last_step, found.num_attempts, found.world_size) == ("waiting", None, 1, 1)
    assert store.list_runs() == [found]


def test_a_repeated_start_changes_nothing(store: Store, begun: Make) -> None:
    """It stands at the head of each journal segment, and the name may have been changed on the page meanwhile."""
    sender = begun()
    store.rename_run(sender.run_id, "renamed")
    store.commit([sender.batch(Start(5, "other", "other"), Declare([Series(0, "loss")]))], now_us=9)
    found = row(store, sender.run_id)
    assert (found.name, found.project, found.created_us) == ("renamed", "digits", 1000)
    assert store.count_events(sender.run_id) == {}


def test_the_first_point_makes_a_run_live_and_the_last_step_is_the_largest(
    store: Store, begun: Make, make_points: Make
) -> None:
    """Late values of earlier steps do not take it back."""
    sender = begun()
    store.commit([sender.batch(make_points([3, 8], {0: [1, 2]}))], now_us=3)
    store.commit([sender.batch(make_points([5], {0: [1]}))], now_us=4)
    found = row(store, sender.run_id)
    assert (found.state, found.last_step, found.updated_us) == ("live", 8, 4)


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (End("finished", 9, 500), "finished"),
        (End("superseded", 9, 500), "superseded"),
        (End("exception", 9, 500, "RuntimeError", "CUDA out of memory"), "failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.outcome,
)
def test_an_end_record_ends_a_run(store: Store, begun: Make, make_points: Make, end: End, state: str) -> None:
    """With time, type and text, and as an event that says how."""
    sender = begun()
    store.commit([sender.batch(make_points([9], {0: [1]}), end)], now_us=3)
    found = row(store, sender.run_id)
    assert (found.state, found.outcome, found.ended_us) == (state, end.outcome, 500)
    assert (found.error_type, found.error_message) == (end.error_type, end.message)
    (event,) = store.events(sender.run_id)
    assert (event.kind, event.step, event.time_us, event.seq) == ("run_ended", 9, 500, 3)
    assert event.severity == ("critical" if state == "failed" else "info")
    assert event.attributes == {"outcome": end.outcome, "error_type": end.error_type, "message": end.message}


def test_a_run_of_several_ranks_ends_when_all_have(store: Store, begun: Make) -> None:
    """The worst outcome of any rank is the run's."""
    ranks = [begun(stream=f"0{rank}", rank=rank) for rank in range(3)]
    states = []
    for sender, outcome in zip(ranks, ("finished", "exception", "finished"), strict=True):
        store.commit([sender.batch(End(outcome, 1, 10 + sender.info.rank))], now_us=3)
        states.append(row(store, sender.run_id).state)
    assert states == ["waiting", "waiting", "failed"]
    found = row(store, ranks[0].run_id)
    assert (found.world_size, found.num_attempts, found.ended_us) == (3, 1, 12)
    joined = store.events(ranks[0].run_id, kinds=["joined"])
    assert sorted(event.attributes["rank"] for event in joined) == [1, 2]


def test_a_new_attempt_opens_the_run_again(store: Store, begun: Make, make_points: Make) -> None:
    """Its configuration replaces the first one's; name and error of the first are kept and cleared."""
    first = begun(stream="01")
    store.commit([first.batch(make_points([9], {0: [1]}), End("exception", 9, 50, "OOM", "no memory"))], now_us=3)
    assert row(store, first.run_id).state == "failed"
    second = begun(stream="02", attempt=1)
    found = row(store, first.run_id)
    assert (found.state, found.outcome, found.ended_us, found.num_attempts) == ("live", "", None, 2)
    assert (found.error_type, found.error_message, found.name) == ("", "", "a run")
    store.commit([second.batch(make_points([5], {0: [2]}), End("finished", 5, 60))], now_us=4)
    found = row(store, first.run_id)
    assert (found.state, found.last_step, found.ended_us) == ("finished", 9, 60)
    (restarted,) = store.events(first.run_id, kinds=["restarted"])
    assert restarted.attributes["attempt"] == 1
    assert store.events(first.run_id, kinds=["joined"]) == []
    points = store.points(first.run_id, store.series(first.run_id)[0].series_id)
    assert (points.step.tolist(), points.attempt.tolist()) == ([5, 9], [1, 0])


def test_starts_of_the_same_time_never_share_an_attempt(
    store: Store, begun: Make, make_sender: Make, make_points: Make
) -> None:
    """Two machines whose clocks read the same microsecond: the server tells them apart, each rank for itself, and again
    where they come back. A journal and its copies are of one start, whichever comes first; counts are as told."""
    time_us = 218_000_000_000_000
    assert time_us > FIRST_TIMED_ATTEMPT
    starts = [(f"0{at}", at // 2, time_us) for at in range(4)] + [("04", 0, time_us + 2), ("05", 0, 0), ("06", 0, 0)]
    senders = [begun(["loss"], stream=stream, rank=rank, attempt=attempt) for stream, rank, attempt in starts]
    copies = {"07": "01", "08": "09", "0a": "09"}
    for stream in ("07", "08", "09", "0a"):
        sender = make_sender(stream=stream, attempt=time_us)
        sender.info = msgspec.structs.replace(sender.info, forked_from=copies.get(stream, ""))
        sender.greet(store)
        assert not store.commit([sender.batch(Start(8, "p", "n"), Declare([Series(0, "loss")]))], now_us=2).refused
        senders.append(sender)
    for at, sender in enumerate(senders):
        sender.greet(store, now_us=2)
        assert not store.commit([sender.batch(make_points([at], {0: [at]}))], now_us=3).refused
    found = {stream.stream: stream.attempt - time_us for stream in store.streams(sender.run_id) if stream.attempt}
    assert found == {"00": 0, "01": 1, "02": 0, "03": 1, "04": 2, "07": 1, "08": 3, "09": 3, "0a": 3}
    points = store.points(sender.run_id, store.series(sender.run_id)[0].series_id)
    assert (points.attempt[:5] - time_us).tolist() == [0, 1, 0, 1, 2]
    assert [event.attempt - time_us for event in store.events(sender.run_id, kinds=["forked"])] == [1, 3, 3]


def test_the_configuration_shown_is_that_of_rank_0_of_the_newest_attempt(store: Store, make_sender: Make) -> None:
    """Whoever starts first."""
    for rank, attempt in ((1, 0), (0, 0), (1, 1), (0, 1)):
        sender = make_sender(stream=f"{attempt}{rank}", rank=rank, attempt=attempt)
        sender.greet(store)
        store.commit([sender.batch(Start(1, "p", "n", {"who": [rank, attempt]}))], now_us=2)
        late = make_sender(stream=f"{attempt}{rank}f", rank=rank + 1, attempt=attempt)
        late.greet(store)
        store.commit([late.batch(Start(1, "p", "n", {"who": "late"}))], now_us=2)
        assert row(store, sender.run_id).config == {"who": [rank, attempt]}


def test_facts_are_merged_key_by_key(store: Store, begun: Make) -> None:
    """The newest value of each key wins."""
    sender = begun()
    store.commit([sender.batch(Facts(1, {"precision": "FP32", "a": 1}), Facts(2, {"precision": "FP16-AMP"}))], now_us=3)
    store.commit([sender.batch(Facts(3, {"memory": {"parameter_bytes": 8}}))], now_us=4)
    expected = {"precision": "FP16-AMP", "a": 1, "memory": {"parameter_bytes": 8}}
    assert row(store, sender.run_id).facts == expected


def test_a_gap_of_unknown_time_is_shown_at_the_time_it_came_to_be_known(store: Store, begun: Make) -> None:
    """An agent that does not know when records were lost says 0; that is not 1970."""
    sender = begun()
    store.commit([sender.batch(Lost(1, 1, "refused"))], now_us=77)
    (event,) = store.events(sender.run_id)
    assert (event.kind, event.time_us) == ("lost", 77)


def test_records_whose_start_was_lost_make_a_run_all_the_same(
    store: Store, make_sender: Make, make_points: Make
) -> None:
    """Under its id, until a Start arrives; the gap is an event."""
    sender = make_sender()
    sender.greet(store)
    lost = Lost(0, 9, "quota", 5, {"points": 40})
    store.commit([sender.batch(lost, count=10)], now_us=2)
    store.commit([sender.batch(Declare([Series(0, "loss")]), make_points([50], {0: [1]}))], now_us=3)
    found = row(store, sender.run_id)
    assert (found.name, found.state, found.last_step) == (sender.run_id, "live", 50)
    (event,) = store.events(sender.run_id)
    assert (event.kind, event.severity, event.seq) == ("lost", "warning", 0)
    assert event.attributes == {"first_seq": 0, "last_seq": 9, "reason": "quota", "counts": {"points": 40}}
    store.commit([sender.batch(Start(7, "digits", "late"))], now_us=4)
    found = row(store, sender.run_id)
    assert (found.name, found.project, found.created_us) == ("late", "digits", 7)


def test_a_fork_is_told(store: Store, begun: Make, make_sender: Make) -> None:
    """A copied journal that went its own way is a stream of its own, and an event says so."""
    begun(stream="01")
    copy = make_sender(stream="02")
    copy.info = msgspec.structs.replace(copy.info, forked_from="01")
    copy.greet(store)
    store.commit([copy.batch(Start(8, "p", "n"))], now_us=2)
    (event,) = store.events(copy.run_id)
    assert (event.kind, event.severity, event.attributes["forked_from"]) == ("forked", "warning", "01")


def test_text_of_any_kind_is_taken(store: Store, make_sender: Make) -> None:
    """NUL, which PostgreSQL refuses, is shown as what it is; what is too long is cut; bytes and deep values named; no
    tag turns the words behind it round, and Arabic needs nothing that would."""
    sender = make_sender()
    sender.greet(store)
    deep: Any = "end"
    for _ in range(40):
        deep = [deep]
    config = {"bytes": b"123", "nul": "a\x00b", "deep": deep}
    tags = ["\u202e\u0639\u0631\u0628\u064a\u2066", *["t" * 100] * 50]
    start = Start(1, "p\x00q", "n" * 300, config, tags, {"big": "x" * (1 << 20)})
    assert not store.commit([sender.batch(start)], now_us=2).refused
    found = row(store, sender.run_id)
    assert (found.project, len(found.name), found.name[-1]) == ("p�q", 200, "…")
    assert (len(found.tags), found.tags[0], len(found.tags[1])) == (32, "\u0639\u0631\u0628\u064a", 64)
    assert (found.config["bytes"], found.config["nul"]) == ("<3 bytes>", "a�b")
    assert "<list>" in str(found.config["deep"])
    assert "was left out; at most 1048576 are kept" in found.environment["halfscope"]


def test_a_nameless_run_is_called_by_its_id(store: Store, make_sender: Make) -> None:
    """The page must have something to click on."""
    sender = make_sender()
    sender.greet(store)
    store.commit([sender.begin("loss", name="")], now_us=2)
    assert row(store, sender.run_id).name == sender.run_id


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        ([], "waiting"),
        (["", "finished"], "waiting"),
        (["finished", "killed"], "killed"),
        (["finished", "lost_contact"], "lost"),
        (["killed", "exception"], "failed"),
        (["finished", "superseded"], "superseded"),
        (["something new"], "finished"),
    ],
    ids=str,
)
def test_states_add_up(ended: list[str], state: str) -> None:
    """Of several ranks the worst; open while any is."""
    assert state_of(ended, has_step=False)[0] == state
    assert state_of(ended, has_step=True)[0] == ("live" if state == "waiting" else state)
