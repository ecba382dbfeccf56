"""What is told by the server's own events rather than by numbers: silence, a stall, records that were lost.

Must not ask a clock: the server has asked it once and written down what it found. Invariant: a signal lasts from its
event to the first row after that event's step.
"""

from __future__ import annotations

import functools

import numpy as np

from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Found, Memory, Metric
from halfscope_server.alerts.types import Samples
from halfscope_server.store.update_types import Wanted


class _Signal:
    """1 at the event, 0 at rows after it."""

    def __init__(self, memory: Memory, begins: str, ends: str) -> None:
        self._memory, self._begins, self._ends = memory, begins, ends
        memory.setdefault("since", None)
        memory.setdefault("since_us", 0)

    def feed(self, block: Block) -> Found:
        begins, ends = block.of(self._begins), block.of(self._ends)
        step, time_us = block.rows
        since = self._memory["since"]
        if since is not None:
            # Rows of other ranks up to its step may come after it: they do not end it.
            later = int(np.searchsorted(step, since, "right"))
            step, time_us = step[later:], time_us[later:]
        # At the same step: rows, then what ended, then what began.
        steps = np.concatenate((step, ends.step, begins.step))
        times = np.concatenate((time_us, ends.time_us, begins.time_us))
        values = np.zeros(steps.size)
        values[step.size + ends.step.size :] = 1.0
        order = np.argsort(steps, kind="stable")
        if not order.size:
            return {}
        steps, times, values = steps[order], times[order], values[order]
        on = values > 0
        if on[-1]:
            self._memory["since"], self._memory["since_us"] = int(steps[-1]), int(times[-1])
        elif steps.size:
            self._memory["since"] = None
        return {(): Samples(step=steps, time_us=times, value=values)}

    def now(self) -> Samples | None:
        """What a rule that is changed after it has to know; None: nothing is on."""
        since, since_us = self._memory["since"], self._memory["since_us"]
        if since is None:
            return None
        return Samples(step=np.array([since]), time_us=np.array([since_us]), value=np.ones(1))

    def restart(self) -> None:
        self._memory["since"] = None


def _metric(name: str, title: str, text: str, begins: str, ends: str = "") -> Metric:
    events = frozenset({begins, ends} - {""})
    return Metric(
        id=name,
        title=title,
        text=text,
        make=functools.partial(_Signal, begins=begins, ends=ends),
        inputs=Wanted(series=frozenset({"opt.steps"}), events=events),
        aggregations=("last",),
        counts=True,
        kind="flag",
    )


METRICS = (
    _metric(
        "no_data",
        "no data",
        "1 from the moment the server lost contact to the agent until something is heard of it again; else 0.",
        "lost_contact",
        "contact_regained",
    ),
    _metric(
        "stall",
        "stall",
        "1 from the moment the server wrote that the training makes no steps, though its agent is there, until the"
        " next step; else 0.",
        "stalled",
    ),
    _metric(
        "lost_data",
        "lost data",
        "1 where records were lost that can no longer be delivered, 0 in the next step.",
        "lost",
    ),
)
