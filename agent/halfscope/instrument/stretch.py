"""Stretches of calm steps that the compiled helper gathers by itself, and taking them back.

Between two sketched steps of a training in which nothing is out of the ordinary, hooks and `run.step` end in C
(native/stretch.h), and Python sees the rows of many steps at once. Sets no hooks.
Invariant: while a stretch is on, the watcher's clock and attempt stand still and its `backward_seen` is set, so that
whoever asks for them catches up first (`after_backward`) and finds what the ordinary way would have left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from halfscope import native
from halfscope.instrument import forward
from halfscope.probes.inputs import InputBatch
from halfscope.record.clock import COMPLETE, OPEN

if TYPE_CHECKING:
    from halfscope.instrument.watcher import Watcher

FEWEST_STEPS = 8
"""A stretch that cannot be longer is not begun."""
MOST_TO_WAIT = 64
"""Steps of the ordinary way behind a stretch that was short: what ends one ends the next as well."""


class NoStretch:
    """Where there is no helper: never on."""

    is_on = False
    own_ns = 0

    def __init__(self) -> None:
        self.backward = False

    def refuse(self, *_: Any) -> bool:
        """Nothing is done here."""
        return False

    forward = begin = end = annotate = log = learn = refuse


class Stretches:
    """Of one run."""

    def __init__(self, watcher: Watcher, *, is_quick: bool) -> None:
        """
        Args:
            is_quick: the helper reads the gradients of this run.
        """
        self._watcher = watcher
        made = getattr(native.helper, "Stretch", None) if is_quick else None
        self.has_helper = made is not None
        self.now: Any = NoStretch() if made is None else made()
        if native.helper is not None and made is not None:
            native.helper.use_hooks(torch.is_grad_enabled, forward.leading_size, InputBatch)
        self._write = watcher.guard.wrap("rows", self._write_rows)
        self._num_to_wait, self._began_step, self._stop_step = 0, 0, 0
        self._wait_next = 1

    def enter(self, norm: float) -> None:
        """A calm step has begun: the stretch begins with it, where nothing stands against that.

        Args:
            norm: of its gradients.
        """
        watcher = self._watcher
        if self._num_to_wait:
            self._num_to_wait -= 1
            return
        step, attempt, interval = watcher.clock.step, watcher.attempt, watcher.sketches.interval
        stop_step = step + interval.value - step % interval.value
        if stop_step - step < FEWEST_STEPS:
            return
        held, loss = watcher.inputs.held(), attempt.declared_loss
        if (
            watcher.is_followed
            or watcher.clock.annotates_first
            or held is None
            or attempt.notable
            or attempt.logged
            or attempt.scaled_losses
            or not (loss is None or (type(loss) is float and math.isfinite(loss)))
        ):
            self._num_to_wait = MOST_TO_WAIT
            return
        watcher.closed.drain()
        known, before = watcher.reporter.known_rows(), watcher.closed.before
        if known is None or before is None or len(watcher.closed):
            self._num_to_wait = FEWEST_STEPS
            return
        holds, batches, last = held
        flags = watcher.infers_samples, holds, watcher.times_idleness, watcher.forward_counted, watcher.pending_samples
        watcher.backward_seen = self.now.start(
            (step, stop_step, interval.overdue_ns),
            (*before, watcher.guard.own_ns, watcher.reporter.num_steps),
            known,
            flags,
            (batches, last),
            (norm, loss, attempt.samples, attempt.tokens),
        )
        self._began_step, self._stop_step = step, stop_step

    def leave(self) -> None:
        """Takes the stretch back: clock, attempt and all that hooks have noted are as after ordinary steps."""
        self.tell()
        watcher = self._watcher
        clock, (*before, own_ns), rate, pending, batches, row = self.now.stop()
        watcher.clock.step, is_complete, watcher.backward_seen = clock
        watcher.clock.phase = COMPLETE if is_complete else OPEN
        watcher.closed.before = tuple(before)
        watcher.guard.own_ns += own_ns
        watcher.reporter.rows_ended(rate)
        watcher.pending_samples, watcher.forward_counted = pending
        watcher.inputs.give_back(*batches)
        attempt = watcher.new_attempt()
        attempt.step = watcher.clock.step
        attempt.calm_norm, attempt.calm_rate, attempt.declared_loss, attempt.samples, attempt.tokens, *row = row
        attempt.inferred_samples, attempt.idle_ns, attempt.completed_ns, attempt.completed_us, logged = row
        attempt.logged = logged or None
        if is_complete and attempt.completed_ns >= watcher.sketches.interval.overdue_ns:
            watcher.sketches.interval.is_overdue = True
        self._wait(watcher.clock.step)

    def _wait(self, step: int) -> None:
        if step + 1 >= self._stop_step:
            self._wait_next = 1
        else:
            if step - self._began_step >= MOST_TO_WAIT:
                self._wait_next = 1
            self._num_to_wait = self._wait_next
            self._wait_next = min(2 * self._wait_next, MOST_TO_WAIT)

    def tell(self) -> None:
        """Writes the rows that wait."""
        self._write()
        self.now.base_ns = self._watcher.guard.own_ns

    def _write_rows(self) -> None:
        while (part := self.now.take()) is not None:
            self._watcher.reporter.rows(*part)

    def hook(self, quick: Callable[..., bool | None], ordinary: Callable[..., Any]) -> Callable[..., Any]:
        """What is set on an optimizer: a hook that asks the stretch first.

        Args:
            quick: the stretch's own.
            ordinary: the hook without it; must not raise.
        """
        if not self.has_helper:
            return ordinary
        unless, tell = torch.compiler.is_dynamo_compiling, self.tell

        def halfscope_hook(*args: Any) -> Any:
            if unless():
                return None
            done = quick(*args)
            if done:
                return None
            return ordinary(*args) if done is False else tell()

        return halfscope_hook
