"""Evaluation of rules on a run: the same episodes for any cut of the data, and those that a plain reading gives."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from halfscope.sketch import of_array
from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.evaluator import RunEvaluator
from halfscope_server.alerts.rule import Rule, Scope, Span
from halfscope_server.store.types import EpisodeRow, FrameMoments
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.journals import as_moments, moments_of
from tests.helpers.records import Records, Row, Version, cut, evaluate, run_row, server_event, values, whole
from tests.server.alerts import brute

AGGREGATIONS = (
    "last", "mean", "max", "min", "sum", "rate", "quantile", "change", "below_best", "above_best", "zscore", "ratio",
)  # fmt: skip
LAYER_AGGREGATIONS = tuple(kind.id for kind in aggregations().values() if kind.for_layers)
LAYERS = ("a.weight", "b.weight", "c.bias")
METRICS = ("loss", "grad.norm", "val/accuracy", "nonfinite_rate", "nonfinite_rate.caught_unexpected")


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """A rule about one of the series that `streams` makes; thresholds lie between the values."""
    metric = draw(st.sampled_from(METRICS))
    is_flag = metric.startswith("nonfinite")
    aggregation = draw(st.sampled_from(AGGREGATIONS))
    level = draw(st.integers(-3, 8)) / 4 + 0.1 if not is_flag else draw(st.sampled_from([0.0, 0.07, 0.33, 1.5]))
    comparison = draw(st.sampled_from([">", ">=", "<", "<="]))
    gap = draw(st.sampled_from([None, 0.0, 0.5]))
    sign = -1 if comparison in (">", ">=") else 1

    def span(longest: int) -> Span:
        return draw(
            st.one_of(
                st.just(Span()),
                st.builds(Span, steps=st.integers(0, longest)),
                st.builds(Span, seconds=st.integers(0, longest).map(lambda n: n / 100)),
            )
        )

    window = draw(
        st.one_of(
            st.builds(Span, steps=st.sampled_from([1, 2, 7, 20, 45, 100])),
            st.builds(Span, seconds=st.sampled_from([0.02, 0.1, 0.5])),
        )
    )
    return Rule(
        id="r",
        name="r",
        metric=metric,
        aggregation=aggregation,
        argument=draw(st.sampled_from([0.0, 0.25, 0.5, 0.9])) if aggregation == "quantile" else None,
        window=window,
        comparison=comparison,  # type: ignore[arg-type]
        threshold=level,
        clear=None if gap is None else level + sign * gap,
        hold=span(30),
        keep_firing=span(30),
        group_by=draw(st.sampled_from([["run"], ["run", "rank"]])),
        scope=Scope(ranks=draw(st.sampled_from([[], [], [1]]))),
    )


@st.composite
def layer_rules(draw: st.DrawFn) -> Rule:
    """A rule about the headroom of the layers that `streams` makes."""
    rule = draw(rules())
    comparison = draw(st.sampled_from([">", "<="]))
    return rule.model_copy(
        update={
            "metric": "headroom_bits",
            "aggregation": draw(st.sampled_from(LAYER_AGGREGATIONS)),
            "argument": None,
            "comparison": comparison,
            "threshold": float(draw(st.integers(-1, 14))),
            "clear": None,
            "group_by": draw(st.sampled_from([["run"], ["run", "layer"], ["run", "layer", "rank"]])),
            "scope": Scope(layers=draw(st.sampled_from([[], ["*.weight"], ["b.*", "c.*"], ["none"]]))),
        }
    )


@st.composite
def streams(draw: st.DrawFn, longest: int = 180, sketched: bool = False) -> list[Records]:
    """A run of one or two ranks and one or two starts."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_ranks, num_attempts = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (2, 2)]))
    found = []
    first = 0
    for attempt in range(num_attempts):
        length = draw(st.integers(1, longest))
        for rank in range(num_ranks):
            ended = draw(st.sampled_from(["", "finished", "killed"]))
            found.append(Records(_rows(rng, first, length, attempt, sketched), rank=rank, attempt=attempt, ended=ended))
        first = draw(st.integers(0, first + length))
    return found


def _frame(row: Row, rng: np.random.Generator) -> FrameMoments:
    """Layers whose largest gradient comes and goes; some are not there, some are infinite, some are zero."""
    drawn = {}
    for layer in np.flatnonzero(rng.random(len(LAYERS)) < 0.9).tolist():
        grad = (2.0 ** rng.integers(-3, 4) * rng.choice([0.0, 1.0, 1.0, 1.0, 1.0], 3)).astype(np.float32)
        grad[0] = math.inf if rng.random() < 0.05 else grad[0]
        drawn[layer] = (of_array(grad), 16.0)
    return as_moments([(row.step, row.time_us)], [moments_of(drawn, range(len(LAYERS)))])


