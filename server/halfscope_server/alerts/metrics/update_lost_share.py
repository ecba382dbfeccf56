"""Share of a layer's updates that were lost, in every step in which they were looked at.

Must not tell why: in FP32 a share near one says that steps are next to nothing. Invariant: the counts are those that
the pages add up (query/updates); a layer of which nothing counted has no share.
"""

from __future__ import annotations

import numpy as np

from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Found, LayerSamples, Memory, Metric
from halfscope_server.store.update_types import Wanted


class _UpdateLostShare:
    def __init__(self, memory: Memory) -> None:
        self._names: list[str] = memory.setdefault("names", [])
        """Of layers in the order in which they came."""

    def feed(self, block: Block) -> Found:
        frames = [frames for frames in block.changes if frames.step.size]
        if not frames:
            return {}
        for each in frames:
            self._names += [name for name in each.names if name not in self._names]
        value = np.full((sum(each.step.size for each in frames), len(self._names)), np.nan)
        first = 0
        for each in frames:
            rows = slice(first, first + each.step.size)
            n, zeros = each.cells["n"], each.cells["zeros"]
            share = np.divide(zeros, n, out=np.full(n.shape, np.nan), where=each.cells["present"] & (n > 0))
            value[rows, [self._names.index(name) for name in each.names]] = share
            first = rows.stop
        return LayerSamples(
            names=self._names,
            step=np.concatenate([each.step for each in frames]),
            time_us=np.concatenate([each.time_us for each in frames]),
            value=value,
        )

    def restart(self) -> None:
        pass


METRICS = (
    Metric(
        id="update_lost_share",
        title="lost updates, share",
        text="Share of a layer's sampled weights with a gradient that the step left as they were. Near 1 in FP32 it"
        " says that the steps are next to nothing; of weights stored in fewer bits, that they are rounded away.",
        make=_UpdateLostShare,
        inputs=Wanted(series=frozenset({"opt.steps"}), changes=True),
        unit="share",
        per_layer=True,
    ),
)
