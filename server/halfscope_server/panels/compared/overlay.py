"""Charts that draw one series of every run over each other: what most charts of a comparison are.

Owns their lines, colours, letters, axes, label and table. Must not import fastapi. Invariant: a run's colour, dash and
letter are the same in all charts of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Member
from halfscope_server.panels import axes, traces
from halfscope_server.panels.base import Fill, Table, escape
from halfscope_server.panels.compared import places
from halfscope_server.panels.compared.letters import apart, legend_names, letter_note
from halfscope_server.panels.lines import LARGEST, LOG_RATIO
from halfscope_server.query.format import integer, number, plural, power_of_two, quantity, shortened
from halfscope_server.query.lines import Line, read_line
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Window
from halfscope_server.store.types import SeriesRow

Floats = NDArray[np.float64]

DASHES = {"FP32": "solid", "TF32": "dashdot", "FP16-AMP": "solid", "FP16": "longdash", "FP8": "dot"}
"""Second channel of a number format's lines, besides colour; BF16 and what is not named here are dashed."""
REPEATED_OPACITY = (1.0, 0.8, 0.65, 0.55)
"""Runs of one format have one hue; the second is lighter than the first, and none so light that it is lost on a dark
page."""
NUM_ROWS = 100
MARGIN_PX = 24
"""Right of the lines, for their letters."""
MAX_TICKS = 9
MOST_TITLE_CHARS = 32
"""Of an axis' title, which is as long as the chart is high."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overlaid:
    """One member's line."""

    member: Member
    view: RunView
    series: SeriesRow | None
    line: Line | None
    opacity: float

    @property
    def words(self) -> str:
        return f"{self.member.letter} {self.member.name}"


def look(member: Member) -> tuple[str, str]:
    """Colour role and dash of a run's lines."""
    return member.precision_role or "text", DASHES.get(member.precision, "dash" if member.precision_role else "solid")


