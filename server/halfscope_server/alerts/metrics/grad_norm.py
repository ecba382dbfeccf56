"""How much the gradient norm varies.

Invariant: a norm that is NaN or infinite enters nothing.
"""

from __future__ import annotations

import numpy as np

from halfscope_server.alerts.aggregations.quantile import Quantiles
from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Found, Labels, Memory, Metric
from halfscope_server.alerts.metrics.loss import PARTS, WINDOW, Stages
from halfscope_server.alerts.types import Samples
from halfscope_server.store.update_types import Wanted


class _Volatility:
    """Interquartile range by median over 200 steps, per optimizer."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._of: dict[Labels, tuple[Quantiles, Stages]] = {}
        for labels in memory.setdefault("of", {}):
            self._quantiles(labels)

    def feed(self, block: Block) -> Found:
        found = {}
        for column in block.named("grad.norm"):
            labels = column.labels
            quantiles, own = self._quantiles(labels), self._memory["of"][labels]
            own.setdefault("first", int(column.step[0]))
            norm = np.where(np.isfinite(column.value), column.value, np.nan)
            low, middle, high = quantiles.feed(column.step, norm).T
            with np.errstate(divide="ignore", invalid="ignore"):
                full = (column.step - own["first"] >= WINDOW - 1) & (middle > 0)
                value = np.where(full, (high - low) / middle, np.nan)
            found[labels] = Samples(step=column.step, time_us=column.time_us, value=value)
        return found

    def _quantiles(self, labels: Labels) -> Quantiles:
        if labels not in self._of:
            quantiles = Quantiles(WINDOW, [0.25, 0.5, 0.75], PARTS)
            self._of[labels] = quantiles, Stages(self._memory["of"].setdefault(labels, {}), quantiles=quantiles)
        return self._of[labels][0]

    def save(self) -> None:
        for _, stages in self._of.values():
            stages.save()

    def restart(self) -> None:
        for labels, (_, stages) in self._of.items():
            stages.restart()
            self._memory["of"][labels].pop("first", None)


METRICS = (
    Metric(
        id="grad_norm_volatility",
        title="gradient norm volatility",
        text="Interquartile range of the gradient norm by its median, over 200 steps.",
        make=_Volatility,
        inputs=Wanted(series=frozenset({"grad.norm"})),
        unit="share",
        panel="norm",
    ),
)
