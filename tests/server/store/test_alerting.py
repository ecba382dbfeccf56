"""Rules, channels, silences, episodes and notifications as they are kept, on both databases."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from halfscope_server.errors import Conflict
from halfscope_server.store.episodes import ChannelStatus, EpisodeCounts, Evaluation
from halfscope_server.store.store import Store
from halfscope_server.store.types import ChannelRow, NoticeRow, SilenceRow

from tests.helpers.alerts import FIRING, MUTED, NOTICE, PENDING, RESOLVED

Make = Callable[..., Any]

CHANNEL = ChannelRow(
    channel_id="mail",
    kind="email",
    name="Mail",
    enabled=True,
    options={"to": "a@example.org"},
    secrets={"password": "hush"},
    created_us=1,
    updated_us=1,
)


def test_a_rule_counts_its_changes_and_not_its_repetitions(store: Store) -> None:
    """Putting what is there already keeps the version; deleting and making it anew goes on counting."""
    first = store.alerts.put_rule("skips", {"threshold": 1.0}, now_us=10)
    assert (first.version, first.created_us, first.updated_us, first.body) == (1, 10, 10, {"threshold": 1.0})
    assert store.alerts.put_rule("skips", {"threshold": 1.0}, now_us=20) == first
    second = store.alerts.put_rule("skips", {"threshold": 2.0}, now_us=30)
    assert (second.version, second.created_us, second.updated_us) == (2, 10, 30)
    store.alerts.put_rule("a-rule", {}, now_us=30)
    assert [row.rule_id for row in store.alerts.rules()] == ["a-rule", "skips"]
    assert store.alerts.delete_rule("skips", now_us=40)
    assert not store.alerts.delete_rule("skips", now_us=41)
    assert store.alerts.rule("skips") is None
    assert [row.rule_id for row in store.alerts.rules()] == ["a-rule"]
    again = store.alerts.put_rule("skips", {"threshold": 1.0}, now_us=50)
    assert (again.version, again.created_us) == (3, 50)
    assert store.alerts.rule("skips") == again


def test_a_change_of_a_rule_that_was_changed_meanwhile_is_refused(store: Store) -> None:
    """Whoever edits says which version was on screen; 0 means that there was none."""
    store.alerts.put_rule("skips", {"threshold": 1.0}, now_us=1, expected_version=0)
    store.alerts.put_rule("skips", {"threshold": 2.0}, now_us=1, expected_version=1)
    with pytest.raises(Conflict, match="of version 2 and the change was made from 1"):
        store.alerts.put_rule("skips", {"threshold": 3.0}, now_us=1, expected_version=1)
    with pytest.raises(Conflict, match="of version 2 and the change was made from 0"):
        store.alerts.put_rule("skips", {"threshold": 3.0}, now_us=1, expected_version=0)
    store.alerts.delete_rule("skips", now_us=1)
    assert store.alerts.put_rule("skips", {"threshold": 3.0}, now_us=1, expected_version=0).version == 3


def test_an_episode_comes_back_bit_for_bit_and_is_replaced_by_its_newer_self(store: Store, begun: Make) -> None:
    """NaN and infinities included; saving the same again changes nothing but the time of saving."""
    begun(run_id="run1")
    assert store.alerts.save_evaluation("run1", episodes=[PENDING], now_us=7)
    found = store.alerts.episode("e1")
    assert found is not None
    assert (math.isnan(found.value), found.worst, found.updated_us) == (True, math.inf, 7)
    assert math.isnan(found.evidence["value"][1])
    assert dataclasses.replace(found, value=0, evidence={}) == dataclasses.replace(
        PENDING, value=0, evidence={}, updated_us=7
    )
    for _ in range(2):
        assert store.alerts.save_evaluation("run1", episodes=[FIRING, RESOLVED], now_us=9)
        (found,) = store.alerts.episodes()
        assert dataclasses.replace(found, evidence={}) == dataclasses.replace(RESOLVED, evidence={}, updated_us=9)
    assert store.alerts.episode("e2") is None


def test_evaluation_never_takes_back_who_acknowledged(store: Store, begun: Make) -> None:
    """The first one to acknowledge stays, whatever is evaluated afterwards."""
    begun(run_id="run1")
    store.alerts.save_evaluation("run1", episodes=[FIRING], now_us=7)
    assert store.alerts.count_episodes() == EpisodeCounts(firing=1, unacknowledged=1, critical=1)
    seen = store.alerts.acknowledge("e1", "laptop", now_us=8)
    assert seen is not None
    assert (seen.acknowledged_us, seen.acknowledged_by, seen.updated_us) == (8, "laptop", 8)
    store.alerts.acknowledge("e1", "somebody else", now_us=9)
    assert store.alerts.count_episodes() == EpisodeCounts(firing=1, unacknowledged=0, critical=0)
    store.alerts.save_evaluation("run1", episodes=[RESOLVED], now_us=10)
    after = store.alerts.episode("e1")
    assert after is not None
    assert (after.state, after.acknowledged_us, after.acknowledged_by) == ("resolved", 8, "laptop")
    assert store.alerts.count_episodes() == EpisodeCounts(firing=0, unacknowledged=0, critical=0)
    assert store.alerts.acknowledge("nobody", "x", now_us=1) is None


def test_episodes_by_state_rule_run_and_page(store: Store, begun: Make) -> None:
    """Those that began last first; equal beginnings are told apart by their ids, so no page repeats or misses one."""
    begun(run_id="run1")
    begun(run_id="run2")
    rows = [
        dataclasses.replace(FIRING, episode_id=f"e{at}", first_us=at // 2, rule_id="even" if at % 2 == 0 else "odd")
        for at in range(7)
    ]
    other = dataclasses.replace(RESOLVED, episode_id="x", run_id="run2", first_us=0, rule_id="odd")
    store.alerts.save_evaluation("run1", episodes=rows, now_us=5)
    store.alerts.save_evaluation("run2", episodes=[other], now_us=6)
    seen: list[str] = []
    before = None
    while page := store.alerts.episodes(before=before, limit=3):
        seen += [row.episode_id for row in page]
        before = (page[-1].first_us, page[-1].episode_id)
    assert seen == ["e6", "e5", "e4", "e3", "e2", "x", "e1", "e0"]
    found = {
        "firing": store.alerts.episodes(states=["firing"]),
        "resolved": store.alerts.episodes(states=["resolved", "error"]),
        "run1": store.alerts.episodes(run_id="run1"),
        "odd": store.alerts.episodes(rule_id="odd", states=("pending", "firing")),
        "since": store.alerts.episodes(changed_since_us=6),
    }
    assert {what: len(page) for what, page in found.items()} == {
        "firing": 7,
        "resolved": 1,
        "run1": 7,
        "odd": 3,
        "since": 1,
    }
    status = store.alerts.rule_status()
    assert (status["even"].firing, status["odd"].firing, status["odd"].last_fired_us) == (4, 3, 1_100)


def test_an_evaluation_is_kept_once(store: Store, begun: Make) -> None:
    """Of two who go on from the same state, one is refused with all it found; of a deleted run nothing is kept."""
    begun(run_id="run1")
    assert store.alerts.alert_state("run1") is None
    assert store.alerts.save_evaluation("run1", state=b"a", version=0, episodes=[PENDING], now_us=1)
    assert store.alerts.alert_state("run1") == (b"a", 1)
    late = dataclasses.replace(FIRING, episode_id="e2")
    assert not store.alerts.save_evaluation("run1", state=b"b", version=0, episodes=[late], notices=[NOTICE], now_us=2)
    assert store.alerts.save_evaluation("run1", state=b"c", version=1, episodes=[FIRING], now_us=2)
    assert not store.alerts.save_evaluation("run1", state=b"d", version=1, episodes=[late], now_us=2)
    assert store.alerts.alert_state("run1") == (b"c", 2)
    assert [row.episode_id for row in store.alerts.episodes()] == ["e1"]
    assert store.alerts.notices("e1", "e2") == []
    gone = [
        Evaluation(run_id="nobody", version=0, state=b"x", episodes=[late]),
        Evaluation(run_id="run1", version=2, state=b"e"),
    ]
    assert store.alerts.save_evaluations(gone, now_us=3) == {"nobody"}
    assert store.alerts.alert_state("run1") == (b"e", 3)
    assert store.alerts.alert_state("nobody") is None


def test_deleting_a_run_takes_its_episodes_along(store: Store, begun: Make) -> None:
    """Nothing more is sent of it either, and what was being sent settles into nothing."""
    begun(run_id="run1")
    store.alerts.save_evaluation("run1", state=b"a", episodes=[FIRING], notices=[NOTICE], now_us=1)
    (claimed,) = store.alerts.claim_notices(now_us=60, limit=10, lease_s=1)
    store.delete_run("run1", now_us=70)
    assert not store.alerts.settle_notice(claimed, state="sent", now_us=80)
    assert (store.alerts.episodes(), store.alerts.notices("e1"), store.alerts.alert_state("run1")) == ([], [], None)
    assert not store.alerts.save_evaluation("run1", state=b"b", version=1, episodes=[FIRING], now_us=90)
    assert store.alerts.episodes() == []


def test_a_notification_is_kept_once_and_claimed_by_one(store: Store, begun: Make) -> None:
    """The same (episode, channel, kind) again is no second one, not even after it was sent."""
    begun(run_id="run1")
    for now_us in (50, 51):
        store.alerts.save_evaluation("run1", episodes=[FIRING], notices=[NOTICE], now_us=now_us)
    assert store.alerts.claim_notices(now_us=49, limit=10, lease_s=1) == []
    (claimed,) = store.alerts.claim_notices(now_us=50, limit=10, lease_s=1)
    assert (claimed.state, claimed.num_tries, claimed.due_us) == ("sending", 1, 1_000_050)
    assert (claimed.body["text"], math.isnan(claimed.body["value"])) == ("NaN/Inf rate", True)
    assert store.alerts.claim_notices(now_us=1_000_049, limit=10, lease_s=1) == []
    assert store.alerts.settle_notice(claimed, state="sent", now_us=70)
    store.alerts.save_evaluation("run1", episodes=[FIRING], notices=[NOTICE], now_us=80)
    (row,) = store.alerts.notices("e1")
    assert (row.state, row.num_tries, row.sent_us, row.error) == ("sent", 1, 70, "")
    assert store.alerts.claim_notices(now_us=10**12, limit=10, lease_s=1) == []


def test_a_notification_that_failed_is_due_again_when_said(store: Store, begun: Make) -> None:
    """And one whose sender died when its time is over; the dead one's word comes too late."""
    begun(run_id="run1")
    store.alerts.save_evaluation("run1", episodes=[FIRING], notices=[NOTICE], now_us=50)
    (first,) = store.alerts.claim_notices(now_us=50, limit=10, lease_s=1)
    assert store.alerts.settle_notice(first, state="waiting", now_us=60, error="refused", due_us=500)
    assert store.alerts.claim_notices(now_us=499, limit=10, lease_s=1) == []
    (second,) = store.alerts.claim_notices(now_us=500, limit=10, lease_s=1)
    assert (second.num_tries, second.error) == (2, "refused")
    (third,) = store.alerts.claim_notices(now_us=second.due_us, limit=10, lease_s=1)
    assert third.num_tries == 3
    assert not store.alerts.settle_notice(second, state="sent", now_us=second.due_us)
    assert store.alerts.settle_notice(third, state="failed", now_us=third.due_us, error="no such host")
    assert store.alerts.channel_status() == {
        "mail": ChannelStatus(last_sent_us=None, last_error="no such host", num_waiting=0)
    }


