"""Charts of lines: the panel that most others are, with their series and words filled in.

Owns reading, axes, label, headline and table of such a chart. Must not import fastapi. Invariant: whatever the series
holds (nothing, one step, only NaN, zeros on a log axis), the fill fits its skeleton and its label says what is there.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.panels import axes, traces
from halfscope_server.panels.base import Fill, Table, escape, thin_rows
from halfscope_server.query.format import integer, nonfinite_name, number, plural, quantity, step_range
from halfscope_server.query.lines import Line, read_line
from halfscope_server.query.states import precision_role
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span, Window
from halfscope_server.store.types import SeriesRow

Floats = NDArray[np.float64]

MAX_LINES = 8
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
LARGEST = float(np.finfo(np.float64).max)
LOG_RATIO = 1000.0
"""Largest over middle value from which on a linear axis would show one spike and a floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSpec:
    """A series that a panel draws."""

    name: str
    words: str = ""
    """In the legend; the series' name without."""
    unit: str = ""
    """Overrides the unit the series was declared with: `norm`, `loss`."""
    width_px: float = 1.5
    right: bool = False
    """On a thin right axis of its own."""
    role: str = ""
    """Colour role, for a line that stands behind the others; that of the run's number format without."""
    can_smooth: bool = True
    """False for what is set rather than measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A spec with the series it found, and its line over the window."""

    spec: LineSpec
    series: SeriesRow
    words: str
    line: Line | None = None

    @property
    def unit(self) -> str:
        return self.spec.unit or self.series.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePanel:
    """A chart of lines; see `Panel`."""

    id: str
    title: str
    lines: tuple[LineSpec, ...]
    y_title: str
    right_title: str = ""
    section: str = "overview"
    columns: int = 4
    height_px: int = 220
    order: int = 100
    folded_on_phone: bool = True
    scale: Literal["linear", "log", "auto"] = "linear"
    """The y axis where the viewer leaves it open; `auto`: log where one spike would flatten all else."""
    from_zero: bool = False

    @property
    def series(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.lines)

    def available(self, view: RunView) -> bool:
        return bool(self.found(view))

    def found(self, view: RunView) -> list[Drawn]:
        """What of its series the run has; one line for each set of labels."""
        drawn = []
        for spec in self.lines:
            rows = view.named(spec.name)
            for row in rows:
                labels = " ".join(str(value) for value in row.labels.values()) if len(rows) > 1 else ""
                words = " ".join(part for part in (spec.words or row.name, labels) if part)
                drawn.append(Drawn(spec=spec, series=row, words=words))
        return drawn[:MAX_LINES]

    def structure(self, view: RunView) -> Hashable:
        found = tuple((d.series.series_id, d.words, d.series.kind) for d in self.found(view))
        return found, precision_role(view.row)

    def skeleton(self, view: RunView) -> go.Figure:
        found, role = self.found(view), precision_role(view.row) or "text"
        all_traces: list[go.Scatter] = []
        for place, drawn in enumerate(found):
            all_traces += traces.line_skeleton(
                escape(drawn.words),
                drawn.spec.role or role,
                axis="y2" if drawn.spec.right else "y",
                dash=_dash(found, place),
                width_px=drawn.spec.width_px,
                held=drawn.series.kind == "state",
                behind=bool(drawn.spec.role),
            )
        layout: dict[str, Any] = {
            "yaxis": {"title": {"text": escape(self.y_title)}, "zeroline": False},
            "showlegend": len(found) > 1,
        }
        if any(drawn.spec.right for drawn in found):
            layout["yaxis2"] = {
                "title": {"text": escape(self.right_title)},
                "overlaying": "y",
                "side": "right",
                "showgrid": False,
                "zeroline": False,
                "tickmode": "auto",
            }
        return traces.figure([*all_traces, traces.bad_skeleton()], layout)

    def fill(self, view: RunView, window: Window) -> Fill:
        span = view.resolve(window)
        drawn = [_with_line(view, d, window) for d in self.found(view)]
        if span is None or not drawn:
            return _nothing(self, view, len(drawn))
        left = [d for d in drawn if not d.spec.right]
        right = [d for d in drawn if d.spec.right]
        left_axis, left_layout = _y_axis(left, self.y_title, self.choose_scale(left, window), self.from_zero)
        right_axis, right_layout = _y_axis(right, self.right_title, "linear", True)
        layout = {"xaxis": axes.x_axis(view, window, span), "yaxis": left_layout}
        if right:
            layout["yaxis2"] = right_layout

        def places(step: NDArray[np.int64], time_us: NDArray[np.int64]) -> NDArray[Any]:
            return axes.x_values(window, step, time_us)

        data: list[dict[str, Any]] = []
        for one in drawn:
            axis = right_axis if one.spec.right else left_axis
            data += traces.line_fill(one.line, places, axis.values, axis.hover)
        names = ("" if len(drawn) == 1 else "{}").format
        bad = [(names(escape(d.words)), d.line.bad) for d in drawn if d.line is not None]
        data.append(traces.bad_fill(bad, places))
        newest = newest_words(view, left[0] if left else drawn[0], window) + _apart_words(left)
        return Fill(
            data=data,
            layout=layout,
            label=chart_label(self.title, view, span, newest, drawn),
            headline=newest,
            empty="" if any(d.line is not None and not d.line.is_empty for d in drawn) else nothing_there(span, window),
            first_step=span.first_step,
            last_step=span.last_step,
            make_table=lambda: lines_table(drawn),
        )

    def choose_scale(self, drawn: list[Drawn], window: Window) -> Literal["linear", "log"]:
        """The y axis: what the viewer wants, else what the panel is, else what the data need."""
        if window.y != "auto":
            return window.y
        if self.scale != "auto":
            return self.scale
        for one in drawn:
            value = one.line.curve.value if one.line is not None else np.empty(0)
            high = one.line.maximum if one.line is not None else None
            if value.size and value.min() > 0 and high is not None and high > LOG_RATIO * float(np.median(value)):
                return "log"
        return "linear"