def _rows(rng: np.random.Generator, first: int, length: int, attempt: int, sketched: bool = False) -> list[Row]:
    level = rng.integers(-4, 12, length // 10 + 1) / 4
    rows = []
    for at in range(length):
        row = Row(first + at, attempt * 100_000_000 + at * 10_000 + int(rng.integers(0, 5_000)))
        row.values = values({"opt.steps": float(at)})
        loss = level[at // 10] + rng.integers(-2, 3) / 4
        kind = rng.random()
        if kind < 0.03:
            loss = float(rng.choice([math.nan, math.inf, -math.inf]))
            row.events.append(("loss_nonfinite", "warning", {"caught": bool(rng.random() < 0.5)}))
        elif kind < 0.1:
            told = str(rng.choice(["settling", "probe", "single", "streak"]))
            row.events.append(("skip", "info", {"class": told}))
        elif kind < 0.12:
            row.events.append(("nonfinite_applied", "critical", {}))
        row.values |= values({"loss": float(loss)})
        for optimizer in ("d", "g"):
            if rng.random() < 0.8:
                row.values["grad.norm", (("optimizer", optimizer),)] = float(rng.integers(0, 8) / 4)
        if at % 7 == 3:
            row.values |= values({"val/accuracy": float(rng.integers(1, 9) / 8)})
        if sketched and at % 5 == 2:
            row.frames.append((_frame(row, rng), LAYERS))
        rows.append(row)
    return rows


def _told(episodes: list[EpisodeRow]) -> list[tuple[Any, ...]]:
    told = (
        (e.attempt, e.first_step, e.fired_step, e.resolved_step, e.last_step, e.value, e.worst, e.resolution)
        for e in episodes
    )
    return sorted(told, key=_place)


def _place(told: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of several ranks one may go on that began where another did, which is over."""
    return tuple(-1 if part is None else part for part in told)


def _expected(episodes: list[brute.Episode]) -> list[tuple[Any, ...]]:
    told = ((e.attempt, e.first, e.fired, e.resolved, e.last, e.value, e.worst, e.resolution) for e in episodes)
    return sorted(told, key=_place)


def _same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    assert [item[:5] + item[7:] for item in found] == [item[:5] + item[7:] for item in expected]
    for one, other in zip(found, expected, strict=True):
        assert one[5:7] == pytest.approx(other[5:7], rel=1e-9, abs=1e-12)


@settings(max_examples=60)
@given(streams(), rules())
def test_the_engine_agrees_with_a_plain_reading(records: list[Records], rule: Rule) -> None:
    """Random rules on random runs: the same episodes at the same steps with the same values."""
    _same(_told(evaluate(whole(records), [rule])), _expected(brute.episodes(records, rule)))


@settings(max_examples=20)
@given(streams(longest=120, sketched=True), layer_rules(), st.integers(0, 2**32 - 1))
def test_rules_of_layers_agree_with_a_plain_reading(records: list[Records], rule: Rule, seed: int) -> None:
    """Of each layer, of the worst of some, and of each on every rank; cut and restarted anywhere."""
    found = evaluate(whole(records), [rule])
    _same(_told(found), _expected(brute.episodes(records, rule)))
    rng = random.Random(seed)
    assert evaluate(cut(records, rng), [rule], restart=rng) == found


@pytest.mark.parametrize(
    ("aggregation", "comparison", "threshold", "baseline"),
    [
        ("zscore", ">", 1.1, None),
        ("zscore", "<", -0.8, None),
        ("ratio", "<", 0.8, None),
        ("ratio", ">", 1.5, 1.6),
        ("below_best", ">", 0.5, None),
        ("above_best", ">", 9.0, None),
    ],
)
def test_what_looks_back_over_a_long_run_agrees_with_a_plain_reading(
    aggregation: str, comparison: Any, threshold: float, baseline: float | None
) -> None:
    """Of three starts with holes, jumps of the clock and numbers that are none; cut and restarted anywhere."""
    rng, draw = np.random.default_rng(5), random.Random(5)
    records = []
    for attempt, (first, length) in enumerate([(0, 260), (200, 30), (180, 300)]):
        rows = [row for row in _rows(rng, first, length, attempt) if rng.random() < 0.9]
        for row in rows:
            row.values["loss", ()] += 2.0
            row.time_us += 5_000_000 * (row.step > first + 150)
        records.append(Records(rows, attempt=attempt))
    for window in (Span(steps=1), Span(steps=30), Span(seconds=0.9)):
        rule = Rule(
            id="r", name="r", metric="loss", aggregation=aggregation, window=window, comparison=comparison,
            threshold=threshold, hold=Span(steps=2), baseline="" if baseline is None else "other",
        )  # fmt: skip
        found = evaluate(whole(records), [rule], baseline=baseline)
        _same(_told(found), _expected(brute.episodes(records, rule, baseline)))
        assert evaluate(cut(records, draw), [rule], restart=draw, baseline=baseline) == found
        assert found or window != Span(steps=1)


def test_layers_are_those_of_the_lowest_rank_whichever_comes_first() -> None:
    """Rank 1 is some steps ahead when its first frame comes: rank 0, which has had a step, is waited for."""
    rule = Rule(id="r", name="r", metric="headroom_bits", threshold=12.0, comparison="<", group_by=["run", "layer"])
    ranks = [Records(_rows_of([1.0] * 12), rank=rank) for rank in (0, 1)]
    for records, size in zip(ranks, (1.0, 2.0**9), strict=True):
        for row in records.rows[4::4]:
            sketch = of_array(np.array([size], np.float32)), 1.0
            row.frames.append((as_moments([(row.step, row.time_us)], [moments_of({0: sketch}, [0])]), ("w",)))
    assert evaluate(whole(ranks), [rule]) == []
    one, two = ranks
    late = [[one.update(0, 2), two.update(0, 9)], [one.update(2, 5)], [one.update(5, 12), two.update(9, 12)]]
    assert evaluate(late, [rule]) == []
    (alone,) = evaluate(whole([two]), [rule])
    assert alone.fired_step == 4


@settings(max_examples=12)
@given(streams(), st.lists(rules(), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_any_cut_and_any_restart_give_the_same_episodes(records: list[Records], several: list[Rule], seed: int) -> None:
    """Live, replayed at once, cut anywhere and restarted anywhere: equal rows, ids and evidence included."""
    rng = random.Random(seed)
    some = [rule.model_copy(update={"id": f"r{at}"}) for at, rule in enumerate(several)]
    at_once = evaluate(whole(records), some)
    assert evaluate(cut(records, rng, longest=1), some) == at_once
    assert evaluate(cut(records, rng), some, restart=rng) == at_once


def _rows_of(losses: list[float], first: int = 0) -> list[Row]:
    steps = enumerate(losses, first)
    return [Row(step, step * 10_000, values({"opt.steps": float(step), "loss": loss})) for step, loss in steps]


HIGH = Rule(id="high", name="High loss", metric="loss", threshold=1.0, message="{run}: {value} at {step}, {unknown}")


def test_an_episode_says_what_happened() -> None:
    """Its row holds the group, the steps, the values, the sentence and the evidence."""
    records = Records(_rows_of([0.0, 3.0, 2.0, 0.0]))
    (episode,) = evaluate(whole([records]), [HIGH])
    assert (episode.rule_id, episode.rule_version, episode.run_id, episode.attempt) == ("high", 1, "run1", 0)
    assert (episode.state, episode.resolution, episode.text) == (
        "resolved",
        "cleared",
        "fp16-digits: 3 at 1, {unknown}",
    )
    assert (episode.first_step, episode.fired_step, episode.last_step, episode.resolved_step) == (1, 1, 2, 3)
    assert (episode.fired_us, episode.resolved_us, episode.value, episode.worst) == (10_000, 30_000, 3.0, 3.0)
    assert episode.evidence == {"step": [0, 1], "value": [0.0, 3.0]}


def test_a_number_that_is_none_changes_nothing() -> None:
    """NaN and Inf neither fire nor resolve, and enter no mean."""
    losses = [0.0, math.inf, 2.0, math.nan, -math.inf, 2.0, math.nan, 0.0]
    (episode,) = evaluate(whole([Records(_rows_of(losses))]), [HIGH])
    assert (episode.fired_step, episode.last_step, episode.resolved_step) == (2, 5, 7)


def test_windows_begin_anew_with_the_training_and_alerts_go_on() -> None:
    """A restart empties the mean; what fired before it is cleared by a full window after it."""
    rule = Rule(id="mean", name="Mean", metric="loss", aggregation="mean", window=Span(steps=4), threshold=1.0)
    before, after = Records(_rows_of([2.0] * 6)), Records(_rows_of([0.0] * 6, first=2), attempt=1)
    (episode,) = evaluate(whole([before, after]), [rule])
    assert (episode.fired_step, episode.attempt, episode.resolved_step) == (3, 0, 5)
    old = [[after.update(0, 6)], [before.update(0, 6)]]
    assert evaluate(old, [rule]) == []


def test_a_rule_that_changes_or_goes_ends_its_episodes() -> None:
    """What fired under it is over; a new version begins with the next data."""
    records = Records(_rows_of([3.0] * 10))
    evaluator = RunEvaluator(run_row(), [(Version("high"), HIGH)])
    (fired,) = evaluator.feed([records.update(0, 5)])
    higher = HIGH.model_copy(update={"threshold": 2.0})
    (over,) = evaluator.set_rules([(Version("high", 2), higher)])
    assert (over.episode_id, over.state, over.resolution) == (fired.episode_id, "resolved", "rule changed")
    (again,) = evaluator.feed([records.update(5, 10)])
    assert (again.rule_version, again.fired_step, again.threshold) == (2, 5, 2.0)
    state = evaluator.state()
    gone = RunEvaluator(run_row(), [], state=state)
    assert [(e.episode_id, e.resolution) for e in gone.feed([])] == [(again.episode_id, "rule deleted")]
    elsewhere = higher.model_copy(update={"scope": Scope(projects=["other"])})
    moved = RunEvaluator(run_row(), [(Version("high", 2), elsewhere)], state=state)
    assert [(e.episode_id, e.resolution) for e in moved.feed([])] == [(again.episode_id, "rule changed")]


def test_another_rule_does_not_disturb_those_that_go_on() -> None:
    """Windows, pending ones and ids stay when a rule is added in the middle."""
    records = Records(_rows_of([0.5] * 5 + [3.0] * 10))
    held = HIGH.model_copy(update={"id": "held", "hold": Span(steps=6)})
    evaluator = RunEvaluator(run_row(), [(Version("held"), held)])
    told = {e.episode_id: e for e in evaluator.feed([records.update(0, 8)])}
    assert [e.state for e in told.values()] == ["pending"]
    assert evaluator.set_rules([(Version("held"), held), (Version("high"), HIGH)]) == []
    told |= {e.episode_id: e for e in evaluator.feed([records.update(8, 15)])}
    assert sorted((e.rule_id, e.first_step, e.fired_step) for e in told.values()) == [("held", 5, 11), ("high", 8, 8)]
    assert evaluate(whole([records]), [held])[0].episode_id in told


def test_a_state_that_cannot_be_read_begins_anew() -> None:
    """Bytes of another version, or damaged ones, are no error."""
    for state in (b"", b"nonsense", RunEvaluator(run_row(), []).state()[:-3]):
        evaluator = RunEvaluator(run_row(), [(Version("high"), HIGH)], state=state)
        assert len(evaluator.feed([Records(_rows_of([3.0])).update(0, 1)])) == 1


def test_a_rank_that_is_lost_holds_nobody_back() -> None:
    """A step is judged when every rank that is there has passed it."""
    rule = Rule(id="high", name="High", metric="loss", threshold=1.0)
    one, two = Records(_rows_of([0.0, 0.0, 3.0, 3.0])), Records(_rows_of([0.0, 0.0, 3.0]), rank=1)
    evaluator = RunEvaluator(run_row(), [(Version("high"), rule)])
    assert evaluator.feed([one.update(0, 4), two.update(0, 2)]) == []
    lost = Records([], rank=1, ended="lost_contact").update(0, 0)
    (fired,) = evaluator.feed([lost])
    assert (fired.fired_step, evaluator.progress()[0].last_step) == (2, 3)
    other = RunEvaluator(run_row(), [(Version("high"), rule)])
    other.feed([one.update(0, 4), two.update(0, 2)])
    (same,) = other.feed([two.update(2, 3)])
    assert same.fired_step == 2


def test_a_baseline_that_is_missing_is_told() -> None:
    """The rule judges nothing, and says why."""
    rule = HIGH.model_copy(update={"aggregation": "ratio", "baseline": "run9", "window": Span(steps=2)})
    evaluator = RunEvaluator(run_row(), [(Version("high"), rule)])
    assert evaluator.feed([Records(_rows_of([3.0] * 9)).update(0, 9)]) == []
    assert "run9" in evaluator.errors["high"]
    assert len(evaluate(whole([Records(_rows_of([3.0] * 9))]), [rule], baseline=2.0)) == 1


def test_what_is_needed_is_what_the_rules_look_at() -> None:
    """Series, events and frames of the rules that look at this run, and the series that rows are counted by."""
    rules = [HIGH, Rule(id="nan", name="n", metric="nan_rate", threshold=0.1)]
    wanted = RunEvaluator(run_row(), [(Version(rule.id), rule) for rule in rules]).inputs()
    assert wanted.series == {"loss", "opt.steps"}
    assert wanted.events == {"skip", "loss_nonfinite", "nonfinite_applied"}
    assert not wanted.frames
    off = HIGH.model_copy(update={"enabled": False})
    assert RunEvaluator(run_row(), [(Version("high"), off)]).inputs().series == {"opt.steps"}


def test_the_last_step_before_a_crash_is_judged_without_its_row() -> None:
    """An event of a step whose row never came still counts."""
    rule = Rule(id="nan", name="n", metric="nonfinite_rate.applied", threshold=0)
    records = Records(_rows_of([1.0] * 3), ended="killed")
    late = Row(3, 30_000, {}, [("nonfinite_applied", "critical", {})])
    records.rows.append(late)
    (episode,) = evaluate(whole([records]), [rule])
    assert (episode.first_step, episode.resolution) == (3, "run ended")


def test_server_events_of_an_older_start_are_old() -> None:
    """Silence that was noted before a restart says nothing about what came after it."""
    rule = Rule(id="quiet", name="q", metric="no_data", threshold=0)
    before, after = Records(_rows_of([1.0] * 5)), Records(_rows_of([1.0] * 5), attempt=1)
    groups = [[before.update(0, 5)], [after.update(0, 5)], [server_event("lost_contact", 4)]]
    assert evaluate(groups, [rule]) == []
    (episode,) = evaluate([*groups[:2], [server_event("lost_contact", 4, attempt=1)]], [rule])
    assert (episode.state, episode.fired_step, episode.attempt) == ("firing", 4, 1)


def test_the_alert_of_a_rank_is_over_when_that_rank_ends() -> None:
    """At its own last step, while the others go on; what is judged of all ranks together goes on with them."""
    by_rank = HIGH.model_copy(update={"id": "rank", "group_by": ["run", "rank"]})
    ranks = [Records(_rows_of([3.0] * 30)), Records(_rows_of([3.0] * 15), rank=1, ended="killed")]
    told = [
        (e.rule_id, e.rank, e.state, e.resolved_step, e.resolution) for e in evaluate(whole(ranks), [HIGH, by_rank])
    ]
    assert told == [
        ("high", None, "firing", None, ""),
        ("rank", 0, "firing", None, ""),
        ("rank", 1, "resolved", 14, "rank ended"),
    ]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rule_told_by_events_that_is_changed_goes_on_from_the_last_of_them(restarts: bool) -> None:
    """Silence goes on though its rule was renamed: no further event comes to say so. A new rule begins with the next
    data, and nothing is said of a run that is over."""
    quiet = Rule(id="quiet", name="q", metric="no_data", threshold=0)
    renamed, new = quiet.model_copy(update={"name": "silence"}), quiet.model_copy(update={"id": "new"})
    rules = [(Version("quiet", 2), renamed), (Version("new"), new)]
    records = Records(_rows_of([1.0] * 6), ended="finished")

    def changed(*updates: Any) -> list[tuple[Any, ...]]:
        evaluator = RunEvaluator(run_row(), [(Version("quiet"), quiet)])
        for update in updates:
            evaluator.feed([update])
        if restarts:
            evaluator = RunEvaluator(run_row(), rules, state=evaluator.state())
            found = evaluator.feed([])
        else:
            found = evaluator.set_rules(rules)
        found += evaluator.feed([records.update(5, 6)])
        return [(e.rule_id, e.rule_version, e.state, e.fired_step, e.fired_us, e.resolved_step) for e in found]

    lost = server_event("lost_contact", 4, time_us=77)
    assert changed(records.update(0, 5), lost) == [
        ("quiet", 1, "resolved", 4, 77, 4),
        ("quiet", 2, "firing", 4, 77, None),
        ("quiet", 2, "resolved", 4, 77, 5),
    ]
    assert changed(records.update(0, 5)) == []
    assert changed(records.update(0, 6), lost) == []