def test_many_who_claim_at_once_share_what_is_due(store: Store, begun: Make) -> None:
    """Each notification goes to one of them, and none is left."""
    begun(run_id="run1")
    rows = [dataclasses.replace(NOTICE, kind=f"repeat:{at}") for at in range(40)]
    store.alerts.save_evaluation("run1", episodes=[FIRING], notices=rows, now_us=50)
    claimed: list[str] = []

    def claim() -> None:
        while found := store.alerts.claim_notices(now_us=60, limit=3, lease_s=1):
            claimed.extend(row.kind for row in found)

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(row.kind for row in rows)


def test_no_repetition_is_sent_of_what_somebody_has_seen(store: Store, begun: Make) -> None:
    """One that waits is dropped when the episode is acknowledged, one that failed on its way is not tried again, one
    that was decided on before is not kept; the beginning and the end are told all the same."""
    begun(run_id="run1")

    def notice(kind: str) -> NoticeRow:
        return dataclasses.replace(NOTICE, kind=kind)

    rows = [NOTICE, notice("repeat:1")]
    store.alerts.save_evaluation("run1", episodes=[FIRING], notices=rows, now_us=9)
    claimed = {row.kind: row for row in store.alerts.claim_notices(now_us=1_000, limit=9, lease_s=60)}
    assert set(claimed) == {NOTICE.kind, "repeat:1"}
    store.alerts.save_evaluation("run1", notices=[notice("repeat:2")], now_us=9)
    store.alerts.acknowledge(FIRING.episode_id, "ann", now_us=10)
    store.alerts.settle_notice(claimed["repeat:1"], state="waiting", now_us=11, due_us=12)
    store.alerts.settle_notice(claimed[NOTICE.kind], state="waiting", now_us=11, due_us=12)
    store.alerts.save_evaluation("run1", notices=[notice("repeat:3"), notice("resolved")], now_us=13)
    left = {row.kind: row.state for row in store.alerts.notices(FIRING.episode_id)}
    assert left == {NOTICE.kind: "waiting", "resolved": "waiting"}


