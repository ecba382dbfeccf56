"""Exponents of a layer in all runs over each other, and beneath what differs from the baseline.

Must not import fastapi. Invariant: bars of one run add up to one with its zeros, NaN and Inf; no element is left out
for being small.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from halfscope.sketch import Sketch
from numpy.typing import NDArray

from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Member
from halfscope_server.panels import traces
from halfscope_server.panels.arrays import packed
from halfscope_server.panels.base import Fill, Table, escape
from halfscope_server.panels.columns import note
from halfscope_server.panels.compared import places
from halfscope_server.panels.compared.layers import NOTHING, chosen_layer, own_name
from halfscope_server.panels.compared.letters import legend_names
from halfscope_server.panels.compared.overlay import look, nothing, opacities
from halfscope_server.panels.zones import exponent_ticks
from halfscope_server.query.exponents import LOST, node_sketches
from halfscope_server.query.format import integer, layer_words, norm, plural, power_of_two, share, step_range
from halfscope_server.query.frames import run_frames
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span, Window

Floats = NDArray[np.float64]

MOST_TICKS = 11
TAIL_SHARE, MIN_TAIL_FRAMES = 0.1, 3
"""Without a chosen step: the last tenth of the measured steps of the window, at least three."""
APART = ("zero", "NaN", "Inf")
PER_MEMBER = 3
"""Traces: the exponents, what lies apart, the difference."""
ROOM = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    """A layer of one run over some measured steps added up."""

    member: Member
    steps: Span
    num_frames: int
    sketch: Sketch
    lost_below: float | None
    """Exponent below which FP16 makes 0 of it at the run's scale; None: it has no loss scale."""

    @property
    def n(self) -> int:
        return max(int(self.sketch.n), 1)

    @property
    def apart(self) -> Floats:
        """Shares of zeros, NaN and Inf."""
        s = self.sketch
        return np.array([int(s.zeros), int(s.nan), int(s.pos_inf) + int(s.neg_inf)]) / self.n

    def of(self, low: int, num_bins: int) -> Floats:
        """Shares by exponent from `low` on."""
        found = np.zeros(num_bins)
        counts = np.asarray(self.sketch.counts, np.float64)
        first = int(self.sketch.lowest) - low
        found[first : first + counts.size] = counts / self.n
        return found


@dataclass(frozen=True, slots=True)
class HistogramPanel:
    """See the module."""

    id: str = "compare-histogram"
    title: str = "Exponents of the gradient"
    section: str = "layer"
    columns: int = 12
    height_px: int = 380
    order: int = 200
    folded_on_phone: bool = False

    def available(self, comparison: Comparison) -> bool:
        return any(view.layers for view in comparison.views)

    def structure(self, comparison: Comparison) -> Hashable:
        return tuple((member.letter, member.name, look(member)) for member in comparison.members)

    def skeleton(self, comparison: Comparison) -> go.Figure:
        members = comparison.members
        found: list[Any] = []
        names = legend_names(members, self.columns)
        for member, opacity, name in zip(members, opacities(members), names, strict=True):
            found += _member_traces(member, opacity, escape(name))
        layout = {
            "hovermode": "x",
            "barmode": "group",
            "showlegend": True,
            "xaxis": {"title": {"text": "size of |gradient|"}, "domain": [0, 0.8], "anchor": "y2", "zeroline": False},
            "xaxis2": {
                "title": {"text": "apart"},
                "domain": [0.86, 1.0],
                "anchor": "y3",
                "tickmode": "array",
                "tickvals": [0, 1, 2],
                "ticktext": list(APART),
                "range": [-0.6, 2.6],
                "showgrid": False,
                "zeroline": False,
            },
            "yaxis": {"title": {"text": "share of elements (%)"}, "domain": [0.4, 1.0], "zeroline": False},
            "yaxis2": {"title": {"text": "against A (points)"}, "domain": [0, 0.3], "zeroline": True},
            "yaxis3": {
                "title": {"text": "%"},
                "anchor": "x2",
                "side": "right",
                "domain": [0, 1.0],
                "range": [0, 105],
                "zeroline": False,
            },
        }
        return traces.figure(found, layout)

    def fill(self, comparison: Comparison, window: Window) -> Fill:
        layer = chosen_layer(comparison, window)
        shares = [_read(comparison, at, layer, window) for at in range(len(comparison.views))]
        there = [one for one in shares if one is not None]
        if not there:
            return _nothing(self.title, comparison, layer)
        trimmed = [one.sketch.trimmed() for one in there if int(one.sketch.nonzero)]
        low = min((int(one.lowest) for one in trimmed), default=-1) - ROOM
        high = max((int(one.lowest) + one.counts.shape[-1] for one in trimmed), default=1) + ROOM
        data = _draw(shares, low, high - low)
        name = layer_words(layer) or "all layers"
        words = [f"{one.member.letter} zeros {share(float(one.apart[0]))}" for one in there]
        steps = [f"{one.member.letter} {_when(one)}" for one in there]
        return Fill(
            data=data,
            layout={
                "xaxis": {"range": [low, high], **exponent_ticks(low, high, MOST_TICKS)},
                "shapes": _limits(there, low, high),
                "annotations": _limit_notes(there, low, high),
            },
            label=f"{self.title} of {name} in {plural(len(there), 'run')}, {', '.join(steps)}: {', '.join(words)}",
            headline=f"{name} · {' · '.join(words)}",
            first_step=min(one.steps.first_step for one in there),
            last_step=max(one.steps.last_step for one in there),
            make_table=lambda: _table(shares, comparison.members, low, high),
        )


