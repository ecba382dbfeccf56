"""Taking sketches of an optimizer's gradients, at the moment at which they are read.

Owns which of the steps that went wrong are sketched, and the numbers of layers in the stream; the regular ones are the
interval's. Sets no hooks; what becomes of a sketch is the frame writer's.
Invariant: a sketch is of the very gradients whose norm was read, and nothing here waits for a device.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from halfscope.instrument.attempt import Attempt, GradientReading
from halfscope.instrument.interval import SketchInterval
from halfscope.instrument.records import Records
from halfscope.instrument.rings import Rings
from halfscope.instrument.sharing import ALL, Share
from halfscope.instrument.sids import Sids
from halfscope.instrument.watched import WatchedOptimizer
from halfscope.probes import checksum, gradients
from halfscope.probes.device_sketches import DeviceSketcher, SketchFlight
from halfscope.probes.gradients import HostNorm
from halfscope.probes.sketches import HostSketcher, Measured
from halfscope.probes.stored import num_stored
from halfscope.sketch import Sketch
from halfscope.wire.messages import Layer

BAD_IN_A_ROW = 16
"""Without a scaler nothing holds back a step that is not finite, and a poisoned run stays so: after so many such steps
in a row only every N-th is sketched."""
DENSE_STEPS = 10
"""Behind a step that went wrong so many are sketched, one after the other: how it goes on is of interest."""


class Arriving(Protocol):
    """Sketches on their way from a device."""

    def read(self) -> Measured:
        """Once they have arrived."""


@dataclass(frozen=True, slots=True)
class TakenSketch:
    """Sketches of one reading: on the host, or on their way from one or more devices."""

    lids: Sequence[int]
    """Of all gradients of the reading, in their order."""
    on_host: tuple[Sequence[int], Measured] | None
    """Positions of the gradients that were measured on the host, and what was measured."""
    on_devices: Sequence[tuple[Sequence[int], Arriving]]
    frozen: frozenset[int]
    """Layers that do not ask for a gradient. Zeros in theirs were left by `zero_grad(set_to_none=False)`."""

    def norm(self) -> HostNorm | None:
        """That of all gradients, where all were measured on the host and are finite."""
        if self.on_host is None or len(self.on_host[1].positions) < len(self.lids):
            return None
        sketches = self.on_host[1].sketches
        return None if sketches.nonfinite.any() else gradients.of_squares(float(sketches.sumsq.sum()))

    def parts(self) -> list[tuple[list[int], Sketch]]:
        """Layers and their sketches; only when every flight has arrived."""
        parts = [] if self.on_host is None else [self.on_host]
        parts += [(positions, flight.read()) for positions, flight in self.on_devices]
        told = [([self.lids[positions[at]] for at in found.positions], found.sketches) for positions, found in parts]
        return [self._without_frozen(*part) for part in told] if self.frozen else told

    def _without_frozen(self, lids: list[int], sketches: Sketch) -> tuple[list[int], Sketch]:
        is_zero = (sketches.zeros == sketches.n).tolist()
        kept = [at for at, lid in enumerate(lids) if not (is_zero[at] and lid in self.frozen)]
        return [lids[at] for at in kept], sketches[np.array(kept, np.intp)]


class LayerNumbers:
    """The number of each layer in the stream, given out by name: a parameter that replaces another of its name has its
    number."""

    def __init__(
        self,
        recorder: Records,
        names: Callable[[], Mapping[int, str]],
        parameters: Iterable[torch.Tensor],
        share_of: Callable[[torch.Tensor], Share] = lambda parameter: ALL,
    ) -> None:
        """
        Args:
            names: gives id of a parameter to its canonical name, in order of registration, as it is now.
            parameters: those that are trained, as far as they are known.
            share_of: which part of a parameter this rank holds.
        """
        self._recorder, self._names, self._share_of = recorder, names, share_of
        self._by_name: dict[str, int] = {}
        self._by_id: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._narrow: set[int] = set()
        self._declare(list(parameters))

    def __len__(self) -> int:
        return len(self._by_name)

    def name(self, lid: int) -> str:
        """A layer's name."""
        return next(name for name, number in self._by_name.items() if number == lid)

    def is_narrow(self, lid: int) -> bool:
        """Whether a layer was stored in half precision or less when it was declared."""
        return lid in self._narrow

    def of(self, parameters: Sequence[torch.Tensor]) -> list[int]:
        """Numbers of parameters; those that were not seen before are declared."""
        new = [parameter for parameter in parameters if not self._is_known(parameter)]
        if new:
            self._declare(new)
        return [self._by_id[id(parameter)][1] for parameter in parameters]

    def _is_known(self, parameter: torch.Tensor) -> bool:
        known = self._by_id.get(id(parameter))
        return known is not None and known[0]() is parameter  # an id may be that of one that is gone

    def _declare(self, parameters: Sequence[torch.Tensor]) -> None:
        names = self._names()
        place = {key: at for at, key in enumerate(names)}
        declared: list[Layer] = []
        for parameter in sorted(parameters, key=lambda parameter: place.get(id(parameter), len(place))):
            if is_lazy(parameter):
                continue  # without a shape until the first forward pass: declared with its first gradient
            name = names.get(id(parameter)) or f"parameter.{len(self._by_name)}"
            lid = self._by_name.get(name)
            if lid is None:
                lid = self._by_name[name] = len(self._by_name)
                dtype = str(parameter.dtype).removeprefix("torch.")
                if parameter.is_floating_point() and parameter.element_size() <= 2:
                    self._narrow.add(lid)
                share = self._share_of(parameter)
                shape = list(parameter.shape if share.shape is None else share.shape)
                declared.append(Layer(lid=lid, name=name, shape=shape, dtype=dtype, part=share.part))
            self._by_id[id(parameter)] = weakref.ref(parameter), lid
        if declared:
            self._recorder.layers(declared)


