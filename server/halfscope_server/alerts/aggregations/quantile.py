"""A quantile of a window, found anew twenty times while the window moves on by its own length.

Invariant: where it is found anew is aligned to the samples' own numbers, not to how they came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from halfscope_server.alerts.aggregations.base import Aggregation, Floats, Ints, Shape, about_as_far, cell_width
from halfscope_server.alerts.aggregations.window import Tail

PARTS = 20
AT_ONCE = 100_000
"""Values sorted at once: what stays in a processor's cache. From so many on they are sorted as float32 where that is
what they are, in half the time."""


class Quantiles:
    """Several quantiles of one window, which sort it once. Of one group."""

    def __init__(self, window: int, shares: Sequence[float], num_parts: int = PARTS, width: int | None = None) -> None:
        """
        Args:
            num_parts: how often they are found anew while the window moves on by its length.
            width: of the cells of which one sample stands for all; None: each stands for itself.
        """
        self._window, self._width = window, width
        self._stride = max(1, window // num_parts)
        self._shares = tuple(shares)
        self.restart()

    def restart(self) -> None:
        self._tail = Tail(width=self._width)
        self._mark: int | None = None
        """Number of the stretch in which they were found last."""
        self._found = np.full((1, len(self._shares)), np.nan)

    def feed(self, key_N: Ints, value_N: Floats) -> Floats:
        """[N, quantiles]; NaN where there is no value."""
        result = np.full((key_N.size, len(self._shares)), np.nan)
        finite = np.flatnonzero(~np.isnan(value_N))
        if not finite.size:
            return result
        key = key_N[finite]
        place = self._tail.append(key, value_N[finite, None])
        marks = key // self._stride
        is_new = np.diff(marks, prepend=-1 if self._mark is None else self._mark) != 0
        self._mark = int(marks[-1])
        found = np.concatenate((self._found, self._of_windows(key[is_new], place[is_new])))
        self._found = found[-1:].copy()
        result[finite] = found[np.cumsum(is_new)]
        self._tail.drop(int(np.searchsorted(self._tail.keys, key[-1] - self._window, "right")))
        return result

    def _of_windows(self, key_N: Ints, ends: Ints) -> Floats:
        """Of the windows that end with these keys, and these samples of the tail."""
        values = self._tail.values[:, 0]
        found = np.empty((ends.size, len(self._shares)))
        starts = np.searchsorted(self._tail.keys, key_N - self._window, "right")
        sizes = ends - starts + 1
        most = int(sizes.max(initial=0))
        whole = sizes == most if most == self._window else np.zeros(ends.size, np.bool_)
        if whole.any():
            places, step = np.flatnonzero(whole), max(1, AT_ONCE // most)
            views = sliding_window_view(_narrowed(values) if places.size > step else values, most)
            for low in range(0, places.size, step):
                part = places[low : low + step]
                found[part] = self._of_rows(views[starts[part]])
        for at in np.flatnonzero(~whole).tolist():
            found[at] = self._of_rows(values[None, starts[at] : ends[at] + 1].copy())[0]
        return found

    def _of_rows(self, rows: NDArray[np.floating[Any]]) -> Floats:
        """Between two values in proportion, as numpy's default; a whole sort is quicker here than its partition.

        Args:
            rows: are sorted in their place.
        """
        rows.sort(axis=1)
        places = np.array(self._shares) * (rows.shape[1] - 1)
        low = places.astype(np.int64)
        below = rows[:, low].astype(np.float64)
        above = rows[:, np.minimum(low + 1, rows.shape[1] - 1)].astype(np.float64)
        result: Floats = below + (above - below) * (places - low)
        return result

    def state(self) -> dict[str, Any]:
        return {"tail": self._tail.state(), "mark": self._mark, "found": self._found.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._tail.load(state["tail"])
        self._mark, self._found = state["mark"], state["found"]


def _narrowed(values: Floats) -> NDArray[np.floating[Any]]:
    """As float32 where nothing is lost by it, which is so of most that is logged."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return narrow if np.array_equal(narrow, values) else values


class Quantile:
    """One of them."""

    def __init__(self, shape: Shape) -> None:
        share = 0.5 if shape.argument is None else shape.argument
        self._quantiles = Quantiles(shape.window, [share], width=cell_width(shape))

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        return self._quantiles.feed(key_N, value_NG[:, 0])

    def restart(self) -> None:
        self._quantiles.restart()

    def state(self) -> dict[str, Any]:
        return self._quantiles.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._quantiles.load(state)


AGGREGATION = Aggregation(
    id="quantile",
    title="quantile",
    text="The value that so large a share of the window lies below, once the window is full; found anew for every"
    " twentieth of the window.",
    make=Quantile,
    argument="quantile",
    default_argument=0.5,
    reach=about_as_far,
)
