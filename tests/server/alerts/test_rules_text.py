"""What is said about rules: problems by field, sentences, episodes' texts, and YAML there and back."""

from __future__ import annotations

from typing import Any

import pytest
from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.metrics import canonical, find, metrics
from halfscope_server.alerts.presets import presets
from halfscope_server.alerts.rule import Rule, Scope, Span
from halfscope_server.alerts.sentences import episode_text, sentence, value_words
from halfscope_server.alerts.validation import allowed, check
from halfscope_server.alerts.vocabulary import vocabulary
from halfscope_server.alerts.yaml import from_yaml, to_yaml
from halfscope_server.panels import discover
from halfscope_server.store.types import RunRow, SeriesRow

from tests.helpers.records import run_row, series_row

GOOD: dict[str, Any] = {"id": "r", "name": "Rule", "metric": "loss", "threshold": 1.0}

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"id": "Not An Id"}, "id", "not 'Not An Id'"),
    ({"threshold": "much"}, "threshold", "not 'much'"),
    ({"threshold": float("nan")}, "threshold", "finite"),
    ({"colour": "red"}, "colour", "is no field of a rule"),
    ({"severity": "grave"}, "severity", "'critical'"),
    ({"aggregation": "median"}, "aggregation", "expected one of last, mean"),
    ({"aggregation": "quantile", "argument": 2.0}, "argument", "expected 0 to 1"),
    ({"aggregation": "mean", "argument": 2.0}, "argument", "takes no argument"),
    ({"aggregation": "mean", "window": {}}, "window", "is empty"),
    ({"window": {"steps": 5, "seconds": 5.0}}, "window", "give one of them"),
    ({"hold": {"steps": -1}}, "hold.steps", "greater than or equal to 0"),
    ({"clear": 2.0}, "clear", "expected at most the threshold 1"),
    ({"comparison": "<", "clear": 0.5}, "clear", "expected at least the threshold 1"),
    ({"group_by": ["layer"]}, "group_by", "loss is not of layers"),
    ({"scope": {"layers": ["a*"]}}, "scope.layers", "leave it empty"),
    ({"scope": {"layers": [""]}}, "scope.layers[0]", "at least 1 character"),
    ({"baseline": "run1"}, "baseline", "use ratio"),
    ({"message": "{loss}"}, "message", "{loss} is no field"),
    ({"inhibited_by": ["r"]}, "inhibited_by", "cannot inhibit itself"),
    ({"metric": "stall", "aggregation": "mean"}, "aggregation", "expected last"),
    ({"metric": "nonfinite_rate.aplied"}, "metric", "expected nonfinite_rate.applied or"),
    ({"metric": "nan_rate.cought"}, "metric", "expected nonfinite_rate.caught or"),
    ({"metric": "skip_streak."}, "metric", "expected skip_streak.unexpected or skip_streak"),
    ({"metric": "stall", "hold": {"steps": 5}}, "hold", "do not last"),
    ({"metric": "underflow_share", "aggregation": "zscore"}, "aggregation", "makes no sense"),
    ({"name": "  "}, "name", "only spaces"),
    ({"name": "a\x00b"}, "name", "NUL"),
    ({"scope": {"runs": ["a\x00b"]}}, "scope.runs[0]", "NUL"),
    ({"scope": {"ranks": [0, -1]}}, "scope.ranks[1]", "is -1; expected 0 to"),
    ({"scope": {"ranks": [10**30]}}, "scope.ranks[0]", "expected 0 to 1,000,000"),
    ({"runbook": "javascript:alert(1)"}, "runbook", "begins with http:// or https://"),
]


@pytest.mark.parametrize(("change", "where", "told"), WRONG)
def test_a_problem_names_its_field(change: dict[str, Any], where: str, told: str) -> None:
    """What was seen, what was expected, and where."""
    (problem,) = check({**GOOD, **change})
    assert problem.where == where
    assert told in problem.text


