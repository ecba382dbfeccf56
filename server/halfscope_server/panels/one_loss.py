"""The loss of one rank, on its own data, among those of the others."""

from __future__ import annotations

from halfscope_server.panels.lines import LineSpec
from halfscope_server.panels.rank_lines import RankLines

PANEL = RankLines(
    id="one-loss", title="Loss", lines=(LineSpec(name="loss", unit="loss"),), y_title="loss", order=700, scale="auto"
)
