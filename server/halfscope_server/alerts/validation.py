"""What is wrong with a rule, and where.

Owns every check of a rule that needs no data. Must not evaluate, nor ask the store. Invariant: a rule without problems
can be evaluated on any run; a problem names the field, what was seen and what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from halfscope_server.alerts.aggregations import Aggregation, aggregations
from halfscope_server.alerts.metrics import Metric, find, parts_beside
from halfscope_server.alerts.rule import Rule, Span
from halfscope_server.alerts.sentences import FIELDS, unknown_fields

ABOVE = (">", ">=")
MAX_RANK = 1_000_000
"""More processes than any training has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Mirrors the API."""

    where: str
    """The field: `threshold`, `scope.layers[0]`."""
    text: str


class InvalidRule(ValueError):
    """A rule that cannot be taken; `problems` says why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{problem.where}: {problem.text}" for problem in problems))
        self.problems = problems


def check(body: Mapping[str, Any] | Rule) -> list[Problem]:
    """Everything that is wrong with a rule; empty: it can be taken."""
    try:
        parse(body)
    except InvalidRule as error:
        return error.problems
    return []


def parse(body: Mapping[str, Any] | Rule) -> Rule:
    """A rule from its JSON.

    Raises:
        InvalidRule: with all problems that were found.
    """
    try:
        rule = body if isinstance(body, Rule) else Rule.model_validate(body)
    except ValidationError as error:
        raise InvalidRule([_of_pydantic(item) for item in error.errors()]) from None
    problems = list(_problems(rule))
    if problems:
        raise InvalidRule(problems)
    return rule


def check_among(rule: Rule, others: Mapping[str, Rule], channels: Mapping[str, str]) -> list[Problem]:
    """What is wrong with a rule where it is to be kept.

    Args:
        rule: without problems of its own.
        others: all rules there will be, by id; its own entry is not looked at.
        channels: names of the channels there are, by id.
    """
    problems = []
    if unknown := [name for name in rule.channels or () if name not in channels]:
        there = ", ".join(f"{key!r} ({name})" for key, name in channels.items())
        expected = (
            f"expected ids of {there}" if there else "there are none yet: make one first, or leave it empty for all"
        )
        problems.append(Problem(where="channels", text=f"{_seen(unknown[0])} is no channel; {expected}"))
    if circle := _circle(rule, others):
        told = " -> ".join(repr(name) for name in circle)
        text = f"goes round in a circle: {told}; take one of them out, or all of these rules would wait for each other"
        problems.append(Problem(where="inhibited_by", text=text))
    return problems


def _circle(rule: Rule, others: Mapping[str, Rule]) -> list[str]:
    """The ids on a way along `inhibited_by` from a rule back to it; empty: there is none."""
    came_from: dict[str, str] = {}
    left = [(rule.id, name) for name in reversed(rule.inhibited_by)]
    while left:
        before, name = left.pop()
        if name in came_from:
            continue
        came_from[name] = before
        if name == rule.id:
            way = [name]
            while (name := came_from[name]) != rule.id:
                way.insert(0, name)
            return [rule.id, *way]
        if name in others:
            left += [(name, further) for further in reversed(others[name].inhibited_by)]
    return []


PATTERNS = {
    "id": "up to 64 small letters, digits, dots, hyphens and underscores, with a letter or digit first",
    "runbook": "an address that begins with http:// or https://",
}
"""What fields look like, in words."""


