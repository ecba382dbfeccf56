"""How much a value has changed over a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfscope_server.alerts.aggregations.base import Aggregation, Floats, Ints, Shape, cell_width
from halfscope_server.alerts.aggregations.window import Tail


class Change:
    """Newest less oldest finite value of the window. Of one group."""

    def __init__(self, shape: Shape) -> None:
        self._window, self._width = shape.window, cell_width(shape)
        self.restart()

    def restart(self) -> None:
        self._tail = Tail(width=self._width)

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        result = np.full(value_NG.shape, np.nan)
        finite = np.flatnonzero(~np.isnan(value_NG[:, 0]))
        if finite.size:
            key = key_N[finite]
            self._tail.append(key, value_NG[finite])
            low = np.searchsorted(self._tail.keys, key - self._window, "right")
            result[finite] = value_NG[finite] - self._tail.values[low]
            self._tail.drop(int(low[-1]))
        return result

    def state(self) -> dict[str, Any]:
        return self._tail.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._tail.load(state)


AGGREGATION = Aggregation(
    id="change",
    title="change",
    text="The newest value less the oldest of the window, once the window is full.",
    make=Change,
    reach=lambda shape, low, high: (low - high, high - low),
)