def test_channels_are_replaced_whole_and_forgotten_with_what_waits(store: Store, begun: Make) -> None:
    """A deleted channel's notifications are given up, saying why."""
    begun(run_id="run1")
    store.alerts.put_channel(CHANNEL)
    changed = dataclasses.replace(CHANNEL, name="Other", secrets={"password": "new"}, enabled=False, updated_us=9)
    store.alerts.put_channel(changed)
    assert store.alerts.channels() == [changed]
    store.alerts.save_evaluation("run1", episodes=[FIRING], notices=[NOTICE], now_us=50)
    assert store.alerts.channel_status()["mail"].num_waiting == 1
    assert store.alerts.delete_channel("mail")
    assert not store.alerts.delete_channel("mail")
    assert store.alerts.channels() == []
    (row,) = store.alerts.notices("e1")
    assert (row.state, row.error) == ("failed", "the channel was deleted")


def test_silences_hold_until_they_end_or_are_lifted(store: Store) -> None:
    """The moment of its end is no longer silent."""
    ends = SilenceRow(
        silence_id="s0", rule_id="skips", run_id="", layer="", comment="known", created_us=1, until_us=100
    )
    store.alerts.put_silence(ends)
    store.alerts.put_silence(MUTED)
    assert store.alerts.silences(99) == store.alerts.silences() == [ends, MUTED]
    assert store.alerts.silences(100) == [MUTED]
    assert store.alerts.lift_silence("s1")
    assert not store.alerts.lift_silence("s1")
    assert store.alerts.silences(99) == [ends]


