"""Evaluation as one would write it down first: every sample looked at by itself, every window gathered anew.

An oracle for the engine, from whose code it takes nothing but the rule: series, NaN/Inf flags, headroom of layers.
"""

from __future__ import annotations

import fnmatch
import math
import statistics
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from halfscope_server.alerts.rule import Rule, Span

from tests.helpers.records import REDUCTIONS, Records

ENDED = ("finished", "exception", "killed", "superseded")
HEADROOM = "headroom_bits"


class Sample(NamedTuple):
    step: int
    time_us: int
    value: float  # NaN: no number


@dataclass
class Episode:
    first: int
    attempt: int
    name: Any
    fired: int | None = None
    resolved: int | None = None
    last: int = 0
    value: float = math.nan
    worst: float = math.nan
    resolution: str = ""


def episodes(streams: list[Records], rule: Rule, baseline: float | None = None) -> list[Episode]:
    """All that fired, oldest first."""
    found: list[Episode] = []
    keys = {key for records in streams for row in records.rows for key in row.values}
    there = sorted({r.rank for r in streams if not rule.scope.ranks or r.rank in rule.scope.ranks})
    for ranks in [[rank] for rank in there] if "rank" in rule.group_by else [there]:
        own = [r for r in streams if r.rank in ranks]
        if rule.metric == HEADROOM:
            names = sorted({name for _, layers in _frames(own) for name in layers})
            names = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in rule.scope.layers or ["*"])]
            groups = [[name] for name in names] if "layer" in rule.group_by else [names]
        else:
            groups = [[label] for label in sorted({label for name, label in keys if name == rule.metric}) or [()]]
        for several in groups:
            found += _of_group(own, streams, rule, several, baseline)
    return sorted((e for e in found if e.fired is not None), key=lambda e: (e.attempt, e.first))


def _of_group(streams: list[Records], every: list[Records], rule: Rule, names: list[Any], base: Any) -> list[Episode]:
    """Of one series by its labels, or of the worst of some layers in each step."""
    found: list[Episode] = []
    current, cleared = None, None
    past: list[list[float]] = []
    farther = max if rule.comparison in (">", ">=") else min
    for attempt in sorted({records.attempt for records in every}):
        own = [r for r in streams if r.attempt == attempt]
        several = [(_layer if rule.metric == HEADROOM else _samples)(own, rule.metric, name) for name in names]
        for step in zip(*(_compared(samples, rule, past, base) for samples in several), strict=True):
            known = [compared for _, compared in step if compared is not None]
            if not known:
                continue
            sample, compared = step[0][0], farther(known)
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
                current = Episode(sample.step, attempt, names[0] if len(names) == 1 else "", worst=compared)
                began = sample
            current.worst, current.last = farther(current.worst, compared), sample.step
            if _lasted(began, sample, rule.hold):
                current.fired, current.value = sample.step, compared
                found.append(current)
        past.append([s.value for samples in several for s in samples if math.isfinite(s.value)])
        there = own or [r for r in every if r.attempt == attempt]
        if all(records.ended in ENDED for records in there):
            if current is not None:
                current.resolved = max(row.step for r in there for row in r.rows)
                current.resolution = "rank ended" if "rank" in rule.group_by else "run ended"
            current = cleared = None
    return found


def _samples(streams: list[Records], metric: str, label: Any) -> list[Sample]:
    by_step: dict[int, list[tuple[int, float]]] = {}
    for records in sorted(streams, key=lambda r: r.rank):
        for row in records.rows:
            value = _flag(row, metric) if metric.startswith("nonfinite") else row.values.get((metric, label))
            if value is not None:
                by_step.setdefault(row.step, []).append((row.time_us, value))
    by_name: dict[str, Any] = {"mean": statistics.fmean, "sum": sum, "max": max, "min": min, "last": lambda v: v[-1]}
    reduce = by_name[REDUCTIONS.get(metric, "max" if metric.startswith("nonfinite") else "last")]
    found, newest = [], 0
    for step, values in sorted(by_step.items()):
        plain = [value for _, value in values]
        newest = max(newest, *(time for time, _ in values))
        finite = all(map(math.isfinite, plain)) or len(plain) == 1
        found.append(Sample(step, newest, float(reduce(plain)) if finite else math.nan))
    return found


