"""Gradients of a small transformer as an FP16 training has them, and their sketches as an agent packs them.

Must not import the agent's sketches: what a page shows is held against counts made here, by plain NumPy. Invariant: the
same seed gives the same gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from halfscope.wire.messages import Layer, Sketches
from numpy.typing import NDArray

from tests.helpers.sketches import Cell, sketches

Floats = NDArray[np.float64]
Growth = Callable[[str, float], float]
"""(layer, place in the training 0..1) to the log2 of its gradient's standard deviation."""

ELEMENTS = 2048
WORST = "block.3.mlp.fc2.weight"
OVERFLOWING = "block.2.attn.qkv.weight"
POISONED_AFTER = ("block.1.mlp.fc2.weight", "block.0.mlp.fc2.weight")
SPARSE = "embed.weight"
"""Most of its rows have no gradient, which is how an embedding is and no underflow."""
PARTS = ("attn.qkv.weight", "attn.proj.weight", "mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight")
NAMES = [SPARSE, *(f"block.{k}.{part}" for k in range(6) for part in PARTS), "norm.weight", "head.weight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What the gradients of a training look like."""

    names: Sequence[str] = tuple(NAMES)
    growth: Growth
    poisoned: range = range(0)
    """Steps whose backward overflows in one layer, whatever the scale; those before it get NaN from it."""
    seed: int = 5

    def layers(self) -> list[Layer]:
        return [Layer(k, name, [64, ELEMENTS // 64], "float32") for k, name in enumerate(self.names)]

    def gradients(self, step: int, place: float, scale: float | None) -> dict[str, Floats]:
        """Unscaled gradients of a step; with a scale, as they come back from FP16."""
        noise = np.random.default_rng((self.seed, step))
        raw = noise.normal(size=(len(self.names), ELEMENTS))
        raw *= np.exp2([[self.growth(name, place)] for name in self.names])
        for k, name in enumerate(self.names):
            if name == SPARSE:
                raw[k, noise.random(ELEMENTS) < 0.6] = 0.0
        if scale is not None:
            with np.errstate(over="ignore"):
                raw = (raw * scale).astype(np.float16).astype(np.float64) / scale
        if step in self.poisoned:
            raw[self.names.index(OVERFLOWING), ::40] = np.inf
            for name in POISONED_AFTER:
                raw[self.names.index(name), ::8] = np.nan
        return dict(zip(self.names, raw, strict=True))


def calm(name: str, place: float) -> float:
    """Gradients that shrink a little and stay far from both ends of FP16."""
    return -9.0 - 2.0 * place - 0.25 * (sum(map(ord, name)) % 8)


def flushing(name: str, place: float) -> float:
    """One layer sinks below what FP16 holds."""
    return calm(name, place) - (26.0 * place if name == WORST else 0.0)


def overflowing(name: str, place: float) -> float:
    """One layer grows towards the streak of skips, and comes back."""
    return calm(name, place) + (max(0.0, 9.0 - abs(place - 0.4) * 60.0) if name == OVERFLOWING else 0.0)


def pack(step: int, time_us: int, gradients: dict[int, Floats], scale: float) -> Sketches:
    """The record of these layers' sketches, counted with log2 as the definition says."""
    cells = {lid: _cell(values) for lid, values in gradients.items()}
    largest = max((max(cell.bins.values(), default=0) for cell in cells.values()), default=0)
    return sketches(step, cells, time_us=time_us, scale=scale, width=2 if largest < 2**16 else 4)


def _cell(values: Floats) -> Cell:
    """As `Cell.of`, but of whole arrays: pages need thousands of them."""
    finite = values[np.isfinite(values)]
    size = np.abs(finite[finite != 0])
    exponents, counts = np.unique(np.floor(np.log2(size)).astype(np.int64), return_counts=True)
    others = (values == 0).sum(), np.isnan(values).sum(), np.isposinf(values).sum(), np.isneginf(values).sum()
    zeros, nan, pos_inf, neg_inf = map(int, others)
    sums = float(finite.sum()), float(np.square(finite).sum())
    return Cell(
        bins=dict(zip(exponents.tolist(), counts.tolist(), strict=True)),
        others=(zeros, nan, pos_inf, neg_inf),
        floats=(*sums, float(size.max(initial=0.0)), float(size.min(initial=np.inf))),
    )
