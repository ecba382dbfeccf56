"""Memory of each rank: of its device where there is one, else of its process."""

from __future__ import annotations

from halfscope_server.panels.rank_heat import Heatmap

PANEL = Heatmap(
    id="ranks-memory",
    title="Memory by rank",
    series=("memory.device_peak_bytes", "memory.device_allocated_bytes", "memory.rss_bytes"),
    unit="bytes",
    quantity="memory",
    order=640,
)
