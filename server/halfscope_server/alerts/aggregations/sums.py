"""Sums of windows and what is made of them; `sum.py`, `mean.py` and `rate.py` name them.

Invariant: values that are missing are not in a sum, and not counted.
"""

from __future__ import annotations

import numpy as np

from halfscope_server.alerts.aggregations.base import ROUNDING, Floats, Ints, Shape, cell_width
from halfscope_server.alerts.aggregations.window import OnSliding, Sliding


def reach_of_sum(shape: Shape, low: float, high: float) -> tuple[float, float]:
    """A window of steps has no more values than steps; of one of seconds that is not known."""
    most = np.inf if shape.by_time else shape.window * (1 + ROUNDING)
    return (low * most if low < 0 else 0.0), (high * most if high > 0 else 0.0)


class Total(OnSliding):
    """The sum of a window, divided by a constant."""

    def __init__(self, shape: Shape, divide_by: float = 1.0) -> None:
        self._divide_by = divide_by
        self._sliding = Sliding(shape.window, np.add, 0.0, 1, cell_width(shape))

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        missing = np.isnan(value_NG)
        is_whole = not missing.any()
        total = self._sliding.feed(key_N, value_NG if is_whole else np.where(missing, 0.0, value_NG))
        if self._divide_by != 1.0:
            total = total / self._divide_by
        return total if is_whole else np.where(missing, np.nan, total)


class Mean(OnSliding):
    """The sum of a window by the number of values in it."""

    def __init__(self, shape: Shape) -> None:
        self._sliding = Sliding(shape.window, np.add, 0.0, 2, cell_width(shape))
        """Sums and counts, group after group."""

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        terms = np.ones((*value_NG.shape, 2))
        missing = np.isnan(value_NG)
        is_whole = not missing.any()
        terms[:, :, 0] = value_NG
        if not is_whole:
            terms[missing] = 0.0
        found = self._sliding.feed(key_N, terms.reshape(key_N.size, -1)).reshape(terms.shape)
        if is_whole:
            result: Floats = found[:, :, 0] / found[:, :, 1]
            return result
        mean = np.full(value_NG.shape, np.nan)
        result = np.divide(found[:, :, 0], found[:, :, 1], out=mean, where=~missing)
        return result
