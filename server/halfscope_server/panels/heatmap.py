"""All visible layers over the steps, in one statistic: on fixed scales, so that runs compare."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.panels import axes, traces
from halfscope_server.panels.arrays import packed, packed_grid
from halfscope_server.panels.base import Fill, Table, escape, thin_rows
from halfscope_server.panels.columns import (
    CIVIDIS,
    SHARE_TICKS,
    Places,
    hatched_fill,
    hatched_skeleton,
    no_frames,
    places,
    share_places,
)
from halfscope_server.panels.zones import ROOMY_PX
from halfscope_server.query.exponents import chosen_node
from halfscope_server.query.format import integer, plural, shortened, step_range
from halfscope_server.query.frames import RunFrames, columns, run_frames
from halfscope_server.query.layers import HEADROOM_ENDS, rows_within
from halfscope_server.query.statistics import NodeValues, node_values, title_of, value_words, worst_is_lowest
from halfscope_server.query.underflow import Underflow, run_underflow
from halfscope_server.query.view import RunView
from halfscope_server.query.window import MAX_POINTS, Span, Statistic, Window

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST_COLUMNS = 400
NAME_CHARS, NARROW_NAME_CHARS = 30, 18
MOST_LABELS, MOST_LARGE_LABELS = 44, 30
"""Rows that can carry a label each; of more, every second, third ... one has one."""
NORM_ENDS = (-10.0, 4.0)
"""Of the fixed scale, as powers of ten."""
DIVERGING = [[0.0, "#8c510a"], [0.2, "#f6e8c3"], [0.45, "#80cdc1"], [1.0, "#003c30"]]
"""Headroom: brown where an element overflows, green where there is room; told apart by all eyes."""
HEAT, HATCHED, DOTS, CROSSES = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """How a statistic is coloured and read."""

    scale: list[list[Any]]
    low: float
    high: float
    ticks: dict[str, Any]
    hover: str


_SHARES = _Look(scale=CIVIDIS, low=0, high=6, ticks=SHARE_TICKS, hover="%{customdata:.3~g}%")
_LOOKS: dict[Statistic, _Look] = {
    "underflow": _SHARES,
    "zeros": _SHARES,
    "nonfinite": _SHARES,
    "headroom": _Look(
        scale=DIVERGING,
        low=HEADROOM_ENDS[0],
        high=HEADROOM_ENDS[1],
        ticks={"tickmode": "array", "tickvals": [-4, 0, 4, 8, 12, 16], "ticktext": ["-4", "0", "4", "8", "12", "16"]},
        hover="%{customdata:.0f} bits",
    ),
    "norm": _Look(
        scale=CIVIDIS,
        low=NORM_ENDS[0],
        high=NORM_ENDS[1],
        ticks={
            "tickmode": "array",
            "tickvals": [-10, -8, -6, -4, -2, 0, 2, 4],
            "ticktext": ["1e-10", "1e-8", "1e-6", "1e-4", "0.01", "1", "100", "1e4"],
        },
        hover="%{customdata:.3~g}",
    ),
}


@dataclass(frozen=True, slots=True)
class LayersHeatmap:
    """See the module."""

    id: str = "layers-heatmap"
    title: str = "Layers"
    section: str = "layers"
    columns: int = 12
    height_px: int = 420
    order: int = 300
    folded_on_phone: bool = False
    series: tuple[str, ...] = ()

    def available(self, view: RunView) -> bool:
        return bool(view.layers) or "sketches" in view.row.facts

    def structure(self, view: RunView) -> Hashable:
        return "heatmap"

    def skeleton(self, view: RunView) -> go.Figure:
        heat = go.Heatmap(
            x=[],
            y=[],
            z=[],
            customdata=[],
            meta={"role": "text"},
            zmin=0,
            zmax=6,
            colorscale=CIVIDIS,
            xgap=0,
            ygap=1,
            hoverongaps=False,
            colorbar={"thickness": 10, "outlinewidth": 0, "len": 1.0, "ticks": ""},
        )
        dots = traces.marks_skeleton("no gradient", "muted", "circle", 3)
        crosses = traces.marks_skeleton("NaN or Inf", "nonfinite", "x", 7)
        for marks in (dots, crosses):
            marks.update(yaxis="y", cliponaxis=True)
        layout = {
            "yaxis": {"title": {"text": "layer"}, "zeroline": False, "showgrid": False, "ticks": ""},
            "xaxis": {"title": {"text": "step"}, "showgrid": False, "zeroline": False},
            "hovermode": "closest",
            "barmode": "overlay",
            "bargap": 0,
        }
        return traces.figure([heat, hatched_skeleton("not measured"), dots, crosses], layout)

    def fill(self, view: RunView, window: Window) -> Fill:
        frames, underflow, span = run_frames(view), run_underflow(view), view.resolve(window)
        if frames is None or underflow is None or span is None or not _has_rows(frames, span):
            return no_frames(self.title, view, window, _nothing())
        values, place = _read(frames, underflow, window, span)
        words = f"{title_of(window.stat).lower()}, worst {_worst(values, window.stat)}"
        return Fill(
            data=_draw(values, place, window.stat, underflow),
            layout={
                "xaxis": axes.x_axis(view, window, span),
                "yaxis": _rows_axis(values, window),
                "shapes": _chosen(view, window, values),
            },
            label=f"{self.title}, run {view.row.name}, {step_range(span.first_step, span.last_step)}, {words}",
            headline=title_of(window.stat),
            first_step=span.first_step,
            last_step=span.last_step,
            make_table=lambda: _table(values, window.stat, underflow),
        )


def _has_rows(frames: RunFrames, span: Span) -> bool:
    part = rows_within(frames, span)
    return bool(part.stop > part.start)


def _read(frames: RunFrames, underflow: Underflow, window: Window, span: Span) -> tuple[NodeValues, Places]:
    part = rows_within(frames, span)
    num_columns = min(MOST_COLUMNS, max(50, window.width_px // 2))
    starts = columns(frames.table.step[part], num_columns, frames.interval)
    nodes = frames.tree.chosen(window.rows)
    values = node_values(frames, underflow, window.stat, nodes, part, starts)
    return values, places(window, values.step, values.last_step, values.time_us, frames.interval, span)


def _nothing() -> list[dict[str, Any]]:
    empty: dict[str, Any] = {"x": [], "y": [], "visible": False}
    more: tuple[dict[str, Any], ...] = (
        {"z": [], "customdata": []},
        {"base": [], "width": [], "text": []},
        {"text": []},
        {"text": []},
    )
    return [{**empty, **one} for one in more]


def _rows_axis(values: NodeValues, window: Window) -> dict[str, Any]:
    num_rows = len(values.nodes)
    num_chars = NAME_CHARS if window.width_px >= ROOMY_PX else NARROW_NAME_CHARS
    stride = -(-num_rows // MOST_LABELS) or 1
    return {
        "range": [num_rows - 0.5, -0.5],
        "tickmode": "array",
        "tickvals": list(range(0, num_rows, stride)),
        "ticktext": [escape(shortened(node.name or node.label, num_chars)) for node in values.nodes[::stride]],
        "tickfont": {"size": 11 if num_rows <= MOST_LARGE_LABELS else 8},
    }


def _chosen(view: RunView, window: Window, values: NodeValues) -> list[dict[str, Any]]:
    """The row and the step that the other charts show, as lines in the colour of the focus: cells keep theirs."""
    shapes: list[dict[str, Any]] = []
    node = chosen_node(view, window)
    names = [row.name for row in values.nodes]
    if node is not None and node.name in names:
        at = names.index(node.name)
        row = {"type": "line", "name": "role:focus", "xref": "paper", "x0": 0, "x1": 1, "line": {"width": 2}}
        shapes += [{**row, "y0": at + side, "y1": at + side} for side in (-0.5, 0.5)]
    if window.step is not None and values.step.size:
        at = int(np.argmin(np.abs(values.step - window.step)))
        column = slice(at, at + 1)
        x = float(axes.x_values(window, values.step[column], values.time_us[column]).astype(np.float64)[0])
        line = {"width": 1.5, "dash": "dot"}
        shapes.append(
            {"type": "line", "name": "role:focus", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line}
        )
    return shapes


def _draw(values: NodeValues, place: Places, stat: Statistic, underflow: Underflow) -> list[dict[str, Any]]:
    look, value = _LOOKS[stat], values.value
    told = value * 100 if look is _SHARES else value
    heat = {
        "x": packed(place.edges),
        "y": packed(np.arange(len(values.nodes))),
        "z": packed_grid(place.spread(_coloured(value, stat))),
        "customdata": packed_grid(place.spread(told)),
        "zmin": look.low,
        "zmax": look.high,
        "colorscale": look.scale,
        "colorbar": look.ticks,
        "hovertemplate": f"%{{y}}<br>around %{{x}}: {look.hover}<extra></extra>",
        "visible": True,
    }
    unknown = "no frame with room above FP16's floor yet" if underflow.is_measured else "no finite nonzero gradient"
    hatched = _hatched(values, place, f"not known: {unknown}" if stat == "underflow" else "")
    return [heat, hatched, _dots(values, place), _crosses(values, place)]


def _coloured(value: Floats, stat: Statistic) -> Floats:
    """Places of values on their fixed scale; blank cells are NaN."""
    if _LOOKS[stat] is _SHARES:
        blank = np.isnan(value)
        return np.where(blank, np.nan, share_places(np.nan_to_num(value)))
    if stat == "norm":
        with np.errstate(divide="ignore"):
            log = np.log10(np.where(value > 0, value, np.nan))
        # What lies beyond the scale has the colour of its end.
        return np.where(value == 0, NORM_ENDS[0], np.clip(log, *NORM_ENDS))
    return value


# ---- marks -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """Neighbouring cells of a row that are marked alike."""

    row: Ints
    first: Ints
    """Columns."""
    last: Ints


def _runs(mask: Bools) -> _Runs:
    """Runs of marked cells of a [C, N] mask; where they would be too many to draw, with holes between them closed."""
    stretch = 1
    while True:
        padded = np.zeros((mask.shape[1], mask.shape[0] + 2 * stretch + 2), np.int8)
        padded[:, stretch + 1 : -stretch - 1] = mask.T
        if stretch > 1:
            padded = _closed(padded, stretch)
        change = np.diff(padded, axis=1)
        row, first = np.nonzero(change == 1)
        _, end = np.nonzero(change == -1)
        if row.size <= MAX_POINTS or stretch > mask.shape[0]:
            offset = stretch
            runs = _Runs(row=row, first=first - offset, last=end - 1 - offset)
            if row.size <= MAX_POINTS:
                return runs
            longest = np.sort(np.argsort(runs.first - runs.last, kind="stable")[:MAX_POINTS])
            return _Runs(row=row[longest], first=runs.first[longest], last=runs.last[longest])
        stretch *= 2


def _closed(padded: NDArray[np.int8], stretch: int) -> NDArray[np.int8]:
    """Rows with holes of fewer than `stretch` cells filled."""
    at = np.arange(padded.shape[1])
    before = np.maximum.accumulate(np.where(padded > 0, at, -(10**9)), axis=1)
    behind = np.minimum.accumulate(np.where(padded > 0, at, 10**9)[:, ::-1], axis=1)[:, ::-1]
    return ((padded > 0) | (behind - before <= stretch)).astype(np.int8)


def _hatched(values: NodeValues, place: Places, why: str) -> dict[str, Any]:
    """Gaps between columns over all rows, and, where there is a reason for them, cells that were measured without
    being known."""
    gap_x, gap_width = place.of_gaps()
    num_rows = len(values.nodes)
    runs = _runs(values.present & np.isnan(values.value) & bool(why))
    left, right = _ends(place, runs)
    texts = ["not measured"] * gap_x.size + [f"{_name(values, row)}: {why}" for row in runs.row.tolist()]
    return hatched_fill(
        np.concatenate([gap_x, (left + right) / 2]),
        np.concatenate([gap_width, right - left]),
        np.concatenate([np.full(gap_x.size, -0.5), runs.row - 0.5]),
        np.concatenate([np.full(gap_x.size, float(num_rows)), np.ones(runs.row.size)]),
        texts,
    )


def _dots(values: NodeValues, place: Places) -> dict[str, Any]:
    """A dot in the middle of each stretch in which other layers were measured and this one had no gradient."""
    runs = _runs(~values.present)
    texts = [f"{_name(values, row)}: no gradient" for row in runs.row.tolist()]
    return _marks(_middles(place, runs), runs.row, texts)


def _crosses(values: NodeValues, place: Places) -> dict[str, Any]:
    """A cross where elements were NaN or infinite."""
    runs = _runs(values.nonfinite > 0)
    texts = []
    for row, first, last in zip(runs.row.tolist(), runs.first.tolist(), runs.last.tolist(), strict=True):
        where = step_range(int(values.step[first]), int(values.last_step[last]))
        count = plural(int(values.nonfinite[first : last + 1, row].sum()), "element")
        texts.append(f"{_name(values, row)}, {where}: {count} NaN or Inf")
    return _marks(_middles(place, runs), runs.row, texts)


def _middles(place: Places, runs: _Runs) -> Floats:
    """Of the middle column of each run: there it is, while the middle between its ends may lie in a gap."""
    x, _ = place.of_columns()
    middles: Floats = x[(runs.first + runs.last) // 2]
    return middles


def _ends(place: Places, runs: _Runs) -> tuple[Floats, Floats]:
    there = np.flatnonzero(place.column >= 0)
    return place.edges[:-1][there][runs.first], place.edges[1:][there][runs.last]


def _marks(x: Floats, row: Ints, texts: list[str]) -> dict[str, Any]:
    if not x.size:
        return {"x": [], "y": [], "text": [], "visible": False}
    return {"x": packed(x), "y": packed(row), "text": texts, "visible": True}


# ---- words -----------------------------------------------------------------------------------


def _name(values: NodeValues, row: int) -> str:
    return escape(values.nodes[row].name)


def _worst(values: NodeValues, stat: Statistic) -> str:
    """`23% in block.3 at step 1,200`, over leaves and modules alike."""
    sign = -1.0 if worst_is_lowest(stat) else 1.0
    ranked = np.where(np.isnan(values.value), -np.inf, values.value * sign)
    if not np.isfinite(ranked).any():
        return "not known"
    at, row = np.unravel_index(int(ranked.argmax()), ranked.shape)
    where = f"in {values.nodes[int(row)].name} at step {integer(int(values.step[at]))}"
    return f"{value_words(stat, float(values.value[at, row]))} {where}"


def _table(values: NodeValues, stat: Statistic, underflow: Underflow) -> Table:
    """Worst and newest value of every row."""
    sign = -1.0 if worst_is_lowest(stat) else 1.0
    ranked = np.where(np.isnan(values.value), -np.inf, values.value * sign)
    rows = []
    for k, node in enumerate(values.nodes):
        at = int(ranked[:, k].argmax())
        known = bool(np.isfinite(ranked[at, k]))
        newest = np.flatnonzero(~np.isnan(values.value[:, k]))
        rows.append(
            [
                node.name,
                value_words(stat, float(values.value[at, k])) if known else "–",
                integer(int(values.step[at])) if known else "–",
                value_words(stat, float(values.value[newest[-1], k])) if newest.size else "–",
            ]
        )
    rows, left_out = thin_rows(rows, "layers")
    merged = int(values.num_frames.max())
    joined = f"up to {merged} measured steps are added up in a column" if merged > 1 else ""
    said = underflow.note if stat == "underflow" else ""
    note = "; ".join(part for part in (left_out, joined, said) if part)
    return Table(columns=["layer", f"worst {title_of(stat).lower()}", "at step", "newest"], rows=rows, note=note)


PANEL = LayersHeatmap()
