"""The usual value of a run so far: the median of a drawn part of all of its values.

Must not know aggregations. Invariant: at most `MAX_KEPT` values are kept, those whose number, mixed, begins with enough
zeros: so what is kept, and the median, depend on the values alone, and each value has the same chance. (Every so many
steps a value would be kept of what happens every so many steps, as an evaluation or a checkpoint, and of nothing else.)
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_KEPT = 512
"""At least half of it are there from then on: the median's place among all values is right to 3% of them."""

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]


def mixed(number_N: Words) -> Words:
    """As if drawn (Steele, Lea and Flood 2014, the finalizer of SplitMix64)."""
    z = (number_N + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Usual:
    """Running median over the whole past, itself included."""

    def __init__(self) -> None:
        self._kept: list[tuple[float, int]] = []
        """In the order of the values; beside each its mixed number."""
        self._zeros = 0
        """With which that begins, at least."""
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
        while done < value_N.size:  # the more there were, the fewer of those that come are kept
            part = slice(done, done + max(MAX_KEPT, self._count))
            self._take(value_N[part], result[part])
            done = part.stop
        return result

    def _take(self, value_N: Floats, result_N: Floats) -> None:
        words = mixed(np.arange(self._count, self._count + value_N.size, dtype=np.uint64))
        self._count += value_N.size
        done = 0
        for at in np.flatnonzero(words >> np.uint64(63 - self._zeros) < 2).tolist():
            word = int(words[at])
            if not self._is_kept(word):
                continue  # they have become fewer since
            result_N[done:at] = self._median
            done = at
            bisect.insort(self._kept, (float(value_N[at]), word))
            self._median = self._middle()
            if len(self._kept) >= MAX_KEPT:
                self._zeros += 1
                self._kept = [pair for pair in self._kept if self._is_kept(pair[1])]
        result_N[done:] = self._median

    def _is_kept(self, word: int) -> bool:
        return word >> (64 - self._zeros) == 0

    def _middle(self) -> float:
        half = len(self._kept) // 2
        if len(self._kept) % 2:
            return self._kept[half][0]
        return (self._kept[half - 1][0] + self._kept[half][0]) / 2

    def state(self) -> dict[str, Any]:
        values, words = [value for value, _ in self._kept], np.array([word for _, word in self._kept], np.uint64)
        return {"kept": values, "words": words, "zeros": self._zeros, "count": self._count, "median": self._median}

    def load(self, state: Mapping[str, Any]) -> None:
        self._kept = list(zip(state["kept"], map(int, state["words"]), strict=True))
        self._zeros, self._count, self._median = state["zeros"], state["count"], state["median"]
