"""Samples that are held back while nothing that could be made of them would be told.

Owns what is held of one stream of samples, and between which values its windows lie. Must not know data's order, rules
or metrics. Invariant: what was held is handed out before the first sample that could take any node over a threshold,
so the nodes are fed the same samples in the same order, only in fewer and larger pieces.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from halfscope_server.alerts.node import Node
from halfscope_server.alerts.types import Samples, joined

MAX_HELD = 1024
"""Samples; so many are worked out at once for little more than one."""
MAX_PIECES = 64
"""Of which they may consist: small ones take more memory than what is in them."""
STRETCHES = 16
"""Into which the longest window is cut: what has left it is forgotten so much later at most."""

Stretch = tuple[int, int, int, int, float, float]
"""First and last step, first and last time, smallest and largest finite value."""


class Quiet:
    """See the module.

    Args:
        nodes: those that the samples are for; of each it is known what the values of its window say about it.
        stretches: what `state` gave before.
    """

    def __init__(self, nodes: Sequence[Node], stretches: Sequence[Stretch] = ()) -> None:
        self._nodes = nodes
        self._longest_steps = max((_reaches_back(node) for node in nodes if not node.is_by_time), default=0)
        self._longest_us = max((_reaches_back(node) for node in nodes if node.is_by_time), default=0)
        self._held: list[Samples] = []
        self._num_held = 0
        self._stretches = deque(stretches)
        """Of all samples that any window may still hold, oldest first."""

    def take(self, samples: Samples) -> Samples | None:
        """What is to be judged now, what was held included; None: these are held too.

        Args:
            samples: at least one.
        """
        low, high = self._extremes(samples)
        self._held.append(samples)
        self._num_held += samples.step.size
        is_full = self._num_held >= MAX_HELD or len(self._held) >= MAX_PIECES
        if is_full or any(node.could_tell(low, high) for node in self._nodes):
            return self.release()
        return None

    def release(self) -> Samples | None:
        """Everything that is held; None: nothing is."""
        held, self._held, self._num_held = self._held, [], 0
        return joined(held) if held else None

    def restart(self) -> None:
        """The windows are empty again, and nothing is held."""
        self._stretches.clear()

    def _extremes(self, samples: Samples) -> tuple[float, float]:
        """Between which finite values all windows lie that end with one of these samples."""
        step, time_us, value = samples.step, samples.time_us, samples.value
        low, high = float(np.minimum.reduce(value)), float(np.maximum.reduce(value))
        if not (math.isfinite(low) and math.isfinite(high)):
            finite = value[np.isfinite(value)]
            low, high = float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf))
        first_us = last_us = 0
        if self._longest_us:  # nodes count on from the farthest there was where a clock goes back
            before_us = self._stretches[-1][3] if self._stretches else 0
            first_us, last_us = int(time_us[0]), max(int(np.maximum.reduce(time_us)), before_us)
        new = int(step[0]), int(step[-1]), first_us, last_us, low, high
        self._forget(new[0], first_us)
        if self._stretches and self._is_short(both := _both(self._stretches[-1], new)):
            self._stretches[-1] = both
        else:
            self._stretches.append(new)
        return min(one[4] for one in self._stretches), max(one[5] for one in self._stretches)

    def _forget(self, step: int, time_us: int) -> None:
        """What no window that ends there or later holds."""
        while self._stretches:
            _, last_step, _, last_us, _, _ = self._stretches[0]
            if last_step > step - self._longest_steps or last_us > time_us - self._longest_us:
                return
            self._stretches.popleft()

    def _is_short(self, stretch: Stretch) -> bool:
        first_step, last_step, first_us, last_us, _, _ = stretch
        return (
            STRETCHES * (last_step - first_step) < self._longest_steps
            or STRETCHES * (last_us - first_us) < self._longest_us
        )

    def state(self) -> list[Stretch]:
        """What the next one needs; nothing may be held."""
        return list(self._stretches)


def _reaches_back(node: Node) -> int:
    """A little farther than its window: a quantile stands for a twentieth of that until it is found anew."""
    return node.window + node.window // STRETCHES + 1


def _both(one: Stretch, other: Stretch) -> Stretch:
    return (
        min(one[0], other[0]),
        max(one[1], other[1]),
        min(one[2], other[2]),
        max(one[3], other[3]),
        min(one[4], other[4]),
        max(one[5], other[5]),
    )
