"""What goes into the model: whether it fits FP16, and whether it is a number at all.

Invariant: of a run that does not compute in FP16 nothing is said about FP16's range.
"""

from __future__ import annotations

import numpy as np
from halfscope.formats import FP16

from halfscope_server.alerts.block import GRAVE, Block
from halfscope_server.alerts.metrics.base import Found, Memory, Metric, as_it_is
from halfscope_server.alerts.metrics.nonfinite import at_rows
from halfscope_server.alerts.metrics.underflow import in_fp16
from halfscope_server.alerts.types import Samples
from halfscope_server.store.update_types import Wanted


class _OfFp16:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def feed(self, block: Block) -> Found:
        columns = block.named("input.absmax")
        if not columns or not in_fp16(block.run, bool(block.named("amp.scale")), self._memory):
            return {}
        return as_it_is(columns, divide_by=FP16.largest)

    def restart(self) -> None:
        pass


class _NonFinite:
    def __init__(self, memory: Memory) -> None:
        pass

    def feed(self, block: Block) -> Found:
        step, time_us = block.rows
        if not step.size:
            return {}
        bad = block.of("input_nonfinite")
        value = at_rows(step, bad, bad.mark == GRAVE).astype(np.float64)
        return {(): Samples(step=step, time_us=time_us, value=value)}

    def restart(self) -> None:
        pass


METRICS = (
    Metric(
        id="input_of_fp16",
        title="input, as a share of FP16's range",
        text="Largest magnitude in the model's input batch by FP16's largest number, on runs that compute in FP16.",
        make=_OfFp16,
        inputs=Wanted(series=frozenset({"input.absmax", "amp.scale"})),
        unit="share",
    ),
    Metric(
        id="input_nonfinite",
        title="input holds NaN or Inf",
        text="1 in a step whose input batch held NaN or Inf that the step did not cope with; else 0. Batches are looked"
        " at now and then, and wherever a step was not finite.",
        make=_NonFinite,
        inputs=Wanted(series=frozenset({"opt.steps"}), events=frozenset({"input_nonfinite"})),
        unit="share",
        counts=True,
        panel="loss",
        kind="flag",
    ),
)
