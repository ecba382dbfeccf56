"""The loss: whether it is a number, and how much it swings.

Invariant: a loss that is NaN or infinite is counted, and enters nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.aggregations.base import Shape
from halfscope_server.alerts.aggregations.extremes import Extreme
from halfscope_server.alerts.aggregations.quantile import Quantiles
from halfscope_server.alerts.aggregations.sums import Mean, Total
from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Floats, Found, Ints, Memory, Metric
from halfscope_server.alerts.metrics.nonfinite import at_rows
from halfscope_server.alerts.types import Samples
from halfscope_server.store.update_types import Wanted

WINDOW = 200
"""Steps that a swing is measured over (docs/numerics.md)."""
PARTS = 10
"""How often percentiles are found anew within a window."""
SMOOTH = 20
"""Steps whose mean the swing without batch noise is of."""
STARTING_STEPS = 200
TURNING_SHARE = 0.05
"""Of the level: so far to either side of its running median a smoothed loss has swung."""
LEAST_TURNS = 3
"""Changes of side within the window that make a swing an oscillation: a level that shifts has one, a restart of the
learning rate's schedule two."""
NOISE_WIDTH = 1.3 * 1.645
"""Standard errors of the mean that its 5th and 95th percentile lie apart from the median by noise alone, at most."""
LEAST_SHARE = 0.1
"""Of the loss at the start: a loss that has come down below this swings by much of itself without harm."""


class _NonFinite:
    def __init__(self, memory: Memory) -> None:
        pass

    def feed(self, block: Block) -> Found:
        columns, events = block.named("loss"), block.of("loss_nonfinite")
        if not columns and not events.step.size:
            return {}
        step, time_us = block.rows
        bad = at_rows(step, events)
        for column in columns:
            bad[np.searchsorted(step, column.step[~np.isfinite(column.value)])] = True
        return {(): Samples(step=step, time_us=time_us, value=bad.astype(np.float64))}

    def restart(self) -> None:
        pass


class Kept(Protocol):
    """Something with a state of its own within a metric."""

    def restart(self) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def load(self, state: Mapping[str, Any]) -> None: ...


class Stages:
    """What a metric is computed with, kept in its memory."""

    def __init__(self, memory: Memory, **stages: Kept) -> None:
        self._memory, self._stages = memory, stages
        for name, stage in stages.items():
            if name in memory:
                stage.load(memory[name])

    def save(self) -> None:
        """Into the memory: called when a state is asked for."""
        for name, stage in self._stages.items():
            self._memory[name] = stage.state()

    def restart(self) -> None:
        for stage in self._stages.values():
            stage.restart()


