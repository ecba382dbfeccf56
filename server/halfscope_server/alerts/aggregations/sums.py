"""Sums of windows and what is made of them; `sum.py`, `mean.py` and `rate.py` name them.

Invariant: values that are missing are not in a sum, and not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfscope_server.alerts.aggregations.base import Floats, Ints, Shape
from halfscope_server.alerts.aggregations.window import Sliding


class Total:
    """The sum of a window, divided by a constant."""

    def __init__(self, shape: Shape, divide_by: float = 1.0) -> None:
        self._divide_by = divide_by
        self._sliding = Sliding(shape.window, np.add, 0.0, 1)

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        missing = np.isnan(value_NG)
        total = self._sliding.feed(key_N, np.where(missing, 0.0, value_NG))
        if self._divide_by != 1.0:
            total = total / self._divide_by
        total[missing] = np.nan
        return total

    def restart(self) -> None:
        self._sliding.restart()

    def state(self) -> dict[str, Any]:
        return self._sliding.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._sliding.load(state)


class Mean:
    """The sum of a window by the number of values in it."""

    def __init__(self, shape: Shape) -> None:
        self._window = shape.window
        self._total = Sliding(shape.window, np.add, 0.0, 1)
        self._count = Sliding(shape.window, np.add, 0.0, 1)

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        missing = np.isnan(value_NG)
        total = self._total.feed(key_N, np.where(missing, 0.0, value_NG))
        count = self._count.feed(key_N, np.where(missing, 0.0, 1.0))
        result: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=~missing)
        return result

    def restart(self) -> None:
        self._total.restart()
        self._count.restart()

    def state(self) -> dict[str, Any]:
        return {"total": self._total.state(), "count": self._count.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._total.load(state["total"])
        self._count.load(state["count"])
