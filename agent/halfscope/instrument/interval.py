"""How often gradients are sketched: at every N-th step, with N given, or found from what sketches cost.

Owns the choice and the arithmetic of the budget; takes no sketch. Must not import torch.
Invariant: whether a step is due is decided once for all that ask in it, and an N that was given stays as it is.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable

EVERY_ON_HOST = 10
EVERY_ON_DEVICE = 50
"""Of how many steps one is sketched, where nobody says and the budget allows it."""
LADDER = (1, 2, 5, 10, 50, 100, 500, 1000)
"""Intervals that are chosen between: so far apart that noise in a clock does not lead from one to the next. From the
usual ones on each divides the next: what the rarest of several ranks sketches, all do."""
MAX_GAP_S = 60.0
"""Whatever it costs, about a minute of training has a sketch (and so have 1,000 steps)."""
OVERDUE_S = 150.0
"""A training that has become slow is not waited for any longer. Above what the ladder makes of a minute."""
FIRST_SKETCHES = 10
FIRST_S = 1.0
"""So many sketches come at the usual interval before anything is saved, unless they cost a second before: what they
cost is not known until then, and a short run is to have a picture."""
EXTRA_SKETCHES = 64
"""Of steps that went wrong, outside the interval, before they have to be saved up: each regular sketch allows for one
more. A scale that settles from 2^24 takes fewer."""
RESERVED_SKETCHES = 32
"""Of these, what is left for steps that went wrong themselves when those behind them have had the rest."""
NARROWS_AT_SHARE = 0.7
"""An interval is narrowed where this share of the budget is enough for the next; else it would go back and forth."""
NUM_KEPT = 5
"""Measurements whose median counts: a sketch during which the process was held up is not what sketches cost."""


class SketchInterval:
    """The interval of one run."""

    def __init__(
        self,
        *,
        every: int | None,
        budget_share: float,
        elsewhere_ns: Callable[[], int] = lambda: 0,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """
        Args:
            every: the interval that was asked for, in steps; None: by the budget.
            budget_share: what sketches may cost, as a share of step time.
            elsewhere_ns: what they have cost in all on other threads.
            clock: monotonic, in nanoseconds.
        """
        self.value = every or EVERY_ON_HOST
        """In force."""
        self.overdue_ns: float = math.inf
        """When the next sketch is due whatever its step; the clock is the one that was given."""
        self.is_overdue = False
        self._is_given = every is not None
        self._budget_share, self._elsewhere_ns, self._clock = budget_share, elsewhere_ns, clock
        self._usual = EVERY_ON_HOST
        self._due_step: int | None = None
        self._extra_step: int | None = None
        self._extra_left = EXTRA_SKETCHES
        self._own_ns = 0
        self._num_sketches = 0
        self._num_since = 0
        """Sketches since the last regular one, with it."""
        self._since_ns = self._spent_before_ns = 0
        self._costs_s: deque[float] = deque(maxlen=NUM_KEPT)
        self._steps_s: deque[float] = deque(maxlen=NUM_KEPT)

    def use_device(self) -> None:
        """The gradients live on a device, where a sketch costs the launch of its kernels."""
        self._usual = EVERY_ON_DEVICE
        if not self._is_given:
            self.value = max(self.value, EVERY_ON_DEVICE)

    @property
    def is_for_device(self) -> bool:
        return self._usual == EVERY_ON_DEVICE

    def passes(self, step: int) -> bool:
        """Whether a step is certainly no regular one, so that `is_due` need not be asked; begins none."""
        return step % self.value != 0 and step != self._due_step and not self.is_overdue

    def is_due(self, step: int) -> bool:
        """Whether a step is a regular one to sketch."""
        if step == self._due_step:
            return True
        if step % self.value and not self.is_overdue:
            return False
        self._begin(step)
        return True

    def allows_extra(self, step: int) -> bool:
        """Whether a step that went wrong can be sketched, which is not due."""
        if self._is_given or step == self._extra_step:
            return True
        if not self._extra_left:
            return False
        self._extra_left -= 1
        self._extra_step = step
        self._num_since += 1
        return True

    def allows_dense(self, step: int) -> bool:
        """Whether a step can be sketched because one shortly before it went wrong."""
        if self._is_given:
            return False
        return step == self._extra_step or (self._extra_left > RESERVED_SKETCHES and self.allows_extra(step))

    def spend(self, spent_ns: int) -> None:
        """A sketch, or what belongs to it, has cost so much time of the training thread."""
        self._own_ns += spent_ns

    def _begin(self, step: int) -> None:
        before, self._due_step = self._due_step, step
        if self._is_given:
            return
        now_ns, spent_ns = self._clock(), self._own_ns + self._elsewhere_ns()
        if before is not None and step > before:
            window_s, spent_s = (now_ns - self._since_ns) / 1e9, (spent_ns - self._spent_before_ns) / 1e9
            self._costs_s.append(spent_s / self._num_since)
            self._steps_s.append(max(window_s - spent_s, 0.0) / (step - before))
        self._since_ns, self._spent_before_ns = now_ns, spent_ns
        self.overdue_ns, self.is_overdue = now_ns + OVERDUE_S * 1e9, False
        self._num_sketches += 1
        self._num_since = 1
        self._extra_left = min(EXTRA_SKETCHES, self._extra_left + 1)
        if self._steps_s:
            self.value = self._chosen(spent_ns / 1e9)

    def _chosen(self, spent_s: float) -> int:
        step_s = statistics.median_low(self._steps_s)
        most = LADDER[-1] if step_s <= 0 else _nearest(MAX_GAP_S / step_s)
        least = min(self._usual, most)
        if self._num_sketches <= FIRST_SKETCHES and spent_s < FIRST_S:
            affordable = 0.0
        else:
            allowed_s = self._budget_share * step_s
            affordable = statistics.median_low(self._costs_s) / allowed_s if allowed_s > 0 else math.inf
        wanted = max(affordable, least)
        chosen = next((rung for rung in LADDER if wanted <= rung <= most), most)
        if chosen < self.value <= most and affordable > NARROWS_AT_SHARE * chosen:
            return self.value
        return chosen


def _nearest(num_steps: float) -> int:
    """The interval of the ladder that is the fewest times longer or shorter."""
    return min(LADDER, key=lambda rung: max(rung / num_steps, num_steps / rung))
