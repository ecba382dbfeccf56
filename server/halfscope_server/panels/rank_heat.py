"""Charts of ranks, or of buckets, over steps: a row each, coloured by its largest value.

Owns such a chart's reading, colours, words and table. Must not import fastapi. Invariant: of rows that stand for
several ranks the worst is named on hover, and a value that is not finite is a mark, never a colour.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.panels import axes, traces
from halfscope_server.panels.arrays import packed, packed_grid
from halfscope_server.panels.base import Fill, Table, thin_rows
from halfscope_server.panels.columns import CHAR_PX, CIVIDIS, Places, places
from halfscope_server.panels.lines import nothing_there
from halfscope_server.panels.rank_rows import Rows, row_label, rows_of
from halfscope_server.query.format import integer, plural, quantity, step_range
from halfscope_server.query.ranks import Cells, hosts_of, rank_cells
from halfscope_server.query.view import RunView
from halfscope_server.query.window import MAX_POINTS, Span, Window

Floats = NDArray[np.float64]

SECTION = "ranks"
LEAST_LOG10 = -300.0
FLAT_SHARE = 0.02
"""Values that differ by less are all one colour: no rank looks slow that is not."""

COLORBAR = {
    "thickness": 10, "outlinewidth": 0, "len": 1.0, "ticks": "", "x": 1.0, "xpad": 8, "nticks": 6,
    "ticklabeloverflow": "allow",
}  # fmt: skip
LEAST_CHARS = 6
"""Of the colour bar's labels, where Plotly chooses them."""
BESIDE_BAR_PX = 46
"""The bar, its title and what lies around them."""
BELOW_PX = 46
"""Labels and title of the x axis."""
DATE_LINE_PX = 16

Read = Callable[[RunView, Window], Cells | None]


