"""Steps that a scaler withheld: how many, and how many one right after the other.

Invariant: an attempt in which an optimizer is not stepped at all neither lengthens nor ends its streak.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Found, Ints, Labels, Memory, Metric
from halfscope_server.alerts.metrics.nonfinite import EXPECTED, at_rows
from halfscope_server.alerts.types import Samples
from halfscope_server.store.update_types import Wanted

Bools = NDArray[np.bool_]

INPUTS = Wanted(series=frozenset({"opt.steps", "amp.skipped"}))


class _Rate:
    def __init__(self, memory: Memory) -> None:
        pass

    def feed(self, block: Block) -> Found:
        columns = block.named("amp.skipped")
        if not columns:
            return {}
        step, time_us = block.rows
        value = np.zeros(step.size)
        for column in columns:
            value[np.searchsorted(step, column.step[column.value > 0])] = 1.0
        return {(): Samples(step=step, time_us=time_us, value=value)}

    def restart(self) -> None:
        pass


class _Streak:
    """Per optimizer."""

    def __init__(self, memory: Memory) -> None:
        self._length: dict[Labels, int] = memory.setdefault("length", {})

    def feed(self, block: Block) -> Found:
        found = {}
        for column in block.named("amp.skipped"):
            labels = column.labels
            skipped = column.value > 0
            counted = self._counted(block, column.step, skipped)
            lengths = _lengths(counted, self._length.get(labels, 0))
            self._length[labels] = int(lengths[-1])
            found[labels] = Samples(step=column.step, time_us=column.time_us, value=lengths.astype(np.float64))
        return found

    def _counted(self, block: Block, step: Ints, skipped: Bools) -> Bools:
        return skipped

    def restart(self) -> None:
        self._length.clear()


class _UnexpectedStreak(_Streak):
    def _counted(self, block: Block, step: Ints, skipped: Bools) -> Bools:
        skips = block.of("skip")
        if not skips.step.size:
            return skipped
        is_expected = np.isin(skips.mark, EXPECTED)
        expected = at_rows(step, skips, is_expected) & ~at_rows(step, skips, ~is_expected)
        return skipped & ~expected


def _lengths(skipped: Bools, before: int) -> Ints:
    """Of the run of True that ends at each place.

    Args:
        before: length of the run that ends just before the first.
    """
    place = np.arange(1, skipped.size + 1)
    broken = np.maximum.accumulate(np.where(skipped, -before, place))
    return np.where(skipped, place - broken, 0)


METRICS = (
    Metric(
        id="skip_rate",
        title="skip rate",
        text="Attempts in which the scaler withheld an optimizer's step, as a share of all attempts.",
        make=_Rate,
        inputs=INPUTS,
        unit="share",
        counts=True,
        panel="scale",
        kind="flag",
    ),
    Metric(
        id="skip_streak",
        title="skips in a row",
        text="Length of the current run of withheld steps, settling and probing included.",
        make=_Streak,
        inputs=INPUTS,
        unit="steps",
        counts=True,
        panel="scale",
    ),
    Metric(
        id="skip_streak.unexpected",
        title="skips in a row, settling left out",
        text="The same without skips of a loss scale that settles or probes.",
        make=_UnexpectedStreak,
        inputs=Wanted(series=INPUTS.series, events=frozenset({"skip"})),
        unit="steps",
        counts=True,
        panel="scale",
    ),
)
