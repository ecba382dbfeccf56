"""A run in one row and in one sentence.

Owns `RunSummary`, the list of runs with its filters, and the sentence over a run's charts. Must not import plotly.
Invariant: the skips of a summary are those of its strip, class by class, and its sentence says nothing that they do
not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from halfscope_server.query import skips as skipping
from halfscope_server.query.format import (
    duration,
    integer,
    json_number,
    layer_words,
    listing,
    loss,
    nonfinite_name,
    plural,
    power_of_two,
    power_of_two_spoken,
    share,
    short,
    shortened,
    step_range,
)
from halfscope_server.query.health import Health, judge
from halfscope_server.query.lane import underflow_strip
from halfscope_server.query.partners import Baseline, baseline_of, search_text
from halfscope_server.query.states import device_name, precision_of, precision_role, state_text
from halfscope_server.query.strip import LOSS_CAUGHT, Strip, StripRange, bad_words, build_strip, skip_words
from halfscope_server.query.underflow import WARNING_SHARE, Flushed, flushed_now, run_underflow, worst_recent
from halfscope_server.query.view import ROLLUP_WIDTH, RunView, Views
from halfscope_server.query.window import Span
from halfscope_server.store.types import RunRow

Tone = Literal["plain", "info", "warning", "critical", "muted"]
CLOCK_PLACES = 64
MIN_RATE_S = 1e-6
MAX_NAME_CHARS = 36
"""Of a layer's name within a sentence."""
MAX_LISTED = 10
"""Layers named one by one where a pointer rests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A piece of a sentence; mirrors the API."""

    text: str
    label: str = ""
    tone: Tone = "plain"
    tooltip: str = ""
    code: bool = False
    anchor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skips:
    """Skipped steps by class; mirrors the API."""

    total: int
    settling: int
    probe: int
    streak: int
    single: int
    share: float
    longest_streak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A row of the Runs table; mirrors the API."""

    id: str
    name: str
    project: str
    tags: list[str]
    state: str
    state_text: str
    health: Health
    precision: str
    precision_role: str
    device: str
    demo: bool
    first_step: int | None
    last_step: int | None
    steps_per_s: float | str | None
    loss: float | str | None
    scale: float | str | None
    skips: Skips
    memory_bytes: float | str | None
    created_us: int
    updated_us: int
    ended_us: int | None
    attempts: int
    world_size: int
    sentence: list[Chip]
    strip: Strip | None
    underflow: Strip | None
    baseline: Baseline | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """Runs that fit the filters, and what there is to filter by; mirrors the API."""

    runs: list[RunSummary]
    total: int
    projects: list[str]
    tags: list[str]
    precisions: list[str]


class ListsRuns(Protocol):
    """What the list needs of the store."""

    def list_runs(self) -> list[RunRow]: ...


def now_us() -> int:
    """The server's wall clock."""
    return time.time_ns() // 1000


def summarise(view: RunView, strip_bins: int | None = None, at_us: int | None = None) -> RunSummary:
    """A run as it stands.

    Args:
        strip_bins: cells of the strip over the whole run; None: without one.
        at_us: the moment that ages count from; None: now.
    """
    row, span = view.row, view.span
    return RunSummary(
        id=row.run_id,
        name=row.name,
        project=row.project,
        tags=list(row.tags),
        state=row.state,
        state_text=state_text(row, now_us() if at_us is None else at_us),
        health=judge(view),
        precision=precision_of(row),
        precision_role=precision_role(row),
        device=device_name(row),
        demo=bool(row.facts.get("demo")) or "demo" in row.tags,
        first_step=span.first_step if span else None,
        last_step=span.last_step if span else row.last_step,
        steps_per_s=view.memo("steps_per_s", lambda: steps_per_s(view)),
        loss=json_number(view.latest("loss")),
        scale=json_number(current_scale(view)),
        skips=view.memo("skip counts", lambda: count_skips(view)),
        memory_bytes=json_number(memory_bytes(view)),
        created_us=row.created_us,
        updated_us=row.updated_us,
        ended_us=row.ended_us,
        attempts=row.num_attempts,
        world_size=row.world_size,
        sentence=sentence(view),
        strip=health_strip(view, strip_bins) if strip_bins else None,
        underflow=underflow_strip(view, strip_bins) if strip_bins else None,
        baseline=baseline_of(view.store, row),
    )


