"""The service that evaluates rules on what is committed: once, whatever is restarted, lost or late."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halfscope_server.alerts import inbox
from halfscope_server.alerts.evaluator import RunEvaluator
from halfscope_server.alerts.rule import TOLD_ONLY, Rule, Scope, Span
from halfscope_server.alerts.service import AlertService
from halfscope_server.errors import Unavailable
from halfscope_server.store.leading import LEASE_S
from halfscope_server.store.store import Store
from halfscope_server.store.types import Applied, ChannelRow, EpisodeRow, SilenceRow

from tests.server.conftest import BEGAN_US, STEP_US, RunWriter

SECOND_US = 1_000_000
BEFORE_US = BEGAN_US - 3600 * SECOND_US
"""When rules were made: before the runs began."""
MAIL = ChannelRow(
    channel_id="mail", kind="email", name="Mail", enabled=True, options={}, secrets={}, created_us=1, updated_us=1
)
HIGH = Rule(id="high", name="High loss", metric="loss", threshold=1.0, hold=Span(steps=2))
MEAN = Rule(id="mean", name="Mean loss", metric="loss", aggregation="mean", window=Span(steps=5), threshold=0.6)
SCALE = Rule(id="scale", name="Scale", metric="amp.scale", comparison="<", threshold=1.0, severity="critical")
SKIPS = Rule(
    id="skips", name="Skips", metric="nonfinite_rate.caught", aggregation="rate", window=Span(steps=10), threshold=0.3
)


class Served:
    """A store with rules, and services on it whose rounds the test makes itself."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now_us = BEGAN_US
        self.told: list[EpisodeRow] = []
        self.service = self.another()

    def another(self, store: Store | None = None, **options: Any) -> AlertService:
        return AlertService(store or self.store, on_episodes=self.told.extend, clock_us=lambda: self.now_us, **options)

    def rules(self, *rules: Rule, now_us: int = BEFORE_US) -> None:
        for rule in rules:
            self.store.alerts.put_rule(rule.id, rule.model_dump(), now_us=now_us, told_only=TOLD_ONLY)
        self.service.rules_changed()

    def commit(self, run: RunWriter) -> list[Applied]:
        """As the writer's thread does it; a round follows when the test says so."""
        self.now_us += SECOND_US // 4
        applied = run.commit(now_us=self.now_us)
        self.service.notify(applied)
        return applied

    def round(self, seconds: float = 0.25) -> None:
        self.now_us += int(seconds * SECOND_US)
        self.service.round()

    def restart(self) -> None:
        """Another process after this one was killed: nothing is saved any more."""
        self.service = self.another()

    def episodes(self, *states: str) -> list[tuple[Any, ...]]:
        rows = self.store.alerts.episodes(states=states or None, limit=10_000)
        return sorted(
            (row.rule_id, row.first_step, row.fired_step, row.resolved_step, row.state, row.resolution, row.episode_id)
            for row in rows
        )

    def notices(self) -> list[tuple[str, int, str, str]]:
        """(rule, first step, channel, kind) of everything in the outbox."""
        rows = {row.episode_id: row for row in self.store.alerts.episodes(limit=10_000)}
        return sorted(
            (rows[notice.episode_id].rule_id, rows[notice.episode_id].first_step, notice.channel_id, notice.kind)
            for notice in self.store.alerts.notices(*rows)
        )


@pytest.fixture
def served(lite: Store) -> Served:
    """An empty store with a channel."""
    lite.alerts.put_channel(MAIL)
    return Served(lite)


def write(run: RunWriter, steps: Sequence[int], loss: Sequence[float]) -> None:
    run.columns(
        steps,
        {run.series("loss"): loss, run.series("opt.steps"): np.asarray(steps) + 1.0},
    )