def _flag(row: Any, metric: str) -> float:
    skips = [told["class"] for kind, _, told in row.events if kind == "skip"]
    losses = [told["caught"] for kind, _, told in row.events if kind == "loss_nonfinite"]
    caught = bool(skips) or True in losses
    if metric == "nonfinite_rate":
        return float(caught or False in losses or any(kind == "nonfinite_applied" for kind, _, _ in row.events))
    assert metric == "nonfinite_rate.caught_unexpected"
    return float(caught and (True in losses or not all(told in ("settling", "probe") for told in skips)))


def _frames(streams: list[Records]) -> list[Any]:
    """Each with the names of its layers, of the lowest rank."""
    lowest = min((r.rank for r in streams if any(row.frames for row in r.rows)), default=0)
    return [frame for r in streams if r.rank == lowest for row in r.rows for frame in row.frames]


def _layer(streams: list[Records], _: str, name: str) -> list[Sample]:
    found, newest = [], 0
    for frame, names in _frames(streams):
        at, value, newest = names.index(name), math.nan, max(newest, int(frame.time_us[0]))
        scaled = float(frame.absmax[0][at]) * float(frame.scale[0][at])
        if frame.pos_inf[0][at] + frame.neg_inf[0][at]:
            value = -1.0
        elif scaled > 0:
            value = 15.0 - math.floor(math.log2(scaled))
        found.append(Sample(int(frame.step[0]), newest, value if frame.present[0][at] else math.nan))
    return found


def _compared(samples: list[Sample], rule: Rule, past: list[list[float]], base: float | None) -> Any:
    length = rule.window.seconds * 1e6 if rule.window.seconds else rule.window.steps or 1
    above, by_time = rule.comparison in (">", ">="), bool(rule.window.seconds)
    is_full = rule.aggregation in ("last", "below_best", "above_best", "max" if above else "min")
    is_full |= rule.aggregation in ("sum", "rate") and above and rule.metric.startswith("nonfinite")
    finite: list[tuple[float, Sample]] = []
    found: float | None = None
    for sample in samples:
        key = sample.time_us if by_time else sample.step
        is_full |= key - (samples[0].time_us if by_time else samples[0].step - 1) >= length
        if not math.isfinite(sample.value):
            yield sample, None
            continue
        is_due = not finite or finite[-1][0] // max(1, length // 20) != key // max(1, length // 20)
        finite.append((key, sample))
        window = [s.value for at, s in finite if at > key - length]
        starts = [*past, [s.value for _, s in finite]]
        if rule.aggregation not in ("quantile", "ratio") or is_due:
            everything = [value for start in starts for value in start]
            found = _aggregate(rule, window, everything, length / 1e6 if by_time else length)
        warm = [value for start in starts for value in start[20:]]  # fewer than are thinned out
        usual = base or (statistics.median(warm) if len(warm) >= 100 and len(starts[-1]) > 20 else 0.0)
        told = found if rule.aggregation != "ratio" else found / usual if found is not None and usual > 0 else None
        yield sample, told if is_full else None


def _aggregate(rule: Rule, window: list[float], everything: list[float], length: float) -> float | None:
    best = (max if rule.aggregation == "below_best" else min)(everything)
    earlier = everything[: len(everything) - len(window)]
    match rule.aggregation:
        case "below_best" | "above_best":
            return abs(best - window[-1]) / abs(best) if abs(best) >= 1e-12 else None
        case "zscore":
            spread = float(np.std(earlier)) if len(earlier) >= 100 else 0.0
            return (sum(window) / len(window) - statistics.fmean(earlier)) / spread if spread else None
        case "quantile" | "ratio":
            return float(np.quantile(window, 0.5 if rule.argument is None else rule.argument))
    simple = {"last": window[-1], "mean": sum(window) / len(window), "max": max(window), "min": min(window)}
    simple |= {"sum": sum(window), "rate": sum(window) / length, "change": window[-1] - window[0]}
    return simple[rule.aggregation]


def _beyond(value: float, rule: Rule, level: float) -> bool:
    return {">": value > level, ">=": value >= level, "<": value < level, "<=": value <= level}[rule.comparison]


def _lasted(since: Sample, now: Sample, span: Span) -> bool:
    lasted_us, lasted = now.time_us - since.time_us, now.step - since.step
    return lasted_us >= span.seconds * 1e6 if span.seconds else lasted >= (span.steps or 0)
