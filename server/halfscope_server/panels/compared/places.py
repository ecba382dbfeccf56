"""The x axis of a comparison: a window of what runs are aligned by, turned into each run's own steps and back.

Must not import fastapi. Invariant: a window that was turned into a run's steps holds every step whose place lies in it;
a run that cannot be laid along the axis is not drawn, and the chart says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.compare.align import Axis, NoAxis, axis
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Alignment
from halfscope_server.panels import axes
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span, Window, grown

Ends = tuple[float, float]

TITLES: dict[Alignment, str] = {
    "attempts": "step",
    "applied": "applied step",
    "samples": "samples",
    "tokens": "tokens",
    "time": "seconds of training",
}
LIVE_PLACES = 100
"""A live axis grows by a quarter at a time, from so many places on; of seconds or samples a place is a hundredth of
what there is."""


def axis_of(comparison: Comparison, view: RunView) -> Axis | None:
    """A run's axis; None where it cannot be laid along it."""
    found = axis(view, comparison.options.align)
    return found if isinstance(found, Axis) else None


def placing(comparison: Comparison, view: RunView) -> Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]]:
    """Steps of a run (and their times, which are not looked at) to places."""
    found = axis_of(comparison, view)
    if found is None or comparison.options.align == "attempts":
        return lambda step, _time_us: step
    return lambda step, _time_us: found.x_at(step)


def member_window(comparison: Comparison, view: RunView, window: Window) -> Window:
    """The same part in a run's own steps."""
    found = axis_of(comparison, view)
    first, last = window.first, window.last
    if found is not None and comparison.options.align != "attempts":
        first = None if first is None else float(math.floor(found.step_at(first)))
        last = None if last is None else float(math.ceil(found.step_at(last)))
    return replace(window, x="step", first=first, last=last)


def ends_of(comparison: Comparison, window: Window) -> Ends | None:
    """First and last place of a window over all runs; None where no run has any."""
    found = []
    for view in comparison.views:
        along, span = axis_of(comparison, view), view.span
        if along is not None and span is not None:
            found.append(along.x_at(np.array([span.first_step, span.last_step])))
    if not found:
        return None
    first = min(float(ends[0]) for ends in found) if window.first is None else window.first
    last = max(float(ends[1]) for ends in found) if window.last is None else window.last
    return min(first, last), max(first, last)


def no_axis(comparison: Comparison) -> str:
    """Why some runs cannot be drawn; empty where all can."""
    members, align = comparison.members, comparison.options.align
    missing = [
        f"{member.letter} cannot be aligned by {TITLES[align]}: {found.reason}"
        for member, view in zip(members, comparison.views, strict=True)
        if isinstance(found := axis(view, align), NoAxis)
    ]
    return "; ".join(missing)


def x_axis(comparison: Comparison, window: Window, ends: Ends) -> dict[str, Any]:
    """Layout of the x axis: as asked for, or all runs with room to grow while one is live."""
    first, last = ends
    if comparison.is_live and window.follows:
        # A picture whose axis moved with every tick could not be read.
        place = 1.0 if comparison.options.align in ("attempts", "applied") else _round(last - first) / LIVE_PLACES
        last = first + grown(math.ceil((last - first) / place)) * place
    ticks = axes.step_ticks(first, last) if comparison.options.align in ("attempts", "applied") else {}
    if last <= first:
        first, last = first - 0.5, first + 0.5
    return {"type": "linear", "range": [first, last], "title": {"text": TITLES[comparison.options.align]}, **ticks}


def _round(length: float) -> float:
    """The power of two that is not below a length; 1 for none."""
    return float(2.0 ** math.ceil(math.log2(length))) if length > 0 else 1.0


def whole_steps(comparison: Comparison, ends: Ends) -> Span | None:
    """The steps of a window, where places are steps."""
    if comparison.options.align != "attempts":
        return None
    first = math.floor(ends[0])
    return Span(first_step=first, last_step=max(first, math.ceil(ends[1])))
