"""What a step did to the weights: the change of each stored weight whose gradient was not zero.

Of each parameter at most `MOST_ELEMENTS` evenly strided elements are looked at, before and after the optimizer's step.
A change of exactly zero is an update that was lost: the weight's format is too coarse for it. Changes no tensor and no
state of autograd. No threads, no I/O. Invariant: an element counts where its gradient, as handed to the optimizer, is
finite and not zero, and its learning rate is not zero; and nothing here waits for a device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from halfscope.probes import gradients
from halfscope.probes.device_sketches import DoneEvent, SketchFlight
from halfscope.probes.sketches import Measured
from halfscope.probes.stored import flat, no_grad, problem_of
from halfscope.probes.strided import every
from halfscope.sketch import ArraySketcher, filled

MOST_ELEMENTS = 4096
"""Of one parameter: a share of them is within 1.6 percentage points of the whole in 19 of 20 cases."""
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


@dataclass(frozen=True, slots=True)
class Trained:
    """A parameter whose step is to be looked at."""

    parameter: torch.Tensor
    grad: torch.Tensor
    rate: torch.Tensor | None = None
    """Its learning rate, where only the device knows it."""


@dataclass(frozen=True, slots=True)
class Before:
    """Weights on one device before the optimizer's step, laid one behind the other."""

    positions: Sequence[int]
    """Which of the parameters that were given."""
    parameters: Sequence[torch.Tensor]
    lie_alike: Sequence[bool]
    """Whether parameter and gradient have the same order in memory."""
    sizes: Sequence[int]
    """How many elements are looked at."""
    values: torch.Tensor
    counts: torch.Tensor
    """Whether an element counts."""


@dataclass(frozen=True, slots=True)
class Noted:
    """Likewise in host memory, by the compiled helper."""

    parameters: list[torch.Tensor]
    values: bytes


def note(trained: Sequence[Trained]) -> Noted | None:
    """Notes weights in host memory; None where `before` has to."""
    parameters = [one.parameter for one in trained]
    if gradients.helper is None or any(parameter.is_neg() for parameter in parameters):
        return None
    values = gradients.helper.note_weights(parameters, [one.grad for one in trained], MOST_ELEMENTS)
    return None if values is None else Noted(parameters, values)


def before(trained: Sequence[Trained]) -> Before | None:
    """Notes weights of one device; None where none can be looked at. Launches kernels and reads nothing."""
    positions: list[int] = []
    alike: list[bool] = []
    values: list[torch.Tensor] = []
    grads: list[torch.Tensor] = []
    with no_grad():
        for at, one in enumerate(trained):
            parameter, grad = _plain(one.parameter), _plain(one.grad)
            if parameter is None or grad is None or parameter.shape != grad.shape or not parameter.numel():
                continue
            is_alike = parameter.stride() == grad.stride()
            picked = _picked(grad, is_alike)
            grads.append(picked if one.rate is None else picked * (one.rate != 0))
            values.append(_picked(parameter, is_alike))
            positions.append(at)
            alike.append(is_alike)
        if not positions:
            return None
        found = torch.cat(grads)
        return Before(
            positions=positions,
            parameters=[trained[at].parameter for at in positions],
            lie_alike=alike,
            sizes=[value.numel() for value in values],
            values=torch.cat(values),
            counts=found.isfinite() & (found != 0),
        )


def changes(noted: Before) -> torch.Tensor | None:
    """float64 change of each element since `before`; None where a parameter is not what it was then."""
    values: list[torch.Tensor] = []
    with no_grad():
        for parameter, is_alike, size in zip(noted.parameters, noted.lie_alike, noted.sizes, strict=True):
            plain = _plain(parameter)
            picked = None if plain is None else _picked(plain, is_alike)
            if picked is None or picked.numel() != size:
                return None
            values.append(picked)
        after = torch.cat(values)
        if after.device != noted.values.device:
            return None
        return after.double().sub_(noted.values)


def measure(sketcher: ArraySketcher, noted: Before | Noted) -> Measured | None:
    """Sketches of the changes in host memory, of the elements that count."""
    if isinstance(noted, Noted):
        return _measure_noted(noted)
    changed = changes(noted)
    if changed is None:
        return None
    counts = noted.counts.numpy()
    values = changed.numpy()[counts]
    sizes = np.array(noted.sizes, np.int64)
    ends = np.cumsum(np.add.reduceat(counts, np.cumsum(sizes) - sizes, dtype=np.int64))
    arrays = np.split(values, ends[:-1])
    return Measured(noted.positions, sketcher(arrays).trimmed())


def _measure_noted(noted: Noted) -> Measured | None:
    parameters = noted.parameters
    fill = partial(gradients.helper.sketch_changes, parameters, MOST_ELEMENTS, noted.values)
    found = filled(len(parameters), fill, double=any(parameter.dtype is torch.float64 for parameter in parameters))
    return None if found is None else Measured(range(len(parameters)), found.trimmed())


def masked(noted: Before, *, double: bool) -> list[torch.Tensor] | None:
    """The changes on a device, one tensor for each parameter: those that do not count are minus infinity, and an
    infinite change is plus infinity whatever its sign. `UpdateFlight` knows.

    Args:
        double: as float64. float32, for which there are kernels, holds the difference of two narrower numbers to seven
            digits, and never as zero where there is one.
    """
    changed = changes(noted)
    if changed is None:
        return None
    with no_grad():
        changed.masked_fill_(changed == -math.inf, math.inf).masked_fill_(noted.counts.logical_not(), -math.inf)
        return list(torch.split(changed if double else changed.float(), list(noted.sizes)))


@dataclass(frozen=True, slots=True)
class UpdateFlight:
    """Sketches of changes on their way to the host."""

    flight: SketchFlight

    @property
    def event(self) -> DoneEvent:
        """Done when they have arrived."""
        return self.flight.event

    def read(self) -> Measured:
        """Of the elements that count."""
        positions, sketches = self.flight.read()
        counted = replace(sketches, n=sketches.n - sketches.neg_inf, neg_inf=np.zeros_like(sketches.neg_inf))
        return Measured(positions, counted)

    def land(self) -> None:
        """Frees the frame for another step."""
        self.flight.land()


def _plain(tensor: torch.Tensor) -> torch.Tensor | None:
    """A dense real tensor of the same memory; None where there is none."""
    if type(tensor) in _PLAIN and tensor.is_floating_point() and tensor.layout is torch.strided:
        return None if tensor.device.type == "meta" or tensor.is_neg() else tensor
    local: Any = getattr(tensor, "to_local", None)
    if local is not None:
        tensor = local()  # this rank's shard: the whole would be a collective
    if problem_of(tensor) is not None or tensor.layout is not torch.strided:
        return None
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg()


def _picked(tensor: torch.Tensor, in_memory_order: bool) -> torch.Tensor:
    if tensor.is_contiguous():
        picked = every(tensor, MOST_ELEMENTS)
    else:
        # Their order in memory spares a copy, where it is the same of both.
        picked = every(flat(tensor) if in_memory_order else tensor.reshape(-1), MOST_ELEMENTS)
    return picked.float() if picked.element_size() == 1 else picked
