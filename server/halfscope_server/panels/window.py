"""The window chart: where a layer's gradients lie between "lost" and "overflow", step by step."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.panels import axes, traces
from halfscope_server.panels.arrays import packed, packed_grid
from halfscope_server.panels.base import Fill, Table, thin_rows
from halfscope_server.panels.columns import (
    CIVIDIS,
    Places,
    hatched_fill,
    hatched_skeleton,
    no_frames,
    note,
    places,
    wrapped,
)
from halfscope_server.panels.zones import ZONES, exponent_ticks, scale_words
from halfscope_server.query.exponents import LOST, OVERFLOW, SUBNORMAL, Exponents, exponents, one_step
from halfscope_server.query.format import integer, layer_words, plural, power_of_two, share, shortened, step_range
from halfscope_server.query.frames import run_frames
from halfscope_server.query.underflow import Underflow, run_underflow, words
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span, Window

Floats = NDArray[np.float64]

LEAST_SHARE_LOG10, MOST_SHARE_LOG10 = -4.0, -1.0
NAME_CHARS = 34
MAIN, ZEROS, NONFINITE = "y", "y2", "y3"
DOMAINS = {"yaxis2": [0.0, 0.09], "yaxis": [0.13, 0.9], "yaxis3": [0.94, 1.0]}
LINE_PX, MOST_TICKS = 16, 9
SHARE_TICKS = {
    "tickmode": "array",
    "tickvals": [-4, -3, -2, -1],
    "ticktext": ["0.01%", "0.1%", "1%", "10%"],
}
HEAT, HATCHED, TOP, OVER, SUB, LOST_FILL, BOTTOM, LOST_LINE, CHOSEN, ZERO_BARS, BAD_BARS, READ_OUT = range(12)


@dataclass(frozen=True, slots=True)
class WindowPanel:
    """See the module."""

    id: str = "window"
    title: str = "Window"
    section: str = "layers"
    columns: int = 8
    height_px: int = 440
    order: int = 310
    folded_on_phone: bool = False
    series: tuple[str, ...] = ()

    def available(self, view: RunView) -> bool:
        return bool(view.layers) or "sketches" in view.row.facts

    def structure(self, view: RunView) -> Hashable:
        return "window"

    def skeleton(self, view: RunView) -> go.Figure:
        layout: dict[str, Any] = {
            "hovermode": "x",
            "barmode": "overlay",
            "bargap": 0,
            "xaxis": {"title": {"text": "step"}, "showgrid": False, "zeroline": False, "anchor": "y2"},
        }
        titles = {"yaxis": "exponent", "yaxis2": "zeros", "yaxis3": "NaN, Inf"}
        for axis, domain in DOMAINS.items():
            layout[axis] = {"domain": domain, "title": {"text": titles[axis]}, "zeroline": False, "showgrid": False}
        for axis in ("yaxis2", "yaxis3"):
            layout[axis] |= {"range": [0, 1], "showticklabels": False, "ticks": "", "title": _small(titles[axis])}
        return traces.figure(_skeleton(), layout)

    def fill(self, view: RunView, window: Window) -> Fill:
        found, frames, underflow = exponents(view, window), run_frames(view), run_underflow(view)
        span = view.resolve(window)
        if found is None or frames is None or underflow is None or span is None:
            why = "This layer had no gradient in any measured step of this window."
            return no_frames(self.title, view, window, _nothing(), why)
        place = places(window, found.step, found.last_step, found.time_us, frames.interval, span)
        sentence, num_lines = wrapped(how_to_read(found, underflow.is_measured), window.width_px)
        low, high = found.lowest, found.lowest + found.num_bins
        unit = "|gradient × scale|" if found.seen else "|gradient|"
        name = layer_words(found.name) or "all layers"
        x_axis = axes.x_axis(view, window, span)
        layout: dict[str, Any] = {
            "xaxis": x_axis,
            "yaxis": {
                "range": [low, high],
                "title": {"text": f"size of {unit}"},
                **exponent_ticks(low, high, MOST_TICKS),
            },
            "annotations": [*_zone_notes(found, window), _sentence_note(sentence)],
            "margin": {"t": LINE_PX * num_lines + 10},
        }
        return Fill(
            data=_draw(view, window, found, place, x_axis["range"]),
            layout=layout,
            label=_label(self.title, view, span, found, name),
            headline=f"{shortened(name, NAME_CHARS)} · {_newest_words(view, window, found, underflow)}",
            first_step=span.first_step,
            last_step=span.last_step,
            make_table=lambda: _table(found),
        )


def _small(title: str) -> dict[str, Any]:
    return {"text": title, "font": {"size": 10}}


def _skeleton() -> list[Any]:
    heat = go.Heatmap(
        x=[],
        y=[],
        z=[],
        meta={"role": "text"},
        name="elements",
        zmin=LEAST_SHARE_LOG10,
        zmax=MOST_SHARE_LOG10,
        colorscale=CIVIDIS,
        hoverinfo="skip",
        colorbar={
            "thickness": 10,
            "outlinewidth": 0,
            "ticks": "",
            "title": {"text": "share of elements", "side": "right"},
            **SHARE_TICKS,
        },
    )

    def line(role: str, name: str, *, filled: bool, width_px: float, dash: str = "solid") -> go.Scatter:
        return go.Scatter(
            x=[],
            y=[],
            mode="lines",
            name=name,
            meta={"role": role},
            fill="tonexty" if filled else "none",
            hoverinfo="skip",
            showlegend=False,
            line={"width": width_px, "dash": dash, "shape": "hv"},
        )

    def bars(role: str, name: str, axis: str) -> go.Bar:
        return go.Bar(
            x=[],
            y=[],
            width=[],
            text=[],
            yaxis=axis,
            name=name,
            meta={"role": role},
            textposition="none",
            showlegend=False,
            marker={"line": {"width": 0}},
            hoverinfo="skip",
        )

    over, subnormal, lost = ZONES
    return [
        heat,
        hatched_skeleton("not measured"),
        line(over.role, "top", filled=False, width_px=0),
        line(over.role, over.short, filled=True, width_px=1.5),
        line(subnormal.role, subnormal.short, filled=False, width_px=1.5, dash="dash"),
        line(subnormal.role, subnormal.short, filled=True, width_px=0),
        line(lost.role, "bottom", filled=True, width_px=0),
        line(lost.role, lost.short, filled=False, width_px=1.5),
        line("focus", "chosen step", filled=False, width_px=1.5, dash="dot"),
        bars("muted", "zeros", ZEROS),
        bars("nonfinite", "NaN or Inf", NONFINITE),
        go.Scatter(
            x=[],
            y=[],
            text=[],
            mode="markers",
            name="",
            meta={"role": "text"},
            marker={"size": 1, "opacity": 0},
            showlegend=False,
            hovertemplate="%{text}<extra></extra>",
        ),
    ]


def _nothing() -> list[dict[str, Any]]:
    empty: dict[str, Any] = {"x": [], "y": [], "visible": False}
    found = [dict(empty) for _ in range(READ_OUT + 1)]
    found[HEAT] |= {"z": []}
    found[HATCHED] |= {"base": [], "width": [], "text": []}
    for at in (ZERO_BARS, BAD_BARS):
        found[at] |= {"width": [], "text": []}
    found[READ_OUT] |= {"text": []}
    return found


# ---- arrays ----------------------------------------------------------------------------------


def _draw(view: RunView, window: Window, found: Exponents, place: Places, ends: list[float]) -> list[dict[str, Any]]:
    low, high = float(found.lowest), float(found.lowest + found.num_bins)
    n = np.maximum(found.n, 1)[:, None]
    shares = found.counts / n
    with np.errstate(divide="ignore"):
        coloured = np.where(shares > 0, np.log10(shares), np.nan)
    data = _nothing()
    data[HEAT] = {
        "x": packed(place.edges),
        "y": packed(np.arange(found.lowest, found.lowest + found.num_bins + 1)),
        "z": packed_grid(place.spread(coloured)),
        "visible": True,
    }
    gap_x, gap_width = place.of_gaps()
    ones = np.ones(gap_x.size)
    data[HATCHED] = hatched_fill(gap_x, gap_width, ones * low, ones * (high - low), ["not measured"] * gap_x.size)
    for at, value in (
        (TOP, np.full(found.step.size, high)),
        (OVER, found.limit(OVERFLOW)),
        (SUB, found.limit(SUBNORMAL)),
        (LOST_FILL, found.limit(LOST)),
        (BOTTOM, np.full(found.step.size, low)),
        (LOST_LINE, found.limit(LOST)),
    ):
        data[at] = _line(place, np.clip(value, low, high), ends)
    data[CHOSEN] = _chosen(view, window, low, high)
    x, width = place.of_columns()
    data[ZERO_BARS] = _bars(x, width, found.zeros / n[:, 0], [f"zeros {share(z)}" for z in found.zeros / n[:, 0]])
    bad = found.nan + found.infinite
    there = bad > 0
    # Columns without any have a bar of no height: Plotly stumbles over an axis that nothing is drawn on.
    data[BAD_BARS] = _bars(x, width, there.astype(np.float64), _bad_texts(found))
    data[READ_OUT] = {
        "x": packed(x),
        "y": packed(np.full(x.size, (low + high) / 2)),
        "text": [read_out(found, k) for k in range(found.step.size)],
        "visible": True,
    }
    return data


def _line(place: Places, value: Floats, ends: list[float]) -> dict[str, Any]:
    """A limit over the whole chart: before the first column as in it, behind the last as in that."""
    x, y = place.stepped(value)
    first, last = min(ends[0], float(x[0])), max(ends[1], float(x[-1]))
    x, y = np.concatenate([[first], x, [last]]), np.concatenate([y[:1], y, y[-1:]])
    return {"x": packed(x), "y": packed(y), "visible": True}


def _bars(x: Floats, width: Floats, y: Floats, texts: list[str]) -> dict[str, Any]:
    if not x.size:
        return {"x": [], "y": [], "width": [], "text": [], "visible": False}
    return {"x": packed(x), "y": packed(y), "width": packed(width), "text": texts, "visible": True}


def _bad_texts(found: Exponents) -> list[str]:
    return [
        f"{integer(nan)} NaN, {integer(inf)} Inf"
        for nan, inf in zip(found.nan.tolist(), found.infinite.tolist(), strict=True)
    ]


def _chosen(view: RunView, window: Window, low: float, high: float) -> dict[str, Any]:
    """A line at the step whose histogram is shown, where one was chosen."""
    chosen = one_step(view, window) if window.step is not None else None
    if chosen is None:
        return {"x": [], "y": [], "visible": False}
    x = axes.x_values(window, chosen.exponents.step, chosen.exponents.time_us).astype(np.float64)
    return {"x": packed(np.repeat(x, 2)), "y": packed(np.array([low, high])), "visible": True}


# ---- words -----------------------------------------------------------------------------------


def _zone_notes(found: Exponents, window: Window) -> list[dict[str, Any]]:
    """The zones' names, at their limits at the left edge."""
    notes = []
    low, high = found.lowest, found.lowest + found.num_bins
    for zone in ZONES:
        y = float(found.limit(zone.limit)[0])
        if low <= y <= high:
            place = {"xref": "paper", "x": 0.006, "xanchor": "left", "yref": "y", "y": y}
            text = zone.label(found.seen, window.width_px)
            notes.append(note(text, "text", **place, yanchor="bottom" if zone.above else "top"))
    return notes