def test_a_series_that_no_run_has_yet_can_be_named() -> None:
    """Whatever its name: only parts of derived metrics are known beforehand."""
    for name in ("val/accuracy", "nonfinite", "throughput.samples_per_s", "stall.s", "my.nonfinite_rate.x"):
        assert check({**GOOD, "metric": name}) == []


def test_what_is_missing_is_told_at_once() -> None:
    """All of it."""
    assert {problem.where for problem in check({})} == {"id", "name", "metric", "threshold"}
    assert check(GOOD) == []


@pytest.mark.parametrize("metric", ["loss", *metrics()])
def test_whatever_is_offered_together_is_a_rule(metric: str) -> None:
    """Every aggregation that goes with a metric makes a rule without problems, and a sentence."""
    for name in allowed(find(metric)):
        rule = Rule(id="r", name="r", metric=metric, aggregation=name, window=Span(steps=20), threshold=0.5)
        assert check(rule) == []
        assert sentence(rule).strip(", ") == sentence(rule)


def test_metrics_name_panels_that_exist() -> None:
    """Where alerts are shown on a run's page."""
    known = {panel.id for panel in discover()}
    assert {metric.panel for metric in metrics().values()} - {""} <= known
    assert canonical("nan_rate") == "nonfinite_rate"
    assert canonical("loss") == "loss"


SENTENCES: list[tuple[dict[str, Any], str]] = [
    ({}, "loss, above 1"),
    ({"aggregation": "mean", "window": {"steps": 200}}, "loss, mean over 200 steps, above 1"),
    ({"hold": {"steps": 50}, "clear": 0.5}, "loss, above 1, for 50 steps, until at most 0.5"),
    ({"comparison": "<", "keep_firing": {"seconds": 60.0}}, "loss, below 1, resolved after 1 min without it"),
    ({"metric": "amp.scale", "comparison": "<="}, "amp.scale, at most 2⁰"),
    ({"metric": "nan_rate", "aggregation": "rate", "window": {"steps": 9}, "threshold": 0.01},
     "NaN/Inf rate, rate over 9 steps, above 1%"),
    ({"metric": "loss_nonfinite", "threshold": 0}, "loss is NaN or Inf"),
    ({"metric": "no_data", "threshold": 0.5}, "no data"),
    ({"metric": "no_data", "threshold": 1, "comparison": ">=", "hold": {"seconds": 60.0}}, "no data, for 1 min"),
    ({"metric": "nan_rate", "threshold": 0, "keep_firing": {"steps": 50}},
     "NaN/Inf rate, above 0, resolved after 50 steps without it"),
    ({"aggregation": "quantile", "argument": 0.9, "window": {"steps": 9}}, "loss, 90% quantile over 9 steps, above 1"),
    ({"metric": "underflow_share", "group_by": ["layer"], "threshold": 0.05}, "underflow of each layer, above 5%"),
    ({"metric": "headroom_bits", "comparison": "<", "scope": {"layers": ["a*"]}},
     "headroom of the worst layer among a*, below 1 bit"),
    ({"metric": "time.step_s", "group_by": ["rank"], "threshold": 90}, "time.step_s on each rank, above 1 min 30 s"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), SENTENCES)
def test_a_rule_reads_as_a_sentence(change: dict[str, Any], expected: str) -> None:
    """In the words of the pages."""
    assert sentence(Rule.model_validate({**GOOD, **change})) == expected


def test_a_text_says_whose_value_was_how_much() -> None:
    """With layer, rank and optimizer where there are any; names are never read as templates."""
    rule = Rule(id="r", name="r", metric="nan_rate", aggregation="mean", window=Span(steps=200), threshold=0.01)
    about: dict[str, Any] = {"run": "{value}", "project": "p", "first_step": 7, "step": 9, "value": 0.041}
    text = episode_text(rule, layer="block.3.weight", rank=2, labels={"optimizer": "G"}, **about)
    assert text == "block.3, rank 2, optimizer G: NaN/Inf rate, mean over 200 steps, 4.1% > 1%"
    silent = Rule(id="s", name="s", metric="no_data", threshold=0)
    assert episode_text(silent, layer="", rank=None, labels={}, **{**about, "value": 1.0}) == "no data, since step 7"
    hostile = rule.model_copy(update={"message": "{run} {value} {0.__class__} {step!r} <b>"})
    assert episode_text(hostile, layer="", rank=None, labels={}, **about) == "{value} 4.1% {0.__class__} {step!r} <b>"
    assert value_words(rule, float("nan")) == "NaN"


