"""The newest value as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfscope_server.alerts.aggregations.base import Aggregation, Floats, Ints, Shape, as_far


class Last:
    def __init__(self, shape: Shape) -> None:
        pass

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        return value_NG

    def restart(self) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        pass


AGGREGATION = Aggregation(
    id="last",
    title="newest value",
    text="The value of each step as it is.",
    make=Last,
    needs_window=False,
    for_layers=True,
    reach=as_far,
)
