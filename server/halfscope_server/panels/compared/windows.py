"""The window chart of each run, for the same layer and part, one beside the other.

The chart is that of the run's page; here its columns are laid along what the runs are aligned by, and its exponents
reach as far as those of the others. Must not import fastapi. Invariant: the windows of one comparison have the same
axes, so what lies at one height is equally large.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from halfscope_server.compare.align import Axis
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.members import LETTERS
from halfscope_server.compare.types import MAX_MEMBERS
from halfscope_server.panels.arrays import packed, unpacked
from halfscope_server.panels.base import Fill
from halfscope_server.panels.compared import places
from halfscope_server.panels.compared.layers import chosen_layer, has_none, own_name
from halfscope_server.panels.compared.overlay import nothing
from halfscope_server.panels.window import MOST_TICKS, READ_OUT
from halfscope_server.panels.window import PANEL as WINDOW
from halfscope_server.panels.zones import exponent_ticks
from halfscope_server.query.exponents import exponents
from halfscope_server.query.window import Window

LEAST_PX_FOR_TWO = 600
"""Below this charts stand one under the other."""


@dataclass(frozen=True, slots=True)
class MemberWindow:
    """The window chart of the run at a place of the comparison."""

    place: int

    @property
    def id(self) -> str:
        return f"compare-window-{LETTERS[self.place].lower()}"

    @property
    def title(self) -> str:
        return f"Window of {LETTERS[self.place]}"

    @property
    def section(self) -> str:
        return "layer"

    @property
    def columns(self) -> int:
        return 6

    @property
    def height_px(self) -> int:
        return WINDOW.height_px

    @property
    def order(self) -> int:
        return 300 + self.place

    @property
    def folded_on_phone(self) -> bool:
        return False

    def available(self, comparison: Comparison) -> bool:
        return self.place < len(comparison.views) and any(WINDOW.available(view) for view in comparison.views)

    def structure(self, comparison: Comparison) -> Hashable:
        return "window"

    def skeleton(self, comparison: Comparison) -> go.Figure:
        return WINDOW.skeleton(comparison.views[self.place])

    def fill(self, comparison: Comparison, window: Window) -> Fill:
        view, member = comparison.views[self.place], comparison.members[self.place]
        layer, ends = chosen_layer(comparison, window), places.ends_of(comparison, window)
        own, along = own_name(view, layer), places.axis_of(comparison, view)
        if ends is None or own is None or along is None:
            why = has_none(member.letter, layer) if own is None else places.no_axis(comparison) or "No step yet."
            return nothing(self.title, comparison, READ_OUT + 1, why)
        filled = WINDOW.fill(view, _of_member(comparison, self.place, window, own))
        label = f"{self.title}: {filled.label}"
        if filled.empty:
            return replace(filled, label=label)
        layout = {**filled.layout, "xaxis": places.x_axis(comparison, window, ends)}
        low, high = _reach(comparison, window, layer)
        layout["yaxis"] = {**layout["yaxis"], "range": [low, high], **exponent_ticks(low, high, MOST_TICKS)}
        data = filled.data
        if comparison.options.align != "attempts":
            data = [_moved(trace, along) for trace in data]
        return replace(filled, data=data, layout=layout, label=label, headline=f"{member.name} · {filled.headline}")


def _of_member(comparison: Comparison, place: int, window: Window, own: str) -> Window:
    """The run's own window: its steps, its name of the layer; true gradients, which alone compare across scales."""
    part = places.member_window(comparison, comparison.views[place], window)
    along = places.axis_of(comparison, comparison.views[place])
    step = window.step
    if step is not None and along is not None and comparison.options.align != "attempts":
        step = max(0, round(along.step_at(float(step))))
    # Beside another, where there is room for two.
    width_px = part.width_px // 2 if part.width_px >= LEAST_PX_FOR_TWO else part.width_px
    return replace(
        part, layer=own, step=step, width_px=width_px, gradient="true" if window.gradient == "auto" else window.gradient
    )


def _reach(comparison: Comparison, window: Window, layer: str) -> tuple[int, int]:
    """Exponents that any run has there."""
    lows, highs = [], []
    for place, view in enumerate(comparison.views):
        own = own_name(view, layer)
        found = None if own is None else exponents(view, _of_member(comparison, place, window, own))
        if found is not None:
            lows.append(found.lowest)
            highs.append(found.lowest + found.num_bins)
    return min(lows), max(highs)


def _moved(trace: dict[str, Any], along: Axis) -> dict[str, Any]:
    """A trace whose places are steps, laid along an axis."""
    if not len(trace["x"]):
        return trace
    x = unpacked(trace["x"]).astype(np.float64)
    width = trace.get("width")
    if width is None or not len(width):
        return {**trace, "x": packed(along.x_at(x))}
    half: NDArray[np.float64] = unpacked(width) / 2
    begins, ends = along.x_at(x - half), along.x_at(x + half)
    return {**trace, "x": packed((begins + ends) / 2), "width": packed(ends - begins)}


PANELS = tuple(MemberWindow(place) for place in range(MAX_MEMBERS))
