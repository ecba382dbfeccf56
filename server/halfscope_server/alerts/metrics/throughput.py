"""How fast the training goes, in whatever it counts.

Invariant: a run is judged in one unit from its first step to its last.
"""

from __future__ import annotations

from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Found, Memory, Metric, as_it_is
from halfscope_server.store.update_types import Wanted

SERIES = ("throughput.samples_per_s", "throughput.tokens_per_s")


class _Throughput:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def feed(self, block: Block) -> Found:
        if "series" not in self._memory:
            there = [name for name in SERIES if block.named(name)]
            if not there:
                return {}
            self._memory["series"] = there[0]
        return as_it_is(block.named(self._memory["series"]))

    def restart(self) -> None:
        pass


METRICS = (
    Metric(
        id="throughput",
        title="throughput",
        text="Samples per second; where the run does not tell them, tokens per second.",
        make=_Throughput,
        inputs=Wanted(series=frozenset(SERIES)),
        unit="/s",
        panel="throughput",
    ),
)
