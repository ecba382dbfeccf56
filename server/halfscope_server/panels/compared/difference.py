"""Every run's difference to the baseline in the metric that stands for quality, on the band of noise it is held
against.

Must not import fastapi. Invariant: band and line are those that the verdict rests on; where noise cannot be told there
is no band.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.compare.align import NoAxis
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.quality import DifferenceCurve, difference_curve
from halfscope_server.compare.types import Member, NoiseKind
from halfscope_server.panels import axes, traces
from halfscope_server.panels.arrays import packed
from halfscope_server.panels.base import Fill, Table, escape
from halfscope_server.panels.compared import places
from halfscope_server.panels.compared.letters import apart, legend_names, letter_note
from halfscope_server.panels.compared.overlay import look, nothing, opacities
from halfscope_server.panels.lines import LARGEST
from halfscope_server.query.format import integer, number, plural, share
from halfscope_server.query.window import MAX_POINTS, Window

Floats = NDArray[np.float64]

PER_MEMBER = 3
"""Traces: lower and upper end of the band, the line."""
BAND_ROOM = 1.3
"""A band is shown to so many times its usual width: at a training's start it may be as wide as the metric itself."""
NUM_ROWS = 100
NOISE_WORDS: dict[NoiseKind, str] = {
    "repeats": "band: what repeats of a configuration differ by",
    "paired": "band: what runs of one seed and data order drift apart by",
    "tolerance": "band: the stated tolerance",
    "none": "no band: what other seeds differ by is not known",
}


@dataclass(frozen=True, slots=True)
class DifferencePanel:
    """See the module."""

    id: str = "compare-difference"
    title: str = "Difference to A"
    section: str = "quality"
    columns: int = 12
    height_px: int = 220
    order: int = 11
    folded_on_phone: bool = False

    def available(self, comparison: Comparison) -> bool:
        return any(view.has(comparison.options.metric) for view in comparison.views)

    def structure(self, comparison: Comparison) -> Hashable:
        shown = tuple((member.letter, member.name, look(member)) for member in comparison.members)
        return (_is_absolute(comparison), *shown)

    def skeleton(self, comparison: Comparison) -> go.Figure:
        members, unit = comparison.members, "" if _is_absolute(comparison) else "%"
        found: list[Any] = []
        names = legend_names(members[1:], self.columns)
        for member, opacity, name in zip(members[1:], opacities(members)[1:], names, strict=True):
            found += _skeleton(member, opacity, name, unit)
        layout = {
            "yaxis": {"title": {"text": f"difference ({unit})" if unit else "difference"}, "zeroline": True},
            "showlegend": len(members) > 2,
            # Areas between lines would turn it round.
            "legend": {"traceorder": "normal"},
        }
        return traces.figure(found, layout)

    def fill(self, comparison: Comparison, window: Window) -> Fill:
        ends, members = places.ends_of(comparison, window), comparison.members[1:]
        found = [difference_curve(comparison, at) for at in range(1, len(comparison.views))]
        is_absolute = _is_absolute(comparison)
        curves = [None if ends is None or isinstance(one, NoAxis) else _cut(one, ends, is_absolute) for one in found]
        there = [(member, one) for member, one in zip(members, curves, strict=True) if one is not None and one.x.size]
        if ends is None or not there:
            return nothing(self.title, comparison, PER_MEMBER * len(members), _why(members, found))
        steps = places.whole_steps(comparison, ends)
        words = [f"{member.letter} {one.words(one.y[-1])}" for member, one in there]
        metric, noise = comparison.options.metric, NOISE_WORDS[there[0][1].curve.noise]
        x_axis, y_range = places.x_axis(comparison, window, ends), _range([one for _, one in there])
        letters = [
            letter_note(
                member,
                look(member)[0],
                float(one.x[-1]),
                float(np.clip(one.y[-1], -LARGEST, LARGEST)),
            )
            for member, one in there
        ]
        return Fill(
            data=[trace for one in curves for trace in _draw(one)],
            layout={
                "xaxis": x_axis,
                "yaxis": {"range": y_range},
                "annotations": apart(letters, x_axis["range"], y_range, self.height_px, self.columns),
                "margin": {"r": 24},
            },
            label=f"{self.title} of {metric} in {plural(len(members), 'run')}, now {', '.join(words)}; {noise}",
            headline=f"{' · '.join(words)} · {noise}",
            first_step=steps.first_step if steps else None,
            last_step=steps.last_step if steps else None,
            make_table=lambda: _table(comparison, there),
        )


def _is_absolute(comparison: Comparison) -> bool:
    """Whether the baseline's level is next to nothing for any of them: percentages of it tell nothing."""
    return any(quality.absolute is not None for quality in comparison.quality)


