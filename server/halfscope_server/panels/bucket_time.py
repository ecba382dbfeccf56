"""How long each bucket of gradients took from ready to reduced, on the slowest rank."""

from __future__ import annotations

from halfscope_server.panels.rank_heat import Heatmap
from halfscope_server.query.ranks import bucket_cells

PANEL = Heatmap(
    id="buckets-time",
    title="Reduction time by bucket",
    series=("comm.time_s",),
    unit="s",
    quantity="time",
    order=650,
    row_name="bucket",
    read=lambda view, window: bucket_cells(view, "comm.time_s", window),
)