def current_scale(view: RunView) -> float | None:
    """The scale the next step will use: after the newest update."""
    scale = view.latest("amp.scale_next")
    return view.latest("amp.scale") if scale is None else scale


def count_skips(view: RunView, span: Span | None = None) -> Skips:
    """Skipped steps by class, over the run or a part of it."""
    table, attempted = view.skips, view.num_attempted_steps
    if span is not None:
        keep = (table.step >= span.first_step) & (table.step <= span.last_step)
        table = skipping.StepTable(attempt=table.attempt[keep], step=table.step[keep], kind=table.kind[keep])
        attempted = span.num_steps
    counts = np.bincount(table.kind, minlength=len(skipping.SKIP_CLASSES)).tolist()
    return Skips(
        total=table.size,
        settling=counts[skipping.SETTLING],
        probe=counts[skipping.PROBE],
        single=counts[skipping.SINGLE],
        streak=counts[skipping.STREAK],
        share=min(1.0, table.size / attempted) if attempted else 0.0,
        longest_streak=skipping.longest_row(table),
    )


def steps_per_s(view: RunView) -> float | None:
    """Attempts per second: one over the median step time of the last 200 steps."""
    times = view.recent("time.step_s")
    middle = float(np.median(times)) if times.size else 0.0
    return 1.0 / middle if middle > MIN_RATE_S else None


def memory_bytes(view: RunView) -> float | None:
    """Peak device memory where there is a device, else resident memory."""
    for name in ("memory.device_peak_bytes", "memory.device_allocated_bytes", "memory.rss_bytes"):
        values = view.recent(name)
        if values.size and values.max() > 0:
            return float(values.max())
    return None


# ---- the sentence ----------------------------------------------------------------------------


def sentence(view: RunView) -> list[Chip]:
    """What is the case, in words with numbers: the line over a run's charts, without its health word."""
    row, span = view.row, view.span
    if span is None:
        return _waiting_chips(row)
    chips = [Chip(text=f"step {integer(span.last_step)}")]
    chips += [chip for chip in (_loss_chip(view), _scale_chip(view), _skip_chip(view)) if chip]
    chips += [chip for chip in (_underflow_chip(view), _throughput_chip(view), _cost_chip(view)) if chip]
    return chips


def _waiting_chips(row: RunRow) -> list[Chip]:
    chips = [Chip(text="waiting for the first step", tone="muted")]
    parameters = row.facts.get("parameters")
    if isinstance(parameters, dict) and isinstance(parameters.get("num_elements"), int):
        chips.append(Chip(text=f"{short(parameters['num_elements'])} parameters attached"))
    if precision_of(row):
        chips.append(Chip(text=precision_of(row)))
    return chips


def _loss_chip(view: RunView) -> Chip | None:
    """Only where the loss is no number: otherwise the chart says it."""
    value = view.latest("loss")
    if value is None or not nonfinite_name(value):
        return None
    return Chip(text=f"loss {loss(value)}", tone="critical", anchor="loss")


def _scale_chip(view: RunView) -> Chip | None:
    scale = current_scale(view)
    if scale is None:
        return None
    spoken = f"loss scale {power_of_two_spoken(scale)}, {integer(int(scale)) if 1 <= scale < 2**53 else scale}"
    tone: Tone = "warning" if not scale >= 1 else "plain"
    return Chip(text=f"scale {power_of_two(scale)}", label=spoken, tooltip=f"{scale:,.10g}", tone=tone, anchor="scale")


def _skip_chip(view: RunView) -> Chip | None:
    if not view.has("amp.scale", "amp.skipped") and not view.skips.size:
        return None
    counts = count_skips(view)
    text = skip_words(counts.settling, counts.probe, counts.single, counts.streak)
    detail = f"{share(counts.share)} of {plural(view.num_attempted_steps, 'step')}" if counts.total else ""
    return Chip(text=text, tooltip=detail, tone="warning" if counts.streak else "plain", anchor="events")


