"""The error of each bucket's reduction against the float64 sum, at sampled steps."""

from __future__ import annotations

from dataclasses import dataclass

from halfscope_server.panels.rank_heat import Heatmap, has_ranks
from halfscope_server.query.view import RunView
from halfscope_server.ranks.over_time import error_cells, has_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errors(Heatmap):
    def available(self, view: RunView) -> bool:
        return has_ranks(view) and has_errors(view)


PANEL = _Errors(
    id="buckets-error",
    title="Reduction error by bucket",
    series=("comm.time_s",),
    unit="1",
    quantity="error",
    order=665,
    row_name="bucket",
    is_log=True,
    read=error_cells,
)
