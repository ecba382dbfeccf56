"""The health strip's upper lane: every step of a run in a few hundred cells.

Owns classes, heights, read-outs, bad ranges and the sentence of the lane. Must not import plotly.
Invariant: the graver class always wins a cell, so that one step with NaN among a million clean ones keeps its cell; and
the skips of all read-outs add up to the skips of the range.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query.format import plural, step_range
from halfscope_server.query.skips import PROBE, SETTLING, SINGLE, SKIP_CLASSES, STREAK, StepTable
from halfscope_server.query.window import Span

Ints = NDArray[np.int64]

NO_DATA, CLEAN, QUIET, AMBER, CRIMSON = range(5)
LOSS_CAUGHT, LOSS_APPLIED, APPLIED = range(3)
"""Classes of non-finite steps: in a loss that reached no weight, in the loss of an applied step, in what an
applied step wrote."""

CLEAN_HEIGHT, QUIET_HEIGHT, FULL_HEIGHT = 38, 90, 255
AMBER_HEIGHTS = (115, 230)
AMBER_SHARES = (1e-3, 1.0)
"""Share of skipped steps in a cell at which amber has its least and its full height, on a log scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StripClass:
    """How a class is drawn and named; mirrors the API."""

    id: int
    name: str
    role: str
    rank: int
    min_px: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StripRange:
    """A bad stretch; mirrors the API."""

    first_step: int
    last_step: int
    text: str
    severity: Literal["info", "warning", "critical"]
    layer: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One lane; mirrors the API."""

    lane: str
    first_step: int
    last_step: int
    num_bins: int
    classes: tuple[StripClass, ...]
    cells: str
    heights: str
    texts: dict[int, str]
    ranges: list[StripRange]
    summary: str
    clock: list[tuple[int, int]]


CLASSES = (
    StripClass(id=NO_DATA, name="not recorded", role="nodata", rank=0),
    StripClass(id=CLEAN, name="clean", role="clean", rank=1),
    StripClass(id=QUIET, name="single skip", role="quiet", rank=2),
    StripClass(id=AMBER, name="streak of skips", role="streak", rank=3),
    StripClass(id=CRIMSON, name="NaN or Inf in the loss or applied", role="nonfinite", rank=4, min_px=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """Counts per cell."""

    first: Ints
    last: Ints
    skips: Ints
    """(num_classes, num_cells)"""
    bad: Ints
    """(3, num_cells)"""
    recorded: NDArray[np.bool_]


def build_strip(
    span: Span,
    num_bins: int,
    *,
    skips: StepTable,
    bad: StepTable,
    recorded: Sequence[tuple[int, int]],
    clock: list[tuple[int, int]],
    summary: str,
) -> Strip:
    """The lane over `span`.

    Args:
        skips: classes are places in `SKIP_CLASSES`.
        bad: classes LOSS_CAUGHT, LOSS_APPLIED, APPLIED.
        recorded: stretches of steps (both ends included) that have data.
        clock: (step, time) pairs for the page.
    """
    # With fewer steps than bins a step is several bins wide: count per step, then spread.
    num_cells = min(num_bins, span.num_steps)
    cells = _count(span, num_cells, skips, bad, recorded)
    classes, heights = _paint(cells)
    spread = np.arange(num_bins, dtype=np.int64) * num_cells // num_bins
    texts = {int(k): _read_out(cells, int(k)) for k in np.flatnonzero(classes != CLEAN)}
    return Strip(
        lane="steps",
        first_step=span.first_step,
        last_step=span.last_step,
        num_bins=num_bins,
        classes=CLASSES,
        cells=base64_of(classes[spread]),
        heights=base64_of(heights[spread]),
        texts={k: texts[c] for k, c in enumerate(spread.tolist()) if c in texts},
        ranges=_ranges(span, num_cells, classes, skips, bad),
        summary=summary,
        clock=clock,
    )


def place_of(step: Ints, span: Span, num_cells: int) -> Ints:
    """Cells of steps."""
    return (step - span.first_step) * num_cells // span.num_steps


def cell_edges(span: Span, num_cells: int) -> Ints:
    """First step of each cell, and behind them one past the last step."""
    edges: Ints = -(-np.arange(num_cells + 1, dtype=np.int64) * span.num_steps // num_cells) + span.first_step
    return edges


def _within(table: StepTable, span: Span) -> StepTable:
    keep = (table.step >= span.first_step) & (table.step <= span.last_step)
    return StepTable(attempt=table.attempt[keep], step=table.step[keep], kind=table.kind[keep])


def _count(span: Span, num_cells: int, skips: StepTable, bad: StepTable, recorded: Sequence[tuple[int, int]]) -> _Cells:
    edges = cell_edges(span, num_cells)

    def counts(table: StepTable, num_kinds: int) -> Ints:
        inside = _within(table, span)
        flat = inside.kind.astype(np.int64) * num_cells + place_of(inside.step, span, num_cells)
        return np.bincount(flat, minlength=num_kinds * num_cells).reshape(num_kinds, num_cells).astype(np.int64)

    has_data = np.zeros(num_cells, np.bool_)
    for first, last in recorded:
        if last >= span.first_step and first <= span.last_step:
            ends = np.array([max(first, span.first_step), min(last, span.last_step)])
            low, high = place_of(ends, span, num_cells)
            has_data[low : high + 1] = True
    skipped, poisoned = counts(skips, len(SKIP_CLASSES)), counts(bad, 3)
    has_data |= (skipped.sum(axis=0) + poisoned.sum(axis=0)) > 0
    return _Cells(first=edges[:-1], last=edges[1:] - 1, skips=skipped, bad=poisoned, recorded=has_data)


def _paint(cells: _Cells) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    streak, steps = cells.skips[STREAK], cells.last - cells.first + 1
    quiet = cells.skips[[SETTLING, PROBE, SINGLE]].sum(axis=0)
    poisoned = cells.bad.sum(axis=0)
    conditions = [poisoned > 0, streak > 0, quiet > 0, cells.recorded]
    classes = np.select(conditions, [CRIMSON, AMBER, QUIET, CLEAN], NO_DATA).astype(np.uint8)
    low, high = np.log(AMBER_SHARES)
    with np.errstate(divide="ignore"):
        part = np.clip((np.log(streak / steps) - low) / (high - low), 0, 1)
    amber = AMBER_HEIGHTS[0] + part * (AMBER_HEIGHTS[1] - AMBER_HEIGHTS[0])
    heights = np.select(conditions, [FULL_HEIGHT, np.round(amber), QUIET_HEIGHT, CLEAN_HEIGHT], CLEAN_HEIGHT).astype(
        np.uint8
    )
    return classes, heights


def skip_words(settling: int, probe: int, single: int, streak: int) -> str:
    """`no skips`, `1 skip (probe)`, `6 skips, all probes`, `9 skips (2 settling, 3 probe, 4 in a streak)`."""
    total = settling + probe + single + streak
    if total == 0:
        return "no skips"
    named = [(settling, "settling"), (probe, "probe"), (single, "single"), (streak, "in a streak")]
    present = [(count, name) for count, name in named if count]
    if len(present) > 1:
        return f"{plural(total, 'skip')} ({', '.join(f'{count:,} {name}' for count, name in present)})"
    name = present[0][1]
    if total == 1:
        return f"1 skip ({name})"
    return f"{plural(total, 'skip')}, all {'probes' if name == 'probe' else name}"


def bad_words(loss_caught: int, loss_applied: int, applied: int) -> list[str]:
    """What was not finite, and whether it was caught; empty when nothing was."""
    words = []
    if applied:
        words.append(f"NaN or Inf applied in {plural(applied, 'step')}")
    if loss_applied:
        words.append(f"loss NaN or Inf in {plural(loss_applied, 'step')}, applied")
    if loss_caught:
        words.append(f"loss NaN or Inf in {plural(loss_caught, 'step')}, caught")
    return words


def _read_out(cells: _Cells, k: int) -> str:
    place = step_range(int(cells.first[k]), int(cells.last[k]))
    if not cells.recorded[k]:
        return f"{place}: not recorded"
    parts = bad_words(*(int(n) for n in cells.bad[:, k]))
    if cells.skips[:, k].any():
        parts.append(skip_words(*(int(n) for n in cells.skips[:, k])))
    return f"{place}: {', '.join(parts)}"


def _ranges(
    span: Span, num_cells: int, classes: NDArray[np.uint8], skips: StepTable, bad: StepTable
) -> list[StripRange]:
    """Neighbouring amber and crimson cells as one range, from its first to its last bad step."""
    grave = classes >= AMBER
    starts = np.flatnonzero(grave & ~np.concatenate([[False], grave[:-1]]))
    ends = np.flatnonzero(grave & ~np.concatenate([grave[1:], [False]]))
    streak_steps = np.sort(_within(skips.of(STREAK), span).step)
    poisoned = _within(bad, span)
    order = np.argsort(poisoned.step, kind="stable")
    bad_steps, bad_kinds = poisoned.step[order], poisoned.kind[order]
    # Both ascend, so the steps of a stretch of cells are one slice of each.
    streak_place, bad_place = place_of(streak_steps, span, num_cells), place_of(bad_steps, span, num_cells)
    ranges = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        skipped = streak_steps[slice(*np.searchsorted(streak_place, [start, end + 1]))]
        inside = slice(*np.searchsorted(bad_place, [start, end + 1]))
        steps = np.concatenate([skipped, bad_steps[inside]])
        first, last = int(steps.min()), int(steps.max())
        words = bad_words(*np.bincount(bad_kinds[inside], minlength=3).tolist())
        if skipped.size:
            words.append(f"{plural(int(skipped.size), 'skip')} in a streak")
        ranges.append(
            StripRange(
                first_step=first,
                last_step=last,
                text=f"{step_range(first, last)}: {', '.join(words)}",
                severity="critical" if (bad_kinds[inside] != LOSS_CAUGHT).any() else "warning",
            )
        )
    return ranges


def base64_of(cells: NDArray[Any]) -> str:
    """Bytes of cells as the page takes them."""
    return base64.b64encode(cells.astype(np.uint8).tobytes()).decode("ascii")