def _underflow_chip(view: RunView) -> Chip | None:
    """The worst layer of late; nothing where no layer was sketched."""
    underflow = run_underflow(view)
    if underflow is None or not view.num_frames:
        return None
    flushed = flushed_now(view)
    if underflow.is_measured and flushed is not None:
        return _flushed_chip(flushed, underflow.note)
    worst = worst_recent(view)
    if worst is None:
        why = "no layer has had a frame with room above FP16's floor, so its zeros cannot be told from lost elements"
        return Chip(text="underflow not known yet", tone="muted", tooltip=why, anchor="layers")
    place = step_range(worst.first_step, worst.last_step)
    kind = "worst underflow" if underflow.is_measured else "predicted underflow"
    if worst.share == 0:
        text = "no underflow" if underflow.is_measured else "no underflow predicted"
        return Chip(text=text, tooltip=f"in {place}; {underflow.note}", anchor="layers")
    name = layer_words(worst.name)
    tone: Tone = worst.severity if worst.severity in ("info", "warning", "critical") else "plain"
    if worst.share < WARNING_SHARE:
        tone = "plain"
    return Chip(
        text=f"{kind} {share(worst.share)} {shortened(name, MAX_NAME_CHARS)}",
        label=f"{kind} {share(worst.share)} in {name}",
        tooltip=f"{worst.name}, {place}; {underflow.note}",
        tone=tone,
        anchor="layers",
    )


def _flushed_chip(flushed: Flushed, note: str) -> Chip:
    """Nothing can be worse than a layer of which nothing is left, however it was a while ago."""
    shown = listing([shortened(layer_words(name), MAX_NAME_CHARS) for name in flushed.names])
    return Chip(
        text=f"worst underflow 100% {shown}",
        label=f"worst underflow 100%: all is zero in {listing(flushed.names)}",
        tooltip=f"{', '.join(flushed.names[:MAX_LISTED])}, since step {integer(flushed.since)}; {note}",
        tone="critical",
        anchor="layers",
    )


def _throughput_chip(view: RunView) -> Chip | None:
    for name, unit in (("throughput.samples_per_s", "samples/s"), ("throughput.tokens_per_s", "tokens/s")):
        values = view.recent(name)
        if values.size:
            inferred = name.startswith("throughput.samples") and view.row.facts.get("samples_source") == "inferred"
            note = (
                "batch size inferred from the first input of the model" if inferred else "median of the last 200 steps"
            )
            return Chip(text=f"{short(float(np.median(values)))} {unit}", tooltip=note, anchor="throughput")
    rate = steps_per_s(view)
    if rate is None:
        return None
    text = f"{short(rate)} steps/s" if rate >= 1 else f"{duration(1 / rate)} a step"
    return Chip(text=text, tooltip="median of the last 200 steps", anchor="throughput")


def _cost_chip(view: RunView) -> Chip | None:
    values = view.recent("halfscope.cost_share")
    if not values.size:
        return None
    return Chip(
        text=f"watching costs {share(float(np.median(values)))}",
        tooltip="time spent by halfscope on the training thread, as a share of step time",
        tone="muted",
        anchor="cost",
    )


# ---- the strip -------------------------------------------------------------------------------


def health_strip(
    view: RunView, num_bins: int, first_step: int | None = None, last_step: int | None = None
) -> Strip | None:
    """The strip's upper lane over a run or a part of it; None before the first step."""
    whole = view.span
    if whole is None:
        return None
    low = min(max(whole.first_step, first_step if first_step is not None else whole.first_step), whole.last_step)
    high = max(low, min(whole.last_step, last_step if last_step is not None else whole.last_step))
    span = Span(first_step=low, last_step=high)
    return view.memo(("strip", num_bins, span), lambda: _strip(view, span, num_bins))


def _strip(view: RunView, span: Span, num_bins: int) -> Strip:
    counts = count_skips(view, span)
    inside = (view.bad.step >= span.first_step) & (view.bad.step <= span.last_step)
    kinds = np.bincount(view.bad.kind[inside], minlength=3).tolist()
    poison = bad_words(*kinds) or ["no NaN or Inf applied"]
    if kinds[LOSS_CAUGHT] == sum(kinds) > 0:
        poison.append("none applied")
    words = [plural(span.num_steps, "step")]
    if view.has("amp.scale", "amp.skipped") or counts.total:
        words.append(skip_words(counts.settling, counts.probe, counts.single, counts.streak))
    strip = build_strip(
        span,
        num_bins,
        skips=view.skips,
        bad=view.bad,
        recorded=_recorded(view),
        clock=_clock(view, span),
        summary=", ".join([*words, *poison]),
    )
    return replace(strip, ranges=[_pointing(view, bad) for bad in strip.ranges])