def opacities(members: list[Member]) -> list[float]:
    """By member: of the runs of one look, the later are lighter."""
    found = []
    for at, member in enumerate(members):
        before = sum(look(other) == look(member) for other in members[:at])
        found.append(REPEATED_OPACITY[min(before, len(REPEATED_OPACITY) - 1)])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayPanel:
    """A series of all members; see `ComparePanel`."""

    id: str
    title: str
    names: Callable[[Comparison], tuple[str, ...]]
    """Series that may be drawn: each member's first that it has."""
    y_title: str
    """Empty: the name of the metric that stands for quality, which the title names too."""
    section: str
    unit: str = ""
    """Overrides the unit the series was declared with."""
    columns: int = 6
    height_px: int = 240
    order: int = 100
    folded_on_phone: bool = True
    scale: Literal["linear", "log", "auto", "exponent"] = "linear"
    """`exponent`: drawn as powers of two."""
    from_zero: bool = False
    can_smooth: bool = True

    def worded(self, comparison: Comparison) -> OverlayPanel:
        """The panel as it is called over these runs."""
        metric = comparison.options.metric
        return self if self.y_title else replace(self, title=f"{self.title}: {metric}", y_title=metric)

    def available(self, comparison: Comparison) -> bool:
        return any(self._series(comparison, view) is not None for view in comparison.views)

    def _series(self, comparison: Comparison, view: RunView) -> SeriesRow | None:
        return next((rows[0] for name in self.names(comparison) if (rows := view.named(name))), None)

    def structure(self, comparison: Comparison) -> Hashable:
        kinds = [getattr(self._series(comparison, view), "kind", "") for view in comparison.views]
        words = [(member.letter, member.name, look(member)) for member in comparison.members]
        return tuple(words), tuple(kinds), self.names(comparison)

    def skeleton(self, comparison: Comparison) -> go.Figure:
        all_traces: list[go.Scatter] = []
        names = legend_names(comparison.members, self.columns)
        for member, view, name in zip(comparison.members, comparison.views, names, strict=True):
            series = self._series(comparison, view)
            role, dash = look(member)
            all_traces += traces.line_skeleton(
                escape(name),
                role,
                dash=dash,
                held=series is not None and series.kind == "state",
            )
        layout = {"yaxis": {"title": {"text": self._y_words("")}, "zeroline": False}, "showlegend": True}
        return traces.figure([*all_traces, traces.bad_skeleton()], layout)

    def fill(self, comparison: Comparison, window: Window) -> Fill:
        drawn, ends = self.lines(comparison, window), places.ends_of(comparison, window)
        num_traces = len(drawn) * traces.TRACES_PER_LINE + 1
        if ends is None:
            why = places.no_axis(comparison) or "No step yet. The chart begins with the first step."
            return nothing(self.title, comparison, num_traces, why)
        axis = self._y_axis(drawn, window)
        data: list[dict[str, Any]] = []
        for one in drawn:
            of_member = places.placing(comparison, one.view)
            lines = traces.line_fill(one.line, of_member, axis.values, axis.hover)
            # The line and its average; the band keeps what it has.
            for line in lines[-2:]:
                line["opacity"] = line.get("opacity", 1.0) * one.opacity
            data += lines
        data.append(_bad(comparison, drawn))
        x_axis = places.x_axis(comparison, window, ends)
        steps = places.whole_steps(comparison, ends)
        is_empty = all(one.line is None or one.line.is_empty for one in drawn)
        return Fill(
            data=data,
            layout={
                "xaxis": x_axis,
                "yaxis": axis.layout,
                "annotations": [] if is_empty else self._letters(comparison, drawn, axis, x_axis["range"]),
                "margin": {"r": MARGIN_PX},
            },
            label=self._label(comparison, drawn, ends),
            headline=" · ".join(f"{one.member.letter} {self._newest(one)}" for one in drawn if one.line is not None),
            empty=self._why_empty(comparison) if is_empty else "",
            first_step=steps.first_step if steps else None,
            last_step=steps.last_step if steps else None,
            make_table=lambda: self._table(comparison, drawn, ends),
        )

    def lines(self, comparison: Comparison, window: Window) -> list[Overlaid]:
        """Every member's line over a window."""
        found = []
        members = comparison.members
        for member, view, opacity in zip(members, comparison.views, opacities(members), strict=True):
            series = self._series(comparison, view)
            part = places.member_window(comparison, view, window)
            part = part if self.can_smooth else replace(part, smooth=0.0)
            can_be_drawn = series is not None and places.axis_of(comparison, view) is not None
            line = read_line(view, series, part) if series is not None and can_be_drawn else None
            found.append(Overlaid(member=member, view=view, series=series, line=line, opacity=opacity))
        return found

    def _why_empty(self, comparison: Comparison) -> str:
        return places.no_axis(comparison) or f"None of these runs recorded {self.y_title} in this stretch."

    def _unit(self, one: Overlaid) -> str:
        return self.unit or (one.series.unit if one.series is not None else "")

    def _words(self, value: float, one: Overlaid) -> str:
        return power_of_two(value) if self.scale == "exponent" else quantity(value, self._unit(one))

    def _newest(self, one: Overlaid) -> str:
        line = one.line
        if line is None or line.is_empty:
            return "–"
        last_bad = int(line.bad.last_step[-1]) if line.bad.step.size else -1
        if line.curve.size and int(line.curve.step[-1]) >= last_bad:
            return self._words(float(line.curve.value[-1]), one)
        return "not finite"

    def _label(self, comparison: Comparison, drawn: list[Overlaid], ends: tuple[float, float]) -> str:
        what = places.TITLES[comparison.options.align]
        parts = [f"{self.title} of {plural(len(drawn), 'run')}, {what} {number(ends[0])} to {number(ends[1])}"]
        parts += [f"{one.words}: now {self._newest(one)}" for one in drawn]
        num_bad = sum(one.line.bad.total for one in drawn if one.line is not None)
        parts += [reason] if (reason := places.no_axis(comparison)) else []
        return ", ".join([*parts, *([f"{plural(num_bad, 'value')} not finite"] if num_bad else [])])

    # ---- the y axis -------------------------------------------------------------------------

    def _y_axis(self, drawn: list[Overlaid], window: Window) -> _YAxis:
        lines = [one.line for one in drawn if one.line is not None]
        ends = [end for line in lines for end in (line.minimum, line.maximum) if end is not None]
        if self.scale == "exponent":
            return _exponent_axis(lines, self.y_title)
        unit = axes.axis_unit(
            next((self._unit(one) for one in drawn if one.series), ""), max(map(abs, ends), default=0.0)
        )
        layout: dict[str, Any] = {"title": {"text": self._y_words(unit.words)}, "showticklabels": bool(ends)}
        hover = f"%{{y:{unit.hover}}} {escape(unit.words)}".rstrip()
        positive = [p for line in lines if (p := _least_positive(line)) is not None]
        if not ends:
            return _YAxis(layout={**layout, "type": "linear", "range": [0, 1]}, hover=hover)
        low, high = (min(max(end * unit.factor, -LARGEST), LARGEST) for end in (min(ends), max(ends)))
        if positive and self._is_log(lines, window):
            layout |= {"range": axes.log_range(min(min(positive) * unit.factor, high), high), "exponentformat": "power"}
            return _YAxis(layout={**layout, "type": "log"}, hover=hover, factor=unit.factor, is_log=True)
        layout |= {"range": axes.linear_range(low, high, from_zero=self.from_zero), "type": "linear"}
        return _YAxis(layout=layout, hover=hover, factor=unit.factor)

    def _y_words(self, unit: str) -> str:
        named = shortened(self.y_title, MOST_TITLE_CHARS)
        return escape(f"{named} ({unit})" if unit and unit not in named else named)

    def _is_log(self, lines: list[Line], window: Window) -> bool:
        if window.y != "auto":
            return window.y == "log"
        if self.scale != "auto":
            return self.scale == "log"
        values = [line.curve.value for line in lines if line.curve.size]
        everything = np.concatenate(values) if values else np.empty(0)
        highest = max((line.maximum for line in lines if line.maximum is not None), default=0.0)
        return bool(everything.size and everything.min() > 0 and highest > LOG_RATIO * float(np.median(everything)))

    def _letters(
        self, comparison: Comparison, drawn: list[Overlaid], axis: _YAxis, x_range: list[float]
    ) -> list[dict[str, Any]]:
        """Every run's letter at the end of its line."""
        notes = []
        for one in drawn:
            curve = None if one.line is None else one.line.smooth or one.line.curve
            if curve is None or not curve.size or (y := axis.place(float(curve.value[-1]))) is None:
                continue
            x = float(places.placing(comparison, one.view)(curve.step[-1:], curve.time_us[-1:])[0])
            notes.append(letter_note(one.member, look(one.member)[0], x, y))
        return apart(notes, x_range, axis.layout["range"], self.height_px, self.columns)

    # ---- table ------------------------------------------------------------------------------

    def _table(self, comparison: Comparison, drawn: list[Overlaid], ends: tuple[float, float]) -> Table:
        """What each line is at places evenly apart: its value there, or the last drawn before."""
        at = np.linspace(*ends, NUM_ROWS)
        columns = [_sampled(comparison, one, at) for one in drawn]
        rows = []
        for row, place in enumerate(at.tolist()):
            cells = [
                "–" if np.isnan(column[row]) else self._words(float(column[row]), one)
                for column, one in zip(columns, drawn, strict=True)
            ]
            rows.append([integer(round(place)) if ends[1] - ends[0] > NUM_ROWS else number(place), *cells])
        bad = [
            f"{one.words}: {plural(one.line.bad.total, 'value')} not finite"
            for one in drawn
            if one.line is not None and one.line.bad.total
        ]
        note = "; ".join(["each cell is the value drawn there, or the last one before", *bad])
        return Table(
            columns=[places.TITLES[comparison.options.align], *(one.words for one in drawn)], rows=rows, note=note
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _YAxis:
    layout: dict[str, Any]
    hover: str
    factor: float = 1.0
    is_log: bool = False
    is_exponent: bool = False

    def values(self, value: Floats) -> tuple[NDArray[np.bool_], Floats]:
        """Which values this axis can draw, and as what."""
        keep = value > 0 if self.is_log or self.is_exponent else np.ones(value.size, np.bool_)
        if self.is_exponent:
            return keep, np.log2(value[keep])
        with np.errstate(over="ignore"):
            return keep, np.clip(value[keep] * self.factor, -LARGEST, LARGEST)

    def place(self, value: float) -> float | None:
        """Where an annotation of a value stands; on a log axis plotly wants its logarithm."""
        keep, drawn = self.values(np.array([value]))
        if not keep[0]:
            return None
        return float(np.log10(drawn[0])) if self.is_log else float(drawn[0])


def _exponent_axis(lines: list[Line], title: str) -> _YAxis:
    titled = {"title": {"text": f"{title} (power of two)"}}
    found = [line.curve.value[line.curve.value > 0] for line in lines]
    values = np.concatenate(found) if found else np.empty(0)
    if not values.size:
        return _YAxis(layout={**titled, "range": [0, 1], "showticklabels": False}, hover="", is_exponent=True)
    ticks = axes.scale_ticks(float(np.log2(values.min())), float(np.log2(values.max())))
    return _YAxis(layout={**titled, **ticks, "showticklabels": True}, hover="2 to the %{y:.4~g}", is_exponent=True)


def _least_positive(line: Line) -> float | None:
    values = [line.curve.value] if line.band is None else [line.curve.value, line.band.low]
    found = [float(positive.min()) for value in values if (positive := value[value > 0]).size]
    return min(found, default=None)


def _bad(comparison: Comparison, drawn: list[Overlaid]) -> dict[str, Any]:
    """All members' marks; each says whose it is and where in steps of its own."""
    marks = [
        traces.bad_fill([(escape(one.words), one.line.bad)], places.placing(comparison, one.view))
        for one in drawn
        if one.line is not None and one.line.bad.step.size
    ]
    return traces.joined_marks(marks)


def _sampled(comparison: Comparison, one: Overlaid, at: Floats) -> Floats:
    """The last drawn value at or before each place, up to the line's end; NaN where there is none."""
    if one.line is None or not one.line.curve.size:
        return np.full(at.size, np.nan)
    x = places.placing(comparison, one.view)(one.line.curve.step, one.line.curve.time_us).astype(np.float64)
    found = np.searchsorted(x, at, "right") - 1
    reach = float(x[-1]) + max(1.0, float(np.median(np.diff(x))) if x.size > 1 else 1.0)
    there = (found >= 0) & (at <= reach)
    return np.where(there, one.line.curve.value[np.maximum(found, 0)], np.nan)


def nothing(title: str, comparison: Comparison, num_traces: int, why: str) -> Fill:
    return Fill(
        data=[{"x": [], "y": [], "visible": False} for _ in range(num_traces)],
        layout={},
        label=f"{title} of {plural(len(comparison.views), 'run')}, nothing yet",
        empty=why,
    )