def _sentence_note(sentence: str) -> dict[str, Any]:
    return note(sentence, "muted", xref="paper", x=0, xanchor="left", yref="paper", y=1.01, yanchor="bottom")


def how_to_read(found: Exponents, is_measured: bool) -> str:
    """The one sentence that teaches the chart."""
    most = int(found.num_frames.max())
    column = "A column is one measured step" if most == 1 else f"A column is up to {plural(most, 'measured step')}"
    what = f"{column} and a cell the share of elements of that size"
    at = "" if found.has_scaler or is_measured else f" at scale {power_of_two(float(found.scale[-1]))}"
    if found.seen and is_measured:
        rest = (
            "FP16 keeps what lies between the outer lines, makes Inf of what lies above and 0 of what lies below: what"
            " is lost is among the zeros beneath"
        )
    elif found.seen:
        rest = f"FP16{at} would keep what lies between the outer lines and make Inf of what lies above, 0 of the rest"
    else:
        moving = "; they move with the loss scale" if found.has_scaler else ""
        would = "becomes" if is_measured else "would become"
        rest = f"the lines are FP16's limits{at}, above them all {would} Inf and below the lowest 0{moving}"
        if found.is_mixed:
            rest += (
                "; layers differ in their scale: the lines are at that of most elements, all shares at each layer's own"
            )
    split = " (scales that are no powers of two divide a cell between two)" if found.interpolated else ""
    return f"{what}: {rest}{split}."


