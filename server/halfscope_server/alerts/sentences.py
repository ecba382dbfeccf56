"""Rules and episodes in words.

Owns how a rule reads as a sentence, how compared numbers read, and what a template may hold. Must not evaluate.
Invariant: a template is filled by plain replacement: what stands in names or values is never read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.metrics import find
from halfscope_server.alerts.rule import Rule, Span
from halfscope_server.query.format import (
    duration,
    integer,
    layer_words,
    number,
    plural,
    power_of_two,
    quantity,
    share,
    short,
)

FIELDS = (
    "run", "project", "layer", "rank", "metric", "value", "threshold", "step", "first_step", "severity", "url",
)  # fmt: skip
"""What a template may name, in braces."""
SHARES_OF_FLAGS = ("mean", "rate", "quantile")
"""Aggregations that make a share of steps out of what is 0 or 1 in each."""
FIELD = re.compile(r"\{([^{}]*)\}")

_COMPARED = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
_CLEARED = {">": "at most", ">=": "below", "<": "at least", "<=": "above"}
_SERIES_UNITS = {"time.step_s": "s", "halfscope.cost_share": "share"}


def metric_title(name: str) -> str:
    """`NaN/Inf rate`; a series by its name."""
    metric = find(name)
    return metric.title if metric is not None else name


def span_words(span: Span) -> str:
    """`200 steps`, `5 min`; empty for none."""
    if span.steps:
        return plural(span.steps, "step")
    return duration(span.seconds) if span.seconds else ""


def value_words(rule: Rule, value: float | None) -> str:
    """A compared number as it is read: `4.1%`, `2⁻³`, `1.2 s`."""
    metric, aggregation = find(rule.metric), aggregations().get(rule.aggregation)
    kind = aggregation.unit if aggregation is not None else "same"
    if kind == "share":
        return share(value)
    if kind == "":
        return number(value)
    is_flag = metric is not None and metric.kind == "flag"
    if kind == "per" and not is_flag:
        return f"{number(value)} per {'second' if rule.window.seconds else 'step'}"
    if is_flag:
        return share(value) if rule.aggregation in SHARES_OF_FLAGS else number(value)
    if rule.metric in ("amp.scale", "amp.scale_next") and rule.aggregation != "change":
        return power_of_two(value)
    if metric is None:
        unit = _SERIES_UNITS.get(rule.metric, "bytes" if rule.metric.endswith("_bytes") else "")
        return quantity(value, unit)
    if metric.unit == "share":
        return share(value)
    if metric.unit == "/s":
        return f"{short(value)}/s"
    return f"{number(value)} {_singular(metric.unit, value)}".rstrip()


def sentence(rule: Rule) -> str:
    """`NaN/Inf rate, mean over 200 steps, above 1%, for 50 steps`."""
    parts = [f"{metric_title(rule.metric)}{_of_what(rule)}", *_aggregation_words(rule)]
    if not _is_statement(rule):
        parts.append(f"{_COMPARED[rule.comparison]} {value_words(rule, rule.threshold)}")
    if held := span_words(rule.hold):
        parts.append(f"for {held}")
    if rule.clear is not None and rule.clear != rule.threshold:
        parts.append(f"until {_CLEARED[rule.comparison]} {value_words(rule, rule.clear)}")
    if kept := span_words(rule.keep_firing):
        parts.append(f"resolved after {kept} without it")
    return ", ".join(parts)


def asks_whether(rule: Rule) -> bool:
    """Whether it asks for nothing but that something is so, or was in this step."""
    metric = find(rule.metric)
    if metric is None or metric.kind != "flag" or rule.aggregation != "last":
        return False
    return {">": 0 <= rule.threshold < 1, ">=": 0 < rule.threshold <= 1}.get(rule.comparison, False)


def _is_statement(rule: Rule) -> bool:
    """Whether the metric's title says already what is asked for: `loss is NaN or Inf`, and not `NaN/Inf rate`."""
    return asks_whether(rule) and "rate" not in metric_title(rule.metric).partition(",")[0].split()


def _of_what(rule: Rule) -> str:
    metric = find(rule.metric)
    words = ""
    if metric is not None and metric.per_layer:
        words = " of each layer" if "layer" in rule.group_by else " of the worst layer"
        if rule.scope.layers:
            words += f" among {', '.join(rule.scope.layers)}"
    if "rank" in rule.group_by:
        words += " on each rank"
    if rule.scope.ranks:
        words += f" (rank {', '.join(integer(rank) for rank in rule.scope.ranks)})"
    return words


def _aggregation_words(rule: Rule) -> list[str]:
    """Nothing for the newest value as it is."""
    aggregation = aggregations().get(rule.aggregation)
    title = aggregation.title if aggregation is not None else rule.aggregation
    if rule.aggregation == "last":
        return []
    if rule.aggregation == "quantile" and rule.argument is not None:
        title = f"{share(rule.argument)} quantile"
    over = span_words(rule.window) if aggregation is None or aggregation.needs_window else ""
    words = f"{title} over {over}" if over and over != "1 step" else title
    return [f"{words} of a baseline run" if rule.baseline else words]


def episode_text(
    rule: Rule,
    *,
    run: str,
    project: str,
    layer: str,
    rank: int | None,
    labels: Mapping[str, str],
    value: float,
    first_step: int,
    step: int,
    url: str = "",
) -> str:
    """What happened: the rule's template filled in, else `block.3.mlp.fc2: NaN/Inf rate 4.1% > 1% for 200 steps`."""
    if rule.message:
        fields = {
            "run": run,
            "project": project,
            "layer": layer_words(layer) if layer else "",
            "rank": "" if rank is None else str(rank),
            "metric": metric_title(rule.metric),
            "value": value_words(rule, value),
            "threshold": value_words(rule, rule.threshold),
            "step": integer(step),
            "first_step": integer(first_step),
            "severity": rule.severity,
            "url": url,
        }
        return fill(rule.message, fields)
    about = [layer_words(layer)] if layer else []
    about += [] if rank is None else [f"rank {rank}"]
    about += [f"{key} {name}" for key, name in sorted(labels.items())]
    parts = ", ".join([metric_title(rule.metric), *_aggregation_words(rule)])
    if asks_whether(rule):
        text = f"{parts}, since step {integer(first_step)}"
    else:
        held = span_words(rule.hold)
        text = f"{parts}{',' if ',' in parts else ''} {value_words(rule, value)}"
        text += f" {rule.comparison} {value_words(rule, rule.threshold)}{f' for {held}' if held else ''}"
    return f"{', '.join(about)}: {text}" if about else text


def fill(template: str, fields: Mapping[str, str]) -> str:
    """A template with its fields replaced, once; braces around anything else stay as they are."""
    return FIELD.sub(lambda found: fields.get(found[1], found[0]), template)


def unknown_fields(template: str) -> list[str]:
    """Names in braces that are no fields."""
    return [name for name in FIELD.findall(template) if name not in FIELDS]


def _singular(unit: str, value: float | None) -> str:
    return unit.removesuffix("s") if value == 1 and unit in ("bits", "doublings", "steps") else unit
