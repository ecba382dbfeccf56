"""Columns of sketched steps on the x axis: their edges, the gaps between them, and what charts of layers share.

Must not import fastapi. Invariant: a column is as wide as the steps it tells of, at most one sampling interval beyond
its last; what lies further is a gap, and is drawn as not measured.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.panels import axes
from halfscope_server.panels.arrays import packed
from halfscope_server.panels.base import Fill
from halfscope_server.query.layers import nothing_sketched
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span, Window

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

GAP_INTERVALS = 0.5
"""A hole of more than so many intervals between two columns is a gap."""
CHAR_PX = 6.4
"""Width of a letter at the size of axis labels, with room."""
CIVIDIS = [
    [0.0, "#00224e"],
    [0.2, "#2f466c"],
    [0.4, "#61656f"],
    [0.6, "#8d8878"],
    [0.8, "#c1b069"],
    [1.0, "#fee838"],
]
SHARE_MARKS = (0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
"""The fixed scale of shares: as far apart on every chart, so that runs compare."""
SHARE_TICKS = {
    "tickmode": "array",
    "tickvals": list(range(len(SHARE_MARKS))),
    "ticktext": ["0", "0.1%", "1%", "5%", "20%", "50%", "100%"],
}


def share_places(shares: Floats) -> Floats:
    """Places of shares on the fixed scale."""
    return np.interp(shares, SHARE_MARKS, np.arange(len(SHARE_MARKS), dtype=np.float64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """Columns and gaps side by side on the x axis."""

    edges: Floats
    """One more than there are places."""
    column: Ints
    """Of each place; -1: a gap."""

    @property
    def centers(self) -> Floats:
        centers: Floats = (self.edges[:-1] + self.edges[1:]) / 2
        return centers

    @property
    def widths(self) -> Floats:
        return np.diff(self.edges)

    def spread(self, values: Floats) -> Floats:
        """[C, ...] to one for every place along the last axis, NaN in gaps."""
        spread = np.full((*values.shape[1:], self.column.size), np.nan)
        there = self.column >= 0
        spread[..., there] = np.moveaxis(values[self.column[there]], 0, -1)
        return spread

    def of_columns(self) -> tuple[Floats, Floats]:
        """Centers and widths of the columns alone."""
        there = self.column >= 0
        return self.centers[there], self.widths[there]

    def of_gaps(self) -> tuple[Floats, Floats]:
        """Centers and widths of the gaps alone."""
        gap = self.column < 0
        return self.centers[gap], self.widths[gap]

    def stepped(self, values: Floats) -> tuple[Floats, Floats]:
        """A line that holds a value over each column: its corners, drawn with shape hv; few where it changes
        little."""
        x = np.append(self.edges[:-1][self.column >= 0], self.edges[-1])
        y = np.append(values, values[-1:])
        keep = np.ones(x.size, np.bool_)
        keep[1:-1] = y[1:-1] != y[:-2]
        return x[keep], y[keep]


def places(window: Window, step: Ints, last_step: Ints, time_us: Ints, interval: int, span: Span) -> Places:
    """Columns on the axis of a window, ascending.

    Args:
        interval: steps between sketches: how far a column tells beyond its last frame.
        span: what is shown: where it begins long before the first column or ends after the last, there is a gap. A run
            that is shown from its beginning has one before its first frame, however short.
    """
    if not step.size:
        return Places(edges=np.zeros(1), column=np.zeros(0, np.int64))
    ends = last_step + interval
    following = np.append(step[1:], max(int(ends[-1]), span.last_step + 1))
    gap = following - ends > GAP_INTERVALS * interval
    following[-1] = following[-1] if gap[-1] else ends[-1]
    usual = 0 if window.first is None else (1 + GAP_INTERVALS) * interval
    before = step[0] - span.first_step > usual
    ends = np.where(gap, ends, following)
    begins_at, ends_at = step.astype(np.float64), ends.astype(np.float64)
    outer = np.array([span.first_step, following[-1]], np.float64)
    if window.x == "time":
        us_per_step = _us_per_step(step, time_us)

        def at(places: Ints, from_step: Ints, from_us: Ints) -> Floats:
            later_us = (from_us + (places - from_step) * us_per_step).astype(np.int64)
            return axes.x_values(window, places, later_us).astype(np.float64)

        begins_at, ends_at = at(step, step, time_us), at(ends, step, time_us)
        outer = at(np.array([span.first_step, following[-1]]), step[[0, -1]], time_us[[0, -1]])
        # The clock need not run evenly: a column ends at the latest where the next begins.
        ends_at = np.minimum(ends_at, np.append(begins_at[1:], np.inf))
    edges = np.sort(np.concatenate([outer[:1] if before else [], begins_at, ends_at[gap], outer[1:]]))
    column = np.insert(np.arange(step.size), np.flatnonzero(gap) + 1, -1)
    return Places(edges=edges, column=np.insert(column, 0, -1) if before else column)


def _us_per_step(step: Ints, time_us: Ints) -> float:
    if step.size < 2:
        return 1.0
    rates = np.diff(time_us) / np.maximum(np.diff(step), 1)
    return max(float(np.median(rates)), 1.0)


# ---- hatching --------------------------------------------------------------------------------


def hatched_skeleton(name: str, axis: str = "y") -> go.Bar:
    """What is not measured or not known, without data."""
    return go.Bar(
        x=[],
        y=[],
        base=[],
        width=[],
        text=[],
        name=name,
        yaxis=axis,
        textposition="none",
        showlegend=False,
        meta={"role": "nodata"},
        marker={"pattern": {"shape": "/", "size": 6, "solidity": 0.35}, "line": {"width": 0}},
        hovertemplate="%{text}<extra></extra>",
    )


def hatched_fill(x: Floats, width: Floats, base: Floats, height: Floats, texts: list[str]) -> dict[str, Any]:
    """Boxes at these places; `texts` already escaped."""
    if not x.size:
        return {"x": [], "y": [], "base": [], "width": [], "text": [], "visible": False}
    arrays = {"x": x, "y": height, "base": base, "width": width}
    return {**{name: packed(values) for name, values in arrays.items()}, "text": texts, "visible": True}


# ---- words -----------------------------------------------------------------------------------


def wrapped(sentence: str, width_px: int) -> tuple[str, int]:
    """A sentence in lines that fit a chart, and how many they are. Plotly breaks no lines by itself."""
    lines = textwrap.wrap(sentence, max(24, int((width_px - 70) / CHAR_PX)))
    return "<br>".join(lines), len(lines)


def note(text: str, role: str = "muted", **where: Any) -> dict[str, Any]:
    """An annotation in a colour role, without an arrow."""
    return {"name": f"role:{role}", "text": text, "showarrow": False, "font": {"size": 11}, "align": "left", **where}


def no_frames(
    title: str, view: RunView, window: Window, data: list[dict[str, Any]], otherwise: str = "Nothing was measured."
) -> Fill:
    """The fill of a chart of layers that has nothing to show.

    Args:
        otherwise: why, where frames are there all the same.
    """
    return Fill(
        data=data,
        layout={},
        label=f"{title}, run {view.row.name}, nothing measured",
        empty=nothing_sketched(view, window) or otherwise,
    )
