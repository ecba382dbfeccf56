"""Memory of one rank's process among those of the others."""

from __future__ import annotations

from halfscope_server.panels.lines import LineSpec
from halfscope_server.panels.rank_lines import RankLines

PANEL = RankLines(
    id="one-memory",
    title="Memory",
    lines=(LineSpec(name="memory.rss_bytes", unit="bytes"),),
    y_title="memory",
    order=750,
    scale="linear",
)
