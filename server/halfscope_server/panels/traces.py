"""Traces that every line chart shares: a line with its band, average and ghosts, and marks for what is not finite.

Owns their skeleton and their fill, which must agree on order and number. Must not import fastapi.
Invariant: `line_skeleton` and `line_fill` give `TRACES_PER_LINE` traces each, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.panels.arrays import packed, unpacked
from halfscope_server.query.downsample import BadMarks, Curve
from halfscope_server.query.format import step_range
from halfscope_server.query.lines import MAX_GHOSTS, Line

Floats = NDArray[np.float64]
Places = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[Any]]
"""(step, time) to places on the x axis."""
Values = Callable[[Floats], tuple[NDArray[np.bool_], Floats]]
"""Values to (which can be drawn, drawn numbers of those)."""

TRACES_PER_LINE = 4 + MAX_GHOSTS
BEHIND_OPACITY = 0.35
MARK_AXIS = "y9"
"""An invisible axis from 0 at the bottom to 1 at the top edge, for marks that have no value."""
TOP, BOTTOM = 0.965, 0.035


def line_skeleton(
    name: str,
    role: str,
    *,
    axis: str = "y",
    dash: str = "solid",
    width_px: float = 1.5,
    held: bool = False,
    behind: bool = False,
) -> list[go.Scatter]:
    """The traces of one line, without data.

    Args:
        name: already escaped; stands in the legend and on hover.
        role: colour role.
        behind: drawn below the lines of its axis that are not.
    """
    shape = "hv" if held else "linear"

    def trace(role: str, **more: Any) -> go.Scatter:
        return go.Scatter(
            x=[],
            y=[],
            mode="lines",
            yaxis=axis,
            name=name,
            legendgroup=name,
            meta={"role": role},
            zorder=-1 if behind else 0,
            **more,
        )

    quiet: dict[str, Any] = {"showlegend": False, "hoverinfo": "skip"}
    edge = {"width": 0.5}
    ghosts = [trace("muted", line={"width": 1, "shape": shape}, opacity=0.6, **quiet) for _ in range(MAX_GHOSTS)]
    return [
        *ghosts,
        trace(role, line=edge, opacity=0.6, **quiet),
        trace(role, line=edge, opacity=0.6, fill="tonexty", **quiet),
        trace(role, line={"width": width_px, "dash": dash, "shape": shape}),
        trace(role, line={"width": width_px + 0.5, "dash": dash}, **quiet),
    ]


def line_fill(line: Line | None, x: Places, y: Values, hover: str) -> list[dict[str, Any]]:
    """The arrays of one line.

    Args:
        hover: plotly hovertemplate of its points.
    """
    if line is None:
        return [_hidden() for _ in range(TRACES_PER_LINE)]
    ghosts = [_curve(ghost, x, y) for ghost in line.ghosts]
    low, high = _band(line, x, y)
    curve = _curve(line.curve, x, y)
    smooth = _curve(line.smooth, x, y) if line.smooth is not None else _hidden()
    faint = line.smooth is not None
    curve |= {"opacity": BEHIND_OPACITY if faint else 1.0, "hoverinfo": "skip" if faint else "all"}
    (smooth if faint else curve)["hovertemplate"] = hover
    if faint:
        curve["hovertemplate"] = ""
        smooth |= {"hoverinfo": "all"}
    # The legend shows the line that is meant, not the faint one behind it.
    curve["showlegend"], smooth["showlegend"] = not faint, faint
    return [*ghosts, *(_hidden() for _ in range(MAX_GHOSTS - len(ghosts))), low, high, curve, smooth]


def _hidden() -> dict[str, Any]:
    return {"x": [], "y": [], "visible": False}


def _curve(curve: Curve, x: Places, y: Values) -> dict[str, Any]:
    keep, values = y(curve.value)
    if not keep.any():
        return _hidden()
    return {"x": packed(x(curve.step[keep], curve.time_us[keep])), "y": packed(values), "visible": True}


def _band(line: Line, x: Places, y: Values) -> tuple[dict[str, Any], dict[str, Any]]:
    band = line.band
    if band is None or band.step.size == 0:
        return _hidden(), _hidden()
    # On a log axis a low end that cannot be drawn goes down to the high one: the area ends there instead of tearing
    # open.
    can_high, high = y(band.high)
    can_low, _ = y(band.low)
    step, time_us = band.step[can_high], band.time_us[can_high]
    _, low = y(np.where(can_low, band.low, band.high)[can_high])
    if not step.size:
        return _hidden(), _hidden()
    places = packed(x(step, time_us))
    return {"x": places, "y": packed(low), "visible": True}, {"x": places, "y": packed(high), "visible": True}


def marks_skeleton(name: str, role: str, symbol: str, size_px: int = 9) -> go.Scatter:
    """Marks at an edge of the chart, without data; they hover with a text of their own."""
    return go.Scatter(
        x=[],
        y=[],
        text=[],
        mode="markers",
        yaxis=MARK_AXIS,
        name=name,
        showlegend=False,
        cliponaxis=False,
        meta={"role": role},
        marker={"symbol": symbol, "size": size_px},
        hovertemplate="%{text}<extra></extra>",
    )


def marks_fill(places: NDArray[Any], texts: list[str], at: float) -> dict[str, Any]:
    """Marks at these places; `texts` already escaped."""
    if not places.size:
        return {**_hidden(), "text": []}
    return {"x": packed(places), "y": packed(np.full(places.size, at)), "text": texts, "visible": True}


def bad_skeleton() -> go.Scatter:
    """The ✕ at the top edge where something was not finite."""
    return marks_skeleton("not finite", "nonfinite", "x")


def bad_fill(marks: list[tuple[str, BadMarks]], x: Places) -> dict[str, Any]:
    """✕ for every place where one of several lines was not finite.

    Args:
        marks: (escaped name of the line or empty, its marks).
    """
    places = [x(bad.step, bad.time_us).astype(np.float64) for _, bad in marks if bad.step.size]
    texts = [text for name, bad in marks for text in _bad_texts(name, bad)]
    return marks_fill(np.concatenate(places) if places else np.empty(0), texts, TOP)


def joined_marks(fills: list[dict[str, Any]]) -> dict[str, Any]:
    """Marks of several fills in one trace."""
    found = [fill for fill in fills if fill["text"]]
    if not found:
        return {**_hidden(), "text": []}
    x, y = (packed(np.concatenate([unpacked(fill[axis]) for fill in found])) for axis in ("x", "y"))
    return {"x": x, "y": y, "text": [text for fill in found for text in fill["text"]], "visible": True}


def _bad_texts(name: str, bad: BadMarks) -> list[str]:
    texts = []
    columns = (bad.step, bad.last_step, bad.num_nan, bad.num_pos_inf, bad.num_neg_inf)
    for first, last, *counts in zip(*(column.tolist() for column in columns), strict=True):
        words = [f"{count:,} {word}" for count, word in zip(counts, ("NaN", "+Inf", "-Inf"), strict=True) if count]
        texts.append(f"{step_range(first, last)}: {name + ' ' if name else ''}{', '.join(words)}")
    return texts


def figure(traces: list[Any], layout: dict[str, Any]) -> go.Figure:
    """A validated figure with what all charts share."""
    base: dict[str, Any] = {
        "template": "none",
        "hovermode": "x unified",
        "showlegend": False,
        "xaxis": {"title": {"text": "step"}, "tickformat": ",d", "zeroline": False},
    }
    # Plotly stumbles over an axis that no trace is on.
    if any(getattr(trace, "yaxis", None) == MARK_AXIS for trace in traces):
        base["yaxis9"] = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    return go.Figure(data=traces, layout={**base, **layout})