def _with_line(view: RunView, drawn: Drawn, window: Window) -> Drawn:
    part = window if drawn.spec.can_smooth else replace(window, smooth=0.0)
    return replace(drawn, line=read_line(view, drawn.series, part))


def _dash(found: list[Drawn], place: int) -> str:
    """Lines of one colour in one chart are told apart by their dashes."""
    if found[place].spec.role:
        return "solid"
    rivals = [d for d in found[:place] if d.spec.right == found[place].spec.right and not d.spec.role]
    return DASHES[len(rivals) % len(DASHES)]


def _nothing(panel: LinePanel, view: RunView, num_lines: int) -> Fill:
    num_traces = num_lines * traces.TRACES_PER_LINE + 1
    return Fill(
        data=[{"x": [], "y": [], "visible": False} for _ in range(num_traces)],
        layout={},
        label=f"{panel.title}, run {view.row.name}, no step yet",
        empty="No step yet. The chart begins with the first step of the optimizer.",
    )


# ---- axes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _YAxis:
    unit: axes.AxisUnit
    is_log: bool
    hover: str

    def values(self, value: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Which values this axis can draw, and as what."""
        keep = value > 0 if self.is_log else np.ones(value.size, np.bool_)
        with np.errstate(over="ignore"):
            return keep, np.clip(value[keep] * self.unit.factor, -LARGEST, LARGEST)


def _y_axis(
    drawn: list[Drawn], title: str, scale: Literal["linear", "log"], from_zero: bool
) -> tuple[_YAxis, dict[str, Any]]:
    ends = [e for d in drawn if d.line is not None for e in (d.line.minimum, d.line.maximum) if e is not None]
    unit = axes.axis_unit(drawn[0].unit if drawn else "", max((abs(end) for end in ends), default=0.0))
    positive = _smallest_positive(drawn) if scale == "log" else None
    axis = _YAxis(unit=unit, is_log=positive is not None, hover=f"%{{y:{unit.hover}}} {escape(unit.words)}".rstrip())
    words = f"{title} ({unit.words})" if unit.words and unit.words not in title else title
    layout: dict[str, Any] = {"type": "log" if axis.is_log else "linear", "title": {"text": escape(words)}}
    layout["showticklabels"] = bool(ends)
    if not ends:
        # Nothing finite: only marks are drawn, and numbers beside them would mean nothing.
        return axis, {**layout, "range": [0, 1]}
    low, high = (min(max(end * unit.factor, -LARGEST), LARGEST) for end in (min(ends), max(ends)))
    if positive is not None:
        lowest = min(positive * unit.factor, high)
        return axis, {**layout, "range": axes.log_range(lowest, high), "exponentformat": "power"}
    if drawn and all(d.series.kind == "flag" for d in drawn):
        return axis, {**layout, "range": [-0.05, 1.05]}
    return axis, {**layout, "range": axes.linear_range(low, high, from_zero=from_zero)}


def _smallest_positive(drawn: list[Drawn]) -> float | None:
    """The lowest value a log axis can show; None where there is none."""
    found = []
    for one in drawn:
        if one.line is None:
            continue
        values = [one.line.curve.value] if one.line.band is None else [one.line.curve.value, one.line.band.low]
        found += [float(positive.min()) for value in values if (positive := value[value > 0]).size]
        if one.line.maximum is not None and one.line.maximum > 0:
            found.append(one.line.maximum)
    return min(found, default=None)


# ---- words -----------------------------------------------------------------------------------


def nothing_there(span: Span, window: Window) -> str:
    """Why a chart of a run with steps is empty."""
    place = step_range(span.first_step, span.last_step)
    whole = window.first is None and window.last is None
    return f"Nothing was recorded in {place}." + ("" if whole else " Reset the zoom (key 0) to see the whole run.")


def newest_words(view: RunView, drawn: Drawn, window: Window) -> str:
    """The newest value of a line in the window, finite or not."""
    line = drawn.line
    if line is None:
        return ""
    if window.follows and window.rank is None:
        value = view.newest(drawn.series)
        return quantity(float(value[-1]), drawn.unit) if value.size else ""
    last_bad = int(line.bad.last_step[-1]) if line.bad.step.size else -1
    if line.curve.size and line.curve.step[-1] >= last_bad:
        return quantity(float(line.curve.value[-1]), drawn.unit)
    return _bad_name(line) if line.bad.step.size else ""


def _apart_words(drawn: list[Drawn]) -> str:
    """The rank that stands apart from the others, if one does."""
    found = drawn[0].line.apart if drawn and drawn[0].line is not None else None
    if found is None:
        return ""
    unit = drawn[0].unit
    side = "highest" if found.is_high else "lowest"
    return f" · rank {integer(found.rank)} {side}: {quantity(found.value, unit)}, usual {quantity(found.usual, unit)}"


def _bad_name(line: Line) -> str:
    counts = {
        "NaN": int(line.bad.num_nan[-1]),
        "+Inf": int(line.bad.num_pos_inf[-1]),
        "-Inf": int(line.bad.num_neg_inf[-1]),
    }
    return max(counts, key=lambda name: counts[name])


def chart_label(title: str, view: RunView, span: Span, newest: str, drawn: list[Drawn]) -> str:
    """`Loss, run fp32-cnn, steps 0 to 12,400, now 0.0412, 3 values not finite`."""
    parts = [f"{title}, run {view.row.name}", f"steps {integer(span.first_step)} to {integer(span.last_step)}"]
    if newest:
        parts.append(f"now {newest}")
    num_bad = sum(d.line.bad.total for d in drawn if d.line is not None)
    if num_bad:
        parts.append(f"{plural(num_bad, 'value')} not finite")
    return ", ".join(parts)


# ---- table -----------------------------------------------------------------------------------


def lines_table(drawn: list[Drawn]) -> Table:
    """The drawn points and the non-finite ones, one row per step."""
    cells: dict[int, dict[int, str]] = {}
    widest = 1
    for place, one in enumerate(drawn):
        if one.line is None:
            continue
        widest = max(widest, one.line.bucket_steps)
        for step, value in zip(one.line.curve.step.tolist(), one.line.curve.value.tolist(), strict=True):
            cells.setdefault(step, {})[place] = quantity(value, one.unit)
        for step, text in _bad_cells(one.line):
            cells.setdefault(step, {})[place] = text
    num = len(drawn)
    rows = [[integer(step), *(row.get(k, "–") for k in range(num))] for step, row in sorted(cells.items())]
    rows, note = thin_rows(rows, "drawn points")
    if widest > 1:
        note = "; ".join(part for part in (note, f"each stands for {integer(widest)} steps") if part)
    return Table(columns=["step", *(d.words for d in drawn)], rows=rows, note=note)


def _bad_cells(line: Line) -> list[tuple[int, str]]:
    bad = line.bad
    found = []
    for place in range(bad.step.size):
        counts = (int(bad.num_nan[place]), int(bad.num_pos_inf[place]), int(bad.num_neg_inf[place]))
        names = [nonfinite_name(value) for value in (np.nan, np.inf, -np.inf)]
        present = [(count, name) for count, name in zip(counts, names, strict=True) if count]
        text = ", ".join(name if count == 1 else f"{name} × {number(count)}" for count, name in present)
        found.append((int(bad.step[place]), text))
    return found
