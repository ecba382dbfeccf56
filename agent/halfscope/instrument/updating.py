"""Looking at weights before and after an optimizer's step, in the steps whose gradients are sketched.

Owns what waits between the two looks. Sets no hooks; what becomes of a sketch is the frame writer's.
Invariant: a sketch of changes belongs to the reading of the gradients that the very step was made with, and nothing
here waits for a device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from halfscope.instrument.attempt import Attempt, GradientReading
from halfscope.instrument.interval import SketchInterval
from halfscope.instrument.rings import Rings
from halfscope.instrument.sharing import is_addend
from halfscope.instrument.sketching import LayerNumbers, TakenSketch
from halfscope.instrument.watched import WatchedOptimizer
from halfscope.probes import updates
from halfscope.probes.device_sketches import DeviceSketcher
from halfscope.probes.sketches import Measured
from halfscope.probes.stored import num_stored
from halfscope.probes.strided import num_sampled
from halfscope.probes.updates import Before, Noted, Trained, UpdateFlight
from halfscope.sketch import ArraySketcher


@dataclass(frozen=True, slots=True)
class _Noted:
    """What is known of an optimizer's weights before its step."""

    reading: GradientReading
    parameters: Sequence[torch.Tensor]
    parts: Sequence[tuple[Sequence[int], Before | Noted]]
    """For the host and each device: which of the parameters, and their weights."""


class UpdateTaker:
    """Sketches the changes of a run's weights."""

    def __init__(self, layers: LayerNumbers, interval: SketchInterval) -> None:
        """
        Args:
            interval: told what the looks cost.
        """
        self.rings = Rings(0)
        """Says what is on the host; the watcher puts its own here."""
        self.wanted: dict[int, GradientReading] = {}
        """By optimizer, readings that came before its step, which is to be looked at: call `begin` when it begins."""
        self.is_waiting = False
        """Call `finish` when an optimizer has stepped."""
        self._layers, self._interval = layers, interval
        self._sketcher: ArraySketcher | None = None
        self._noted: dict[int, _Noted] = {}
        self._devices: dict[tuple[int, torch.device], _OnDevice] = {}

    def prepare(self, watched: WatchedOptimizer) -> None:
        """Allocates what an optimizer's devices need, so that nothing is allocated while it trains."""
        for device in {parameter.device for parameter in watched.parameters() if not self.rings.on_host(parameter)}:
            self._on_device(watched, device)

    def begin_wanted(self, watched: WatchedOptimizer, reading: GradientReading | None) -> None:
        """An optimizer's step begins: it is looked at where it is made with the reading that was wanted."""
        wanted = self.wanted.pop(watched.index, None)
        if wanted is not None and wanted is reading:
            self.begin(watched, wanted)

    def begin(self, watched: WatchedOptimizer, reading: GradientReading) -> None:
        """An optimizer is about to change its weights, with the gradients that are there now."""
        began_ns = time.perf_counter_ns()
        trained = list(_trained(watched, self.rings))
        by_device: dict[torch.device | None, list[int]] = {}
        for at, one in enumerate(trained):
            device = None if self.rings.on_host(one.parameter) else one.parameter.device
            if device is None or (self._on_device(watched, device) and one.grad.device == device):
                by_device.setdefault(device, []).append(at)
        parts = [(at, _looked_at([trained[one] for one in at], device)) for device, at in by_device.items()]
        found = [(at, part) for at, part in parts if part is not None]
        if found:
            self._noted[watched.index] = _Noted(reading, [one.parameter for one in trained], found)
            self.is_waiting = True
        self._interval.spend(time.perf_counter_ns() - began_ns)

    def finish(self, attempt: Attempt, watched: WatchedOptimizer, reading: GradientReading | None) -> None:
        """An optimizer has stepped, or, of a fused one, may have."""
        noted = self._noted.pop(watched.index, None)
        self.is_waiting = bool(self._noted)
        if noted is None or noted.reading is not reading:
            return
        began_ns = time.perf_counter_ns()
        measured: tuple[Sequence[int], Measured] | None = None
        flights: list[tuple[Sequence[int], UpdateFlight]] = []
        for positions, part in noted.parts:
            if isinstance(part, Noted) or self.rings.on_host(part.values):
                self._sketcher = self._sketcher or ArraySketcher()
                found = updates.measure(self._sketcher, part)
                measured = None if found is None else (positions, found)
                continue
            flight = self._on_device(watched, part.values.device).capture(part)
            if flight is not None:
                flights.append(([positions[at] for at in part.positions], flight))
                attempt.sketch_flights = (*attempt.sketch_flights, flight)
        if measured is not None or flights:
            reading.update = TakenSketch(self._layers.of(noted.parameters), measured, flights, frozenset())
        self._interval.spend(time.perf_counter_ns() - began_ns)

    def _on_device(self, watched: WatchedOptimizer, device: torch.device) -> _OnDevice:
        parameters = watched.parameters()
        found = self._devices.get((watched.index, device))
        if found is None or not found.is_of(parameters):
            found = self._devices[watched.index, device] = _OnDevice(self.rings, parameters, device)
        return found


class _OnDevice:
    """An optimizer's weights on one device."""

    def __init__(self, rings: Rings, parameters: Sequence[torch.Tensor], device: torch.device) -> None:
        self._parameters = parameters
        here = [parameter for parameter in parameters if parameter.device == device]
        self._slots = {id(parameter): slot for slot, parameter in enumerate(here)}
        self._has_double = any(parameter.dtype in (torch.float64, torch.complex128) for parameter in here)
        sizes = [num_sampled(num_stored(parameter), updates.MOST_ELEMENTS) for parameter in here]
        # Whatever the weights are stored in, their changes are float32: the kernels are to know that.
        fused = rings.prepare_kernels(device, [torch.empty(size, device=device) for size in sizes if size])
        self._sketcher: DeviceSketcher | None = rings.make_sketcher(device, sizes, self._has_double, fused)

    def __bool__(self) -> bool:
        return self._sketcher is not None

    def is_of(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether it was made for these."""
        mine = self._parameters
        return len(mine) == len(parameters) and all(one is other for one, other in zip(mine, parameters, strict=True))

    def capture(self, noted: Before) -> UpdateFlight | None:
        """Queues the second look."""
        changed = updates.masked(noted, double=self._has_double)
        if changed is None or self._sketcher is None:
            return None
        flight = self._sketcher.capture(changed, [self._slots[id(parameter)] for parameter in noted.parameters])
        return None if flight is None else UpdateFlight(flight)


def _looked_at(trained: Sequence[Trained], device: torch.device | None) -> Before | Noted | None:
    noted = updates.note(trained) if device is None else None
    return noted or updates.before(trained)


def _trained(watched: WatchedOptimizer, rings: Rings) -> Iterator[Trained]:
    """Parameters with a gradient, but those of groups whose learning rate is 0: what does not step loses nothing."""
    for group in watched.optimizer.param_groups:
        rate = group.get("lr")
        on_device = isinstance(rate, torch.Tensor) and not rings.on_host(rate)
        if not on_device and rate is not None and float(rate) == 0.0:
            continue
        for parameter in watched.pieces(group["params"]):
            if parameter.grad is not None and not (watched.is_meshed and is_addend(parameter.grad)):
                yield Trained(parameter, parameter.grad, rate if on_device else None)
