"""One statistic of the chosen layer in all runs: underflow, headroom, non-finite, norm or zeros over steps.

Must not import fastapi. Invariant: values are those of the heatmap on each run's own page; what is not known is not
drawn.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Member
from halfscope_server.panels import axes, traces
from halfscope_server.panels.arrays import packed
from halfscope_server.panels.base import Fill, Table, escape, thin_rows
from halfscope_server.panels.compared import places
from halfscope_server.panels.compared.layers import NOTHING, chosen_layer, own_name
from halfscope_server.panels.compared.letters import apart, legend_names, letter_note
from halfscope_server.panels.compared.overlay import look, nothing, opacities
from halfscope_server.query.format import integer, layer_words, plural
from halfscope_server.query.frames import columns, run_frames
from halfscope_server.query.layers import rows_within
from halfscope_server.query.statistics import node_values, title_of, value_words
from halfscope_server.query.underflow import run_underflow
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Statistic, Window

Floats = NDArray[np.float64]

MOST_PLACES = 500


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """A layer's statistic in one run, where it is known."""

    member: Member
    step: NDArray[np.int64]
    x: Floats
    value: Floats


@dataclass(frozen=True, slots=True)
class StatisticPanel:
    """See the module."""

    id: str = "compare-layer"
    title: str = "Layer over steps"
    section: str = "layer"
    columns: int = 12
    height_px: int = 240
    order: int = 190
    folded_on_phone: bool = False

    def available(self, comparison: Comparison) -> bool:
        return any(view.layers for view in comparison.views)

    def structure(self, comparison: Comparison) -> Hashable:
        return tuple((member.letter, member.name, look(member)) for member in comparison.members)

    def skeleton(self, comparison: Comparison) -> go.Figure:
        found = []
        members = comparison.members
        names = legend_names(members, self.columns)
        for member, opacity, name in zip(members, opacities(members), names, strict=True):
            role, dash = look(member)
            found.append(
                go.Scatter(
                    x=[],
                    y=[],
                    text=[],
                    mode="lines",
                    name=escape(name),
                    meta={"role": role},
                    opacity=opacity,
                    line={"width": 1.5, "dash": dash},
                    hovertemplate="%{text}",
                )
            )
        return traces.figure(found, {"yaxis": {"title": {"text": "value"}, "zeroline": False}, "showlegend": True})

    def fill(self, comparison: Comparison, window: Window) -> Fill:
        layer, ends = chosen_layer(comparison, window), places.ends_of(comparison, window)
        found = [_read(comparison, at, layer, window) for at in range(len(comparison.views))]
        there = [one for one in found if one is not None and one.value.size]
        name, stat = layer_words(layer) or "all layers", title_of(window.stat)
        if ends is None or not there:
            why = f"{stat} of {name} is not known in any of these runs here." if ends is not None else NOTHING
            empty = nothing(self.title, comparison, len(found), why)
            for trace in empty.data:
                trace["text"] = []
            return empty
        is_log = window.stat == "norm" and all((one.value > 0).any() for one in there)
        words = [f"{one.member.letter} {value_words(window.stat, float(one.value[-1]))}" for one in there]
        steps = places.whole_steps(comparison, ends)
        x_axis, y_axis = places.x_axis(comparison, window, ends), _y_axis(there, window.stat, is_log)
        letters = [_letter(one, window.stat, is_log) for one in there if one.value[-1] > 0 or not is_log]
        return Fill(
            data=[_draw(one, window.stat, is_log) for one in found],
            layout={
                "xaxis": x_axis,
                "yaxis": y_axis,
                "annotations": apart(letters, x_axis["range"], y_axis["range"], self.height_px, self.columns),
                "margin": {"r": 24},
            },
            label=f"{self.title}: {stat} of {name} in {plural(len(there), 'run')}, now {', '.join(words)}",
            headline=f"{stat} of {name} · {' · '.join(words)}",
            first_step=steps.first_step if steps else None,
            last_step=steps.last_step if steps else None,
            make_table=lambda: _table(there, window.stat),
        )


def _read(comparison: Comparison, at: int, layer: str, window: Window) -> Values | None:
    view = comparison.views[at]
    own, along = own_name(view, layer), places.axis_of(comparison, view)
    found = None if own is None or along is None else _values(view, own, places.member_window(comparison, view, window))
    if found is None or along is None:
        return None
    step, value = found
    return Values(member=comparison.members[at], step=step, x=along.x_at(step), value=value)


def _values(view: RunView, own: str, window: Window) -> tuple[NDArray[np.int64], Floats] | None:
    """Steps and known values; None: nothing was sketched."""
    frames, underflow, span = run_frames(view), run_underflow(view), view.resolve(window)
    if frames is None or underflow is None or span is None:
        return None
    part = rows_within(frames, span)
    node = frames.tree.find(own)
    if node is None or part.stop <= part.start:
        return None
    starts = columns(frames.table.step[part], MOST_PLACES, frames.interval)
    found = node_values(frames, underflow, window.stat, [node], part, starts)
    known = np.isfinite(found.value[:, 0])
    return found.step[known], found.value[known, 0]


def _unit(stat: Statistic) -> tuple[float, str]:
    """What a value is drawn as: its factor, and the unit in the axis' title."""
    if stat == "headroom":
        return 1.0, "bits"
    return (1.0, "L2 norm, unscaled") if stat == "norm" else (100.0, "%")


def _draw(one: Values | None, stat: Statistic, is_log: bool) -> dict[str, Any]:
    if one is None:
        return {"x": [], "y": [], "text": [], "visible": False}
    keep = one.value > 0 if is_log else np.ones(one.value.size, np.bool_)
    texts = [f"{one.member.letter} {value_words(stat, value)}" for value in one.value[keep].tolist()]
    y = one.value[keep] * _unit(stat)[0]
    return {"x": packed(one.x[keep]), "y": packed(y), "text": texts, "visible": bool(keep.any())}


def _y_axis(there: list[Values], stat: Statistic, is_log: bool) -> dict[str, Any]:
    factor, words = _unit(stat)
    value = np.concatenate([one.value for one in there]) * factor
    title = {"title": {"text": f"{title_of(stat)} ({words})"}}
    if is_log:
        positive = value[value > 0]
        low, high = float(positive.min()), float(positive.max())
        return {**title, "type": "log", "range": axes.log_range(low, high), "exponentformat": "power"}
    low, high = float(value.min()), float(value.max())
    return {**title, "type": "linear", "range": axes.linear_range(low, high, from_zero=stat != "headroom")}


def _letter(one: Values, stat: Statistic, is_log: bool) -> dict[str, Any]:
    y = float(one.value[-1]) * _unit(stat)[0]
    return letter_note(one.member, look(one.member)[0], float(one.x[-1]), float(np.log10(y)) if is_log else y)


def _table(there: list[Values], stat: Statistic) -> Table:
    """One row per step that any run has; runs are measured at steps of their own."""
    cells: dict[int, dict[str, str]] = {}
    for one in there:
        for step, value in zip(one.step.tolist(), one.value.tolist(), strict=True):
            cells.setdefault(step, {})[one.member.letter] = value_words(stat, value)
    letters = [one.member.letter for one in there]
    rows = [[integer(step), *(row.get(letter, "–") for letter in letters)] for step, row in sorted(cells.items())]
    rows, note = thin_rows(rows, "measured steps")
    return Table(
        columns=["its step", *(f"{one.member.letter} {one.member.name}" for one in there)], rows=rows, note=note
    )


PANEL = StatisticPanel()
