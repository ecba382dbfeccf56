"""How large the gradient norm is where a gradient is to be expected, and how much it varies.

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


class _OfLoss:
    """The norm of each optimizer, without the steps in which nothing is left to learn."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        memory.setdefault("is_zero", False)

    def feed(self, block: Block) -> Found:
        losses = block.named("loss")
        step, is_zero = (losses[0].step, losses[0].value == 0) if losses else (np.empty(0, np.int64), np.empty(0, bool))
        is_zero = np.concatenate(([self._memory["is_zero"]], is_zero))  # by how many losses were told so far
        found = {}
        for column in block.named("grad.norm"):
            value = np.where(is_zero[np.searchsorted(step, column.step, "right")], np.nan, column.value)
            found[column.labels] = Samples(step=column.step, time_us=column.time_us, value=value)
        self._memory["is_zero"] = bool(is_zero[-1])
        return found

    def restart(self) -> None:
        self._memory["is_zero"] = False


METRICS = (
    Metric(
        id="grad_norm.of_loss",
        title="gradient norm of a loss above 0",
        text="The gradient norm, without steps whose newest loss is exactly 0: there nothing is left to learn, and no"
        " gradient is as it should be.",
        make=_OfLoss,
        inputs=Wanted(series=frozenset({"grad.norm", "loss"})),
        panel="norm",
    ),
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
