"""The bandwidth that each bucket's reduction achieved on the slowest rank: what the job got, not what the wire can."""

from __future__ import annotations

from halfscope_server.panels.rank_heat import Heatmap
from halfscope_server.query.buckets import rate_cells

PANEL = Heatmap(
    id="buckets-rate",
    title="Bandwidth by bucket",
    series=("comm.bytes",),
    unit="bytes/s",
    quantity="bandwidth",
    order=655,
    row_name="bucket",
    read=rate_cells,
)
