"""Updates of weights that were lost: steps too small for the bits that the weights are stored in.

Must not judge shares itself: the agent has, of weights in half precision or less alone (docs/numerics.md). Invariant:
what was told holds until the training begins anew; that a layer has recovered is told by nobody.
"""

from __future__ import annotations

import numpy as np

from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Found, Memory, Metric
from halfscope_server.alerts.types import Samples
from halfscope_server.store.update_types import Wanted


class _UpdatesLost:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        memory.setdefault("since", None)

    def feed(self, block: Block) -> Found:
        told = block.of("updates_lost")
        if told.step.size and self._memory["since"] is None:
            self._memory["since"] = int(told.step[0])
        step, time_us = block.rows
        if not step.size:
            return {}
        since = self._memory["since"]
        value = np.zeros(step.size) if since is None else (step >= since).astype(np.float64)
        return {(): Samples(step=step, time_us=time_us, value=value)}

    def restart(self) -> None:
        self._memory["since"] = None


METRICS = (
    Metric(
        id="updates_lost",
        title="lost updates",
        text="1 from the step on in which a layer stored in 16 bits or less had lost at least half of its updates in"
        " three sketched steps in a row, until the training starts anew; else 0. It stays so where the layer recovers.",
        make=_UpdatesLost,
        inputs=Wanted(series=frozenset({"opt.steps"}), events=frozenset({"updates_lost"})),
        kind="flag",
    ),
)