class SketchTaker:
    """Sketches the gradients of a run's optimizers."""

    def __init__(self, recorder: Records, layers: LayerNumbers, interval: SketchInterval, *, has_scaler: bool) -> None:
        """
        Args:
            interval: of how many steps one is sketched; told what that costs.
            has_scaler: a step that is not finite is held back.
        """
        self.layers, self.interval = layers, interval
        self.rings = Rings(0)
        """Says what is on the host; the watcher puts its own here."""
        self.soon = False
        """The next step is sketched whatever its number: the last was skipped, as the device told too late."""
        self._recorder, self._has_scaler = recorder, has_scaler
        self._sids = Sids(recorder, {})
        self._host = HostSketcher()
        self._devices: dict[tuple[int, torch.device], _OnDevice] = {}
        self._num_bad_in_a_row = 0
        self._dense_until = -1
        """Last step that is sketched because of one before it that went wrong."""
        self._told_every = 0

    def is_due(self, step: int, on_host: bool, *, nonfinite: bool, held_back: bool = False) -> bool:
        """Whether a step's gradients are to be sketched.

        Args:
            nonfinite: they hold NaN or infinities, as far as the host knows.
            held_back: the step was skipped.
        """
        self._num_bad_in_a_row = self._num_bad_in_a_row + 1 if nonfinite else 0
        if not on_host and not self.interval.is_for_device:
            self.interval.use_device()
        is_poisoned = nonfinite and not self._has_scaler and self._num_bad_in_a_row > BAD_IN_A_ROW
        went_wrong = held_back or self.soon or (nonfinite and not is_poisoned)
        if went_wrong:
            self._dense_until = step + DENSE_STEPS
        if self.interval.is_due(step):
            return True
        if went_wrong:
            return self.interval.allows_extra(step)
        return step <= self._dense_until and not is_poisoned and self.interval.allows_dense(step)

    def passes(self, step: int) -> bool:
        """Whether a finite step on the host is certainly not to be sketched, so that `is_due` need not be asked."""
        is_calm = not (self.soon or self._num_bad_in_a_row) and step > self._dense_until
        return is_calm and self.interval.passes(step)

    def prepare(self, watched: WatchedOptimizer) -> None:
        """Allocates what an optimizer's devices need, so that nothing is allocated while it trains."""
        for device in {parameter.device for parameter in watched.parameters() if not self.rings.on_host(parameter)}:
            self._on_device(watched, device)

    def take(
        self,
        attempt: Attempt,
        reading: GradientReading,
        watched: WatchedOptimizer,
        grads: Sequence[torch.Tensor],
        grad_scale: torch.Tensor | None,
    ) -> None:
        """Notes the sketches of some gradients with their reading.

        Args:
            grads: those that `watched.gradients()` gave.
            grad_scale: the loss scale that is still on them.
        """
        began_ns = time.perf_counter_ns()
        self.soon = False
        on_host = self.rings.on_host
        by_device: dict[torch.device | None, list[int]] = {}
        for at, grad in enumerate(grads):
            by_device.setdefault(None if on_host(grad) else grad.device, []).append(at)
        parameters = watched.parameters_with_gradient()
        measured, flights = None, []
        for device, positions in by_device.items():
            part = [grads[at] for at in positions]
            if device is None:
                if grad_scale is None or on_host(grad_scale):
                    found = self._host.measure(part, 1.0 if grad_scale is None else grad_scale.item())
                    measured = None if found is None else (positions, found)
                continue
            sketcher = self._on_device(watched, device)
            flight = sketcher.capture(part, [parameters[at] for at in positions], grad_scale) if sketcher else None
            if flight is not None:
                flights.append((positions, flight))
                attempt.sketch_flights = (*attempt.sketch_flights, flight)
        if measured is not None or flights:
            attempt.is_sketched = True
            lids = self.layers.of(parameters)
            frozen = frozenset(lid for lid, one in zip(lids, parameters, strict=True) if not one.requires_grad)
            reading.sketch = TakenSketch(lids, measured, flights, frozen)
            self._tell(attempt, grads[0].device)
        self.interval.spend(time.perf_counter_ns() - began_ns)

    def checksum(self, attempt: Attempt, watched: WatchedOptimizer) -> None:
        """Notes one number of the weights that all ranks should hold alike, before the step."""
        began_ns = time.perf_counter_ns()
        number = checksum.capture(watched.everywhere)
        value = None if number is None else self.rings.one(number)
        if value is not None:
            sid = Sids(self._recorder, watched.labels)["weights.checksum"]
            attempt.logged = {**(attempt.logged or {}), sid: value}
        self.interval.spend(time.perf_counter_ns() - began_ns)

    def _on_device(self, watched: WatchedOptimizer, device: torch.device) -> _OnDevice | None:
        parameters = watched.parameters()
        found = self._devices.get((watched.index, device))
        if found is None or not found.is_of(parameters):
            found = self._devices[watched.index, device] = _OnDevice(self.rings, parameters, device)
        return found if found.sketcher is not None else None

    def _tell(self, attempt: Attempt, device: torch.device) -> None:
        every = self.interval.value
        if every != self._told_every:
            self._told_every = every
            told: dict[str, Any] = {"every": every, "device": device.type}
            if why := self.rings.stock_because:
                told["stock_because"] = why  # sketches cost a hundred times as much there
            self._recorder.facts({"sketches": told})
            attempt.logged = {**(attempt.logged or {}), self._sids["halfscope.sketch_every"]: float(every)}


class _OnDevice:
    """An optimizer's gradients on one device."""

    def __init__(self, rings: Rings, parameters: Sequence[torch.Tensor], device: torch.device) -> None:
        self._parameters = parameters
        here = [parameter for parameter in parameters if parameter.device == device]
        self._slots = {id(parameter): slot for slot, parameter in enumerate(here)}
        has_double = any(parameter.dtype is torch.float64 for parameter in here)
        fused = rings.prepare_kernels(device, here)
        self.sketcher: DeviceSketcher | None = rings.make_sketcher(
            device, list(map(num_stored, here)), has_double, fused
        )

    def is_of(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether it was made for these."""
        mine = self._parameters
        return len(mine) == len(parameters) and all(one is other for one, other in zip(mine, parameters, strict=True))

    def capture(
        self, grads: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor], grad_scale: torch.Tensor | None
    ) -> SketchFlight | None:
        assert self.sketcher is not None
        slots = [self._slots.get(id(parameter)) for parameter in parameters]
        if any(slot is None for slot in slots):  # a gradient on another device than its parameter
            return None
        return self.sketcher.capture(grads, [slot for slot in slots if slot is not None], grad_scale)