def _member_traces(member: Member, opacity: float, name: str) -> list[Any]:
    role, dash = look(member)
    shared: dict[str, Any] = {"name": name, "legendgroup": name, "meta": {"role": role}, "opacity": opacity}
    line = {"dash": dash, "shape": "hv", "width": 1.5}
    hover = "%{text}<extra></extra>"
    return [
        go.Scatter(x=[], y=[], text=[], mode="lines", line=line, hovertemplate=hover, **shared),
        go.Bar(
            x=[],
            y=[],
            text=[],
            xaxis="x2",
            yaxis="y3",
            textposition="none",
            showlegend=False,
            hovertemplate=hover,
            **shared,
        ),
        go.Scatter(
            x=[], y=[], text=[], yaxis="y2", mode="lines", line=line, showlegend=False, hovertemplate=hover, **shared
        ),
    ]


def _nothing(title: str, comparison: Comparison, layer: str) -> Fill:
    has_any = any(view.num_frames for view in comparison.views)
    why = f"None of these runs has measured {layer_words(layer)} in this stretch." if has_any else NOTHING
    found = nothing(title, comparison, PER_MEMBER * len(comparison.views), why)
    for trace in found.data:
        trace["text"] = []
    return found


# ---- reading ---------------------------------------------------------------------------------


def _read(comparison: Comparison, at: int, layer: str, window: Window) -> Shares | None:
    view = comparison.views[at]
    own, frames = own_name(view, layer), run_frames(view)
    span = view.resolve(places.member_window(comparison, view, window))
    if own is None or frames is None or span is None:
        return None
    asked = _steps(comparison, view, window, span)
    found = None if asked is None else node_sketches(view, own, asked)
    if found is None:
        return None
    step, sketch = found
    scale = frames.table.scale[max(0, int(np.searchsorted(frames.table.step, step[-1], "right")) - 1)]
    usable = scale[np.isfinite(scale) & (scale > 0)]
    return Shares(
        member=comparison.members[at],
        steps=Span(first_step=int(step[0]), last_step=int(step[-1])),
        num_frames=int(step.size),
        sketch=sketch.merged(0),
        lost_below=LOST - float(np.log2(np.median(usable))) if usable.size else None,
    )


def _steps(comparison: Comparison, view: RunView, window: Window, span: Span) -> Span | None:
    """The measured steps that are shown: the one nearest to the chosen one, else the last tenth of the window's."""
    frames = run_frames(view)
    steps = (
        np.unique(np.concatenate([frames.table.step, frames.table.last_step])) if frames is not None else np.empty(0)
    )
    if not steps.size:
        return None
    if window.step is not None:
        along = places.axis_of(comparison, view)
        wanted = window.step if along is None else along.step_at(float(window.step))
        nearest = int(steps[int(np.abs(steps - wanted).argmin())])
        return Span(first_step=nearest, last_step=nearest)
    inside = steps[(steps >= span.first_step) & (steps <= span.last_step)]
    if not inside.size:
        return None
    num = max(MIN_TAIL_FRAMES, int(TAIL_SHARE * inside.size))
    return Span(first_step=int(inside[-num:][0]), last_step=int(inside[-1]))


