"""What an aggregation is: how the values of a window become the one number that is compared.

Must not know rules, runs or metrics. Invariant: what comes out for a sample depends on the samples up to it and on
nothing else: not on how they were cut into blocks, nor on where a state was saved and loaded in between.

Suffixes: N samples in order, G groups that are judged side by side (1, or the layers of a run).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Early = Literal["no", "above", "below"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an aggregator is made for."""

    window: int
    """Length, in the unit of the keys: steps, or microseconds."""
    by_time: bool
    """Keys are times rather than steps."""
    argument: float | None = None
    reference: float | None = None
    """What a baseline run has, where there is one."""


class Aggregator(Protocol):
    """One window moving over one stream of samples."""

    def feed(self, key_N: Ints, value_NG: Floats) -> Floats:
        """The number compared at each sample, [N, G]; NaN where there is none.

        Args:
            key_N: ascending; of every sample, those without a finite value too.
            value_NG: NaN: no sample in this group.
        """
        ...

    def restart(self) -> None:
        """The training began anew: what was in the window is gone."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything that `load` needs, as plain values, bytes and arrays."""
        ...

    def load(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """One kind; a file of this folder holds one as `AGGREGATION`."""

    id: str
    title: str
    """As it stands in a sentence: `mean`."""
    text: str
    """One sentence: what the number is."""
    make: Callable[[Shape], Aggregator]
    needs_window: bool = True
    argument: str = ""
    """Name of its argument; empty: it takes none."""
    default_argument: float | None = None
    argument_range: tuple[float, float] = (0.0, 1.0)
    for_layers: bool = False
    """Whether it can be had of many layers side by side."""
    early: Early = "no"
    """On which side of the threshold a window that is not full yet can be judged: where nothing that is still to come
    could take the alarm back."""
    reach: Callable[[Shape, float, float], tuple[float, float]] | None = None
    """Between which numbers its own lie, given the smallest and the largest value of the window: samples that cannot
    take it over any threshold are put off and worked out together. None: what it says depends on the past as well, so
    each sample is worked out as it comes, which is constant work too."""
    unit: Literal["same", "share", "", "per"] = "same"
    """Of the result: that of the metric, a share, a plain number, or the metric's per step or second."""
    takes_baseline: bool = False


def full_from(shape: Shape, first_key: int) -> int:
    """The first key at which a window that began at `first_key` is full."""
    return first_key + shape.window - (0 if shape.by_time else 1)


MAX_CELLS = 10_000
"""Into which a window is cut at most: what it keeps is some hundred kilobytes, however long it is and however fast the
training, and it is right to a ten-thousandth of its length."""


def cell_width(shape: Shape) -> int | None:
    """In the unit of the keys; None: every sample has a cell of its own."""
    if shape.window <= MAX_CELLS and not shape.by_time:
        return None
    return max(1, shape.window // MAX_CELLS)


ROUNDING = 1e-8
"""What may be added to or taken from the values of a window by adding up as many as it can have."""


def as_far(shape: Shape, low: float, high: float) -> tuple[float, float]:
    """Of numbers that are themselves values of the window."""
    return low, high


def about_as_far(shape: Shape, low: float, high: float) -> tuple[float, float]:
    """Of numbers between values of the window that are worked out, with rounding."""
    spare = ROUNDING * max(abs(low), abs(high))
    return low - spare, high + spare
