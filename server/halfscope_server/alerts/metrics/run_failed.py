"""Whether a training failed: it was killed, or an exception ended it.

Must not decide what counts as a failure: `block.mark_of` has read it from the event. Invariant: of one start of a
training at most one failure is told, and nothing after it takes it back; whoever stops one by hand has not failed.
"""

from __future__ import annotations

import numpy as np

from halfscope_server.alerts.block import GRAVE, Block
from halfscope_server.alerts.metrics.base import Found, Memory, Metric
from halfscope_server.alerts.types import Samples
from halfscope_server.store.update_types import Wanted


class _Failed:
    """0 at rows, 1 at the first end of a stream that is a failure, then nothing until the training starts anew."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        memory.setdefault("failed", None)
        memory.setdefault("last_step", -1)

    def feed(self, block: Block) -> Found:
        if self._memory["failed"] is not None:
            return {}
        step, time_us = block.rows
        ends = block.of("run_ended")
        failures = np.flatnonzero(ends.mark == GRAVE)
        value = np.zeros(step.size)
        if failures.size:
            at = int(failures[0])
            # What other ranks did meanwhile may have been judged before it was known.
            failed, failed_us = max(int(ends.step[at]), self._memory["last_step"]), int(ends.time_us[at])
            self._memory["failed"] = (failed, failed_us)
            up_to = int(np.searchsorted(step, failed, "right"))
            step, time_us = np.append(step[:up_to], failed), np.append(time_us[:up_to], failed_us)
            value = np.append(value[:up_to], 1.0)
        if not step.size:
            return {}
        self._memory["last_step"] = int(step[-1])
        return {(): Samples(step=step, time_us=time_us, value=value)}

    def now(self) -> Samples | None:
        """What a rule that is changed after it has to know."""
        if self._memory["failed"] is None:
            return None
        step, time_us = self._memory["failed"]
        return Samples(step=np.array([step]), time_us=np.array([time_us]), value=np.ones(1))

    def restart(self) -> None:
        self._memory["failed"], self._memory["last_step"] = None, -1


METRICS = (
    Metric(
        id="run_failed",
        title="training failed",
        text="1 from the moment the training was killed or an exception ended it, on any rank, until it starts anew;"
        " else 0. KeyboardInterrupt is no failure.",
        make=_Failed,
        inputs=Wanted(series=frozenset({"opt.steps"}), events=frozenset({"run_ended"})),
        aggregations=("last",),
        counts=True,
        kind="flag",
        ends_with_run=True,
    ),
)
