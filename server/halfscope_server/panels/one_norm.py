"""The norm of one rank's own gradient before the reduction, among the others."""

from __future__ import annotations

from halfscope_server.panels.lines import LineSpec
from halfscope_server.panels.rank_lines import RankLines

PANEL = RankLines(
    id="one-norm",
    title="Own gradient norm",
    lines=(LineSpec(name="grad.norm_local", unit="norm"),),
    y_title="norm",
    order=740,
    scale="log",
)
