"""The usual value of a run so far: the median of a thinned-out memory of all of its values.

Must not know aggregations. Invariant: at most `MAX_KEPT` values are kept, every 2^k-th of those that came, counted
from the first: so what is kept, and the median, depend on the values alone.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_KEPT = 512

Floats = NDArray[np.float64]


class Usual:
    """Running median over the whole past, itself included."""

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._ordered: list[float] = []
        self._stride = 1
        self._count = 0
        self._median = np.nan

    @property
    def count(self) -> int:
        """Values so far."""
        return self._count

    def feed(self, value_N: Floats) -> Floats:
        """The median after each value, [N]; found anew when a value is kept."""
        result = np.empty(value_N.size)
        done = 0
        while done < value_N.size:
            offset = -self._count % self._stride
            if done + offset >= value_N.size:  # none of the rest is kept
                result[done:] = self._median
                self._count += value_N.size - done
                break
            result[done : done + offset] = self._median
            done += offset
            value = float(value_N[done])
            self._kept.append(value)
            bisect.insort(self._ordered, value)
            self._median = self._middle()
            result[done] = self._median
            self._count += offset + 1
            done += 1
            if len(self._kept) >= MAX_KEPT:
                self._kept = self._kept[::2]
                self._ordered = sorted(self._kept)
                self._stride *= 2
        return result

    def _middle(self) -> float:
        half = len(self._ordered) // 2
        if len(self._ordered) % 2:
            return self._ordered[half]
        return (self._ordered[half - 1] + self._ordered[half]) / 2

    def state(self) -> dict[str, Any]:
        return {"kept": list(self._kept), "stride": self._stride, "count": self._count, "median": self._median}

    def load(self, state: Mapping[str, Any]) -> None:
        self._kept, self._ordered, self._stride = list(state["kept"]), sorted(state["kept"]), state["stride"]
        self._count, self._median = state["count"], state["median"]
