"""How unusual a window is, measured by how much the run's own past varies.

Invariant: the window is not part of the past that it is held against.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfscope_server.alerts.aggregations.base import Aggregation, Floats, Ints, Shape, cell_width
from halfscope_server.alerts.aggregations.sums import Mean
from halfscope_server.alerts.aggregations.window import Tail

MIN_PAST = 100
"""Values before the window that make a past."""


class ZScore:
    """Mean of the window less the mean of all before it, in standard deviations of those. Of one group."""

    def __init__(self, shape: Shape) -> None:
        self._window = shape.window
        self._mean = Mean(shape)
        self._origin = np.nan
        """The first value of all: sums are of what lies beyond it, so that they keep their digits."""
        self._all = np.zeros(3)
        """Number of values so far, their sum, and that of their squares."""
        self._inside = Tail(3, cell_width(shape))
        """The same of what came before each value that is in the window."""

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        mean = self._mean.feed(key_N, value_NG)
        result = np.full(value_NG.shape, np.nan)
        finite = np.flatnonzero(~np.isnan(value_NG[:, 0]))
        if not finite.size:
            return result
        if np.isnan(self._origin):
            self._origin = float(value_NG[finite[0], 0])
        key, x = key_N[finite], value_NG[finite, 0] - self._origin
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            terms = np.column_stack((np.ones(x.size), x, x * x))
            totals = np.add.accumulate(np.concatenate((self._all[None], terms)), axis=0)
            self._all = totals[-1].copy()
            self._inside.append(key, totals[:-1])
            low = np.searchsorted(self._inside.keys, key - self._window, "right")
            count, total, squares = self._inside.values[low].T
            past = total / count
            spread = np.sqrt(np.maximum(squares / count - past * past, 0.0))
            score = (mean[finite, 0] - self._origin - past) / spread
        result[finite, 0] = np.where((count >= MIN_PAST) & (spread > 0), score, np.nan)
        self._inside.drop(int(low[-1]))
        return result

    def restart(self) -> None:
        """Values that were in the window are past now."""
        self._mean.restart()
        self._inside.clear()

    def state(self) -> dict[str, Any]:
        return {
            "mean": self._mean.state(),
            "origin": self._origin,
            "all": self._all.copy(),
            "inside": self._inside.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._mean.load(state["mean"])
        self._origin, self._all = state["origin"], state["all"]
        self._inside.load(state["inside"])


AGGREGATION = Aggregation(
    id="zscore",
    title="deviation from its past",
    text="The mean of the window less the mean of everything before it, in standard deviations of what was before;"
    " nothing is judged before there are 100 earlier values.",
    make=ZScore,
    unit="",
)
