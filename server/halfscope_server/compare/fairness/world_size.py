"""How many processes train together."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import ValueCheck
from halfscope_server.query.format import plural

CHECK = ValueCheck(
    id="world_size",
    title="Ranks",
    order=6,
    read=lambda view: view.row.world_size,
    tell=lambda count: plural(count, "rank"),
    confounds=("quality", "speed", "memory"),
)
