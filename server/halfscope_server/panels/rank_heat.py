"""Charts of ranks, or of buckets, over steps: a row each, coloured by its largest value.

Owns such a chart's reading, colours, words and table. Must not import fastapi. Invariant: of rows that stand for
several ranks the worst is named on hover, and a value that is not finite is a mark, never a colour.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.panels import axes, traces
from halfscope_server.panels.arrays import packed, packed_grid
from halfscope_server.panels.base import Fill, Table, thin_rows
from halfscope_server.panels.columns import CIVIDIS, Places, places
from halfscope_server.panels.lines import nothing_there
from halfscope_server.query.format import integer, plural, quantity, step_range
from halfscope_server.query.ranks import Cells, rank_cells
from halfscope_server.query.view import RunView
from halfscope_server.query.window import MAX_POINTS, Span, Window

Floats = NDArray[np.float64]

SECTION = "ranks"
LEAST_LOG10 = -300.0
MOST_LABELS = 16
FLAT_SHARE = 0.02
"""Values that differ by less are all one colour: no rank looks slow that is not."""

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
            xgap=0, ygap=0, hoverongaps=False, colorbar={"thickness": 10, "outlinewidth": 0, "len": 1.0, "ticks": ""},
        )  # fmt: skip
        crosses = traces.marks_skeleton("NaN or Inf", "nonfinite", "x", 7)
        crosses.update(yaxis="y", cliponaxis=True)
        layout = {
            "yaxis": {"title": {"text": self.row_name}, "zeroline": False, "showgrid": False, "ticks": ""},
            "xaxis": {"title": {"text": "step"}, "showgrid": False, "zeroline": False},
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
        return Fill(
            data=self._draw(cells, window, span),
            layout={"xaxis": axes.x_axis(view, window, span), "yaxis": self._rows_axis(cells)},
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
        told = np.stack([cells.value * unit.factor, cells.worst.astype(np.float64)], axis=-1)
        words = f"%{{customdata[0]:.4~g}} {unit.words}".rstrip()
        heat = {
            "x": packed(place.edges),
            "y": packed(np.arange(cells.first_name.size)),
            "z": packed_grid(place.spread(drawn.T)),
            "customdata": _told(place, told),
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
        texts = [
            f"{self._name(cells, r)}, {step_range(int(cells.step[c]), int(cells.last_step[c]))}:"
            f" {plural(int(cells.bad[r, c]), 'value')} not finite"
            for r, c in zip(row.tolist(), column.tolist(), strict=True)
        ]
        return {"x": packed(x[column]), "y": packed(row), "text": texts, "visible": True}

    def _rows_axis(self, cells: Cells) -> dict[str, Any]:
        num_rows = int(cells.first_name.size)
        every = max(1, -(-num_rows // MOST_LABELS))
        rows = list(range(0, num_rows, every))
        return {
            "range": [num_rows - 0.5, -0.5],
            "tickmode": "array",
            "tickvals": rows,
            "ticktext": [self._label(cells, row) for row in rows],
        }

    # ---- words -------------------------------------------------------------------------------

    def _label(self, cells: Cells, row: int) -> str:
        first, last = int(cells.first_name[row]), int(cells.last_name[row])
        return integer(first) if first == last else f"{integer(first)}–{integer(last)}"

    def _name(self, cells: Cells, row: int) -> str:
        several = cells.first_name[row] != cells.last_name[row]
        return f"{self.row_name}{'s' if several else ''} {self._label(cells, row)}"

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
                    self._label(cells, row),
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


def _told(place: Places, told: Floats) -> dict[str, str] | list[Any]:
    """[N, C, 2] value and name of every cell, for hovering."""
    spread = np.moveaxis(place.spread(np.moveaxis(told, 1, 0)), -1, 1)
    flat = packed_grid(np.ascontiguousarray(spread).reshape(spread.shape[0], -1))
    assert isinstance(flat, dict)
    return {**flat, "shape": ", ".join(map(str, spread.shape))}
