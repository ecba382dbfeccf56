"""Every event of a run on one line.

Owns the joining of events that lie too close to be told apart. Must not import plotly.
Invariant: the counts of the marks add up to the number of events, whatever the width; events are never thinned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query.format import step_range
from halfscope_server.query.kinds import SEVERITIES, Severity, kind_of
from halfscope_server.query.skips import STREAK, member
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span
from halfscope_server.store.types import CAUGHT

_MOVES = ("scale_growth", "scale_backoff", "scale_set")


@dataclass(frozen=True, slots=True, kw_only=True)
class RugMark:
    """One event, or several that share a place; mirrors the API."""

    first_step: int
    last_step: int
    count: int
    role: str
    mark: str
    severity: Severity
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rug:
    """Mirrors the API."""

    first_step: int
    last_step: int
    total: int
    marks: list[RugMark]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Events:
    """Events of a span, ascending by step."""

    kinds: tuple[str, ...]
    step: NDArray[np.int64]
    kind: NDArray[np.int64]
    gravity: NDArray[np.int64]
    """What is painted when several share a place: the largest."""
    in_streak: NDArray[np.bool_]
    caught: NDArray[np.bool_]


def event_rug(view: RunView, bins: int, first_step: int | None = None, last_step: int | None = None) -> Rug | None:
    """The events of a run or of a part of it; None before the run has a step.

    Args:
        bins: places on the line: its width over `MARK_PX`.
        first_step, last_step: of the part. A run's own ends also hold what happened before its first and after its last
            step, so that the whole rug lies under the whole strip and misses nothing.
    """
    whole = view.span
    if whole is None:
        return None
    low = whole.first_step if first_step is None else min(max(first_step, whole.first_step), whole.last_step)
    high = whole.last_step if last_step is None else max(low, min(last_step, whole.last_step))
    span = Span(first_step=low, last_step=high)
    return view.memo(("rug", span, bins), lambda: _rug(view, whole, span, max(1, bins)))


def _rug(view: RunView, whole: Span, span: Span, num_places: int) -> Rug:
    events = _read(view, whole, span)
    place = (np.clip(events.step, span.first_step, span.last_step) - span.first_step) * num_places // span.num_steps
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    ends = np.append(starts[1:], place.size) if place.size else starts
    marks = [_mark(events, slice(a, b)) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return Rug(first_step=span.first_step, last_step=span.last_step, total=int(events.step.size), marks=marks)


def _read(view: RunView, whole: Span, span: Span) -> _Events:
    kinds = tuple(sorted(view.event_counts))
    marks = view.marks(kinds)
    order = np.argsort(marks.step, kind="stable")
    shown = np.clip(marks.step[order], whole.first_step, whole.last_step)
    order = order[(shown >= span.first_step) & (shown <= span.last_step)]
    step, kind, attempt = marks.step[order], marks.kind[order].astype(np.int64), marks.attempt[order].astype(np.int64)
    is_skip = kind == kinds.index("skip") if "skip" in kinds else np.zeros(kind.size, np.bool_)
    is_loss = kind == kinds.index("loss_nonfinite") if "loss_nonfinite" in kinds else np.zeros(kind.size, np.bool_)
    in_streak = is_skip & member(attempt, step, view.skips.of(STREAK))
    caught = is_loss & (member(attempt, step, view.skips) | (marks.skip_class[order] == CAUGHT))
    base = np.array([_gravity(name) for name in kinds] or [0])
    gravity = base[kind] if kind.size else kind
    gravity = np.where(in_streak | caught, SEVERITIES.index("warning") * 10 + 5, gravity)
    return _Events(kinds=kinds, step=step, kind=kind, gravity=gravity, in_streak=in_streak, caught=caught)


def _gravity(kind: str) -> int:
    """Severity first; a skip before the move of the scale that follows from it."""
    return SEVERITIES.index(kind_of(kind).severity) * 10 + (0 if kind in _MOVES else 5)


def _mark(events: _Events, part: slice) -> RugMark:
    worst = part.start + int(np.argmax(events.gravity[part]))
    kind = kind_of(events.kinds[int(events.kind[worst])])
    severity = SEVERITIES[int(events.gravity[worst]) // 10]
    role = "streak" if events.in_streak[worst] else kind.role
    counts = np.bincount(events.kind[part], minlength=len(events.kinds))
    first, last = int(events.step[part.start]), int(events.step[part.stop - 1])
    order = sorted(np.flatnonzero(counts).tolist(), key=lambda k: (-_gravity(events.kinds[k]), -counts[k]))
    words = ", ".join(kind_of(events.kinds[k]).counted(int(counts[k])) for k in order)
    return RugMark(
        first_step=first,
        last_step=last,
        count=part.stop - part.start,
        role=role,
        mark=kind.mark,
        severity=severity,
        text=f"{step_range(first, last)}: {words}",
    )
