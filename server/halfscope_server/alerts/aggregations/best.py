"""How far a value has fallen below the best it ever had, or risen above it; `below_best.py` and `above_best.py` name
the two.

Invariant: the best is of the whole run up to now, restarts included; 0 while the value is its own best.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfscope_server.alerts.aggregations.base import Floats, Ints, Shape

SMALLEST_BEST = 1e-12
"""Of what is nearer to zero no share can be told."""


class FromBest:
    """Distance from the best as a share of it. Of one group."""

    def __init__(self, shape: Shape, sign: float) -> None:
        """
        Args:
            sign: 1 where large values are good, -1 where small ones are.
        """
        self._sign, self._best = sign, -np.inf

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        signed = self._sign * value_NG[:, 0]
        best = np.maximum.accumulate(np.concatenate(([self._best], np.where(np.isnan(signed), -np.inf, signed))))[1:]
        self._best = float(best[-1])
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(np.abs(best) >= SMALLEST_BEST, (best - signed) / np.abs(best), np.nan)
        return share[:, None]

    def restart(self) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {"best": self._best}

    def load(self, state: Mapping[str, Any]) -> None:
        self._best = state["best"]