def place(location: Iterable[str | int]) -> str:
    """`scope.layers[0]`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "rule"


def _of_pydantic(item: Any) -> Problem:
    if item["type"] == "missing":
        text = "is missing"
    elif item["type"] == "extra_forbidden":
        text = f"is no field of a rule; expected one of {', '.join(Rule.model_fields)}"
    elif item["type"] == "string_pattern_mismatch" and (expected := PATTERNS.get(str(item["loc"][-1]))):
        text = f"should be {expected}, not {_seen(item['input'])}"
    else:
        told = item["msg"]
        text = f"{told[:1].lower()}{told[1:]}, not {_seen(item['input'])}"
    return Problem(where=place(item["loc"]), text=text)


def _seen(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _problems(rule: Rule) -> Iterable[Problem]:
    yield from _of_texts(rule)
    metric, aggregation = find(rule.metric), aggregations().get(rule.aggregation)
    if near := parts_beside(rule.metric):
        yield Problem(where="metric", text=f"{rule.metric!r} is not known; expected {' or '.join(near)}")
    if aggregation is None:
        yield Problem(
            where="aggregation",
            text=f"{rule.aggregation!r} is not known; expected one of {', '.join(aggregations())}",
        )
    else:
        yield from _of_aggregation(rule, metric, aggregation)
    yield from _of_spans(rule)
    yield from _of_levels(rule)
    yield from _of_grouping(rule, metric)
    if unknown := unknown_fields(rule.message):
        text = f"{{{unknown[0]}}} is no field; expected one of {', '.join(f'{{{name}}}' for name in FIELDS)}"
        yield Problem(where="message", text=text)
    if rule.id in rule.inhibited_by:
        yield Problem(where="inhibited_by", text="a rule cannot inhibit itself")


def _of_texts(rule: Rule) -> Iterable[Problem]:
    for name in ("name", "metric"):
        if not getattr(rule, name).strip():
            yield Problem(where=name, text="holds only spaces; expected something that can be read")
    scope = rule.scope
    patterns = [
        (f"scope.{name}[{at}]", text)
        for name in ("projects", "tags", "runs", "layers")
        for at, text in enumerate(getattr(scope, name))
    ]
    told = [(name, getattr(rule, name)) for name in ("name", "metric", "baseline", "message", "reason", "preset")]
    for where, text in [*told, *patterns]:
        if "\x00" in text:
            yield Problem(where=where, text="holds a NUL character, which cannot be kept; take it out")
    for at, rank in enumerate(scope.ranks):
        if not 0 <= rank <= MAX_RANK:
            yield Problem(where=f"scope.ranks[{at}]", text=f"is {rank}; expected 0 to {MAX_RANK:,}")


def allowed(metric: Metric | None) -> tuple[str, ...]:
    """Ids of the aggregations that make sense for a metric; None: a series."""
    if metric is None or (metric.aggregations is None and not metric.per_layer):
        return tuple(aggregations())
    if metric.aggregations is not None:
        return metric.aggregations
    return tuple(name for name, item in aggregations().items() if item.for_layers)


def _of_aggregation(rule: Rule, metric: Metric | None, aggregation: Aggregation) -> Iterable[Problem]:
    possible = allowed(metric)
    if aggregation.id not in possible:
        yield Problem(
            where="aggregation",
            text=f"{aggregation.id!r} makes no sense for {rule.metric}; expected {' or '.join(possible)}",
        )
    if aggregation.argument:
        low, high = aggregation.argument_range
        if rule.argument is None and aggregation.default_argument is None:
            yield Problem(where="argument", text=f"is missing: {aggregation.id} needs its {aggregation.argument}")
        elif rule.argument is not None and not low <= rule.argument <= high:
            yield Problem(where="argument", text=f"is {rule.argument:g}; expected {low:g} to {high:g}")
    elif rule.argument is not None:
        yield Problem(where="argument", text=f"{aggregation.id} takes no argument; leave it out")
    if aggregation.needs_window and not (rule.window.steps or rule.window.seconds):
        yield Problem(where="window", text=f"is empty; {aggregation.id} needs some steps or seconds")
    if rule.baseline and not aggregation.takes_baseline:
        yield Problem(where="baseline", text=f"{aggregation.id} compares with no other run; use ratio, or leave it out")


def _of_spans(rule: Rule) -> Iterable[Problem]:
    spans: Mapping[str, Span] = {"window": rule.window, "hold": rule.hold, "keep_firing": rule.keep_firing}
    for name, span in spans.items():
        if span.steps is not None and span.seconds is not None:
            yield Problem(where=name, text="has steps and seconds; give one of them")
    if rule.window.seconds is not None and 0 < rule.window.seconds < 1e-3:
        yield Problem(where="window.seconds", text=f"is {rule.window.seconds:g}; expected at least 0.001")


def _of_levels(rule: Rule) -> Iterable[Problem]:
    if rule.clear is None:
        return
    above = rule.comparison in ABOVE
    if (rule.clear > rule.threshold) if above else (rule.clear < rule.threshold):
        side = "at most" if above else "at least"
        yield Problem(
            where="clear",
            text=f"is {rule.clear:g}; expected {side} the threshold {rule.threshold:g}, or it would be over while it"
            " begins",
        )


def _of_grouping(rule: Rule, metric: Metric | None) -> Iterable[Problem]:
    per_layer = metric is not None and metric.per_layer
    if "layer" in rule.group_by and not per_layer:
        yield Problem(where="group_by", text=f"{rule.metric} is not of layers; leave layer out")
    if rule.scope.layers and not per_layer:
        yield Problem(where="scope.layers", text=f"{rule.metric} is not of layers; leave it empty")
    if len(set(rule.group_by)) < len(rule.group_by):
        yield Problem(where="group_by", text="names one thing twice")
    if metric is not None and metric.aggregations == ("last",) and (rule.hold.steps or rule.hold.seconds):
        yield Problem(where="hold", text=f"{rule.metric} is told by events, which do not last; leave it empty")