# ---- arrays ----------------------------------------------------------------------------------


def _draw(shares: list[Shares | None], low: int, num_bins: int) -> list[dict[str, Any]]:
    baseline = shares[0]
    edges = np.arange(low, low + num_bins + 1)
    data: list[dict[str, Any]] = []
    for at, one in enumerate(shares):
        if one is None:
            data += [{"x": [], "y": [], "text": [], "visible": False} for _ in range(PER_MEMBER)]
            continue
        values = one.of(low, num_bins)
        data.append(_stepped(edges, values, _texts(one.member, low, values, "{}")))
        data.append(
            {
                "x": packed(np.arange(len(APART))),
                "y": packed(one.apart * 100),
                "text": [
                    f"{one.member.letter} {name}: {share(float(v))}" for name, v in zip(APART, one.apart, strict=True)
                ],
                "visible": True,
            }
        )
        if at == 0 or baseline is None:
            data.append({"x": [], "y": [], "text": [], "visible": False})
        else:
            difference = values - baseline.of(low, num_bins)
            data.append(_stepped(edges, difference, _texts(one.member, low, difference, "{} against A")))
    return data


def _stepped(edges: NDArray[np.int64], values: Floats, texts: list[str]) -> dict[str, Any]:
    y = np.append(values, values[-1]) * 100
    return {"x": packed(edges), "y": packed(y), "text": [*texts, texts[-1]], "visible": True}


def _texts(member: Member, low: int, values: Floats, words: str) -> list[str]:
    return [
        f"{member.letter} {power_of_two(2.0**e)} to {power_of_two(2.0 ** (e + 1))}: "
        + words.format(("-" if value < 0 else "") + share(abs(value)))
        for e, value in zip(range(low, low + values.size), values.tolist(), strict=True)
    ]


def _limits(there: list[Shares], low: int, high: int) -> list[dict[str, Any]]:
    """Where FP16 makes 0 of what is smaller, at the scale of each run that has one."""
    return [
        {
            "type": "line",
            "name": "role:underflow",
            "x0": one.lost_below,
            "x1": one.lost_below,
            "y0": 0,
            "y1": 1,
            "yref": "y domain",
            "layer": "below",
            "line": {"width": 1.5, "dash": "dash"},
        }
        for one in there
        if one.lost_below is not None and low <= one.lost_below <= high
    ]


def _limit_notes(there: list[Shares], low: int, high: int) -> list[dict[str, Any]]:
    return [
        note(
            f"lost in {one.member.letter}",
            "muted",
            x=one.lost_below,
            xanchor="right",
            yref="y domain",
            y=0.99 - 0.1 * k,
        )
        for k, one in enumerate(there)
        if one.lost_below is not None and low <= one.lost_below <= high
    ]


# ---- words -----------------------------------------------------------------------------------


def _when(one: Shares) -> str:
    steps = step_range(one.steps.first_step, one.steps.last_step)
    return steps if one.num_frames == 1 else f"{steps} ({plural(one.num_frames, 'measured step')})"


def _table(shares: list[Shares | None], members: list[Member], low: int, high: int) -> Table:
    def row(what: str, cell: Any) -> list[str]:
        return [what, *("–" if one is None else cell(one) for one in shares)]

    bins = {one.member.letter: one.of(low, high - low) for one in shares if one is not None}
    rows = [
        row("steps", _when),
        row("elements", lambda one: integer(int(one.sketch.n))),
        row("norm", lambda one: norm(float(one.sketch.norm))),
        *(row(name, lambda one, k=k: share(float(one.apart[k]))) for k, name in enumerate(APART)),
    ]
    for k, exponent in enumerate(range(low, high)):
        if any(float(values[k]) for values in bins.values()):
            name = f"{power_of_two(2.0**exponent)} to {power_of_two(2.0 ** (exponent + 1))}"
            rows.append(row(name, lambda one, k=k: share(float(bins[one.member.letter][k]))))
    return Table(columns=["what", *(f"{member.letter} {member.name}" for member in members)], rows=rows)


PANEL = HistogramPanel()
