"""The largest and the smallest value of a window; `max.py` and `min.py` name them.

Invariant: values that are missing are neither.
"""

from __future__ import annotations

import numpy as np

from halfscope_server.alerts.aggregations.base import Floats, Ints, Shape, cell_width
from halfscope_server.alerts.aggregations.window import OnSliding, Sliding


class Extreme(OnSliding):
    """The farthest value of a window on one side."""

    def __init__(self, shape: Shape, ufunc: np.ufunc, identity: float) -> None:
        self._identity = identity
        self._sliding = Sliding(shape.window, ufunc, identity, 1, cell_width(shape))

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        missing = np.isnan(value_NG)
        if not missing.any():
            return self._sliding.feed(key_N, value_NG)
        result = self._sliding.feed(key_N, np.where(missing, self._identity, value_NG))
        return np.where(missing, np.nan, result)
