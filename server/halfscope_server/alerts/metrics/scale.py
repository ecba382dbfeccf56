"""The loss scale: how far it has fallen by itself, and whether it suits the batch size.

Must not import the agent. Invariant: a scale that settles from its start, or that is tried one doubling higher and
taken back, has not fallen.
"""

from __future__ import annotations

import numpy as np

from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Floats, Found, Ints, Memory, Metric
from halfscope_server.alerts.metrics.nonfinite import EXPECTED, at_rows
from halfscope_server.alerts.types import Column, Samples
from halfscope_server.store.update_types import Wanted

SMALLEST_LOG2 = -149.0
"""Of the smallest positive float32; a scale of 0 counts as that."""
FLOORS = ((0, 4.0), (256, 8.0), (2049, 10.0))
"""(smallest batch size, log2 of the scale's floor for it): reference values of practitioners, docs/numerics.md."""


class _Fall:
    """Per scaler."""

    def __init__(self, memory: Memory) -> None:
        pass

    def feed(self, block: Block) -> Found:
        skips = block.of("skip")
        found = {}
        after = {tuple(sorted(c.series.labels.items())): c for c in block.named("amp.scale_next")}
        for column in block.named("amp.scale"):
            labels = tuple(sorted(column.series.labels.items()))
            value = np.zeros(column.step.size)
            if skips.step.size and labels in after:
                unexpected = at_rows(column.step, skips, ~np.isin(skips.mark, EXPECTED))
                fall = log2(column.value) - log2(_at(after[labels], column.step, column.value))
                value = np.where(unexpected & (fall > 0), fall, 0.0)
            found[labels] = Samples(step=column.step, time_us=column.time_us, value=value)
        return found

    def restart(self) -> None:
        pass


class _OverFloor:
    """Per scaler."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        memory.setdefault("batch", 0.0)

    def feed(self, block: Block) -> Found:
        scales = block.named("amp.scale")
        if not scales:
            return {}
        found = {}
        batch_step, batch = self._batch(block)
        edges, floors = np.array([edge for edge, _ in FLOORS]), np.array([floor for _, floor in FLOORS])
        for column in scales:
            at = np.searchsorted(batch_step, column.step, "right")
            floor = floors[np.searchsorted(edges, batch[at], "right") - 1]
            found[tuple(sorted(column.series.labels.items()))] = Samples(
                step=column.step, time_us=column.time_us, value=log2(column.value) - floor
            )
        return found

    def _batch(self, block: Block) -> tuple[Ints, Floats]:
        """(steps, the largest batch so far before the first and from each on)."""
        before = np.array([float(self._memory["batch"])])
        rates, times = block.named("throughput.samples_per_s"), block.named("time.step_s")
        if not rates or not times:
            return np.empty(0, np.int64), before
        rate = rates[0]
        size = np.rint(rate.value * _at(times[0], rate.step, np.full(rate.step.size, np.nan)))
        largest = np.maximum.accumulate(np.concatenate((before, np.where(np.isfinite(size), size, 0.0))))
        self._memory["batch"] = float(largest[-1])
        return rate.step, largest

    def restart(self) -> None:
        pass


def log2(scale: Floats) -> Floats:
    """Exponent of a loss scale; NaN where it is no number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(np.log2(scale), SMALLEST_LOG2)


def _at(column: Column, step_N: Ints, otherwise_N: Floats) -> Floats:
    """Values of a column at some steps."""
    if column.step.size == step_N.size and (column.step == step_N).all():
        return column.value
    at = np.minimum(np.searchsorted(column.step, step_N), column.step.size - 1)
    return np.where(column.step[at] == step_N, column.value[at], otherwise_N)


METRICS = (
    Metric(
        id="scale_fall",
        title="fall of the loss scale",
        text="Doublings that the loss scale lost in a step, settling and probing left out; summed over a window it says"
        " how far the scale has collapsed.",
        make=_Fall,
        inputs=Wanted(series=frozenset({"amp.scale", "amp.scale_next"}), events=frozenset({"skip"})),
        unit="doublings",
        counts=True,
        panel="scale",
    ),
    Metric(
        id="scale_over_floor",
        title="loss scale above its floor",
        text="Doublings that the loss scale lies above the floor for this batch size: 2⁴ under 256, 2⁸ up to 2,048,"
        " 2¹⁰ beyond. Where the batch size is not known it counts as small.",
        make=_OverFloor,
        inputs=Wanted(series=frozenset({"amp.scale", "throughput.samples_per_s", "time.step_s"})),
        unit="doublings",
        panel="scale",
    ),
)
