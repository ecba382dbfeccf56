"""Back-tests: what live evaluation would have told, of stored runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.alerts.backtest import MAX_COUNTED, backtest, baseline_of
from halfscope_server.alerts.evaluator import RunEvaluator
from halfscope_server.alerts.rule import Rule, Scope, Span
from halfscope_server.query.view import Views
from halfscope_server.store.store import Store

from tests.helpers.records import Version
from tests.server.conftest import RunWriter

RULES = [
    Rule(id="high", name="h", metric="loss", threshold=0.5, hold=Span(steps=2)),
    Rule(id="mean", name="m", metric="loss", aggregation="mean", window=Span(steps=20), threshold=0.1, clear=0.0),
    Rule(id="nan", name="n", metric="nonfinite_rate.caught_unexpected", aggregation="rate", window=Span(steps=50),
         threshold=0.01),
    Rule(id="lost", name="l", metric="lost_data", threshold=0, keep_firing=Span(steps=3)),
    Rule(id="rank", name="r", metric="loss", threshold=0.8, group_by=["rank"]),
    Rule(id="best", name="b", metric="loss", aggregation="below_best", threshold=1.6),
    Rule(id="score", name="z", metric="loss", aggregation="zscore", window=Span(seconds=0.5), threshold=0.2),
    Rule(id="ratio", name="q", metric="val", aggregation="ratio", window=Span(steps=30), threshold=1.1),
    Rule(id="other", name="o", metric="val", aggregation="ratio", window=Span(steps=30), threshold=0.6,
         baseline="one"),
]  # fmt: skip


def _run(write_run: Callable[..., RunWriter], **options: Any) -> RunWriter:
    rng = np.random.default_rng(options.get("rank", 0) + 5)
    run = write_run(**options)
    steps = np.arange(600)
    run.points("opt.steps", steps, steps.astype(float))
    run.points("loss", steps, np.where(rng.random(600) < 0.01, np.nan, rng.normal(0.0, 0.5, 600)))
    run.points("val", steps[::2], rng.lognormal(0.0, 0.4, 300) * options.get("attempt", 0.5))
    for step in rng.integers(0, 600, 12).tolist():
        run.skip(step, str(rng.choice(["single", "probe", "settling"])))
    run.lost()
    run.commit()
    return run


def _told(episode: Any) -> tuple[Any, ...]:
    return episode.fired_step, episode.first_step, episode.resolved_step, episode.rank, episode.value


def test_it_finds_what_live_evaluation_finds(lite: Store, write_run: Callable[..., RunWriter]) -> None:
    """The same episodes at the same steps, of one rank and of two, and of a run that was begun anew."""
    _run(write_run, run_id="one")
    for rank in range(2):
        _run(write_run, run_id="two", rank=rank, world_size=2)
    for attempt in range(2):
        _run(write_run, run_id="anew", attempt=attempt)
    views = Views(lite)
    for rule in RULES:
        total = 0
        for run_id in ("one", "two", "anew"):
            row = lite.get_run(run_id)
            assert row is not None
            evaluator = RunEvaluator(row, [(Version(rule.id), rule)], baseline=baseline_of(views))
            found = lite.alerts.updates_since(run_id, {}, evaluator.inputs())
            told = {e.episode_id: e for e in evaluator.feed([update for update, _ in found.steps])}
            told |= {e.episode_id: e for e in evaluator.progress()}
            live = [_told(e) for e in told.values() if e.fired_step is not None]
            (shown,) = backtest(lite, views, rule, [run_id]).runs
            assert sorted(map(_told, shown.episodes), key=str) == sorted(live, key=str), (rule.id, run_id)
            assert shown.num_episodes == len(live)
            total += len(live)
        assert total > 1, rule.id


@pytest.mark.parametrize(
    ("metric", "aggregation", "unit"),
    [
        ("loss_nonfinite", "last", "flag"),
        ("lost_data", "last", "flag"),
        ("loss_nonfinite", "mean", "share"),
        ("loss_nonfinite", "sum", ""),
        ("skip_streak", "last", "steps"),
        ("loss_oscillation", "max", "share"),
    ],
)
def test_what_only_says_whether_something_is_so_has_no_share(
    lite: Store, metric: str, aggregation: str, unit: str
) -> None:
    """`100% at worst` is nothing to say of a loss that is NaN."""
    rule = Rule(id="r", name="r", metric=metric, aggregation=aggregation, threshold=0)
    assert backtest(lite, Views(lite), rule).value_unit == unit


def test_the_band_loses_no_crossing(lite: Store, write_run: Callable[..., RunWriter]) -> None:
    """The smallest and the largest of every stretch of steps, one for each pixel at most."""
    run = write_run()
    values = np.random.default_rng(1).normal(0.0, 1.0, 5_000)
    values[2_345] = 50.0
    run.points("loss", np.arange(5_000), values)
    run.commit()
    rule = Rule(id="r", name="r", metric="loss", threshold=40)
    found = backtest(lite, Views(lite), rule, [run.run_id], width_px=100)
    (shown,) = found.runs
    assert (shown.first_step, shown.last_step, len(shown.steps)) == (0, 4_999, 100)
    for at, first in enumerate(shown.steps):
        part = values[first : first + 50]
        assert (shown.low[at], shown.high[at]) == (part.min(), part.max())
    assert [(e.fired_step, e.resolved_step) for e in shown.episodes] == [(2_345, 2_346)]
    assert (found.summary, found.noisy) == ("would have fired 1 time in 1 run", "")


def test_a_rule_that_would_be_noisy_is_told(lite: Store, write_run: Callable[..., RunWriter]) -> None:
    """It flaps, or it comes again and again; one that fires thousands of times is counted no further."""
    run = write_run()
    run.points("loss", np.arange(6_000), np.arange(6_000) % 2.0)
    run.points("slow", np.arange(6_000), (np.arange(6_000) % 400 > 300).astype(float))
    run.commit()
    views = Views(lite)
    flapping = backtest(lite, views, Rule(id="r", name="r", metric="loss", threshold=0.5), [run.run_id])
    assert flapping.runs[0].num_episodes == MAX_COUNTED
    assert len(flapping.runs[0].episodes) == 200
    assert flapping.summary == f"would have fired at least {MAX_COUNTED:,} times in 1 run"
    assert "flaps" in flapping.noisy
    often = backtest(lite, views, Rule(id="r", name="r", metric="slow", threshold=0.5), [run.run_id])
    assert "every 400 steps" in often.noisy


def test_a_run_without_the_metric_says_so(lite: Store, write_run: Callable[..., RunWriter]) -> None:
    """Nothing to judge is no silence: there is a reason."""
    writer = write_run()
    writer.points("loss", np.arange(30), np.zeros(30))
    writer.commit()

    def note(**rule: Any) -> str:
        found = backtest(lite, Views(lite), Rule(id="r", name="r", threshold=0, **rule), [writer.run_id, "gone"])
        (run,) = found.runs
        assert found.summary == ("nothing to judge in 1 run" if run.note else "would not have fired in 1 run")
        return run.note

    assert note(metric="val/accuracy") == 'this run has no series "val/accuracy"'
    assert "no layers were sketched" in note(metric="underflow_share")
    assert "no window was full" in note(metric="loss", aggregation="mean", window=Span(steps=100))
    assert "baseline" in note(metric="loss", aggregation="ratio", window=Span(steps=2), baseline="gone")
    assert note(metric="loss") == ""


def test_where_no_run_is_named_the_newest_in_its_scope_are_tried(
    lite: Store, write_run: Callable[..., RunWriter]
) -> None:
    """Five at most."""
    for at in range(7):
        run = write_run(run_id=f"run{at}", project="a" if at % 2 else "b", now_us=1_700_000_000_000_000 + at)
        run.points("loss", np.arange(3), np.zeros(3))
        run.commit()
    rule = Rule(id="r", name="r", metric="loss", threshold=1.0)
    assert len(backtest(lite, Views(lite), rule).runs) == 5
    scoped = rule.model_copy(update={"scope": Scope(projects=["a"])})
    assert {run.run for run in backtest(lite, Views(lite), scoped).runs} == {"run1", "run3", "run5"}


def test_layers_that_fire_one_after_another_do_not_flap(lite: Store, write_run: Callable[..., RunWriter]) -> None:
    """Over and so again is of one layer; another one is another alert."""
    run = write_run()
    rng = np.random.default_rng(2)
    for frame in range(12):
        large = np.clip(rng.normal(size=400), -2, 2) * 2.0**14
        gradients = {f"layer{at}": large if frame == at else rng.normal(size=400) for at in range(6)}
        run.frame(frame * 10, gradients, 1.0)
    run.points("opt.steps", np.arange(5_000), np.arange(5_000.0))
    run.commit()
    rule = Rule(id="r", name="r", metric="headroom_bits", comparison="<", threshold=4, group_by=["layer"])
    found = backtest(lite, Views(lite), rule, [run.run_id], width_px=5_000)
    # On the chart all layers at each of these steps, though no series says where they lie.
    assert found.runs[0].steps == [frame * 10 for frame in range(12)]
    assert sorted((e.layer, e.fired_step, e.resolved_step) for e in found.runs[0].episodes) == [
        (f"layer{at}", at * 10, at * 10 + 10) for at in range(6)
    ]
    assert found.noisy == ""
    nowhere = rule.model_copy(update={"scope": Scope(layers=["nope*"])})
    (shown,) = backtest(lite, Views(lite), nowhere, [run.run_id]).runs
    assert shown.note == "no layer fits nope*; there are layer0, layer1, layer2 ..."


def test_a_run_that_the_rule_does_not_look_at_is_not_judged(lite: Store, write_run: Callable[..., RunWriter]) -> None:
    """It says so, in its place, and does not count."""
    for name, project in (("one", "a"), ("two", "b")):
        run = write_run(run_id=name, project=project)
        run.points("loss", np.arange(3), np.ones(3))
        run.commit()
    rule = Rule(id="r", name="r", metric="loss", threshold=0.5, scope=Scope(projects=["b"]))
    found = backtest(lite, Views(lite), rule, ["one", "two"])
    assert [(run.run, run.num_episodes, bool(run.note)) for run in found.runs] == [("one", 0, True), ("two", 1, False)]
    assert "does not look at this run" in found.runs[0].note
    assert found.summary == "would have fired 1 time in 1 run"


def test_a_failure_is_found_though_no_step_was_made(lite: Store, write_run: Callable[..., RunWriter]) -> None:
    """As live: a run that crashed before its first step, and one of whose ranks one did."""
    rule = Rule(id="r", name="r", metric="run_failed", threshold=0)
    crashed, other = write_run(run_id="early"), write_run(run_id="two", rank=0, world_size=2)
    late = write_run(run_id="two", rank=1, world_size=2)
    crashed.end("exception", 0, "ImportError")
    crashed.commit()
    for run in (other, late):
        run.points("opt.steps", np.arange(9), np.arange(9.0))
    late.end("exception", 8, "RuntimeError")
    for run in (other, late):
        run.commit()
    found = backtest(lite, Views(lite), rule, ["early", "two"])
    assert [(run.episodes[0].fired_step, run.episodes[0].resolved_step) for run in found.runs] == [(0, 0), (8, None)]
