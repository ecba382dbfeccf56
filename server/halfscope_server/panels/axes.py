"""Ranges, ticks and units of axes.

Owns how far an axis reaches and in what unit it counts. Must not import plotly. Invariant: an axis moves in coarse
steps, so that a live chart stands still between them; and nothing that is drawn lies outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query.format import superscript
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span, Window, grown

Floats = NDArray[np.float64]

LIVE_STATES = ("live", "waiting", "lost")
MAX_SCALE_TICKS = 7
FEW_STEPS = 6
_TINY = np.finfo(np.float64).tiny
_HUGE = 1e307


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisUnit:
    """In what an axis counts: the drawn number is the value times `factor`."""

    factor: float
    words: str
    """Behind a number on hover and in the title: `ms`, `GiB`, `%`, or empty."""
    hover: str = ".4~g"
    """d3 format of a drawn number."""


def axis_unit(unit: str, largest: float) -> AxisUnit:
    """The unit in which values of `unit` up to `largest` read best."""
    if unit == "share":
        return AxisUnit(factor=100.0, words="%", hover=".3~g")
    if unit == "s":
        for limit, factor, words in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
            if largest < limit:
                return AxisUnit(factor=factor, words=words)
        return AxisUnit(factor=1.0, words="s")
    if unit == "bytes":
        for power, words in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
            if largest >= 1024.0**power:
                return AxisUnit(factor=1024.0**-power, words=words)
        return AxisUnit(factor=1.0, words="B")
    if unit == "bytes/s":
        size = axis_unit("bytes", largest)
        return AxisUnit(factor=size.factor, words=f"{size.words}/s")
    return AxisUnit(factor=1.0, words="" if unit in ("", "1", "norm") else unit)


def x_axis(view: RunView, window: Window, span: Span) -> dict[str, Any]:
    """Layout of the x axis: as asked for, or the whole run with room to grow while it is live."""
    live = view.row.state in LIVE_STATES and window.follows
    if window.x == "time":
        ends = _time_range(view, window, live)
        return {"type": "date", "range": ends, "title": {"text": "time"}, "tickformat": None, "dtick": None}
    first = span.first_step if window.first is None else window.first
    if window.last is not None:
        last: float = window.last
    else:
        last = grown(span.last_step, span.first_step) if live else span.last_step
    return {"type": "linear", "range": _step_range(first, last), "title": {"text": "step"}, **step_ticks(first, last)}


def step_ticks(first: float, last: float) -> dict[str, Any]:
    """Ticks at whole steps: of a few, Plotly would put some between them, all with the same number."""
    return {"tickformat": ",d", "dtick": 1 if last - first < FEW_STEPS else None}


def x_values(window: Window, step: NDArray[np.int64], time_us: NDArray[np.int64]) -> NDArray[Any]:
    """Places on the x axis: steps, or milliseconds of the viewer's wall clock."""
    return step if window.x == "step" else time_us / 1000.0 + window.utc_offset_min * 60_000.0


def _time_range(view: RunView, window: Window, live: bool) -> list[float]:
    _, times = view.clock
    first_us, last_us = (int(times.min()), int(times.max())) if times.size else (0, 1)
    if live:
        last_us = first_us + grown((last_us - first_us) // 1_000_000 + 1) * 1_000_000
    first = float(first_us if window.first is None else window.first)
    last = float(last_us if window.last is None else window.last)
    offset_ms = window.utc_offset_min * 60_000.0
    return _wide(first / 1000 + offset_ms, last / 1000 + offset_ms)


def _step_range(first: float, last: float) -> list[float]:
    """Of one step the column that stands for it, and room for a point."""
    return [first, last] if last > first else [first - 0.25, first + 1]


def _wide(first: float, last: float) -> list[float]:
    return [first, last] if last > first else [first - 0.5, first + 0.5]


def linear_range(low: float, high: float, *, from_zero: bool = False) -> list[float]:
    """A range around [low, high] whose ends lie on a coarse grid: it moves only when data leave it by much."""
    if from_zero and low >= 0:
        low = 0.0
    if max(abs(low), abs(high)) > _HUGE:
        # Near the ends of float64 there is no room for room.
        return [low, high] if low < high else [low / 2, high] if low > 0 else [low, high / 2]
    extent = high - low
    if extent <= max(abs(high), abs(low)) * 1e-12 or extent < _TINY:
        pad = abs(high) * 0.1 or 1.0
        return [max(0.0, low - pad) if low >= 0 else low - pad, high + pad]
    grid = 10.0 ** math.floor(math.log10(extent)) / 4
    while extent / grid > 16:
        grid *= 2
    bottom = math.floor((low - extent * 0.02) / grid) * grid
    top = math.ceil((high + extent * 0.02) / grid) * grid
    if low >= 0:
        bottom = max(bottom, 0.0)  # What cannot be negative gets no room below zero.
    return [bottom, top]


def log_range(low: float, high: float) -> list[float]:
    """Exponents to base 10 around positive [low, high], on quarters of a decade."""
    bottom, top = math.floor(math.log10(low) * 4 - 0.2) / 4, math.ceil(math.log10(high) * 4 + 0.2) / 4
    return [bottom, top]


def scale_ticks(low_log2: float, high_log2: float) -> dict[str, Any]:
    """Whole powers of two as ticks, at most `MAX_SCALE_TICKS` of them, with the range around them."""
    bottom, top = math.floor(low_log2 - 0.5), math.ceil(high_log2 + 0.5)
    stride = max(1, -(-(top - bottom) // (MAX_SCALE_TICKS - 1)))
    values = list(range(math.ceil(bottom / stride) * stride, top + 1, stride))
    return {
        "range": [bottom, top],
        "tickmode": "array",
        "tickvals": values,
        "ticktext": ["2" + superscript(str(value)) for value in values],
    }
