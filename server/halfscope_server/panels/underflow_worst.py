"""Underflow of the layers that lose most, as lines."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.panels import axes, traces
from halfscope_server.panels.arrays import broken, packed
from halfscope_server.panels.base import Fill, Table, escape, thin_rows
from halfscope_server.panels.columns import SHARE_MARKS, SHARE_TICKS, no_frames, places, share_places
from halfscope_server.query.format import integer, layer_words, share, shortened
from halfscope_server.query.frames import RunFrames, columns, run_frames
from halfscope_server.query.layers import rows_within
from halfscope_server.query.statistics import NodeValues, node_values
from halfscope_server.query.underflow import LEVELS, Underflow, run_underflow
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span, Window

Floats = NDArray[np.float64]

NUM_LAYERS = 5
MOST_COLUMNS = 400
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
OPACITIES = (1.0, 0.9, 0.8, 0.7, 0.6)
NAME_CHARS = 18
LEGEND_PX = 400
"""Narrower charts have no room for a legend: the worst layer is named beside the title."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawn:
    """The worst layers of a window."""

    names: list[str]
    values: NodeValues
    """Over their columns, worst layer first."""
    x: Floats
    """Places of the values: one more than columns for each gap."""
    y: Floats
    """[N, places] shares; NaN in gaps."""


@dataclass(frozen=True, slots=True)
class UnderflowWorst:
    """See the module."""

    id: str = "underflow-worst"
    title: str = "Underflow of the 5 worst layers"
    section: str = "overview"
    columns: int = 4
    height_px: int = 220
    order: int = 35
    folded_on_phone: bool = True
    series: tuple[str, ...] = ()

    def available(self, view: RunView) -> bool:
        return bool(view.layers) or "sketches" in view.row.facts

    def structure(self, view: RunView) -> Hashable:
        return NUM_LAYERS

    def skeleton(self, view: RunView) -> go.Figure:
        lines = [
            go.Scatter(
                x=[],
                y=[],
                customdata=[],
                mode="lines",
                name=f"layer {k + 1}",
                opacity=OPACITIES[k],
                meta={"role": "underflow"},
                line={"width": 1.5, "dash": DASHES[k], "shape": "hv"},
                hovertemplate="%{customdata:.3~g}%",
            )
            for k in range(NUM_LAYERS)
        ]
        layout = {
            "yaxis": {
                "title": {"text": "share lost"},
                "range": [-0.1, len(SHARE_MARKS) - 0.9],
                "zeroline": False,
                **SHARE_TICKS,
            },
            "showlegend": True,
            "legend": {"font": {"size": 10}},
        }
        return traces.figure(lines, layout)

    def fill(self, view: RunView, window: Window) -> Fill:
        frames, underflow, span = run_frames(view), run_underflow(view), view.resolve(window)
        drawn = None
        if frames is not None and underflow is not None and span is not None:
            drawn = _find(frames, underflow, window, span)
        if drawn is None or frames is None or underflow is None or span is None:
            why = "Underflow is not known yet: no layer had a frame with room above FP16's floor."
            return no_frames(self.title, view, window, [_hidden(k) for k in range(NUM_LAYERS)], why)
        kind = "measured, at least" if underflow.is_measured else "predicted, at least"
        worst = drawn.values.value[:, 0]
        now = worst[~np.isnan(worst)]
        words = [f"{self.title} ({kind})", f"run {view.row.name}"]
        words.append(f"steps {integer(span.first_step)} to {integer(span.last_step)}")
        words.append(f"now {share(float(now[-1]))} in {drawn.names[0]}" if now.size else "not known yet")
        return Fill(
            data=[_line(drawn, k) if k < len(drawn.names) else _hidden(k) for k in range(NUM_LAYERS)],
            layout={
                "xaxis": axes.x_axis(view, window, span),
                "showlegend": window.width_px >= LEGEND_PX,
                "shapes": [_mark(level) for level in LEVELS],
            },
            label=", ".join(words),
            headline=_headline(drawn, now),
            first_step=span.first_step,
            last_step=span.last_step,
            make_table=lambda: _table(drawn, underflow),
        )


def _headline(drawn: _Drawn, now: Floats) -> str:
    """The worst layer's newest share; nothing is in no layer."""
    if not now.size:
        return "not known yet"
    value = float(now[-1])
    return f"{share(value)} {shortened(drawn.names[0], NAME_CHARS)}" if value > 0 else share(value)


def _find(frames: RunFrames, underflow: Underflow, window: Window, span: Span) -> _Drawn | None:
    """The layers with the largest share in any column."""
    part = rows_within(frames, span)
    steps = frames.table.step[part]
    if not steps.size:
        return None
    leaves = [node for node in frames.tree.nodes if not node.is_module]
    starts = columns(steps, min(MOST_COLUMNS, max(50, window.width_px // 2)), frames.interval)
    values = node_values(frames, underflow, "underflow", leaves, part, starts)
    largest = np.where(np.isnan(values.value), -1.0, values.value).max(axis=0)
    chosen = [k for k in np.argsort(-largest, kind="stable")[:NUM_LAYERS].tolist() if largest[k] >= 0]
    if not chosen:
        return None
    values = node_values(frames, underflow, "underflow", [leaves[k] for k in chosen], part, starts)
    place = places(window, values.step, values.last_step, values.time_us, frames.interval, span)
    spread = place.spread(values.value)
    return _Drawn(
        names=[layer_words(node.name) for node in values.nodes],
        values=values,
        x=place.edges,
        y=np.concatenate([spread, spread[:, -1:]], axis=1),
    )


def _line(drawn: _Drawn, k: int) -> dict[str, Any]:
    shares = drawn.y[k]
    return {
        "x": packed(drawn.x),
        "y": broken(share_places(shares)),
        "customdata": broken(shares * 100),
        "name": escape(shortened(drawn.names[k], NAME_CHARS)),
        # A small chart's legend is for what is lost; lines along the bottom need no name.
        "showlegend": k == 0 or bool((np.nan_to_num(shares) > 0).any()),
        "visible": True,
    }


def _hidden(k: int) -> dict[str, Any]:
    return {"x": [], "y": [], "customdata": [], "name": f"layer {k + 1}", "visible": False}


def _mark(level: float) -> dict[str, Any]:
    place = float(share_places(np.array([level]))[0])
    return {
        "type": "line",
        "name": "role:muted",
        "layer": "below",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": place,
        "y1": place,
        "line": {"width": 1, "dash": "dot"},
    }


def _table(drawn: _Drawn, underflow: Underflow) -> Table:
    values = drawn.values
    rows = [
        [integer(step), *(share(v) if v == v else "unknown" for v in row)]
        for step, row in zip(values.step.tolist(), values.value.tolist(), strict=True)
    ]
    rows, left_out = thin_rows(rows, "measured steps")
    note = "; ".join(part for part in (left_out, underflow.note) if part)
    return Table(columns=["step", *drawn.names], rows=rows, note=note)


PANEL = UnderflowWorst()
