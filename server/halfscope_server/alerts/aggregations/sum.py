"""The sum of a window."""

from __future__ import annotations

from halfscope_server.alerts.aggregations.base import Aggregation
from halfscope_server.alerts.aggregations.sums import Total, reach_of_sum

AGGREGATION = Aggregation(
    id="sum",
    title="sum",
    text="The sum of the window's values.",
    make=Total,
    early="above",
    reach=reach_of_sum,
)
