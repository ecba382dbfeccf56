"""The loss scale: how far it has fallen by itself, and whether it suits the batch size.

Must not import the agent. Invariant: a scale that settles from its start, that is set by hand, or that has grown again
since, has not fallen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.aggregations.base import Shape
from halfscope_server.alerts.aggregations.extremes import Extreme
from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Floats, Found, Ints, Labels, Memory, Metric
from halfscope_server.alerts.metrics.loss import Stages
from halfscope_server.alerts.metrics.nonfinite import at_rows
from halfscope_server.alerts.types import Column, Samples
from halfscope_server.store.types import SKIP_CLASSES
from halfscope_server.store.update_types import Wanted

WINDOW = 200
"""Steps within which a scale is held against its highest."""
SETTLING = SKIP_CLASSES.index("settling")
SMALLEST_LOG2 = -149.0
"""Of the smallest positive float32; a scale of 0 counts as that."""
FLOORS = ((0, 4.0), (256, 8.0), (2049, 10.0))
"""(smallest batch size, log2 of the scale's floor for it): reference values of practitioners, docs/numerics.md."""


class _Fall:
    """Per scaler: its highest exponent of the last steps less the one now, as if all other falls had not been."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._of: dict[Labels, tuple[Extreme, Stages]] = {}
        for labels in memory.setdefault("of", {}):
            self._highest(labels)

    def feed(self, block: Block) -> Found:
        skips = block.of("skip")
        found = {}
        after = {c.labels: c for c in block.named("amp.scale_next")}
        for column in block.named("amp.scale"):
            labels, step = column.labels, column.step
            used = log2(column.value)
            left = log2(_at(after[labels], step, column.value)) if labels in after else used
            counts = at_rows(step, skips, skips.mark != SETTLING)
            highest = self._highest(labels)
            used, left = self._without_other_falls(labels, used, left, counts)
            value = np.maximum(highest.feed(step, used[:, None])[:, 0] - left, 0.0)
            found[labels] = Samples(step=step, time_us=column.time_us, value=value)
        return found

    def _without_other_falls(
        self, labels: Labels, used_N: Floats, left_N: Floats, counts_N: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """Exponents that a step used and left behind, plus all that was lost so far by other ways than skips."""
        own = self._memory["of"][labels]
        used_N, left_N = (np.where(np.isfinite(some), some, np.nan) for some in (used_N, left_N))
        before_N = np.concatenate(([own.get("left", np.nan)], left_N[:-1]))
        falls = np.stack((before_N - used_N, np.where(counts_N, 0.0, used_N - left_N)), axis=1)
        falls = np.where(falls > 0, falls, 0.0).ravel()
        lost = np.cumsum(np.concatenate(([own.get("lost", 0.0)], falls)))[1:]
        own["left"], own["lost"] = float(left_N[-1]), float(lost[-1])
        return used_N + lost[0::2], left_N + lost[1::2]

    def _highest(self, labels: Labels) -> Extreme:
        if labels not in self._of:
            highest = Extreme(Shape(window=WINDOW, by_time=False), ufunc=np.maximum, identity=-np.inf)
            self._of[labels] = highest, Stages(self._memory["of"].setdefault(labels, {}), highest=highest)
        return self._of[labels][0]

    def save(self) -> None:
        for _, stages in self._of.values():
            stages.save()

    def restart(self) -> None:
        for labels, (_, stages) in self._of.items():
            stages.restart()
            for name in ("left", "lost"):
                self._memory["of"][labels].pop(name, None)


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
            found[column.labels] = Samples(step=column.step, time_us=column.time_us, value=log2(column.value) - floor)
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
        text="Doublings that the loss scale lies below its highest of the last 200 steps, as far as skips took it"
        " there; settling is left out, and what has grown again is not lost.",
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