def test_yaml_reads_back_as_what_was_written() -> None:
    """All presets, and a rule with everything changed."""
    rules = [preset.rule for preset in presets()]
    rules.append(
        Rule(
            id="all", name="Ünï: 'q'", metric="a b", threshold=-1e-9, scope=Scope(tags=["x", "-"], ranks=[0]),
            repeat_s=60,            channels=[], message="line\n{step}", runbook="https://x.y/z", enabled=False,
        )
    )  # fmt: skip
    found = from_yaml(to_yaml(rules))
    assert found.problems == ()
    assert list(found.rules) == sorted(rules, key=lambda rule: rule.id)
    assert "severity" not in to_yaml([Rule.model_validate(GOOD)])


YAML_WRONG = [
    ("rules: [", "text", "line"),
    ("just words", "text", "expected a list"),
    ("rules:\n- 3", "rules[0]", "is no rule; expected fields such as id: ... (line 2)"),
    ("rules:\n- {id: a, name: a, metric: loss, threshold: 1}\n- {id: a, name: b, metric: loss, threshold: x}",
     "rules[1].threshold", "(line 3)"),
    ("rules:\n- &r {id: a, name: a, metric: loss, threshold: 1}\n- *r", "text", "aliases"),
    ("rules:\n- !!python/object:os.system {}", "text", "could not determine a constructor"),
    ("rules:\n" + "- {id: a, name: a, metric: loss, threshold: 1}\n" * 2, "rules[1].id", "stands there twice"),
    ("rules:\n- {id: a, id: b, name: a, metric: loss, threshold: 1}", "text", "'id' stands there twice; leave one"),
    ("rules: []\nchannels: []", "text", "'channels' is not known here; expected `rules:` alone (line 2)"),
    ("rules:\n- {id: a, name: a, metric: loss, threshold: 1:30}", "text", "'1:30' is no number"),
    ("rules:\n- {id: a, name: a, metric: loss, threshold: -1:30.5}", "text", "(line 2)"),
    ("rules:\n- " + "[" * 400_000, "text", "too deeply; expected at most 20 levels (line 2)"),
    ("rules:\n" + "- " * 30 + "a", "text", "too deeply"),
    ("rules:\n- {id: a, name: !!timestamp a, metric: loss, threshold: 1}", "text", "cannot be read"),
    ("rules:\n- {id: a, name: 2024-13-45, metric: loss, threshold: 1}", "text", "month must be in 1..12"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "where", "told"), YAML_WRONG)
def test_a_yaml_text_with_a_problem_gives_no_rules(text: str, where: str, told: str) -> None:
    """And says where it is."""
    found = from_yaml(text)
    assert not found.rules
    assert found.problems[0].where == where
    assert told in found.problems[0].text


class _Runs:
    def list_runs(self) -> list[RunRow]:
        return [run_row("b", project="two", tags=("x",)), run_row("a")]

    def series(self, run_id: str) -> list[SeriesRow]:
        return [series_row("loss"), series_row(f"{run_id}/acc")]


def test_the_vocabulary_offers_derived_metrics_and_the_series_there_are() -> None:
    """Each with the aggregations that make sense."""
    found = vocabulary(_Runs())
    assert [item.id for item in found.metrics] == [*metrics(), "a/acc", "b/acc", "loss"]
    assert [item.id for item in found.aggregations] == list(aggregations())
    assert (found.projects, found.tags) == (["digits", "two"], ["x"])
    assert {item.id: item.aggregations for item in found.metrics}["underflow_share"] == ["last", "mean", "max", "min"]
