"""Reading an optimizer's gradients into its share of the current attempt.

Owns the choice between reading at once and queueing on the device. Sets no hooks.
Invariant: changes no gradient and waits for no device.
"""

from __future__ import annotations

from typing import Literal

import torch

from halfscope.guard import Guard
from halfscope.instrument.attempt import Attempt, GradientReading, OptimizerAttempt, Point
from halfscope.instrument.handed import HandedNorms
from halfscope.instrument.rings import Rings, in_host_memory
from halfscope.instrument.sketching import SketchTaker
from halfscope.instrument.updating import UpdateTaker
from halfscope.instrument.watched import WatchedOptimizer
from halfscope.probes import gradients

_COMPARED = ("unscale", "clip")
"""Points where the user's own `clip_grad_norm_` follows: there the norm is the same to the last bit. The optimizer is
handed the gradients later."""


class GradientReader:
    """Reads the gradients of a run's optimizers."""

    def __init__(self, rings: Rings, sketches: SketchTaker, updates: UpdateTaker, guard: Guard) -> None:
        self._rings, self._sketches, self._updates = rings, sketches, updates
        self.is_quick = gradients.IS_QUICK and rings.on_host is in_host_memory
        self._take = guard.wrap("sketches", sketches.take)
        self._checksum = guard.wrap("checksum", sketches.checksum)
        self._begin_update = guard.wrap("updates", updates.begin)
        self.handed = HandedNorms()

    def read(
        self,
        attempt: Attempt,
        step: int,
        watched: WatchedOptimizer,
        point: Point,
        clipped: Literal["no", "maybe"],
        grad_scale: torch.Tensor | None = None,
        held_back: bool = False,
        known: float | None = None,
    ) -> None:
        """Notes an optimizer's gradients in its share of an attempt; nothing where it has none.

        Args:
            step: number of the attempt.
            clipped: whether clipping may have come before.
            grad_scale: the scale that is still on them.
            held_back: the step was skipped, so they are worth a sketch.
            known: their norm, where torch has just computed it.
        """
        plain = point not in _COMPARED and not held_back
        if plain and self.is_quick and not watched.quiet and grad_scale is None and self._sketches.passes(step):
            norm = gradients.quick_norm(watched.optimizer.param_groups)
            if norm is not None:
                reading = attempt.optimizers[watched.index].reading = GradientReading(point, clipped)
                reading.norm = norm
                return
        grads = watched.gradients()
        if not grads:
            return
        reading = GradientReading(point, clipped)
        on_host = self._rings.on_host(grads[0])
        if known is not None:
            reading.norm = known
        elif on_host and (grad_scale is None or self._rings.on_host(grad_scale)):
            divide_by = 1.0 if grad_scale is None else grad_scale.item()
            found = None
            if plain and watched.tells and not self._sketches.soon and self._sketches.interval.is_due(step):
                self._take(attempt, reading, watched, grads, grad_scale)
                found = None if reading.sketch is None else reading.sketch.norm()
            if found is None:
                found = gradients.read(grads, divide_by, exact=point in _COMPARED)
            if found is None:
                return
            reading.norm, reading.nonfinite = found
            if reading.nonfinite:
                reading.parameters = watched.with_gradient()
                attempt.notable = True
        else:
            parameters = watched.parameters()
            all_have_one = len(parameters) == len(grads)
            reading.parameters = list(map(id, parameters)) if all_have_one else watched.with_gradient()
            reading.layer_norms = self._rings.norms(grads)
            reading.divide_by = 1.0 if grad_scale is None else self._rings.later(grad_scale)
        attempt.optimizers[watched.index].reading = reading
        is_bad = bool(reading.nonfinite)
        if watched.everywhere and self._sketches.interval.is_due(step):
            self._checksum(attempt, watched)
        if watched.tells and self._sketches.is_due(step, on_host, nonfinite=is_bad, held_back=held_back):
            if reading.sketch is None:
                self._take(attempt, reading, watched, grads, grad_scale)
            if held_back or reading.sketch is None:
                return
            if point in _COMPARED:
                self._updates.wanted[watched.index] = reading
            else:
                self._begin_update(watched, reading)

    def calm_norm(self, watched: WatchedOptimizer) -> float | None:
        """The norm of gradients in host memory, where all of them are finite; else None."""
        if self.is_quick:
            return gradients.quick_norm(watched.optimizer.param_groups)
        grads = watched.gradients()
        if not grads or not self._rings.on_host(grads[0]):
            return None
        found = gradients.read(grads)
        return None if found is None or found.nonfinite else found.norm

    def read_clipped(self, watched: WatchedOptimizer, part: OptimizerAttempt) -> None:
        """Notes the norm that the optimizer is handed, where it was read before clipping."""
        given = self.handed.norm(watched, part)
        grads = watched.gradients() if given is None else []
        if given is None and not grads:
            return
        if given is not None or self._rings.on_host(grads[0]):
            found_inf = getattr(watched.optimizer, "found_inf", None)
            if found_inf is not None and found_inf.item():
                return  # a fused step that is going to do nothing
            is_sketched = part.reading is not None and part.reading.sketch is not None
            if given is not None and not is_sketched and self.handed.is_proven(watched):
                part.norm_clipped = given
                return
            found = gradients.read(grads or watched.gradients(), exact=True)
            part.norm_clipped = None if found is None else found.norm
            if given is not None and found is not None:
                self.handed.compare(watched, given, found.norm)
        else:
            part.clipped_norms = [slot for _, slot in self._rings.norms(grads)]