def _pointing(view: RunView, bad: StripRange) -> StripRange:
    """A bad stretch with the layer to look at: where a streak's NaN and Inf began."""
    streaks = [s for s in view.streaks if s.first_step <= bad.last_step and s.last_step >= bad.first_step]
    layer = next((s.origin_layer for s in streaks if s.origin_layer in view.layers), "")
    return replace(bad, layer=layer, step=bad.first_step)


def _recorded(view: RunView) -> list[tuple[int, int]]:
    """Stretches of steps that have data, as far as stretches of 64 steps tell; both ends included."""
    found: list[tuple[int, int]] = []
    for attempt in view.attempts:
        buckets = np.unique(np.concatenate([view.coverage(s, attempt.number).step for s in view.reference]))
        if not buckets.size:
            continue
        usual = max(ROLLUP_WIDTH, int(np.median(np.diff(buckets)))) if buckets.size > 1 else ROLLUP_WIDTH
        # A series that is logged now and then has gaps by nature; a hole is what is wider than its usual ones.
        breaks = np.flatnonzero(np.diff(buckets) > 2 * usual - ROLLUP_WIDTH)
        for low, high in zip(np.append(0, breaks + 1), np.append(breaks, buckets.size - 1), strict=True):
            first = max(int(buckets[low]), attempt.span.first_step)
            found.append((first, min(int(buckets[high]) + ROLLUP_WIDTH - 1, attempt.span.last_step)))
    return found


def _clock(view: RunView, span: Span) -> list[tuple[int, int]]:
    step, time_us = view.clock
    inside = np.flatnonzero((step >= span.first_step) & (step <= span.last_step))
    if not inside.size:
        return []
    chosen = inside[np.unique(np.linspace(0, inside.size - 1, CLOCK_PLACES + 1).astype(np.int64))]
    # Ascending in time as well: a resumed run's earlier steps may be older than they look on the axis.
    return list(zip(step[chosen].tolist(), np.maximum.accumulate(time_us[chosen]).tolist(), strict=True))


# ---- many runs -------------------------------------------------------------------------------


def list_runs(
    store: ListsRuns,
    views: Views,
    *,
    search: str = "",
    projects: Iterable[str] = (),
    precisions: Iterable[str] = (),
    states: Iterable[str] = (),
    tags: Iterable[str] = (),
    strip_bins: int | None = 320,
    at_us: int | None = None,
) -> RunList:
    """Runs that fit every filter, live ones first, then the newest.

    Args:
        search: words that the name, project, id or a tag must contain, whatever their case.
        projects, precisions, states: any of these; all when empty.
        tags: all of these.
    """
    rows = store.list_runs()
    words = search.casefold().split()
    wanted = (set(projects), set(precisions), set(states), set(tags))
    chosen = sorted((row for row in rows if _fits(row, words, *wanted)), key=_list_order)
    found = []
    for row in chosen:
        view = views.get(row.run_id, row)
        if view is not None:
            found.append(summarise(view, strip_bins, at_us))
    return RunList(
        runs=found,
        total=len(rows),
        projects=sorted({row.project for row in rows if row.project}),
        tags=sorted({tag for row in rows for tag in row.tags}),
        precisions=sorted({precision_of(row) for row in rows} - {""}),
    )


def _list_order(row: RunRow) -> tuple[bool, int, str]:
    return row.state not in ("live", "waiting"), -row.created_us, row.run_id


def _fits(
    row: RunRow, words: Sequence[str], projects: set[str], precisions: set[str], states: set[str], tags: set[str]
) -> bool:
    text = search_text(row)
    return (
        all(word in text for word in words)
        and (not projects or row.project in projects)
        and (not precisions or precision_of(row) in precisions)
        and (not states or row.state in states)
        and tags <= set(row.tags)
    )
