"""What a training feeds its first model: looked at in sampled steps, and after one that was not finite.

Sets no hooks. Holding a batch happens at every step, so for the usual one, a single tensor, it is one weak reference.
Invariant: a batch is held weakly from its forward pass to the end of its step, and nothing waits for a device.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from halfscope.guard import Guard
from halfscope.instrument.attempt import Attempt, InputLook, Value
from halfscope.instrument.interval import SketchInterval
from halfscope.instrument.records import Records
from halfscope.instrument.rings import Rings
from halfscope.instrument.sids import Sids
from halfscope.probes import inputs
from halfscope.probes.inputs import InputBatch, InputReading

MAX_BATCHES = 16
"""Of one step that are kept in sight (micro-batches)."""
TRIES = 8
"""First forward passes without a floating-point tensor, after which none is expected any more."""

Held = InputBatch | weakref.ref[torch.Tensor]
"""A batch as it is held: of one that is a single tensor just that."""


class InputWatch:
    """Looks at the batches of one run."""

    def __init__(self, interval: SketchInterval, guard: Guard) -> None:
        """
        Args:
            interval: which steps are looked at.
        """
        self.rings = Rings(0)
        """Says what is on the host; the watcher puts its own here."""
        self._interval = interval
        self._look = guard.wrap("inputs", self._look_now)
        self._batches: list[Held] = []
        self._last: list[Held] = []
        """Of the step before."""
        self._looks: list[InputLook] = []
        self._looked = False
        self._takes_floats = False
        self._num_tries = 0
        self._takes_whole_numbers = False
        """And, as it seems, no others. Those are never bad: they are looked at in sampled steps alone, and not held."""
        self.is_useless = False
        """The model takes no numbers: there is nothing to look at."""

    def seen(self, step: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A forward pass with gradients begins.

        Args:
            step: number of the attempt that it belongs to.
        """
        batches = self._batches
        if len(batches) >= MAX_BATCHES or (self._takes_whole_numbers and not self._interval.is_due(step)):
            return
        held: Held
        if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            held = weakref.ref(args[0])
        else:
            held = InputBatch(args, kwargs)
        if not self._takes_floats and not self._expects(_tensors(held)):
            return
        batches.append(held)
        if self._looked or self._interval.is_due(step):
            began_ns = time.perf_counter_ns()
            self._looked = True
            self._looks += self._look(_tensors(held)) or ()
            self._interval.spend(time.perf_counter_ns() - began_ns)

    def _expects(self, tensors: Sequence[tuple[str, torch.Tensor]]) -> bool:
        """Learns from what can be looked at of a batch what the model takes; whether there is anything."""
        if tensors and tensors[0][1].is_floating_point():
            self._takes_floats = True
            return True
        self._num_tries += 1
        if self._num_tries >= TRIES:
            self._takes_whole_numbers, self.is_useless = bool(tensors), not tensors
        return bool(tensors)

    def take(self, attempt: Attempt, *, anyway: bool) -> None:
        """The step is complete: what was seen of it is the attempt's, and later batches belong to the next.

        Args:
            anyway: look at what is still alive, where that was not done.
        """
        if anyway and not self._looked:
            self._looks = self._look_at(self._batches)
        self.turn(attempt)

    def turn(self, attempt: Attempt) -> None:
        """As `take`, of a step that is known to be finite."""
        if self._looks:
            attempt.inputs = tuple(self._looks)
            self._looks = []
        self._last, self._batches, self._looked = self._batches, [], False

    def held(self) -> tuple[bool, list[Held], list[Held]] | None:
        """Whether batches are to be held, and those of this step and of the last one; None where that is not known yet,
        or where some were looked at in this step."""
        if self._looked or self._looks or not (self.is_useless or self._takes_floats or self._takes_whole_numbers):
            return None
        return self._takes_floats and not self.is_useless, self._batches, self._last

    def give_back(self, batches: list[Held], last: list[Held]) -> None:
        """As `held` gave them, some steps later."""
        self._batches, self._last = batches, last

    def look_again(self, attempt: Attempt) -> None:
        """The completed step turned out not to be finite after `take`."""
        if not attempt.inputs:
            attempt.inputs = tuple(self._look_at(self._last))
        self._last = []

    def _look_at(self, batches: Sequence[Held]) -> list[InputLook]:
        return [look for held in batches for look in self._look(_tensors(held)) or ()]

    def _look_now(self, tensors: Sequence[tuple[str, torch.Tensor]]) -> list[InputLook]:
        here = [(name, tensor) for name, tensor in tensors if self.rings.on_host(tensor)]
        looks: list[InputLook] = []
        reading = inputs.read(here)
        if reading is not None:
            looks.append(reading)
        for name, tensor in tensors:
            if not self.rings.on_host(tensor):
                slot = self.rings.put(inputs.capture(tensor))
                if slot is not None:
                    looks.append((name, slot))
        return looks


def _tensors(held: Held) -> list[tuple[str, torch.Tensor]]:
    """What can be looked at of a batch that was held."""
    if isinstance(held, InputBatch):
        return held.tensors()
    tensor = held()
    return [] if tensor is None else InputBatch((tensor,), {}).tensors()


class InputTeller:
    """Tells what was seen: three series, and an event where a batch is bad."""

    def __init__(self, recorder: Records) -> None:
        self._recorder = recorder
        self._sids = Sids(recorder, {})
        self._is_tolerated = False
        """The last batch that was looked at was bad, and the step was not."""

    def tell(self, attempt: Attempt) -> None:
        """Adds to the row of an attempt whose values are on the host."""
        readings = [
            look if isinstance(look, InputReading) else inputs.of_captured(look[0], look[1].read())
            for look in attempt.inputs
        ]
        reading = inputs.joined(readings)
        if reading is None:
            return
        seen: dict[int, Value] = {}
        if reading.mean is not None:
            seen[self._sids["input.mean"]] = reading.mean
        if reading.absmax is not None:
            seen[self._sids["input.absmax"]] = reading.absmax
            seen[self._sids["input.nonfinite"]] = float(reading.num_nonfinite)
        attempt.logged = {**(attempt.logged or {}), **seen}
        was_tolerated = self._is_tolerated
        self._is_tolerated = bool(reading.num_nonfinite) and not attempt.is_bad()
        if reading.num_nonfinite and not (was_tolerated and self._is_tolerated):
            attributes = {
                "argument": reading.argument,
                "first_row": reading.first_row,
                "num_nan": reading.num_nan,
                "num_inf": reading.num_inf,
            }
            self._recorder.event(
                "input_nonfinite",
                attempt.step,
                time_us=attempt.completed_us,
                # A model may replace missing values itself: then they are worth knowing once.
                severity="info" if self._is_tolerated else "critical",
                attributes=attributes,
            )