class _Oscillation:
    """(95th - 5th percentile of the loss less its running median) / (2 x that median), over 200 steps each."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        memory.setdefault("first", None)
        self._median, self._ends = Quantiles(WINDOW, [0.5], PARTS), Quantiles(WINDOW, [0.05, 0.95], PARTS)
        self._stages = Stages(memory, median=self._median, ends=self._ends)

    def feed(self, block: Block) -> Found:
        columns = block.named("loss")
        if not columns or not columns[0].step.size:
            return {}
        loss = columns[0]
        value = self._swing(loss.step, np.where(np.isfinite(loss.value), loss.value, np.nan))
        return {(): Samples(step=loss.step, time_us=loss.time_us, value=value)}

    def _swing(self, step_N: Ints, loss_N: Floats) -> Floats:
        if self._memory["first"] is None:
            self._memory["first"] = int(step_N[0])
        first = self._memory["first"]
        median = self._median.feed(step_N, loss_N)[:, 0]
        # A median of half a window is no median over 200 steps; nor are percentiles of half a window of what is left.
        rest = np.where(step_N - first >= WINDOW - 1, loss_N - median, np.nan)
        low, high = self._ends.feed(step_N, rest).T
        level = self._level(step_N, median)
        with np.errstate(divide="ignore", invalid="ignore"):
            width = self._width(step_N, rest, level, low, high)
            return np.where((step_N - first >= 2 * (WINDOW - 1)) & (level > 0), width / (2 * level), np.nan)

    def _level(self, step_N: Ints, median_N: Floats) -> Floats:
        return np.abs(median_N)

    def _width(self, step_N: Ints, rest_N: Floats, level_N: Floats, low_N: Floats, high_N: Floats) -> Floats:
        return high_N - low_N

    def save(self) -> None:
        self._stages.save()

    def restart(self) -> None:
        self._memory["first"] = None
        self._stages.restart()


class _Swing(_Oscillation):
    """The same of the loss without the noise from batch to batch, and only where it swings to and fro."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        memory.setdefault("start", None)
        memory.setdefault("side", 0.0)
        memory.setdefault("newest", np.nan)
        window, smooth = Shape(window=WINDOW, by_time=False), Shape(window=SMOOTH, by_time=False)
        self._mean, self._count, self._jumps = Mean(smooth), Total(smooth), Mean(window)
        self._turns = Total(window)
        self._ends_of_loss = Extreme(window, ufunc=np.maximum, identity=-np.inf)
        self._more = Stages(
            memory,
            mean=self._mean,
            count=self._count,
            jumps=self._jumps,
            turns=self._turns,
            ends_of_loss=self._ends_of_loss,
        )
        self._changes_sign: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._noise: Floats = np.empty(0)

    def _swing(self, step_N: Ints, loss_N: Floats) -> Floats:
        highest, lowest = (self._ends_of_loss.feed(step_N, np.stack((loss_N, -loss_N), axis=1)) * (1, -1)).T
        self._changes_sign = (highest > 0) & (lowest < 0)
        self._noise = NOISE_WIDTH * self._standard_error(step_N, loss_N)
        return super()._swing(step_N, self._mean.feed(step_N, loss_N[:, None])[:, 0])

    def _standard_error(self, step_N: Ints, loss_N: Floats) -> Floats:
        """Of the mean of 20 steps, as far as values jump from one to the next: a slow swing hardly does."""
        jump = np.diff(loss_N, prepend=self._memory["newest"])
        self._memory["newest"] = float(loss_N[-1])
        variance = self._jumps.feed(step_N, jump[:, None] ** 2)[:, 0] / 2
        count = self._count.feed(step_N, np.isfinite(loss_N).astype(np.float64)[:, None])[:, 0]
        return np.sqrt(np.nan_to_num(variance) / np.maximum(count, 1.0))

    def _level(self, step_N: Ints, median_N: Floats) -> Floats:
        # A loss on both sides of zero has no size that a swing could be a share of.
        level = np.where(self._changes_sign, np.nan, np.abs(median_N))
        known = np.flatnonzero(~np.isnan(level) & (step_N - self._memory["first"] >= STARTING_STEPS - 1))
        if self._memory["start"] is None and known.size:
            self._memory["start"] = float(level[known[0]])
        start = self._memory["start"]
        return level if start is None else np.maximum(level, LEAST_SHARE * start)

    def _width(self, step_N: Ints, rest_N: Floats, level_N: Floats, low_N: Floats, high_N: Floats) -> Floats:
        far = np.abs(rest_N) > TURNING_SHARE * level_N
        newest = np.maximum.accumulate(np.where(far, np.arange(1, rest_N.size + 1), 0))
        side = np.concatenate(([self._memory["side"]], np.sign(rest_N)))[newest]
        before = np.concatenate(([self._memory["side"]], side[:-1]))
        self._memory["side"] = float(side[-1])
        turns = self._turns.feed(step_N, (side * before < 0).astype(np.float64)[:, None])[:, 0]
        # The smaller of both sides: a level that shifts leaves the median on one side alone.
        smaller = np.maximum(np.minimum(high_N, -low_N), 0.0)
        both = 2 * np.sqrt(np.maximum(smaller**2 - self._noise**2, 0.0))
        return np.where(turns >= LEAST_TURNS, both, np.where(np.isnan(both), np.nan, 0.0))

    def save(self) -> None:
        super().save()
        self._more.save()

    def restart(self) -> None:
        super().restart()
        self._memory["side"], self._memory["newest"] = 0.0, np.nan
        self._more.restart()


METRICS = (
    Metric(
        id="loss_nonfinite",
        title="loss is NaN or Inf",
        text="1 in a step whose loss is NaN or infinite, whether or not anything of it reached a weight; else 0.",
        make=_NonFinite,
        inputs=Wanted(series=frozenset({"loss"}), events=frozenset({"loss_nonfinite"})),
        unit="share",
        counts=True,
        panel="loss",
        kind="flag",
    ),
    Metric(
        id="loss_oscillation",
        title="loss oscillation",
        text="How far the loss swings about its running median, as a share of that, over 200 steps: half of what lies"
        " between the 5th and the 95th percentile. Noise from batch to batch is in it.",
        make=_Oscillation,
        inputs=Wanted(series=frozenset({"loss"})),
        unit="share",
        panel="loss",
    ),
    Metric(
        id="loss_oscillation.smoothed",
        title="loss oscillation, smoothed",
        text="How far the mean loss of 20 steps swings to both sides of its running median, as a share of that: the"
        " smaller side, beyond what noise from step to step makes of it, and 0 unless it changes sides three times"
        " within 200 steps, as a level that shifts does not. A loss under a tenth of what it began at counts as that"
        " tenth; one on both sides of zero has none.",
        make=_Swing,
        inputs=Wanted(series=frozenset({"loss"})),
        unit="share",
        panel="loss",
    ),
)
