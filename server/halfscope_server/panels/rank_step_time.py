"""How long each step took on each rank; where ranks wait for each other, all rows look alike."""

from __future__ import annotations

from halfscope_server.panels.rank_heat import Heatmap

PANEL = Heatmap(
    id="ranks-step-time",
    title="Step time by rank",
    series=("time.step_s",),
    unit="s",
    quantity="step time",
    order=605,
)
