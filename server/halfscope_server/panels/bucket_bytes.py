"""How much each bucket of gradients moves, over time: it changes where the reducer makes other buckets."""

from __future__ import annotations

from halfscope_server.panels.rank_heat import Heatmap
from halfscope_server.query.buckets import bytes_cells

PANEL = Heatmap(
    id="buckets-bytes",
    title="Size by bucket",
    series=("comm.bytes",),
    unit="bytes",
    quantity="size",
    order=660,
    row_name="bucket",
    read=bytes_cells,
)