def test_an_episode_is_found_told_and_resolved(served: Served) -> None:
    """Pending, firing and resolved, each saved at once, with one notification for its beginning and one for its end."""
    served.rules(HIGH)
    run = RunWriter(served.store)
    write(run, [0, 1, 2], [0.5, 2.0, 2.5])
    served.commit(run)
    served.round()
    assert [row[:5] for row in served.episodes()] == [("high", 1, None, None, "pending")]
    assert served.notices() == []
    write(run, [3, 4], [3.0, 2.0])
    served.commit(run)
    served.round()
    (row,) = served.store.alerts.episodes()
    assert (row.state, row.first_step, row.fired_step, row.fired_us) == ("firing", 1, 3, BEGAN_US + 3 * STEP_US)
    assert served.notices() == [("high", 1, "mail", "fired")]
    write(run, [5], [0.5])
    served.commit(run)
    served.round()
    assert [row[:6] for row in served.episodes()] == [("high", 1, 3, 5, "resolved", "cleared")]
    assert served.notices() == [("high", 1, "mail", "fired"), ("high", 1, "mail", "resolved")]
    assert [(row.state, row.updated_us > 0) for row in served.told] == [
        ("pending", True),
        ("firing", True),
        ("resolved", True),
    ]
    found = served.service.metrics()
    assert (found.fired, found.resolved, found.notices, found.errors) == (1, 1, 2, 0)


def test_a_pending_one_that_comes_to_nothing_leaves_no_trace(served: Served) -> None:
    """Neither in the history nor in the outbox."""
    served.rules(HIGH)
    run = RunWriter(served.store)
    for step, loss in enumerate([0.5, 2.0, 0.5, 0.5]):
        write(run, [step], [loss])
        served.commit(run)
        served.round()
    assert (served.episodes(), served.notices()) == ([], [])


