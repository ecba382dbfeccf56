"""How much there is of something per step, or per second."""

from __future__ import annotations

from halfscope_server.alerts.aggregations.base import Aggregation, Shape
from halfscope_server.alerts.aggregations.sums import Total, reach_of_sum


def _make(shape: Shape) -> Total:
    return Total(shape, divide_by=shape.window / 1e6 if shape.by_time else float(shape.window))


def _reach(shape: Shape, low: float, high: float) -> tuple[float, float]:
    least, most = reach_of_sum(shape, low, high)
    return least / shape.window, most / shape.window


AGGREGATION = Aggregation(
    id="rate",
    title="rate",
    text="The sum of the window's values by its whole length: per step, or per second. Steps of the window that the"
    " training has not reached yet count as none, so the first of a few does not look like all of many.",
    make=_make,
    early="above",
    reach=_reach,
    unit="per",
)
