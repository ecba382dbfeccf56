"""The loss scale: in powers of two, in steps, with every skip above and every growth below."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.panels import axes, traces
from halfscope_server.panels.arrays import packed, unpacked
from halfscope_server.panels.base import Fill, Table, escape, thin_rows
from halfscope_server.panels.lines import Drawn, LinePanel, LineSpec, chart_label, nothing_there
from halfscope_server.query.format import integer, plural, power_of_two, power_of_two_spoken, quantity, step_range
from halfscope_server.query.lines import Line, read_line
from halfscope_server.query.skips import PROBE, SETTLING, SINGLE, SKIP_CLASSES, STREAK
from halfscope_server.query.states import precision_role
from halfscope_server.query.summary import current_scale
from halfscope_server.query.view import RunView
from halfscope_server.query.window import MARK_PX, Span, Window

Ints = NDArray[np.int64]

_FINDER = LinePanel(id="scale", title="Loss scale", lines=(LineSpec(name="amp.scale", words="scale"),), y_title="scale")
HOVER = "%{customdata:,.7~g}"
MAX_EXPONENT = 1023.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marks:
    """Events joined where they are closer than 4 px."""

    step: Ints
    last_step: Ints
    count: Ints


@dataclass(frozen=True, slots=True)
class ScalePanel:
    """See the module."""

    id: str = "scale"
    title: str = "Loss scale"
    section: str = "overview"
    columns: int = 4
    height_px: int = 320
    order: int = 20
    folded_on_phone: bool = False
    series: tuple[str, ...] = ("amp.scale", "amp.scale_next", "amp.skipped")

    def available(self, view: RunView) -> bool:
        return view.has("amp.scale")

    def structure(self, view: RunView) -> Hashable:
        return _FINDER.structure(view)

    def skeleton(self, view: RunView) -> go.Figure:
        role = precision_role(view.row) or "text"
        found = _FINDER.found(view)
        lines = [
            trace
            for place, drawn in enumerate(found)
            for trace in traces.line_skeleton(
                escape(drawn.words), role, dash=("solid", "dash", "dot")[place % 3], held=True
            )
        ]
        marks = [
            traces.marks_skeleton("skip", "quiet", "triangle-down", 8),
            traces.marks_skeleton("skip in a streak", "streak", "triangle-down", 9),
            traces.marks_skeleton("growth", "info", "triangle-up-open", 7),
            traces.bad_skeleton(),
        ]
        layout = {
            "yaxis": {"title": {"text": "loss scale (power of two)"}, "zeroline": False},
            "showlegend": len(found) > 1,
        }
        return traces.figure([*lines, *marks], layout)

    def fill(self, view: RunView, window: Window) -> Fill:
        span = view.resolve(window)
        drawn = [
            Drawn(spec=d.spec, series=d.series, words=d.words, line=read_line(view, d.series, window))
            for d in _FINDER.found(view)
        ]
        if span is None:
            num_traces = len(drawn) * traces.TRACES_PER_LINE + 4
            return Fill(
                data=[{"x": [], "y": [], "visible": False} for _ in range(num_traces)],
                layout={},
                label=f"{self.title}, run {view.row.name}, no step yet",
                empty="No step yet. The chart begins with the first step of the optimizer.",
            )

        def places(step: Ints, time_us: Ints) -> NDArray[Any]:
            return axes.x_values(window, step, time_us)

        data = [_with_value(t) for d in drawn for t in traces.line_fill(d.line, places, _log2, HOVER)]
        quiet, streak, growth = _find_marks(view, span, window)
        data.append(_marks_fill(view, window, quiet, "skip", traces.TOP))
        data.append(_marks_fill(view, window, streak, "skip in a streak", traces.TOP, many="skips in a streak"))
        data.append(_marks_fill(view, window, growth, "growth", traces.BOTTOM))
        data.append(traces.bad_fill([("", d.line.bad) for d in drawn if d.line is not None], places))
        lines = [d.line for d in drawn if d.line is not None]
        newest = _newest(view, lines, window)
        num_skips = int(quiet.count.sum() + streak.count.sum())
        spoken = power_of_two_spoken(newest) if newest is not None else ""
        return Fill(
            data=data,
            layout={"xaxis": axes.x_axis(view, window, span), "yaxis": _y_layout(lines)},
            label=f"{chart_label(self.title, view, span, spoken, drawn)}, {plural(num_skips, 'skip')}",
            headline=power_of_two(newest) if newest is not None else "",
            empty="" if any(not line.is_empty for line in lines) else nothing_there(span, window),
            first_step=span.first_step,
            last_step=span.last_step,
            make_table=lambda: _table(view, span, drawn),
        )


def _log2(value: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """What can be drawn as an exponent; a scale of 0 cannot."""
    keep = value > 0
    return keep, np.log2(value[keep])


def _with_value(trace: dict[str, Any]) -> dict[str, Any]:
    """The scale itself beside its exponent, for hovering."""
    exponents = unpacked(trace["y"])
    return {**trace, "customdata": packed(np.exp2(np.minimum(exponents, MAX_EXPONENT)))}


def _y_layout(lines: list[Line]) -> dict[str, Any]:
    drawn = [_log2(line.curve.value)[1] for line in lines]
    present = [value for value in drawn if value.size]
    values = np.concatenate(present or [np.array([0.0, 16.0])])
    ticks = axes.scale_ticks(float(values.min()), float(values.max()))
    return {**ticks, "showticklabels": bool(present)}


def _newest(view: RunView, lines: list[Line], window: Window) -> float | None:
    if window.follows:
        return current_scale(view)
    return next((float(line.curve.value[-1]) for line in lines if line.curve.size), None)


def _find_marks(view: RunView, span: Span, window: Window) -> tuple[_Marks, _Marks, _Marks]:
    num_places = max(10, window.width_px // MARK_PX)
    skips, growths = view.skips, view.marks(("scale_growth",))
    # One mark per step: with several ranks or optimizers a growth is reported by each.
    growth_steps = np.unique(growths.step)
    return (
        _join(skips.of(SETTLING, PROBE, SINGLE).step, span, num_places),
        _join(skips.of(STREAK).step, span, num_places),
        _join(growth_steps, span, num_places),
    )


def _join(step: Ints, span: Span, num_places: int) -> _Marks:
    step = np.sort(step[(step >= span.first_step) & (step <= span.last_step)])
    if not step.size:
        return _Marks(step=step, last_step=step, count=step)
    place = (step - span.first_step) * num_places // span.num_steps
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    ends = np.append(starts[1:], step.size)
    return _Marks(step=step[starts], last_step=step[ends - 1], count=(ends - starts).astype(np.int64))


def _marks_fill(view: RunView, window: Window, marks: _Marks, one: str, at: float, *, many: str = "") -> dict[str, Any]:
    texts = [
        f"{step_range(first, last)}: {plural(count, one, many)}"
        for first, last, count in zip(marks.step.tolist(), marks.last_step.tolist(), marks.count.tolist(), strict=True)
    ]
    places: NDArray[Any] = marks.step
    if window.x == "time":
        clock_step, clock_time = view.clock
        times = np.interp(marks.step, clock_step, clock_time) if clock_step.size else marks.step * 0.0
        places = axes.x_values(window, marks.step, times.astype(np.int64))
    return traces.marks_fill(places, texts, at)


def _table(view: RunView, span: Span, drawn: list[Drawn]) -> Table:
    """Every change of the scale, and every skip with its class."""
    rows: list[tuple[int, str, str]] = []
    for one in drawn:
        if one.line is None:
            continue
        curve = one.line.curve
        before = None
        for step, value in zip(curve.step.tolist(), curve.value.tolist(), strict=True):
            if value != before:
                rows.append((step, one.words, f"{power_of_two(value)} ({quantity(value, '')})"))
            before = value
    skips = view.skips
    for step, kind in zip(skips.step.tolist(), skips.kind.tolist(), strict=True):
        if span.first_step <= step <= span.last_step:
            rows.append((step, "skip", SKIP_CLASSES[kind]))
    texts, note = thin_rows([[integer(step), what, value] for step, what, value in sorted(rows)])
    return Table(columns=["step", "what", "value"], rows=texts, note=note)


PANEL = ScalePanel()