def _skeleton(member: Member, opacity: float, name: str, unit: str) -> list[Any]:
    role, dash = look(member)
    quiet: dict[str, Any] = {"mode": "lines", "showlegend": False, "hoverinfo": "skip", "meta": {"role": "quiet"}}
    return [
        go.Scatter(x=[], y=[], name="noise", line={"width": 0}, **quiet),
        go.Scatter(x=[], y=[], name="noise", line={"width": 0}, fill="tonexty", **quiet),
        go.Scatter(
            x=[],
            y=[],
            mode="lines",
            name=escape(name),
            meta={"role": role},
            opacity=opacity,
            line={"width": 1.5, "dash": dash},
            hovertemplate=f"%{{y:+.3~g}}{unit}",
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A curve in what the axis counts: percent, or the metric itself."""

    curve: DifferenceCurve
    is_absolute: bool

    @property
    def x(self) -> Floats:
        return self.curve.x

    @property
    def y(self) -> Floats:
        return self.of(self.curve.relative)

    @property
    def low(self) -> Floats:
        return self.of(self.curve.low)

    @property
    def high(self) -> Floats:
        return self.of(self.curve.high)

    def of(self, relative: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return relative * (self.curve.reference if self.is_absolute else 100.0)

    def words(self, value: float) -> str:
        return signed_number(value) if self.is_absolute else _percent(value / 100)


def _cut(curve: DifferenceCurve, ends: places.Ends, is_absolute: bool) -> _Shown:
    """The part within a window, in no more places than a line is drawn with."""
    inside = np.flatnonzero((curve.x >= ends[0]) & (curve.x <= ends[1]))
    if inside.size > MAX_POINTS:
        inside = inside[np.linspace(0, inside.size - 1, MAX_POINTS).round().astype(np.int64)]
    kept = {name: getattr(curve, name)[inside] for name in ("x", "step", "relative", "reference", "low", "high")}
    return _Shown(curve=replace(curve, **kept), is_absolute=is_absolute)


def _draw(one: _Shown | None) -> list[dict[str, Any]]:
    if one is None or not one.x.size:
        return [{"x": [], "y": [], "visible": False} for _ in range(PER_MEMBER)]
    known = np.isfinite(one.low) & np.isfinite(one.high)
    return [
        _line(one.x[known], one.low[known]),
        _line(one.x[known], one.high[known]),
        _line(one.x, one.y),
    ]


def _line(x: Floats, y: Floats) -> dict[str, Any]:
    return {"x": packed(x), "y": packed(np.clip(y, -LARGEST, LARGEST)), "visible": bool(x.size)}


def _range(curves: list[_Shown]) -> list[float]:
    """All of the lines, and what is usual of the bands."""
    lines = np.concatenate([one.y for one in curves])
    half = np.concatenate([one.high for one in curves])
    half = half[np.isfinite(half)]
    band = BAND_ROOM * float(np.median(half)) if half.size else 0.0
    low, high = min(float(lines.min()), -band), max(float(lines.max()), band)
    return axes.linear_range(max(low, -LARGEST), min(high, LARGEST))


def signed_number(value: float) -> str:
    """`+0.0499`."""
    return ("+" if value > 0 else "") + number(value)


def _percent(value: float) -> str:
    return ("+" if value > 0 else "") + share(value)


def _why(members: list[Member], found: list[DifferenceCurve | NoAxis]) -> str:
    reasons = [
        f"{member.letter}: {one.reason}" for member, one in zip(members, found, strict=True) if isinstance(one, NoAxis)
    ]
    return "; ".join(reasons) or "These runs have nothing in common in this stretch. Reset the zoom (key 0) to see all."


def _table(comparison: Comparison, there: list[tuple[Member, _Shown]]) -> Table:
    """Each run's difference and band at places of its own, evenly chosen."""
    rows = []
    each = max(1, NUM_ROWS // len(there))
    for member, one in there:
        curve, low, high = one.curve, one.low, one.high
        for at in np.unique(np.linspace(0, one.x.size - 1, min(each, one.x.size)).round().astype(np.int64)).tolist():
            known = bool(np.isfinite(low[at]) and np.isfinite(high[at]))
            rows.append(
                [
                    member.letter,
                    number(float(curve.x[at])),
                    integer(int(curve.step[at])),
                    _percent(float(curve.relative[at])),
                    number(float(curve.relative[at] * curve.reference[at])),
                    f"{one.words(float(low[at]))} to {one.words(float(high[at]))}" if known else "–",
                ]
            )
    columns = ["run", places.TITLES[comparison.options.align], "its step", "difference", "absolute", "noise"]
    return Table(columns=columns, rows=rows)


PANEL = DifferencePanel()
