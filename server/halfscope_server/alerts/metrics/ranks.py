"""What the server found of many ranks, as it wrote it into the run's events, and how wrong reductions are.

Must not judge ranks: the server has, at steps that all of them had passed. Invariant: what was found of a step that
was judged already counts from the newest judged one on; nothing is judged twice.
"""

from __future__ import annotations

import functools

import numpy as np

from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Floats, Found, Ints, Memory, Metric
from halfscope_server.alerts.types import Samples
from halfscope_server.store.update_types import Wanted

ROWS = frozenset({"time.step_s"})
"""What every rank has at every step."""


class _Found:
    """1 at the event, 0 at rows after it."""

    def __init__(self, memory: Memory, kind: str) -> None:
        self._memory, self._kind = memory, kind
        memory.setdefault("last_step", -1)

    def feed(self, block: Block) -> Found:
        marks = block.of(self._kind)
        step, time_us, order = _merged(block, marks.step, marks.time_us, self._memory)
        if not step.size:
            return {}
        value: Floats = np.concatenate((np.zeros(step.size - marks.step.size), np.ones(marks.step.size)))[order]
        return {(): Samples(step=step, time_us=time_us, value=value)}

    def restart(self) -> None:
        self._memory["last_step"] = -1


class _CommError:
    """The newest error that was told, at every row."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        memory.setdefault("last_step", -1)
        memory.setdefault("error", 0.0)

    def feed(self, block: Block) -> Found:
        marks = block.of("comm_error")
        step, time_us, order = _merged(block, marks.step, marks.time_us, self._memory)
        if not step.size:
            return {}
        num_rows = step.size - marks.step.size
        told = np.concatenate((np.full(num_rows, np.nan), marks.mark / 1e6))[order]
        at = np.maximum.accumulate(np.where(np.isnan(told), -1, np.arange(told.size)))
        value = np.where(at < 0, self._memory["error"], told[np.maximum(at, 0)])
        self._memory["error"] = float(value[-1])
        return {(): Samples(step=step, time_us=time_us, value=value)}

    def restart(self) -> None:
        self._memory["last_step"], self._memory["error"] = -1, 0.0


def _merged(block: Block, told: Ints, told_us: Ints, memory: Memory) -> tuple[Ints, Ints, Ints]:
    """Steps and times of rows and of events among them, and the order that rows followed by events come in."""
    row, row_us = block.rows
    step = np.concatenate((row, np.maximum(told, memory["last_step"])))
    time_us = np.concatenate((row_us, told_us))
    order = np.argsort(step, kind="stable")
    if step.size:
        memory["last_step"] = max(memory["last_step"], int(step.max()))
    return step[order], time_us[order], order


def _found(name: str, title: str, text: str, kind: str) -> Metric:
    return Metric(
        id=name,
        title=title,
        text=f"1 {text}, 0 in the next step.",
        make=functools.partial(_Found, kind=kind),
        inputs=Wanted(series=ROWS, events=frozenset({kind})),
        aggregations=("last",),
        counts=True,
        kind="flag",
    )


METRICS = (
    _found(
        "rank_disagreement",
        "ranks disagree",
        "where the server found that a rank parts from the others in loss scale, skipped steps, learning rate or"
        " weights",
        "rank_disagreement",
    ),
    _found("straggler", "straggler", "where the server found that a rank holds the others up", "straggler"),
    _found("rank_stuck", "rank stuck", "where the server wrote that others wait for a rank", "rank_stuck"),
    Metric(
        id="comm_error",
        title="error of the reduction",
        text="How far the reduced gradient of the worst bucket is off the float64 mean of the ranks' own, as a share of"
        " it, over sampled elements. Changes below 0.1%, or by less than a factor of 2, are left out.",
        make=_CommError,
        inputs=Wanted(series=ROWS, events=frozenset({"comm_error"})),
        unit="share",
    ),
)
