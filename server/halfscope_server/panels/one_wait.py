"""How long one rank waits for the others and the wire, among the others."""

from __future__ import annotations

from halfscope_server.panels.lines import LineSpec
from halfscope_server.panels.rank_lines import RankLines

PANEL = RankLines(
    id="one-wait",
    title="Waiting",
    lines=(LineSpec(name="comm.wait_s", unit="s"),),
    y_title="waiting",
    order=730,
    scale="linear",
)
