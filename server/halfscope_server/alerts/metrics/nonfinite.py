"""NaN and Inf: in how many attempts there were any, and what became of them (docs/numerics.md).

Invariant: an attempt is caught where a scaler withheld a step, or nothing of a loss that was not finite reached a
weight; it is applied where something did. Both can be so at once, with two optimizers.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.block import Block, Marks
from halfscope_server.alerts.metrics.base import Floats, Found, Ints, Memory, Metric
from halfscope_server.alerts.types import Samples
from halfscope_server.store.types import CAUGHT, SKIP_CLASSES
from halfscope_server.store.update_types import Wanted

Bools = NDArray[np.bool_]

INPUTS = Wanted(series=frozenset({"opt.steps"}), events=frozenset({"skip", "loss_nonfinite", "nonfinite_applied"}))
EXPECTED = tuple(SKIP_CLASSES.index(name) for name in ("settling", "probe"))
"""Skips that a healthy scaler makes."""


class Flags(NamedTuple):
    """Per attempt, all [N]."""

    step: Ints
    time_us: Ints
    caught: Bools
    applied: Bools
    unexpected: Bools
    """Caught, and not only by skips of a scale that settles or probes: of a loss that is not finite no scale is the
    cause."""


def flags(block: Block) -> Flags:
    """What became of each attempt of a block."""
    step, time_us = block.rows
    none = np.zeros(step.size, np.bool_)
    if not block.marks or not step.size:
        return Flags(step, time_us, none, none, none)
    skips, losses = block.of("skip"), block.of("loss_nonfinite")
    expected = np.isin(skips.mark, EXPECTED)
    skipped, skipped_badly = at_rows(step, skips), at_rows(step, skips, ~expected)
    loss_caught = losses.mark == CAUGHT
    with_loss = at_rows(step, losses, loss_caught)
    # Also beside a skip: of two optimizers one may be withheld while the other steps.
    applied = at_rows(step, block.of("nonfinite_applied")) | at_rows(step, losses, ~loss_caught)
    return Flags(step, time_us, skipped | with_loss, applied, skipped_badly | with_loss)


def at_rows(step_N: Ints, marks: Marks, which: Bools | None = None) -> Bools:
    """Which rows events belong to: each to the first that is not before it."""
    result = np.zeros(step_N.size, np.bool_)
    steps = marks.step if which is None else marks.step[which]
    if steps.size and step_N.size:
        result[np.minimum(np.searchsorted(step_N, steps), step_N.size - 1)] = True
    return result


class _Rate:
    def __init__(self, memory: Memory, part: str) -> None:
        self._part = part

    def feed(self, block: Block) -> Found:
        found = flags(block)
        if not found.step.size:
            return {}
        which = found.caught | found.applied if not self._part else getattr(found, self._part)
        value: Floats = which.astype(np.float64)
        return {(): Samples(step=found.step, time_us=found.time_us, value=value)}

    def restart(self) -> None:
        pass


def _metric(name: str, title: str, text: str, part: str, aliases: tuple[str, ...] = ()) -> Metric:
    return Metric(
        id=name,
        title=title,
        text=text,
        make=functools.partial(_Rate, part=part),
        inputs=INPUTS,
        unit="share",
        counts=True,
        panel="scale",
        kind="flag",
        aliases=aliases,
    )


METRICS = (
    _metric(
        "nonfinite_rate",
        "NaN/Inf rate",
        "Attempts with NaN or Inf in the loss or in any gradient, as a share of all attempts.",
        "",
        ("nan_rate",),
    ),
    _metric(
        "nonfinite_rate.caught",
        "NaN/Inf rate, caught",
        "Attempts whose NaN or Inf reached no weight: the scaler withheld the step, settling and probing included.",
        "caught",
    ),
    _metric(
        "nonfinite_rate.caught_unexpected",
        "NaN/Inf rate, caught unexpectedly",
        "The same without skips of a loss scale that settles or probes, which every healthy scaler makes.",
        "unexpected",
    ),
    _metric(
        "nonfinite_rate.applied",
        "NaN/Inf rate, applied",
        "Attempts whose NaN or Inf reached weights, buffers or the optimizer's state.",
        "applied",
    ),
)
