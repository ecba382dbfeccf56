"""Evaluation as one would write it down first: every sample looked at by itself, every window gathered anew.

An oracle for the engine, from whose code it takes nothing but the rule. Of series, NaN/Inf flags and one run.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from halfscope_server.alerts.rule import Rule, Span

from tests.helpers.records import REDUCTIONS, Records

ENDED = ("finished", "exception", "killed", "superseded")


@dataclass
class Sample:
    step: int
    time_us: int
    value: float  # NaN: no number


@dataclass
class Episode:
    first: int
    attempt: int
    fired: int | None = None
    resolved: int | None = None
    last: int = 0
    value: float = math.nan
    worst: float = math.nan
    resolution: str = ""


def episodes(streams: list[Records], rule: Rule) -> list[Episode]:
    """All that fired, oldest first."""
    found: list[Episode] = []
    keys = {key for records in streams for row in records.rows for key in row.values}
    labels = sorted({label for name, label in keys if name == rule.metric}) or [()]
    groups: list[set[int] | None] = [None]
    if rule.scope.ranks:
        groups = [set(rule.scope.ranks)]
    if "rank" in rule.group_by:
        there = sorted({records.rank for records in streams})
        groups = [{rank} for rank in there if not rule.scope.ranks or rank in rule.scope.ranks]
    for ranks in groups:
        for label in labels:
            found += _of_group([r for r in streams if ranks is None or r.rank in ranks], streams, rule, label)
    return sorted((e for e in found if e.fired is not None), key=lambda e: (e.attempt, e.first))


def _of_group(streams: list[Records], every: list[Records], rule: Rule, label: Any) -> list[Episode]:
    found: list[Episode] = []
    current, cleared = None, None
    past: list[float] = []
    farther = max if rule.comparison in (">", ">=") else min
    for attempt in sorted({records.attempt for records in every}):
        samples = _samples([r for r in streams if r.attempt == attempt], rule, label)
        for sample, compared in _compared(samples, rule, past):
            if compared is None:
                continue
            if current is not None and current.fired is not None:
                if _beyond(compared, rule, rule.threshold if rule.clear is None else rule.clear):
                    cleared, current.last = None, sample.step
                    current.worst = farther(current.worst, compared)
                else:
                    cleared = cleared or sample
                    if _lasted(cleared, sample, rule.keep_firing):
                        current.resolved, current.resolution = sample.step, "cleared"
                        current = cleared = None
                continue
            if not _beyond(compared, rule, rule.threshold):
                current = None
                continue
            if current is None:
                current = Episode(first=sample.step, attempt=attempt, worst=compared)
                began = sample
            current.worst, current.last = farther(current.worst, compared), sample.step
            if _lasted(began, sample, rule.hold):
                current.fired, current.value = sample.step, compared
                found.append(current)
        past += [s.value for s in samples if math.isfinite(s.value)]
        there = [r for r in streams if r.attempt == attempt] or [r for r in every if r.attempt == attempt]
        if all(records.ended in ENDED for records in there):
            if current is not None:
                current.resolution = "rank ended" if "rank" in rule.group_by else "run ended"
                current.resolved = max(row.step for r in there for row in r.rows)
            current = cleared = None
    return found


def _samples(streams: list[Records], rule: Rule, label: Any) -> list[Sample]:
    by_step: dict[int, list[tuple[int, float]]] = {}
    for records in sorted(streams, key=lambda r: r.rank):
        for row in records.rows:
            value = _flag(row, rule.metric) if rule.metric.startswith("nonfinite") else None
            if value is None and (rule.metric, label) in row.values:
                value = row.values[rule.metric, label]
            if value is not None:
                by_step.setdefault(row.step, []).append((row.time_us, value))
    reduce = {"mean": statistics.fmean, "sum": sum, "max": max, "min": min}.get(
        REDUCTIONS.get(rule.metric, "max" if rule.metric.startswith("nonfinite") else "last"), lambda v: v[-1]
    )
    found, newest = [], 0
    for step, values in sorted(by_step.items()):
        plain = [value for _, value in values]
        newest = max(newest, *(time for time, _ in values))
        finite = all(map(math.isfinite, plain)) or len(plain) == 1
        found.append(Sample(step, newest, float(reduce(plain)) if finite else math.nan))
    return found


def _flag(row: Any, metric: str) -> float:
    skips = [attributes["class"] for kind, _, attributes in row.events if kind == "skip"]
    losses = [attributes["caught"] for kind, _, attributes in row.events if kind == "loss_nonfinite"]
    caught = bool(skips) or True in losses
    applied = False in losses or any(kind == "nonfinite_applied" for kind, _, _ in row.events)
    expected = True not in losses and all(told in ("settling", "probe") for told in skips)
    return float(
        {
            "nonfinite_rate": caught or applied,
            "nonfinite_rate.caught": caught,
            "nonfinite_rate.caught_unexpected": caught and not expected,
            "nonfinite_rate.applied": applied,
        }[metric]
    )


def _compared(samples: list[Sample], rule: Rule, past: list[float]) -> Any:
    length = rule.window.seconds * 1e6 if rule.window.seconds else rule.window.steps or 1
    above = rule.comparison in (">", ">=")
    windowed = rule.aggregation not in ("last", "below_best", "above_best")
    early = (rule.aggregation == "max" and above) or (rule.aggregation == "min" and not above)
    early = early or (rule.aggregation in ("sum", "rate") and above and rule.metric.startswith("nonfinite"))
    finite: list[Sample] = []
    found: float | None = None
    for sample in samples:
        key = sample.time_us if rule.window.seconds else sample.step
        began = samples[0].time_us if rule.window.seconds else samples[0].step - 1
        is_full = not windowed or early or key - began >= length
        if not math.isfinite(sample.value):
            yield sample, None
            continue
        finite.append(sample)
        window = [s for s in finite if (s.time_us if rule.window.seconds else s.step) > key - length]
        if rule.aggregation == "quantile":
            stride = max(1, int(length) // 20)
            before = finite[-2] if len(finite) > 1 else None
            mark = before and (before.time_us if rule.window.seconds else before.step) // stride
            if before is None or mark != key // stride:
                found = _quantile([s.value for s in window], 0.5 if rule.argument is None else rule.argument)
        else:
            everything = past + [s.value for s in finite]
            found = _aggregate(rule, [s.value for s in window], everything, len(finite), length)
        yield sample, found if is_full else None


def _aggregate(rule: Rule, window: list[float], everything: list[float], count: int, length: float) -> float | None:
    best = (max if rule.aggregation == "below_best" else min)(everything)
    earlier = everything[: len(everything) - len(window)]
    simple = {
        "last": window[-1],
        "mean": sum(window) / len(window),
        "max": max(window),
        "min": min(window),
        "sum": sum(window),
        "rate": sum(window) / (length / 1e6 if rule.window.seconds else length),
        "change": window[-1] - window[0],
    }
    if rule.aggregation in simple:
        return simple[rule.aggregation]
    match rule.aggregation:
        case "below_best" | "above_best":
            return abs(best - window[-1]) / abs(best) if abs(best) >= 1e-12 else None
        case "zscore":
            spread = statistics.pstdev(earlier) if len(earlier) >= 100 else 0.0
            return (sum(window) / len(window) - statistics.fmean(earlier)) / spread if spread else None
    raise AssertionError(rule.aggregation)


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _beyond(value: float, rule: Rule, level: float) -> bool:
    return {">": value > level, ">=": value >= level, "<": value < level, "<=": value <= level}[rule.comparison]


def _lasted(since: Sample, now: Sample, span: Span) -> bool:
    if span.seconds:
        return now.time_us - since.time_us >= span.seconds * 1e6
    return now.step - since.step >= (span.steps or 0)
