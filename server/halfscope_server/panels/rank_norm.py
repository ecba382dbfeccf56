"""The norm of each rank's own gradient before the reduction."""

from __future__ import annotations

from halfscope_server.panels.rank_heat import Heatmap

PANEL = Heatmap(
    id="ranks-norm",
    title="Own gradient norm by rank",
    series=("grad.norm_local",),
    unit="norm",
    quantity="norm",
    order=620,
    is_log=True,
)
