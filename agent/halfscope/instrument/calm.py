"""The short way through a step in which nothing is out of the ordinary: most steps of most trainings are.

One optimizer that has settled in, no scaler, gradients on the host, no sketch due, finite. Both ends of such a step do
what the watcher's own hooks would, in one function each, and leave an attempt that makes its parts only when somebody
asks for them. Sets no hooks.
Invariant: whatever is not certainly calm is left to the watcher as it was found, so both ways give the same records.
"""

from __future__ import annotations

import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from halfscope.instrument.reading import GradientReader
from halfscope.instrument.watched import WatchedOptimizer
from halfscope.record.clock import COMPLETE, OPEN

if TYPE_CHECKING:
    from halfscope.instrument.watcher import Watcher


class CalmSteps:
    """Of one run."""

    def __init__(self, watcher: Watcher, reader: GradientReader) -> None:
        self._watcher = watcher
        self._norm = reader.calm_norm
        self._stretches = watcher.stretches
        self._sketches, self._updates, self._inputs = watcher.sketches, watcher.updates, watcher.inputs
        self._interval = watcher.sketches.interval
        self._clock = watcher.clock
        self.is_possible = False
        """What does not change from step to step allows of it; `settle` finds out."""

    def settle(self, *, has_settled: bool) -> None:
        """A step was complete.

        Args:
            has_settled: facts of the first steps are told, and the order of the backward pass is known.
        """
        watcher = self._watcher
        watched = watcher.optimizers[0]
        self.is_possible = (
            has_settled
            and len(watcher.optimizers) == 1
            and watcher.reductions is None
            and not (watcher.first_is_a_guess or watched.num_unchecked or watched.quiet or watched.everywhere)
            and watched.tells
            and all(parameter.is_cpu for parameter in watched.parameters())
        )

    def begin(self, watched: WatchedOptimizer, optimizer: torch.optim.Optimizer) -> bool:
        """The optimizer is called without a closure: reads the norm and opens the attempt, where all is calm."""
        watcher, clock = self._watcher, self._clock
        step, phase = clock.step, clock.phase
        if phase is COMPLETE and watcher.backward_seen:
            step += 1
        elif phase is not OPEN or not watcher.attempt.is_blank:
            return False
        if watcher.scalers or self._updates.wanted or not self._sketches.passes(step):
            return False
        if getattr(optimizer, "grad_scale", None) is not None:
            return False
        norm = self._norm(watched)
        if norm is None:
            return False
        watcher.backward_seen = False
        if phase is COMPLETE:
            clock.begin()
        watcher.attempt.calm_norm = norm
        if self._stretches.has_helper:
            self._stretches.enter(norm)
        return True

    def end(self, watched: WatchedOptimizer, groups: list[dict[str, Any]]) -> bool:
        """The optimizer's step returned: completes the attempt, where all is calm."""
        watcher, clock = self._watcher, self._clock
        attempt = watcher.attempt
        if not attempt.is_calm or clock.phase is not OPEN or len(groups) != 1:
            return False
        rate = groups[0].get("lr")
        if type(rate) is not float or attempt.notable or watcher.scalers or watcher.backward_seen:
            return False
        attempt.calm_rate = rate
        clock.phase = COMPLETE
        attempt.step = clock.step
        attempt.completed_ns = now_ns = time.perf_counter_ns()
        attempt.completed_us = time.time_ns() // 1000
        watcher.thread = get_ident()
        watcher.completed_calmly(attempt)
        self._inputs.turn(attempt)
        if now_ns >= self._interval.overdue_ns:
            self._interval.is_overdue = True
        return True
