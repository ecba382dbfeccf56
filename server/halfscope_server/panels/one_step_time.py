"""The step time of one rank among those of the others."""

from __future__ import annotations

from halfscope_server.panels.lines import LineSpec
from halfscope_server.panels.rank_lines import RankLines

PANEL = RankLines(
    id="one-step-time",
    title="Step time",
    lines=(LineSpec(name="time.step_s", unit="s"),),
    y_title="step time",
    order=720,
    scale="linear",
)
