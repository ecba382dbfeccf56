"""When a rule would have fired on stored runs.

Owns what the editor's preview shows. Must not save anything. Invariant: the judging is that of the live evaluation, by
the same code; only the order of records is taken from the store.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts import metrics as catalog
from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.aggregations.ratio import WARM_UP
from halfscope_server.alerts.history import History, Part
from halfscope_server.alerts.machine import Change, Machine
from halfscope_server.alerts.metrics.base import LayerSamples
from halfscope_server.alerts.node import Observer, RuleOnNode
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.scope import covers, layer_mask
from halfscope_server.alerts.sentences import SHARES_OF_FLAGS
from halfscope_server.alerts.track import Baseline, LaneKey, Track
from halfscope_server.query.format import json_number, plural
from halfscope_server.query.view import RunView, Views
from halfscope_server.store.types import RunRow
from halfscope_server.store.update_types import Wanted

MAX_RUNS = 5
"""Looked at where none are named."""
MAX_EPISODES = 200
"""Of one run that are described; all are counted."""
MAX_COUNTED = 2000
"""Episodes of one run after which it is only drawn: a rule that fires so often is no rule."""
OFTEN = 5
"""Episodes of one run from which on a rule is noisy where they come close together."""
OFTEN_STEPS = 500
"""Closer together than this, on average."""
FLAPS = 3
FLAP_STEPS = 20
"""So many times over for fewer steps than this, and then so again: that flaps."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Json = float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestEpisode:
    """Mirrors the API."""

    layer: str
    rank: int | None
    first_step: int
    fired_step: int
    resolved_step: int | None
    value: Json
    worst: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRun:
    """Mirrors the API."""

    run: str
    run_name: str
    first_step: int | None
    last_step: int | None
    steps: list[int]
    low: list[Json]
    high: list[Json]
    episodes: list[BacktestEpisode]
    num_episodes: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Mirrors the API."""

    runs: list[BacktestRun]
    summary: str
    noisy: str
    value_unit: str
    took_ms: float


class ListsRuns(Protocol):
    """What is needed of the store."""

    def list_runs(self) -> list[RunRow]: ...
    def get_run(self, run_id: str) -> RunRow | None: ...


def backtest(store: ListsRuns, views: Views, rule: Rule, run_ids: Sequence[str] = (), width_px: int = 600) -> Backtest:
    """Evaluate a rule that has no problems.

    Args:
        run_ids: which runs; empty: the newest that the rule looks at. Those that are not there are left out; those that
            the rule does not look at say so.
        width_px: how wide the chart is; one band for every pixel at most.
    """
    began_s = time.perf_counter()
    rows = [row for run_id in run_ids if (row := store.get_run(run_id)) is not None]
    if not run_ids:
        rows = [row for row in store.list_runs() if covers(rule, row)][:MAX_RUNS]
    found: list[tuple[BacktestRun, Sequence[int]]] = []
    shown: list[BacktestRun] = []
    for row in rows:
        if not covers(rule, row):
            shown.append(_not_looked_at(row))
        elif (view := views.get(row.run_id, row)) is not None:
            found.append(_of_run(view, rule, baseline_of(views), width_px))
            shown.append(found[-1][0])
    return Backtest(
        runs=shown,
        summary=_summary([run for run, _ in found]),
        noisy=_noisy(found),
        value_unit=_unit(rule),
        took_ms=(time.perf_counter() - began_s) * 1e3,
    )


def baseline_of(views: Views) -> Baseline:
    """Looks up what is usual for a rule's metric in the run that it names: the median without the warm-up."""

    def usual(rule: Rule) -> float | None:
        view = views.get(rule.baseline) if rule.baseline else None
        return None if view is None else _median(view, rule)

    return usual


def _median(view: RunView, rule: Rule) -> float | None:
    values: list[Floats] = []
    metric = catalog.canonical(rule.metric)
    history = History(view, _wanted(metric))
    track = Track(metric, None, (), lambda rule: None)
    for part in history.parts:
        for block in history.blocks(part):
            found = track.samples(block)
            if isinstance(found, LayerSamples):
                return None
            values += [samples.value for samples in found.values()]
    whole = np.concatenate(values) if values else np.empty(0)
    whole = whole[np.isfinite(whole)][WARM_UP:]
    return float(np.median(whole)) if whole.size else None


def _wanted(metric: str) -> Wanted:
    derived = catalog.find(metric)
    return Wanted(series=frozenset({metric})) if derived is None else derived.inputs