def test_a_lease_is_one_owner_s_until_its_time_is_over(store: Store) -> None:
    """Its owner prolongs it or gives it back; the others wait."""
    assert store.alerts.take_lease("alerts", "a", 100, now_us=0)
    assert not store.alerts.take_lease("alerts", "b", 150, now_us=99)
    assert store.alerts.take_lease("alerts", "a", 200, now_us=99)
    assert store.alerts.take_lease("other", "b", 200, now_us=99)
    assert not store.alerts.take_lease("alerts", "b", 250, now_us=150)
    assert store.alerts.take_lease("alerts", "b", 300, now_us=200)
    assert not store.alerts.take_lease("alerts", "a", 400, now_us=250)
    assert store.alerts.take_lease("alerts", "b", 250, now_us=250)
    assert store.alerts.take_lease("alerts", "a", 400, now_us=250)


def test_what_waits_goes_along_with_what_is_new(store: Store, begun: Make) -> None:
    """A channel that is sent to gets what waits for another try too; one that is left alone gets nothing."""
    begun(run_id="run1")
    rows = [
        dataclasses.replace(NOTICE, channel_id=channel, kind=kind, due_us=due_us)
        for channel, kind, due_us in (
            ("a", "fired", 50),
            ("b", "fired", 50),
            ("a", "resolved", 60),
            ("b", "resolved", 60),
        )
    ]
    store.alerts.save_evaluation("run1", episodes=[FIRING], notices=rows[:2], now_us=50)
    for claimed in store.alerts.claim_notices(now_us=50, limit=10, lease_s=1):
        store.alerts.settle_notice(claimed, state="waiting", now_us=50, due_us=10**9)
    store.alerts.save_evaluation("run1", episodes=[FIRING], notices=rows[2:], now_us=60)
    taken = store.alerts.claim_notices(now_us=60, limit=10, lease_s=1, except_channels={"b"})
    assert sorted((row.channel_id, row.kind) for row in taken) == [("a", "fired"), ("a", "resolved")]
    assert store.alerts.claim_notices(now_us=60, limit=10, lease_s=1, except_channels={"a", "b"}) == []
    taken = store.alerts.claim_notices(now_us=60, limit=10, lease_s=1)
    assert sorted((row.channel_id, row.kind) for row in taken) == [("b", "fired"), ("b", "resolved")]
