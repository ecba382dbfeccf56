"""A window against what is usual: the median of a baseline run, or of this run's own past.

Median against median: the mean of a window would be held against a median that it differs from on every run whose
values lie to one side, as its pace does. Invariant: nothing is said before there is a past to speak of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfscope_server.alerts.aggregations.base import Aggregation, Floats, Ints, Shape, cell_width
from halfscope_server.alerts.aggregations.quantile import Quantiles
from halfscope_server.alerts.aggregations.usual import Usual

WARM_UP = 20
"""Values at the start that are no measure: compilation, caches, autotuning."""
MIN_PAST = 100
"""Values that make a past."""


class Ratio:
    """Median of the window by the usual value. Of one group."""

    def __init__(self, shape: Shape) -> None:
        self._reference = shape.reference
        self._window = Quantiles(shape.window, [0.5], width=cell_width(shape))
        self._usual = Usual()
        self._num_seen = 0

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        median = self._window.feed(key_N, value_NG[:, 0])
        finite = np.flatnonzero(~np.isnan(value_NG[:, 0]))
        usual = np.full(key_N.size, np.nan)
        if self._reference is not None:
            usual[finite] = self._reference
        else:
            warm = finite[max(0, WARM_UP - self._num_seen) :]
            before = self._usual.count
            medians = self._usual.feed(value_NG[warm, 0])
            medians[: max(0, MIN_PAST - 1 - before)] = np.nan
            usual[warm] = medians
            self._num_seen = min(WARM_UP, self._num_seen + finite.size)
        with np.errstate(invalid="ignore", divide="ignore"):
            result: Floats = np.where(usual[:, None] > 0, median / usual[:, None], np.nan)
        return result

    def restart(self) -> None:
        self._window.restart()
        self._num_seen = 0

    def state(self) -> dict[str, Any]:
        return {"window": self._window.state(), "usual": self._usual.state(), "seen": self._num_seen}

    def load(self, state: Mapping[str, Any]) -> None:
        self._window.load(state["window"])
        self._usual.load(state["usual"])
        self._num_seen = state["seen"]


AGGREGATION = Aggregation(
    id="ratio",
    title="ratio to the usual",
    text="The median of the window by that of a baseline run, or where none is named by the run's own median so"
    " far. The first 20 values of a start are left out of that, and nothing is judged before there are 100.",
    make=Ratio,
    unit="share",
    takes_baseline=True,
)