def troubled(rng: np.random.Generator, num_steps: int) -> tuple[Any, Any, Any]:
    """Loss, scale and skipped steps of a training that gets into trouble now and then."""
    trouble = np.repeat(rng.random(num_steps // 20 + 1) < 0.4, 20)[:num_steps]
    loss = np.where(trouble, rng.choice([0.2, 1.5, 3.0, np.nan, np.inf], num_steps), 0.3)
    scale = np.where(trouble & (rng.random(num_steps) < 0.3), 0.5, 1024.0)
    return loss, scale, np.flatnonzero(trouble & (rng.random(num_steps) < 0.6))


def commits(store: Store, seed: int, cut: int) -> Any:
    """The same run, cut into batches in a way of its own; yields after each commit's records were put in."""
    loss, scale, skips = troubled(np.random.default_rng(seed), 400)
    rng = np.random.default_rng(cut)
    run = RunWriter(store)
    ids = [run.series("loss"), run.series("amp.scale", scaler="0"), run.series("opt.steps")]
    step = 0
    while step < 400:
        end = min(400, step + int(rng.integers(1, 30)))
        for at in skips[(skips >= step) & (skips < end)].tolist():
            run.skip(at, "single")
        steps = np.arange(step, end)
        run.columns(steps, dict(zip(ids, (loss[step:end], scale[step:end], steps + 1.0), strict=True)))
        yield run
        step = end
    run.end("finished", 399)
    yield run


def test_the_same_episodes_however_often_the_server_was_killed(
    tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live; killed at any moment and started again, compaction in between; all of it after an outage; with a queue
    that overflows: the same episodes, ids and notifications, each once."""
    found = []
    for way in ("live", "killed", "outage", "overflow"):
        shutil.copyfile(sqlite_template, tmp_path / f"{way}.db")
        store = Store.open(f"sqlite:///{tmp_path}/{way}.db")
        store.alerts.put_channel(MAIL)
        served = Served(store)
        served.rules(HIGH, MEAN, SCALE, SKIPS)
        monkeypatch.setattr(inbox, "QUEUE_BYTES", 0 if way == "overflow" else 1 << 20)
        rng = np.random.default_rng(7)
        for run in commits(store, seed=3, cut=len(way)):
            served.commit(run)
            if way == "killed":
                if rng.random() < 0.5:
                    served.round()
                if rng.random() < 0.3:
                    served.restart()
                if rng.random() < 0.2:
                    store.compact(now_us=served.now_us + 10**12, budget_s=5.0)
            elif way in ("live", "overflow"):
                served.round()
        if way == "outage":
            served.restart()
        for _ in range(4):
            served.round(3.0)
        found.append((served.episodes(), served.notices()))
        if way == "live":
            assert served.service.metrics().catch_ups <= 1
        if way == "overflow":
            assert served.service.metrics().overflows > 10
        store.close()
    episodes, notices = found[0]
    assert len(episodes) > 10
    assert {row[0] for row in episodes} == {"high", "mean", "scale", "skips"}
    assert {row[4] for row in episodes} == {"resolved"}
    assert len(set(notices)) == len(notices) == 2 * len(episodes)
    for other in found[1:]:
        assert other == found[0]


def test_two_servers_on_one_database_tell_everything_once(postgres_url: str) -> None:
    """Whoever evaluates changes in the middle of a pending episode; one that was thought dead comes back and finds
    that what it did does not count."""
    one, two = Store.open(postgres_url), Store.open(postgres_url)
    one.alerts.put_channel(MAIL)
    served = Served(one)
    served.rules(HIGH)
    other = served.another(two)
    run = RunWriter(one)
    write(run, [0, 1], [0.5, 2.0])
    served.commit(run)
    served.round()
    other.round()
    assert (served.service.metrics().is_evaluating, other.metrics().is_evaluating) == (1, 0)
    write(run, [2, 3], [2.0, 2.0])
    served.commit(run)
    served.now_us += int(LEASE_S * SECOND_US) + 1
    other.round()  # the first one is silent for too long
    assert other.metrics().is_evaluating == 1
    assert [row[:5] for row in served.episodes()] == [("high", 1, 3, None, "firing")]
    write(run, [4], [0.5])
    served.commit(run)
    served.service._leader._until_us = served.now_us + 10**9  # it was only asleep, and does not know
    served.round()
    assert served.notices() == [("high", 1, "mail", "fired")]
    served.service._leader._until_us = 0
    served.round()
    assert served.service.metrics().is_evaluating == 0
    other.changed(["run1"])
    other.round()
    assert [row[:6] for row in served.episodes()] == [("high", 1, 3, 4, "resolved", "cleared")]
    assert served.notices() == [("high", 1, "mail", "fired"), ("high", 1, "mail", "resolved")]
    other.stop()
    served.service._leader._until_us = 0
    served.round(1.0)
    assert served.service.metrics().is_evaluating == 1
    one.close()
    two.close()


def test_a_rule_made_later_begins_with_what_comes(served: Served) -> None:
    """Nothing of a run's past is told, and nothing at all of a run that is over."""
    over, live = RunWriter(served.store, "over"), RunWriter(served.store, "live")
    for run in (over, live):
        write(run, [0, 1, 2, 3], [5.0] * 4)
        served.commit(run)
    over.end("finished", 3)
    served.commit(over)
    served.round()
    served.rules(HIGH, now_us=served.now_us + 3600 * SECOND_US)
    served.round(3.0)
    assert served.episodes() == []
    write(live, [4, 5, 6], [5.0, 6.0, 7.0])
    served.commit(live)
    served.round()
    assert [row[:5] for row in served.episodes()] == [("high", 4, 6, None, "firing")]
    served.rules(MEAN, now_us=served.now_us)
    write(live, range(7, 13), [5.0] * 6)
    served.commit(live)
    served.round()
    assert [row[0] for row in served.episodes()] == ["high", "mean"]
    assert min(row[1] for row in served.episodes() if row[0] == "mean") >= 7


def test_a_rule_that_is_changed_or_deleted_ends_its_episodes(served: Served) -> None:
    """Saying why; the changed one is judged anew."""
    served.rules(HIGH, SCALE)
    run = RunWriter(served.store)
    write(run, [0, 1, 2], [5.0] * 3)
    run.points("amp.scale", [2], [0.5], scaler="0")
    served.commit(run)
    served.round()
    assert [row[0] for row in served.episodes("firing")] == ["high", "scale"]
    served.rules(HIGH.model_copy(update={"threshold": 2.0}))
    served.store.alerts.delete_rule("scale", now_us=served.now_us)
    served.round()
    assert [(row[0], row[4], row[5]) for row in served.episodes()] == [
        ("high", "resolved", "rule changed"),
        ("scale", "resolved", "rule deleted"),
    ]
    write(run, [3, 4, 5], [5.0] * 3)
    served.commit(run)
    served.round()
    assert [row[:4] for row in served.episodes("firing")] == [("high", 3, 5, None)]
    served.store.alerts.delete_rule("high", now_us=served.now_us)
    served.service.rules_changed()
    served.round()
    served.round()
    assert served.episodes("firing", "pending") == []


@pytest.mark.parametrize("is_down", [False, True])
def test_a_rule_that_is_switched_off_ends_its_episodes_as_that(served: Served, is_down: bool) -> None:
    """Not as changed; also where that was done while the server was down."""
    served.rules(HIGH, MEAN)
    run = RunWriter(served.store)
    write(run, [0, 1, 2], [5.0] * 3)
    served.commit(run)
    served.round()
    if is_down:
        served.restart()
    served.rules(HIGH.model_copy(update={"enabled": False}))
    write(run, [3], [5.0])
    served.commit(run)
    served.round()
    assert [row[4:6] for row in served.episodes() if row[0] == "high"] == [("resolved", "rule switched off")]


def test_a_rule_that_only_tells_it_otherwise_goes_on_firing(served: Served) -> None:
    """Acknowledged as it was, under its new name, also across a restart; nothing is sent of it."""
    served.rules(HIGH)
    run = RunWriter(served.store)
    write(run, [0, 1, 2], [5.0] * 3)
    served.commit(run)
    served.round()
    (before,) = served.store.alerts.episodes()
    served.store.alerts.acknowledge(before.episode_id, "me", now_us=served.now_us)
    told = {"name": "Loss", "severity": "critical", "message": "{value}", "reason": "R", "channels": ["mail"]}
    served.rules(HIGH.model_copy(update=told))
    served.round()
    served.round(6.0)
    served.restart()
    served.rules(HIGH.model_copy(update={**told, "runbook": "https://example.org/"}))
    write(run, [3], [7.0])
    served.commit(run)
    served.round()
    served.round(6.0)
    (row,) = served.store.alerts.episodes()
    assert (row.episode_id, row.state, row.last_step) == (before.episode_id, "firing", 3)
    assert (row.acknowledged_by, row.rule_name, row.severity, row.text) == ("me", "Loss", "critical", "5")
    assert served.notices() == [("high", 0, "mail", "fired")]
    assert [(rule.version, rule.judged_version) for rule in served.store.alerts.rules()] == [(3, 1)]
    served.rules(HIGH.model_copy(update={**told, "threshold": 2.0}))
    served.round()
    assert [row[4:6] for row in served.episodes()] == [("resolved", "rule changed")]


def test_a_rule_deleted_while_the_server_was_down_ends_its_episodes_too(served: Served) -> None:
    """Also on a run that is not heard of any more."""
    served.rules(HIGH)
    run = RunWriter(served.store)
    write(run, [0, 1, 2], [5.0] * 3)
    served.commit(run)
    served.round()
    served.store.alerts.delete_rule("high", now_us=served.now_us)
    served.restart()
    served.round(3.0)
    assert [row[:6] for row in served.episodes()] == [("high", 0, 2, 2, "resolved", "rule deleted")]


def test_a_deleted_run_is_forgotten_in_the_middle_of_it(served: Served) -> None:
    """What was found of it and not saved yet is gone with it; other runs are not touched."""
    served.rules(HIGH)
    run, other = RunWriter(served.store), RunWriter(served.store, "other")
    for one in (run, other):
        write(one, [0, 1], [5.0] * 2)
        served.commit(one)
    served.round()
    for one in (run, other):
        write(one, [2, 3], [5.0] * 2)
        served.commit(one)
    served.store.delete_run("run1", now_us=served.now_us)
    served.round()
    served.round(3.0)
    assert {row.run_id for row in served.store.alerts.episodes()} == {"other"}
    assert served.notices() == [("high", 0, "mail", "fired")]
    assert served.service.metrics().errors == 0
    assert served.service.metrics().runs == 1


def test_a_run_that_ends_resolves_what_fires(served: Served) -> None:
    """Also where its end was all that the server heard after a restart; then it is followed no longer."""
    served.rules(HIGH)
    run = RunWriter(served.store)
    write(run, [0, 1, 2], [5.0] * 3)
    served.commit(run)
    served.round()
    run.end("exception", 2)
    run.commit(now_us=served.now_us)
    served.restart()
    served.round(3.0)
    assert [row[:6] for row in served.episodes()] == [("high", 0, 2, 2, "resolved", "run ended")]
    served.round(6.0)
    served.round(6.0)
    assert served.service.metrics().runs == 0


def test_one_rule_that_fails_does_not_take_the_others_with_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as an error of that rule on that run, once, and is gone when the rule is changed."""
    feed = RunEvaluator.feed

    def failing(self: RunEvaluator, updates: Any, run: Any = None) -> Any:
        if any(rule.id == "bad" for _, rule in self._rules) and any(update.columns for update in updates):
            raise ZeroDivisionError("of a metric")
        return feed(self, updates, run)

    monkeypatch.setattr(RunEvaluator, "feed", failing)
    served.rules(HIGH, HIGH.model_copy(update={"id": "bad"}))
    run = RunWriter(served.store)
    for step in range(4):
        write(run, [step], [5.0])
        served.commit(run)
        served.round()
    served.round()
    assert [(row[0], row[4]) for row in served.episodes()] == [("bad", "error"), ("high", "firing")]
    (error,) = served.store.alerts.episodes(states=["error"])
    assert error.text == f"the rule {HIGH.name} cannot be evaluated: ZeroDivisionError: of a metric"
    assert served.notices() == [("high", 0, "mail", "fired")]
    assert served.service.metrics().errors == 1
    served.rules(HIGH.model_copy(update={"id": "bad", "enabled": False}))
    served.round()
    assert served.episodes("error") == []


def test_a_database_that_does_not_answer_costs_nothing_but_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was evaluated and not saved is evaluated again, to the same end."""
    served.rules(HIGH)
    run = RunWriter(served.store)
    write(run, [0, 1], [5.0] * 2)
    served.commit(run)
    served.round()

    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise Unavailable("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(served.store.alerts, "save_evaluations", fail)
        write(run, [2, 3], [5.0] * 2)
        served.commit(run)
        with pytest.raises(Unavailable):
            served.round()
        served.service._forget()
    served.round()
    assert [row[:5] for row in served.episodes()] == [("high", 0, 2, None, "firing")]
    assert served.notices() == [("high", 0, "mail", "fired")]


def test_renaming_and_tagging_bring_a_run_into_a_rule_s_scope(served: Served) -> None:
    """From then on; taking the tag away ends it."""
    served.rules(HIGH.model_copy(update={"scope": Scope(tags=["prod"])}))
    run = RunWriter(served.store)
    step = 0
    for tags, state in ((["test"], []), (["prod"], ["firing"]), ([], ["resolved"])):
        served.store.set_tags("run1", tags)
        served.round(3.0)
        write(run, range(step, step + 4), [5.0] * 4)
        served.commit(run)
        served.round()
        step += 4
        assert [row[4] for row in served.episodes()] == state


def test_the_thread_evaluates_what_the_writer_committed(lite: Store) -> None:
    """Started and stopped like the server does it: what was handed over before the stop is evaluated and saved."""
    lite.alerts.put_channel(MAIL)
    lite.alerts.put_rule("high", HIGH.model_dump(), now_us=BEFORE_US)
    told: list[str] = []
    poked: list[bool] = []
    service = AlertService(
        lite,
        on_episodes=lambda rows: told.extend(row.state for row in rows),
        on_notices=lambda: poked.append(True),
        clock_us=lambda: BEGAN_US,
    )
    service.start()
    run = RunWriter(lite)
    write(run, [0, 1, 2], [5.0] * 3)
    service.notify(run.commit())
    service.stop()
    assert told[-1:] == ["firing"]
    assert poked
    assert lite.alerts.alert_state("run1") is not None
    assert service.metrics().errors == 0


# ---- what is sent ------------------------------------------------------------------------------


def fire(served: Served, *rules: Rule, run_id: str = "run1") -> RunWriter:
    """A run on which these rules fire after its next commit and round."""
    served.rules(*rules)
    run = RunWriter(served.store, run_id)
    write(run, [0, 1, 2], [5.0] * 3)
    run.points("amp.scale", [2], [0.5], scaler="0")
    served.commit(run)
    return run


@pytest.mark.parametrize(
    ("silence", "muted_by"),
    [
        ({"rule_id": "high"}, "silence:s"),
        ({"run_id": "run1"}, "run muted"),
        ({"rule_id": "high", "run_id": "run1"}, "silence:s"),
        ({}, "silence:s"),
        ({"rule_id": "other"}, ""),
        ({"run_id": "other"}, ""),
        ({"layer": "block.*"}, ""),
    ],
)
def test_a_silence_keeps_from_sending_what_it_covers(served: Served, silence: dict[str, str], muted_by: str) -> None:
    """The episode is there all the same, with what silenced it."""
    nothing = {"rule_id": "", "run_id": "", "layer": "", "comment": "", "until_us": None}
    served.store.alerts.put_silence(SilenceRow(**{**nothing, **silence, "silence_id": "s", "created_us": 1}))  # type: ignore[arg-type]
    fire(served, HIGH)
    served.round()
    (row,) = served.store.alerts.episodes()
    assert (row.state, row.muted_by) == ("firing", muted_by)
    assert served.notices() == ([] if muted_by else [("high", 0, "mail", "fired")])


def test_what_was_silenced_is_told_when_the_silence_is_over(served: Served) -> None:
    """Where it still goes on; where it was over before, nobody is told of its end either."""
    until_us = served.now_us + 60 * SECOND_US
    ends = SilenceRow(silence_id="s", rule_id="", run_id="", layer="", comment="", created_us=1, until_us=until_us)
    served.store.alerts.put_silence(ends)
    run, short = fire(served, HIGH), fire(served, HIGH, run_id="short")
    served.round()
    write(short, [3], [0.5])
    served.commit(short)
    served.round()
    assert (served.notices(), len(served.episodes("resolved"))) == ([], 1)
    served.round(30.0)
    assert served.notices() == []
    served.round(60.0)
    assert served.notices() == [("high", 0, "mail", "fired")]
    (row,) = served.store.alerts.episodes(states=["firing"])
    assert (row.run_id, row.muted_by) == ("run1", "")
    write(run, [3], [0.5])
    served.commit(run)
    served.round()
    assert served.notices() == [("high", 0, "mail", "fired"), ("high", 0, "mail", "resolved")]


def test_a_collapsed_scale_keeps_its_skips_from_being_told(served: Served) -> None:
    """While it fires on the same run; on another run it inhibits nothing."""
    inhibited = HIGH.model_copy(update={"inhibited_by": ["scale"]})
    run = fire(served, inhibited, SCALE)
    other = RunWriter(served.store, "other")
    write(other, [0, 1, 2], [5.0] * 3)
    served.commit(other)
    served.round()
    assert served.notices() == [("high", 0, "mail", "fired"), ("scale", 2, "mail", "fired")]
    held = {row.run_id: row.muted_by for row in served.store.alerts.episodes(rule_id="high")}
    assert held == {"run1": "inhibited:scale", "other": ""}
    write(run, [3, 4], [5.0] * 2)
    run.points("amp.scale", [3], [4.0], scaler="0")
    served.commit(run)
    served.round()
    served.round(3.0)
    assert served.notices().count(("high", 0, "mail", "fired")) == 2


def test_rules_that_inhibit_each_other_do_not_swallow_what_fires(served: Served) -> None:
    """A circle keeps nobody from sending, nor does a rule that is itself kept from it."""
    first = HIGH.model_copy(update={"id": "first", "inhibited_by": ["second"]})
    second = HIGH.model_copy(update={"id": "second", "inhibited_by": ["first"]})
    third = HIGH.model_copy(update={"id": "third", "inhibited_by": ["middle"]})
    middle = HIGH.model_copy(update={"id": "middle", "inhibited_by": ["last"]})
    fire(served, first, second, third, middle, HIGH.model_copy(update={"id": "last"}))
    served.round()
    assert [(row[0], row[3]) for row in served.notices()] == [
        (name, "fired") for name in ("first", "last", "second", "third")
    ]
    held = {row.rule_id: row.muted_by for row in served.store.alerts.episodes()}
    assert held == {"first": "", "second": "", "third": "", "middle": "inhibited:last", "last": ""}


def test_a_notification_goes_to_the_channels_its_rule_names(served: Served) -> None:
    """Those that are switched on; all of them where it names none."""
    for name, enabled in (("chat", True), ("off", False)):
        served.store.alerts.put_channel(dataclasses.replace(MAIL, channel_id=name, enabled=enabled))
    named = HIGH.model_copy(update={"id": "named", "channels": ["chat", "off", "gone"]})
    fire(served, HIGH, named)
    served.round()
    assert served.notices() == [
        ("high", 0, "chat", "fired"),
        ("high", 0, "mail", "fired"),
        ("named", 0, "chat", "fired"),
    ]


def test_an_alert_whose_channel_was_deleted_says_so_until_there_is_one(served: Served) -> None:
    """It is sent when the channel is there again."""
    fire(served, HIGH.model_copy(update={"channels": ["gone"]}))
    served.round()
    (row,) = served.store.alerts.episodes()
    assert row.muted_by == "no such channel: the rule names gone, which is not there; choose others in the rule"
    served.store.alerts.put_channel(dataclasses.replace(MAIL, channel_id="gone"))
    served.round(3.0)
    assert served.notices() == [("high", 0, "gone", "fired")]
    (row,) = served.store.alerts.episodes()
    assert row.muted_by == ""


def test_what_was_acknowledged_while_it_was_silenced_is_not_sent_afterwards(served: Served) -> None:
    """Somebody has seen it; neither its beginning nor a repetition, nor its end is told."""
    until_us = served.now_us + 60 * SECOND_US
    ends = SilenceRow(silence_id="s", rule_id="", run_id="", layer="", comment="", created_us=1, until_us=until_us)
    served.store.alerts.put_silence(ends)
    run = fire(served, HIGH.model_copy(update={"repeat_s": 60.0}))
    served.round()
    (row,) = served.store.alerts.episodes()
    served.store.alerts.acknowledge(row.episode_id, "me", now_us=served.now_us)
    served.round(90.0)
    served.round(90.0)
    assert served.notices() == []
    write(run, [3], [0.5])
    served.commit(run)
    served.round()
    assert (len(served.episodes("resolved")), served.notices()) == (1, [])


def settle(served: Served, state: Any) -> None:
    """What is due was tried."""
    for claimed in served.store.alerts.claim_notices(now_us=served.now_us, limit=100, lease_s=60.0):
        served.store.alerts.settle_notice(claimed, state=state, now_us=served.now_us)


def test_it_is_told_again_until_somebody_acknowledges(served: Served) -> None:
    """After an outage once, not as often as it was missed."""
    fire(served, HIGH.model_copy(update={"repeat_s": 60.0}))
    served.round()
    for seconds in (30.0, 31.0, 20.0, 300.0):
        settle(served, "sent")
        served.round(seconds)
    settle(served, "sent")
    assert [kind for *_, kind in served.notices()] == ["fired", "repeat:1", "repeat:6"]
    (row,) = served.store.alerts.episodes()
    served.store.alerts.acknowledge(row.episode_id, "me", now_us=served.now_us)
    served.round(300.0)
    assert [kind for *_, kind in served.notices()] == ["fired", "repeat:1", "repeat:6"]


def test_repetitions_do_not_pile_up_while_a_receiver_is_down(served: Served) -> None:
    """One waits at most, the newest, and none beside a beginning that was not told yet."""
    fire(served, HIGH.model_copy(update={"repeat_s": 60.0}))
    served.round()
    for _ in range(3):
        settle(served, "waiting")
        served.round(60.0)
    assert [kind for *_, kind in served.notices()] == ["fired"]
    settle(served, "sent")
    for _ in range(3):
        served.round(60.0)
    assert [kind for *_, kind in served.notices()] == ["fired", "repeat:6"]
    (claimed,) = served.store.alerts.claim_notices(now_us=served.now_us, limit=100, lease_s=600.0)
    served.round(60.0)  # another comes while that one is on its way, in vain
    assert [kind for *_, kind in served.notices()] == ["fired", "repeat:6", "repeat:7"]
    assert served.store.alerts.settle_notice(claimed, state="waiting", now_us=served.now_us)
    assert [kind for *_, kind in served.notices()] == ["fired", "repeat:7"]


def test_what_is_heard_of_a_day_late_wakes_nobody(served: Served) -> None:
    """A journal brought in by hand: its episodes are history, complete and unsent."""
    served.now_us += 2 * 86_400 * SECOND_US
    run = fire(served, HIGH)
    write(run, [3], [0.5])
    served.commit(run)
    served.round()
    served.round(3.0)
    (row,) = served.store.alerts.episodes()
    assert (row.state, row.fired_step, row.muted_by) == ("resolved", 2, "found out more than a day later")
    assert served.notices() == []


def test_what_fired_and_ended_between_two_rounds_is_told_both(served: Served) -> None:
    """After an outage of the server somebody is waiting to hear of it."""
    run = fire(served, HIGH)
    write(run, [3], [0.5])
    served.commit(run)
    served.round()
    assert served.notices() == [("high", 0, "mail", "fired"), ("high", 0, "mail", "resolved")]


# ---- the clock ---------------------------------------------------------------------------------

STALL = Rule(id="stall", name="Stall", metric="stall", threshold=0)


def stalled(served: Served) -> list[int]:
    return [event.step for event in served.store.events("run1", kinds=["stalled"])]


def test_a_training_that_stops_while_its_agent_is_there_stalls_once(served: Served) -> None:
    """An event in the run, from which the rule fires and a replay would too; the next step ends it."""
    served.rules(STALL)
    run = RunWriter(served.store)
    write(run, [0, 1, 2], [0.5] * 3)
    served.commit(run)
    served.round()
    served.round(590.0)
    assert stalled(served) == []
    served.round(11.0)
    served.round(3.0)
    served.restart()
    served.round(700.0)
    served.round(3.0)
    assert stalled(served) == [2]
    assert [(row[0], row[4]) for row in served.episodes()] == [("stall", "firing")]
    write(run, [3], [0.5])
    served.commit(run)
    served.round()
    assert [(row[0], row[4], row[5]) for row in served.episodes()] == [("stall", "resolved", "cleared")]


def test_no_stall_of_runs_that_pause_are_lost_or_over(served: Served) -> None:
    """Longest pauses count three times; whose agent is not there has lost contact; what is over stands still."""
    pauses = RunWriter(served.store, "pauses")
    pauses.points("opt.steps", [0, 1], [1, 2], times_us=[BEGAN_US, BEGAN_US + 400 * SECOND_US])
    lost, over, waiting = (RunWriter(served.store, name) for name in ("lost", "over", "waiting"))
    write(lost, [0], [0.5])
    write(over, [0], [0.5])
    over.end("finished", 0)
    served.rules(STALL)
    for run in (pauses, lost, over, waiting):
        served.commit(run)
    served.round()
    for _ in range(2):
        served.round(550.0)
        served.store.mark_lost_contact(silent_since_us=served.now_us, now_us=served.now_us)
        served.store.touch([pauses._sender.key, waiting._sender.key], now_us=served.now_us)
        served.round(3.0)
    assert {
        name: served.store.count_events(name).get("stalled", 0) for name in ("pauses", "lost", "over", "waiting")
    } == {
        "pauses": 0,
        "lost": 0,
        "over": 0,
        "waiting": 0,
    }


def test_a_clock_that_was_set_is_no_pause(served: Served) -> None:
    """An hour forward between two steps of a tenth of a second, and back again: a stall is found as soon as ever."""
    served.rules(STALL)
    run = RunWriter(served.store)
    times_us = [BEGAN_US + shift_s * SECOND_US for shift_s in (0, 1, 3602, 3603, 4, 5)]
    for name, value in (("loss", 0.5), ("time.step_s", 0.1)):
        run.points(name, range(6), [value] * 6, times_us=times_us)
    served.commit(run)
    served.round()
    served.round(601.0)
    assert stalled(served) == [5]


def test_a_server_that_was_down_does_not_call_that_a_stall(served: Served) -> None:
    """Agents are given the time to come back that a stall takes."""
    served.rules(STALL)
    run = RunWriter(served.store)
    write(run, [0, 1, 2], [0.5] * 3)
    served.commit(run)
    served.round()
    served.now_us += 7200 * SECOND_US
    served.restart()
    served.round(3.0)
    served.round(500.0)
    assert stalled(served) == []
    served.round(200.0)
    assert stalled(served) == [2]


def test_a_run_that_is_not_heard_of_fires_until_it_is_back(served: Served) -> None:
    """Contact lost is an event of the run; one that said that it ended is not missed."""
    served.rules(Rule(id="no-data", name="No data", metric="no_data", threshold=0))
    run, over = RunWriter(served.store), RunWriter(served.store, "over")
    write(run, [0, 1, 2], [0.5] * 3)
    write(over, [0, 1, 2], [0.5] * 3)
    over.end("finished", 2)
    for one in (run, over):
        served.commit(one)
    served.round()
    served.now_us += 100 * SECOND_US
    served.service.changed(served.store.mark_lost_contact(silent_since_us=served.now_us, now_us=served.now_us))
    served.round()
    assert [(row.run_id, row.state) for row in served.store.alerts.episodes()] == [("run1", "firing")]
    write(run, [3], [0.5])
    served.commit(run)
    served.round()
    assert [(row[0], row[4], row[5]) for row in served.episodes()] == [("no-data", "resolved", "cleared")]
