"""How many elements of each rank's own gradient were NaN or infinite before the reduction."""

from __future__ import annotations

from halfscope_server.panels.rank_heat import Heatmap

PANEL = Heatmap(
    id="ranks-nonfinite",
    title="NaN and Inf in own gradient",
    series=("grad.nonfinite_local",),
    unit="1",
    quantity="layers",
    order=630,
)
