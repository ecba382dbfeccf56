"""One rank's lines against the band of all others, for the page that looks at one rank.

Must not import fastapi. Invariant: without a rank to look at, a line is that of the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halfscope_server.panels import axes
from halfscope_server.panels.base import Fill
from halfscope_server.panels.lines import LinePanel
from halfscope_server.panels.rank_heat import has_ranks
from halfscope_server.query.lines import read_line
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Window

SECTION = "one rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLines(LinePanel):
    """Of runs with several ranks alone."""

    section: str = SECTION
    columns: int = 6
    folded_on_phone: bool = False

    def available(self, view: RunView) -> bool:
        return has_ranks(view) and bool(self.found(view))

    def fill(self, view: RunView, window: Window) -> Fill:
        fill = LinePanel.fill(self, view, window)  # `super()` does not know a class that slots have made anew
        mark = self._mark(view, window)
        return replace(fill, layout={**fill.layout, "shapes": [mark] if mark else []})

    def _mark(self, view: RunView, window: Window) -> dict[str, Any] | None:
        """The step that is looked at, as a line; None where the chart has none."""
        line = read_line(view, self.found(view)[0].series, window)
        if window.step is None or line is None or not line.curve.size:
            return None
        step = np.array([window.step])
        near = int(np.argmin(np.abs(line.curve.step - window.step)))
        (x,) = axes.x_values(window, step, line.curve.time_us[near : near + 1]).tolist()
        look = {"width": 1.5, "dash": "dot"}
        return {
            "type": "line", "name": "role:focus", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": look,
        }  # fmt: skip