@dataclass(slots=True)
class _Seen:
    """What the evaluation of one run showed."""

    bins: _Bins
    episodes: list[BacktestEpisode] = field(default_factory=list)
    count: int = 0
    gaps: list[int] = field(default_factory=list)
    """Steps between the end of an episode and the beginning of the next of the same layer."""
    _resolved: dict[tuple[int | None, int, str], int] = field(default_factory=dict)
    """Where the newest episode of each ended: by rank, stream of numbers and layer."""

    def happened(self, on: RuleOnNode, layer: str, machine: Machine, change: Change) -> None:
        key = on.rank, id(on), layer
        if change == "fired":
            self.count += 1
            if key in self._resolved:
                self.gaps.append(machine.first_step - self._resolved[key])
        elif change == "resolved" and machine.resolved_step is not None:
            self._resolved[key] = machine.resolved_step
            self.over(on, layer, machine, machine.resolved_step)

    def over(self, on: RuleOnNode, layer: str, machine: Machine, step: int | None) -> None:
        """An episode ended, or is still open at the end of what there is."""
        if machine.fired_step is not None and len(self.episodes) < MAX_EPISODES:
            self.episodes.append(
                BacktestEpisode(
                    layer=layer or machine.worst_layer,
                    rank=on.rank,
                    first_step=machine.first_step,
                    fired_step=machine.fired_step,
                    resolved_step=step,
                    value=json_number(machine.value),
                    worst=json_number(machine.worst),
                )
            )