def has_ranks(view: RunView) -> bool:
    """Whether a run is one of several ranks."""
    return view.row.world_size > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Heatmap:
    """See `Panel`."""

    id: str
    title: str
    series: tuple[str, ...]
    """The first of them that the run has is drawn."""
    unit: str
    quantity: str
    """What the colour counts."""
    order: int
    row_name: str = "rank"
    is_log: bool = False
    read: Read | None = None
    """Cells that are not those of the series as it is."""
    section: str = SECTION
    columns: int = 6
    height_px: int = 260
    folded_on_phone: bool = False

    def available(self, view: RunView) -> bool:
        return has_ranks(view) and view.has(*self.series)

    def structure(self, view: RunView) -> Hashable:
        return "heatmap"

    def skeleton(self, view: RunView) -> go.Figure:
        heat = go.Heatmap(
            x=[], y=[], z=[], customdata=[], meta={"role": "text"}, zmin=0, zmax=1, colorscale=CIVIDIS,
            xgap=0, ygap=0, hoverongaps=False, colorbar=COLORBAR,
        )  # fmt: skip
        crosses = traces.marks_skeleton("NaN or Inf", "nonfinite", "x", 7)
        crosses.update(yaxis="y", cliponaxis=True)
        axis = {"showgrid": False, "zeroline": False, "automargin": False, "ticklabeloverflow": "allow"}
        layout = {
            "yaxis": {"title": {"text": self.row_name}, "ticks": "", **axis},
            "xaxis": {"title": {"text": "step"}, **axis},
            "hovermode": "closest",
        }
        return traces.figure([heat, crosses], layout)

    def cells(self, view: RunView, window: Window) -> Cells | None:
        """What is drawn."""
        if self.read is not None:
            return self.read(view, window)
        found = next((view.named(name) for name in self.series if view.has(name)), [])
        return rank_cells(view, found[0], window) if found else None

    def fill(self, view: RunView, window: Window) -> Fill:
        cells, span = self.cells(view, window), view.resolve(window)
        if cells is None or span is None or not (np.isfinite(cells.value).any() or cells.bad.any()):
            why = "No step yet." if span is None else nothing_there(span, window)
            empty = {"x": [], "y": [], "visible": False}
            return Fill(
                data=[{**empty, "z": [], "customdata": []}, {**empty, "text": []}],
                layout={},
                label=f"{self.title}, run {view.row.name}, nothing measured",
                empty=why,
            )
        headline = self.worst_words(cells)
        rows = rows_of(cells, self.row_name, hosts_of(view) if self.row_name == "rank" else {}, window)
        data = self._draw(cells, window, span)
        return Fill(
            data=data,
            layout={
                "xaxis": axes.x_axis(view, window, span),
                "yaxis": rows.axis(int(cells.first_name.size)),
                "shapes": rows.shapes(),
                "margin": _margin(rows, data[0]["colorbar"], window),
            },
            label=f"{self.title}, run {view.row.name}, {step_range(span.first_step, span.last_step)}, {headline}",
            headline=headline,
            first_step=span.first_step,
            last_step=span.last_step,
            make_table=lambda: self._table(cells),
        )

    # ---- arrays ------------------------------------------------------------------------------

    def _draw(self, cells: Cells, window: Window, span: Span) -> list[dict[str, Any]]:
        place = places(window, cells.step, cells.last_step, cells.time_us, cells.width, span)
        finite = cells.value[np.isfinite(cells.value)]
        unit = axes.axis_unit(self.unit, float(np.abs(finite).max(initial=0.0)))
        drawn = self._coloured(cells.value * unit.factor)
        low, high = self._ends(drawn[np.isfinite(drawn)])
        title = f"{self.quantity} ({unit.words})" if unit.words else self.quantity
        told = [cells.value * unit.factor, cells.worst]
        if cells.bad.any():
            told.append(np.where(cells.most_bad < 0, cells.worst, cells.most_bad))
        words = f"%{{customdata[0]:.4~g}} {unit.words}".rstrip()
        heat = {
            "x": packed(place.edges),
            "y": packed(np.arange(cells.first_name.size)),
            "z": packed_grid(place.spread(drawn.T)),
            "customdata": _told(place, np.stack(told, axis=-1).astype(np.float64)),
            "zmin": low,
            "zmax": high,
            "colorbar": {"title": {"text": title, "side": "right"}, **self._ticks(low, high)},
            "hovertemplate": f"{self.row_name} %{{customdata[1]:d}}<br>around %{{x}}: {words}<extra></extra>",
            "visible": True,
        }
        return [heat, self._crosses(cells, place)]

    def _ends(self, drawn: Floats) -> tuple[float, float]:
        """Of the colours: those of the data, where there is a difference to be seen."""
        low, high = (float(drawn.min()), float(drawn.max())) if drawn.size else (0.0, 1.0)
        if self.is_log or low < 0:
            return (low, high) if low < high else (low - 1, high + 1)
        return (low, high) if high - low > FLAT_SHARE * high else (0.0, high or 1.0)

    def _coloured(self, value: Floats) -> Floats:
        if not self.is_log:
            return value
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log10(np.where(value > 0, value, np.nan))
        return np.where(value <= 0, np.nanmin(log) if np.isfinite(log).any() else LEAST_LOG10, log)

    def _ticks(self, low: float, high: float) -> dict[str, Any]:
        if not self.is_log:
            return {"tickmode": "auto"}
        values = np.unique(np.round(np.linspace(low, high, 5), 1)).tolist()
        return {"tickmode": "array", "tickvals": values, "ticktext": [f"{10.0**value:.2g}" for value in values]}

    def _crosses(self, cells: Cells, place: Places) -> dict[str, Any]:
        """A mark per cell; where they would be too many to draw, the first of each row's stretches."""
        row, column = np.nonzero(cells.bad)
        if not row.size:
            return {"x": [], "y": [], "text": [], "visible": False}
        if row.size > MAX_POINTS:
            begins = (column == 0) | (cells.bad[row, np.maximum(column - 1, 0)] == 0)
            row, column = row[begins][:MAX_POINTS], column[begins][:MAX_POINTS]
        x, _ = place.of_columns()
        texts = [self._cross_words(cells, r, c) for r, c in zip(row.tolist(), column.tolist(), strict=True)]
        return {"x": packed(x[column]), "y": packed(row), "text": texts, "visible": True}

    # ---- words -------------------------------------------------------------------------------

    def _cross_words(self, cells: Cells, row: int, column: int) -> str:
        """`ranks 16–31, step 7: 3 values not finite, most on rank 21`."""
        several = cells.first_name[row] != cells.last_name[row]
        where = step_range(int(cells.step[column]), int(cells.last_step[column]))
        most = f", most on {self.row_name} {integer(int(cells.most_bad[row, column]))}" if several else ""
        count = plural(int(cells.bad[row, column]), "value")
        return f"{self.row_name}{'s' if several else ''} {row_label(cells, row)}, {where}: {count} not finite{most}"

    def worst_words(self, cells: Cells) -> str:
        """`most 41 ms on rank 3 at step 1,200`."""
        known = np.where(np.isnan(cells.value), -np.inf, cells.value)
        if not np.isfinite(known).any():
            return "no finite value"
        row, column = np.unravel_index(int(known.argmax()), known.shape)
        name = f"{self.row_name} {integer(int(cells.worst[row, column]))}"
        where = step_range(int(cells.step[column]), int(cells.last_step[column]))
        words = quantity(float(cells.value[row, column]), self.unit)
        return f"most {words}{f' {self.quantity}' if self.unit == '1' else ''} on {name} at {where}"

    def _table(self, cells: Cells) -> Table:
        """Most and newest of every row."""
        rows = []
        for row in range(int(cells.first_name.size)):
            known = np.flatnonzero(~np.isnan(cells.value[row]))
            at = int(known[cells.value[row][known].argmax()]) if known.size else -1
            rows.append(
                [
                    row_label(cells, row),
                    quantity(float(cells.value[row, at]), self.unit) if known.size else "–",
                    integer(int(cells.worst[row, at])) if known.size else "–",
                    integer(int(cells.step[at])) if known.size else "–",
                    quantity(float(cells.value[row, known[-1]]), self.unit) if known.size else "–",
                    integer(int(cells.bad[row].sum())),
                ]
            )
        rows, note = thin_rows(rows, "rows")
        names = [f"{self.row_name}s", f"most {self.quantity}", f"on {self.row_name}", "at step", "newest", "not finite"]
        return Table(columns=names, rows=rows, note=note)


def _margin(rows: Rows, colorbar: Mapping[str, Any], window: Window) -> dict[str, Any]:
    """What stands around the cells, counted here: Plotly would lay out every chart once more after measuring it."""
    chars = max(map(len, colorbar.get("ticktext", ())), default=LEAST_CHARS)
    return {
        "l": rows.width_px,
        "r": BESIDE_BAR_PX + round(CHAR_PX * chars),
        "b": BELOW_PX + (DATE_LINE_PX if window.x == "time" else 0),
        "autoexpand": False,
    }


def _told(place: Places, told: Floats) -> dict[str, str] | list[Any]:
    """[N, C, K] of every cell its value and whose it is; where cells are not finite also who is to be looked at."""
    spread = np.moveaxis(place.spread(np.moveaxis(told, 1, 0)), -1, 1)
    flat = packed_grid(np.ascontiguousarray(spread).reshape(spread.shape[0], -1))
    assert isinstance(flat, dict)
    return {**flat, "shape": ", ".join(map(str, spread.shape))}
