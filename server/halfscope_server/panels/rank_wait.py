"""How long each rank waited for others and the wire: whoever holds the job up waits least."""

from __future__ import annotations

from halfscope_server.panels.rank_heat import Heatmap

PANEL = Heatmap(
    id="ranks-wait",
    title="Waiting by rank",
    series=("comm.wait_s",),
    unit="s",
    quantity="waiting",
    order=610,
)