class _Bins:
    """Compared numbers as a band: the smallest and the largest of each stretch of steps."""

    def __init__(self, first_step: int, last_step: int, width_px: int) -> None:
        self._first = first_step
        self._width = max(1, -(-(last_step - first_step + 1) // width_px))
        count = (last_step - first_step) // self._width + 1
        self._low, self._high = np.full(count, np.inf), np.full(count, -np.inf)

    def add(self, step_N: Ints, low_N: Floats, high_N: Floats) -> None:
        """Take in numbers in the order of their steps; NaN: none."""
        there = ~np.isnan(low_N)
        if not there.all():
            step_N, low_N, high_N = step_N[there], low_N[there], high_N[there]
        if not step_N.size:
            return
        place = np.clip((step_N - self._first) // self._width, 0, self._low.size - 1)
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        at = place[starts]
        self._low[at] = np.minimum(self._low[at], np.minimum.reduceat(low_N, starts))
        self._high[at] = np.maximum(self._high[at], np.maximum.reduceat(high_N, starts))

    def shown(self) -> tuple[list[int], list[Json], list[Json]]:
        """(first steps of the stretches that have any, smallest, largest)."""
        at = np.flatnonzero(np.isfinite(self._low))
        low, high = ([json_number(v) for v in values[at].tolist()] for values in (self._low, self._high))
        return (self._first + at * self._width).tolist(), low, high


def _of_run(view: RunView, rule: Rule, baseline: Baseline, width_px: int) -> tuple[BacktestRun, list[int]]:
    """The run as it is shown, and the gaps between its episodes."""
    metric, row = catalog.canonical(rule.metric), view.row
    lanes = _lanes(view, rule)
    histories = [History(view, _wanted(metric), None if lane is None else frozenset(lane)) for lane in lanes]
    spans = [span for history in histories for part in history.parts if (span := part.span) is not None]
    if not spans:  # what is made of sketches alone has no series that says where it lies
        spans = [(attempt.span.first_step, attempt.span.last_step) for attempt in view.attempts]
    first, last = min((span[0] for span in spans), default=None), max((span[1] for span in spans), default=None)
    seen = _Seen(_Bins(first or 0, last or 0, width_px))
    note = ""
    for lane, history in zip(lanes, histories, strict=True):
        track = Track(metric, lane, [(rule, 1)], baseline, _observer(seen.bins, rule))
        for part in history.parts:
            if part is not history.parts[0]:
                track.restart()
            _judge(track, history, part, seen)
            if part.is_over:
                _close(track, seen, part)
        _close(track, seen, None)
        note = note or track.missing_baselines().get(rule.id, "")
    steps, low, high = seen.bins.shown()
    shown = BacktestRun(
        run=row.run_id,
        run_name=row.name,
        first_step=first,
        last_step=last,
        steps=steps,
        low=low,
        high=high,
        episodes=sorted(seen.episodes, key=lambda episode: (episode.fired_step, episode.layer)),
        num_episodes=seen.count,
        note=note or ("" if steps else _why_nothing(view, rule, metric)),
    )
    return shown, seen.gaps


def _not_looked_at(row: RunRow) -> BacktestRun:
    return BacktestRun(
        run=row.run_id,
        run_name=row.name,
        first_step=None,
        last_step=None,
        steps=[],
        low=[],
        high=[],
        episodes=[],
        num_episodes=0,
        note="the rule does not look at this run: its scope holds other projects, tags or runs",
    )


def _judge(track: Track, history: History, part: Part, seen: _Seen) -> None:
    for block in history.blocks(part):
        for _, happened in track.feed(block, part.attempt):
            seen.happened(*happened)
            if seen.count >= MAX_COUNTED:
                track.mute()
                break


def _close(track: Track, seen: _Seen, part: Part | None) -> None:
    """One start of the run is over; None: what is open stays so."""
    for on, _, layer, machine in track.machines:
        if machine.phase == "firing":
            step = None if part is None else -1 if part.span is None else part.span[1]
            if step is not None and part is not None and machine.attempt == part.attempt:
                step = max(step, machine.last_step)
            seen.over(on, layer, machine, step)
    track.forget_machines()


def _lanes(view: RunView, rule: Rule) -> list[LaneKey]:
    ranks = tuple(sorted(set(rule.scope.ranks)))
    if "rank" not in rule.group_by:
        return [ranks or None]
    return [(rank,) for rank in view.ranks if not ranks or rank in ranks]


def _observer(bins: _Bins, rule: Rule) -> Observer:
    def observe(step_N: Ints, value_NG: Floats, names: Sequence[str]) -> None:
        if names:
            value_NG = value_NG[:, layer_mask(rule, names)]
            missing = np.isnan(value_NG)
            low = np.where(missing, np.inf, value_NG).min(axis=1, initial=np.inf)
            high = np.where(missing, -np.inf, value_NG).max(axis=1, initial=-np.inf)
            known = np.isfinite(low)
            bins.add(step_N[known], low[known], high[known])
        else:
            bins.add(step_N, value_NG[:, 0], value_NG[:, 0])

    return observe


def _why_nothing(view: RunView, rule: Rule, metric: str) -> str:
    derived = catalog.find(metric)
    if derived is None and not view.has(metric):
        return f'this run has no series "{rule.metric}"'
    if derived is not None and (derived.inputs.frames or derived.inputs.changes) and not view.num_frames:
        return "no layers were sketched in this run"
    if derived is not None and derived.per_layer and not layer_mask(rule, names := _layer_names(view)).any():
        return f"no layer fits {' or '.join(rule.scope.layers)}; there are {', '.join(names[:3])} ..."
    if derived is not None and derived.inputs.series and not view.has(*derived.inputs.series):
        return f"this run has none of the series that {derived.title} is made of"
    return "there is nothing to judge yet: no window was full, or no value is a number"


def _layer_names(view: RunView) -> list[str]:
    return [layer.name for layer in view.layers.values()]


def _summary(runs: Sequence[BacktestRun]) -> str:
    """`would have fired 2 times in 3 runs`."""
    if not runs:
        return "no run to try it on"
    judged = [run for run in runs if run.num_episodes or not run.note]
    count, where = sum(run.num_episodes for run in runs), plural(len(judged), "run")
    if not judged:
        return f"nothing to judge in {plural(len(runs), 'run')}"
    if not count:
        return f"would not have fired in {where}"
    least = "at least " if any(run.num_episodes >= MAX_COUNTED for run in runs) else ""
    return f"would have fired {least}{plural(count, 'time')} in {where}"


def _noisy(runs: Sequence[tuple[BacktestRun, Sequence[int]]]) -> str:
    """Why it would have been noisy, of the worst run; empty: it would not."""
    advice = "let it last longer before it fires, or set a lower mark for it to be over"
    for run, gaps in runs:
        if run.first_step is None or run.last_step is None:
            continue
        flaps = sum(gap < FLAP_STEPS for gap in gaps)
        if flaps >= FLAPS:
            return f"it flaps: in {run.run_name} it was over for less than {FLAP_STEPS} steps {flaps:,} times; {advice}"
        every = (run.last_step - run.first_step + 1) // max(1, run.num_episodes)
        if run.num_episodes >= OFTEN and every < OFTEN_STEPS:
            return f"it would fire every {every:,} steps in {run.run_name}; raise the threshold, or {advice}"
    return ""


def _unit(rule: Rule) -> str:
    """Of the compared numbers; `flag` where they only say whether something is so."""
    unit = aggregations()[rule.aggregation].unit
    derived = catalog.find(rule.metric)
    if derived is not None and derived.kind == "flag" and unit in ("same", "per"):
        of_several = "share" if rule.aggregation in SHARES_OF_FLAGS else ""
        return "flag" if rule.aggregation in ("last", "max", "min") else of_several
    if unit == "same" and derived is not None:
        return derived.unit
    return unit if unit in ("share", "") else ""