def shares_in_words(found: Exponents, k: int) -> str:
    """`lost 0.8%, subnormal 12%, overflow 0`: of all elements of a column; exactly what is drawn outside the lines."""
    return ", ".join(_zone_words(found, k))


def _zone_words(found: Exponents, k: int) -> list[str]:
    n = max(int(found.n[k]), 1)
    pairs = zip(ZONES[::-1], (found.lost, found.subnormal, found.overflow), strict=True)
    return [f"{zone.short} {share(float(values[k]) / n)}" for zone, values in pairs]


def _newest_words(view: RunView, window: Window, found: Exponents, underflow: Underflow) -> str:
    """The newest step for the head of the chart. Where FP16 has made zeros of what was lost nothing lies below the line
    any more, so that "lost 0" would say the opposite of what is the case: there the measured underflow stands."""
    newest = one_step(view, replace(window, step=None)) if underflow.is_measured else None
    if newest is None:
        return shares_in_words(found, -1)
    _, *others = _zone_words(newest.exponents, -1)  # of that step too: the newest column may be many
    return ", ".join([words(underflow, newest.share), *others])


def read_out(found: Exponents, k: int) -> str:
    """A column in words, for hovering."""
    n = max(int(found.n[k]), 1)
    lines = [
        step_range(int(found.step[k]), int(found.last_step[k])),
        f"scale {scale_words(found, k)}" if found.has_scaler else "",
        shares_in_words(found, k),
        f"zeros {share(int(found.zeros[k]) / n)}",
    ]
    if found.nan[k] or found.infinite[k]:
        lines.append(f"{integer(int(found.nan[k]))} NaN, {integer(int(found.infinite[k]))} Inf")
    return "<br>".join(line for line in lines if line)


def _label(title: str, view: RunView, span: Span, found: Exponents, name: str) -> str:
    view_words = "as FP16 sees it" if found.seen else "true gradient"
    return (
        f"{title} of {name}, {view_words}, run {view.row.name},"
        f" {step_range(span.first_step, span.last_step)}, now {shares_in_words(found, -1)}"
    )


def _table(found: Exponents) -> Table:
    rows = []
    for k in range(found.step.size):
        n = max(int(found.n[k]), 1)
        parts = (found.lost, found.subnormal, found.overflow, found.zeros)
        cells = [share(float(values[k]) / n) for values in parts]
        bad = integer(int(found.nan[k] + found.infinite[k]))
        rows.append([integer(int(found.step[k])), scale_words(found, k), *cells, bad])
    rows, left_out = thin_rows(rows, "columns")
    columns = ["step", "scale", "lost", "subnormal", "overflow", "zeros", "NaN or Inf"]
    return Table(columns=columns, rows=rows, note=left_out)


PANEL = WindowPanel()
