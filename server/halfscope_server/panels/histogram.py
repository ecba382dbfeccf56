"""The exponents of one measured step, with the numbers that follow from them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from halfscope_server.panels import traces
from halfscope_server.panels.arrays import packed
from halfscope_server.panels.base import Fill, Table
from halfscope_server.panels.columns import no_frames, note
from halfscope_server.panels.window import shares_in_words
from halfscope_server.panels.zones import ZONES, exponent_ticks, scale_words
from halfscope_server.query.exponents import Exponents, OneStep, one_step
from halfscope_server.query.format import integer, layer_words, norm, number, power_of_two, share
from halfscope_server.query.underflow import Underflow, run_underflow, words
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Window

BARS, SPECIAL = range(2)
SPECIAL_NAMES = ("zero", "NaN", "Inf")
MOST_TICKS = 7
LEAST_LOG10 = -6.0
"""Where a log axis of shares begins: one element in a million."""
_POINTS = {
    "unscale": "when the scaler had unscaled it",
    "scaled_step": "at the optimizer's step, divided by the scale",
    "clip": "as it was given to clipping",
    "step": "at the optimizer's step",
    "closure": "when the closure returned",
}


@dataclass(frozen=True, slots=True)
class HistogramPanel:
    """See the module."""

    id: str = "histogram"
    title: str = "Histogram"
    section: str = "layers"
    columns: int = 4
    height_px: int = 300
    order: int = 320
    folded_on_phone: bool = False
    series: tuple[str, ...] = ()

    def available(self, view: RunView) -> bool:
        return bool(view.layers) or "sketches" in view.row.facts

    def structure(self, view: RunView) -> Hashable:
        return "histogram"

    def skeleton(self, view: RunView) -> go.Figure:
        def bars(role: str, name: str, xaxis: str, yaxis: str) -> go.Bar:
            return go.Bar(
                x=[],
                y=[],
                text=[],
                width=[],
                xaxis=xaxis,
                yaxis=yaxis,
                name=name,
                meta={"role": role},
                textposition="none",
                showlegend=False,
                marker={"line": {"width": 0}},
                hovertemplate="%{text}<extra></extra>",
            )

        layout = {
            "hovermode": "closest",
            "barmode": "overlay",
            "bargap": 0.1,
            "xaxis": {"title": {"text": "exponent"}, "domain": [0, 0.74], "showgrid": False, "zeroline": False},
            "xaxis2": {
                "title": {"text": "apart"},
                "domain": [0.82, 1.0],
                "tickangle": -90,
                "anchor": "y2",
                "tickmode": "array",
                "tickvals": [0, 1, 2],
                "ticktext": list(SPECIAL_NAMES),
                "tickfont": {"size": 10},
                "range": [-0.6, 2.6],
                "showgrid": False,
                "zeroline": False,
            },
            "yaxis": {"title": {"text": "share of elements (%)"}, "zeroline": False},
            "yaxis2": {
                "title": {"text": "%", "standoff": 0},
                "anchor": "x2",
                "range": [0, 100],
                "side": "right",
                "showgrid": False,
                "zeroline": False,
            },
        }
        return traces.figure([bars("muted", "elements", "x", "y"), bars("muted", "apart", "x2", "y2")], layout)

    def fill(self, view: RunView, window: Window) -> Fill:
        found, underflow = one_step(view, window), run_underflow(view)
        if found is None or underflow is None:
            why = "This layer had no gradient in any measured step."
            return no_frames(self.title, view, window, [_no_bars(), _no_bars()], why)
        one = found.exponents
        step, name = integer(int(one.step[0])), layer_words(one.name) or "all layers"
        low, high = one.lowest, one.lowest + one.num_bins
        unit = "|gradient × scale|" if one.seen else "|gradient|"
        data, y_axis = _draw(one, window)
        said = words(underflow, found.share)
        return Fill(
            data=data,
            layout={
                "xaxis": {
                    "range": [low, high],
                    "title": {"text": f"size of {unit}"},
                    **exponent_ticks(low, high, MOST_TICKS),
                },
                "yaxis": y_axis,
                "shapes": _zones(one),
                "annotations": _zone_notes(one),
            },
            label=f"{self.title} of {name}, run {view.row.name}, step {step}: {said}, {shares_in_words(one, 0)}",
            headline=f"step {step} · {said} · scale {_scale(one)}",
            first_step=int(one.step[0]),
            last_step=int(one.step[0]),
            make_table=lambda: _table(found, underflow, view.start_number(found.attempt)),
        )


def _no_bars() -> dict[str, Any]:
    return {"x": [], "y": [], "text": [], "width": [], "visible": False}


def _scale(one: Exponents) -> str:
    """The scale in words; what is assumed is said to be."""
    return scale_words(one, 0) if one.has_scaler else f"none, read at {power_of_two(float(one.scale[0]))}"


# ---- arrays ----------------------------------------------------------------------------------


def _draw(one: Exponents, window: Window) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    n = max(int(one.n[0]), 1)
    shares = one.counts[0] / n * 100
    exponent = np.arange(one.lowest, one.lowest + one.num_bins)
    texts = [
        f"{power_of_two(2.0**e)} to {power_of_two(2.0 ** (e + 1))}: {share(s / 100)}"
        for e, s in zip(exponent.tolist(), shares.tolist(), strict=True)
    ]
    apart = np.array([int(one.zeros[0]), int(one.nan[0]), int(one.infinite[0])])
    bars = {
        "x": packed(exponent + 0.5),
        "y": packed(shares),
        "width": packed(np.ones(exponent.size)),
        "text": texts,
        "visible": True,
    }
    special = {
        "x": packed(np.arange(3)),
        "y": packed(apart / n * 100),
        "width": packed(np.full(3, 0.8)),
        "text": [f"{what}: {integer(int(c))}, {share(c / n)}" for what, c in zip(SPECIAL_NAMES, apart, strict=True)],
        "visible": True,
    }
    most = float(shares.max(initial=0.0))
    axis: dict[str, Any] = {"type": "linear", "range": [0, most * 1.08 or 1.0]}
    if window.y == "log":
        axis = {"type": "log", "range": [LEAST_LOG10 + 2, 2.05]}
    return [bars, special], axis


def _zones(one: Exponents) -> list[dict[str, Any]]:
    """FP16's limits as shaded areas and lines, on the edges of bars wherever the scale is a power of two."""
    low, high = float(one.lowest), float(one.lowest + one.num_bins)
    over, subnormal, lost = (float(np.clip(one.limit(zone.limit)[0], low, high)) for zone in ZONES)
    areas = ((over, high), (lost, subnormal), (low, lost))
    shapes: list[dict[str, Any]] = []
    for zone, (x0, x1), at in zip(ZONES, areas, (over, subnormal, lost), strict=True):
        shared = {"name": f"role:{zone.role}", "yref": "y domain", "y0": 0, "y1": 1, "layer": "below"}
        shapes.append({"type": "rect", "x0": x0, "x1": x1, "line": {"width": 0}, **shared})
        shapes.append({"type": "line", "x0": at, "x1": at, "line": {"width": 1.5}, **shared})
    return shapes


