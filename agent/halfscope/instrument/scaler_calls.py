"""What each call of a watched scaler means for the attempt it falls into.

Flags and scale are taken between `step` and `update`, which adds the optimizers' flags into each other and clears them.
Invariant: on the unfused path an optimizer whose step returned has stepped; on the fused path only the device's flag
tells.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch

from halfscope.instrument.attempt import Attempt, OptimizerAttempt
from halfscope.instrument.watched import WatchedOptimizer, WatchedScaler
from halfscope.record.clock import OPEN

if TYPE_CHECKING:
    from halfscope.instrument.watcher import Watcher


class ScalerCalls:
    """Observes one scaler."""

    def __init__(self, watcher: Watcher, watched: WatchedScaler) -> None:
        self._watcher, self._watched = watcher, watched
        wrap = watcher.guard.wrap
        self.before_scale = wrap("scaler", self._before_scale)
        self.before_unscale = wrap("scaler", self._before_unscale)
        self.after_unscale = wrap("scaler", self._after_unscale)
        self.before_step = wrap("scaler", self._before_step)
        self.after_step = wrap("scaler", self._after_step)
        self.before_update = wrap("scaler", self._before_update)
        self.after_update = wrap("scaler", self._after_update)
        self._read_loss = wrap("loss", self._read_loss_now)
        self._calls_before = self._returned_before = 0
        self._between = False

    def _before_scale(self, outputs: Any) -> None:
        self._watcher.inside_scaler_step = None  # an exception may have left the last one open
        if self._watcher.backward_seen:
            self._watcher.after_backward()
        if self._update_is_missing():
            self._watcher.attempt.update_missing = self._watcher.attempt.notable = True
            self._watcher.complete()
        self._watcher.scaler_begins(self._watched.index)
        attempt = self._watcher.attempt_for_work()
        attempt.scalers[self._watched.index].touched = True
        self._read_loss(attempt, outputs)

    def _read_loss_now(self, attempt: Attempt, outputs: Any) -> None:
        if isinstance(outputs, torch.Tensor):
            outputs = [outputs]
        elif not isinstance(outputs, Collection):
            return  # a generator can be read once, and that once is the scaler's
        for output in outputs:
            if isinstance(output, torch.Tensor):
                value = self._watcher.rings.value(output)
                attempt.scaled_losses += (value,)
                attempt.notable |= isinstance(value, float) and not math.isfinite(value)
            else:
                self._read_loss_now(attempt, output)

    def _update_is_missing(self) -> bool:
        """Every optimizer that this scaler serves was unscaled or stepped, and still there was no update.

        With several optimizers `step(d)`, `scale(g_loss)`, `step(g)`, `update()` is right; so not after the first of
        them.
        """
        watcher = self._watcher
        if watcher.clock.phase is not OPEN:
            return False
        return all(
            (state := self._watched.state(watched.optimizer)) is not None and state["found_inf_per_device"]
            for watched in watcher.optimizers
        )

    def _before_unscale(self, optimizer: torch.optim.Optimizer) -> None:
        self._watcher.attempt_for_work().scalers[self._watched.index].touched = True

    def _after_unscale(self, optimizer: torch.optim.Optimizer) -> None:
        watcher = self._watcher
        watched = watcher.by_id.get(id(optimizer))
        if watched is None:
            return
        part = watcher.attempt.optimizers[watched.index]
        part.user_unscaled = watcher.inside_scaler_step is not optimizer
        watcher.read_gradients(watched, "unscale", "no")

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        watcher = self._watcher
        watched = watcher.by_id.get(id(optimizer))
        attempt = watcher.attempt_for_work()
        attempt.scalers[self._watched.index].touched = True
        if watched is None:
            watcher.reporter.facts.unwatched_optimizer(watcher.clock.step, optimizer)
            return
        watcher.inside_scaler_step = watched.optimizer
        part = attempt.optimizers[watched.index]
        self._calls_before, self._returned_before = part.num_calls, part.num_returned

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        watcher = self._watcher
        watched = watcher.by_id.get(id(optimizer))
        watcher.inside_scaler_step = None
        if watched is None:
            return
        part = watcher.attempt.optimizers[watched.index]
        part.through_scaler = True
        part.scaler = self._watched.index
        watcher.read_rates(watched, part)
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            self._read_flag(watched, part)
            if not isinstance(part.found_inf, float):
                return  # the device knows; it is counted when it has told
            applied = not part.found_inf
        else:
            applied = part.num_returned > self._returned_before
        part.num_applied += int(applied)
        watcher.attempt.notable |= not applied
        if not applied and part.reading is not None and part.reading.sketch is None and not part.user_unscaled:
            # The device told only now that this step is worth a sketch; nobody has touched its gradients since.
            watcher.read_gradients(watched, "unscale", "no", held_back=True)
        elif not applied and part.reading is None:
            # Between two measured steps: what was not finite is worth a look all the same.
            scaled = part.num_calls > self._calls_before and not part.user_unscaled
            scale = self._watched.scaler._scale if scaled else None
            watcher.read_gradients(watched, "scaled_step" if scaled else "step", "maybe", scale, True)

    def _read_flag(self, watched: WatchedOptimizer, part: OptimizerAttempt) -> None:
        state = self._watched.state(watched.optimizer)
        flags = list(state["found_inf_per_device"].values()) if state else []
        if len(flags) == 1:
            part.found_inf = self._watcher.rings.later(flags[0])
        elif flags:
            first = flags[0].device
            part.found_inf = self._watcher.rings.value(sum(flag.to(first, non_blocking=True) for flag in flags))

    def _before_update(self, new_scale: Any) -> None:
        watcher = self._watcher
        if watcher.backward_seen:
            watcher.after_backward()
        self._between = new_scale is not None and watcher.clock.phase is not OPEN
        if self._between:
            watcher.rings.flush()
            return  # sets the scale between two attempts, and is none itself
        part = watcher.attempt_for_work().scalers[self._watched.index]
        part.touched = True
        part.was_set = new_scale is not None
        scale = self._watched.scaler._scale
        part.scale = None if scale is None else watcher.rings.later(scale)
        if watcher.inside_scaler_step is not None:
            self._after_unseen_return(watcher.inside_scaler_step)
        watcher.rings.flush()

    def _after_unseen_return(self, optimizer: torch.optim.Optimizer) -> None:
        """Its step has begun, and its end was not seen: the scaler was adopted in the middle of it, or it raised, and
        the user caught that. Then nothing was applied, and nothing withheld either."""
        watcher = self._watcher
        watched = watcher.by_id[id(optimizer)]
        if watcher.attempt.optimizers[watched.index].num_returned > self._returned_before:
            self._after_step(optimizer)
        watcher.inside_scaler_step = None

    def _after_update(self, new_scale: Any) -> None:
        watcher = self._watcher
        scaler = self._watched.scaler
        part = watcher.attempt.scalers[self._watched.index]
        if self._between:
            watcher.reporter.scale_was_set(watcher.clock.step, self._watched)
            return
        if scaler._scale is not None and scaler._growth_tracker is not None:
            part.scale_next = watcher.rings.later(scaler._scale)
            part.growth_tracker = watcher.rings.later(scaler._growth_tracker, is_versioned=False)
            watcher.rings.flush()
            if isinstance(part.scale_next, float):
                watcher.attempt.notable |= part.was_set or part.scale_next != part.scale
        if self._watched.changed_settings():
            watcher.reporter.facts.scalers()
        watcher.scaler_updated(self._watched.index)
