"""How long each rank worked in each step, waiting for others left out: the slow one stands out."""

from __future__ import annotations

from halfscope_server.panels.rank_heat import Heatmap

PANEL = Heatmap(
    id="ranks-busy",
    title="Busy time by rank",
    series=("rank.busy_s",),
    unit="s",
    quantity="busy time",
    order=600,
)