def _zone_notes(one: Exponents) -> list[dict[str, Any]]:
    """The zones' names, upright at their limits: the chart is too narrow for them side by side."""
    notes = []
    for zone in ZONES:
        x = float(one.limit(zone.limit)[0])
        place = {"x": x, "xanchor": "left" if zone.above else "right", "yref": "y domain", "y": 0.99, "yanchor": "top"}
        notes.append(note(zone.short, "muted", textangle=-90, **place))
    return notes


# ---- numbers ---------------------------------------------------------------------------------


def _table(found: OneStep, underflow: Underflow, start_number: int) -> Table:
    one, sketch = found.exponents, found.sketch
    n = int(one.n[0])

    def part(count: float) -> str:
        whole = integer(round(count))
        return f"{whole} ({share(count / n)})" if n else whole

    number_of = "underflow, at least" if underflow.is_measured else "would underflow, at least"
    rows = [
        ["layer", one.name or "all layers"],
        ["step", integer(int(one.step[0]))],
        ["scale", _scale(one)],
        ["elements", integer(n)],
        ["zeros", part(int(one.zeros[0]))],
        ["NaN", part(int(one.nan[0]))],
        ["Inf", part(int(one.infinite[0]))],
        [number_of, share(found.share) if found.share == found.share else "unknown"],
        [f"lost below {power_of_two(2.0**-25)}", part(float(one.lost[0]))],
        ["subnormal", part(float(one.subnormal[0]))],
        ["overflow", part(float(one.overflow[0]))],
        ["norm", norm(float(sketch.norm))],
        ["largest magnitude", norm(float(sketch.absmax))],
        ["smallest magnitude", norm(float(sketch.absmin_nonzero)) if np.isfinite(sketch.absmin_nonzero) else "–"],
        ["mean", number(float(sketch.sum) / max(n - int(sketch.nonfinite), 1))],
        ["read", _POINTS.get(found.point, found.point or "at an unknown point")],
        ["clipped before", "maybe" if found.maybe_clipped else "no"],
    ]
    if start_number:
        rows.insert(2, ["restart", integer(start_number)])
    interpolated = "the scale is no power of two: bins are divided between two" if one.interpolated else ""
    return Table(
        columns=["what", "value"],
        rows=rows,
        note="; ".join(said for said in (f"underflow is {underflow.note}", interpolated) if said),
    )


PANEL = HistogramPanel()
