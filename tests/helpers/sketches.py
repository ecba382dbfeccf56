"""Records of layers and of their sketches, for tests, made without the agent's sketches.

Must not import halfscope.sketch: what the server makes of these is held against counts that were made here, element by
element. Invariant: a record holds exactly what its cells say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from halfscope.wire.messages import Layer, Layers, Sketches
from numpy.typing import ArrayLike


@dataclass
class Cell:
    """One sketch, counted one element at a time."""

    bins: dict[int, int] = field(default_factory=dict)
    """Exponent -> elements."""
    others: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Zeros, NaN, +Inf, -Inf."""
    floats: tuple[float, float, float, float] = (0.0, 0.0, 0.0, math.inf)
    """Sum, sum of squares, largest and smallest nonzero magnitude."""

    @classmethod
    def of(cls, values: ArrayLike) -> Cell:
        """The sketch of a tensor."""
        elements = [float(value) for value in np.asarray(values, np.float64).ravel()]
        finite = [value for value in elements if math.isfinite(value)]
        nonzero = [abs(value) for value in finite if value]
        bins: dict[int, int] = {}
        for value in nonzero:
            exponent = math.frexp(value)[1] - 1
            bins[exponent] = bins.get(exponent, 0) + 1
        others = (
            finite.count(0.0),
            sum(map(math.isnan, elements)),
            elements.count(math.inf),
            elements.count(-math.inf),
        )
        floats = (sum(finite), sum(v * v for v in finite), max(nonzero, default=0.0), min(nonzero, default=math.inf))
        return cls(bins, others, floats)

    @property
    def n(self) -> int:
        return sum(self.bins.values()) + sum(self.others)


def sketches(
    step: int,
    cells: Mapping[int, Cell],
    *,
    time_us: int | None = None,
    scale: float = 1024.0,
    point: str = "unscale",
    clipped: str = "no",
    of: str = "grad",
    width: int = 8,
) -> Sketches:
    """A record of some layers, by lid."""
    rows = list(cells.values())
    lowest = [min(cell.bins, default=0) for cell in rows]
    num_bins = [max(cell.bins) - low + 1 if cell.bins else 0 for cell, low in zip(rows, lowest, strict=True)]
    bins = [
        cell.bins.get(low + k, 0) for cell, low, num in zip(rows, lowest, num_bins, strict=True) for k in range(num)
    ]
    return Sketches(
        step=step,
        time_us=1000 * step if time_us is None else time_us,
        point=point,
        clipped=clipped,
        scale=scale,
        lids=np.array(list(cells), "<u4").tobytes(),
        counts=np.array([(cell.n, *cell.others) for cell in rows], "<i8").tobytes(),
        moments=np.array([cell.floats for cell in rows], "<f8").tobytes(),
        lowest=np.array(lowest, "<i2").tobytes(),
        num_bins=np.array(num_bins, "<u2").tobytes(),
        bins=np.array(bins, f"<u{width}").tobytes(),
        width=width,
        of=of,
    )


def layers(*names: str) -> Layers:
    """Declarations: lid k is the k-th name."""
    return Layers([Layer(lid, name, [4, lid + 1], "float32") for lid, name in enumerate(names)])
