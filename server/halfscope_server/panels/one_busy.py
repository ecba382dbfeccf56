"""What a rank needs for a step without waiting, among the others."""

from __future__ import annotations

from halfscope_server.panels.lines import LineSpec
from halfscope_server.panels.rank_lines import RankLines

PANEL = RankLines(
    id="one-busy",
    title="Busy time",
    lines=(LineSpec(name="rank.busy_s", unit="s"),),
    y_title="busy time",
    order=710,
    scale="linear",
)
