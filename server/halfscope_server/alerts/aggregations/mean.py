"""The mean of a window."""

from __future__ import annotations

from halfscope_server.alerts.aggregations.base import Aggregation, about_as_far
from halfscope_server.alerts.aggregations.sums import Mean

AGGREGATION = Aggregation(
    id="mean",
    title="mean",
    text="The mean of the window's values, once the window is full.",
    make=Mean,
    for_layers=True,
    reach=about_as_far,
)
