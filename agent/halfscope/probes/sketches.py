"""Exponent sketches of tensors: of one that a user hands over, and of all gradients in host memory during training.

NumPy looks at the very bytes of the tensor. Changes no tensor and no state of autograd. No threads, no I/O. Those on a
device are `halfscope.probes.device_sketches`'s.
Invariant: what cannot be sketched is left out, never made up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from halfscope.probes.stored import chunks, no_grad, problem_of, stored_elements
from halfscope.sketch import ArraySketcher, Sketch, merge

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_DIRECT = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


class Measured(NamedTuple):
    """Sketches of some of the tensors that were given."""

    positions: Sequence[int]
    """Which ones."""
    sketches: Sketch
    """A stack of shape (len(positions),)."""


def sketch_of(tensor: torch.Tensor) -> Sketch:
    """The exponent sketch of a tensor: its elements per power of two, zeros, NaN, infinities, and moments.

    FP16, BF16 and FP8 are counted at their exact values. Of a sparse tensor n and zeros include the elements that are
    not stored; of a complex one real and imaginary parts count as elements each; of a DTensor this rank's shard is
    sketched. A tensor on a device is copied to the host, which waits for the device.

    Raises:
        TypeError: not a tensor, or one that holds no floating-point numbers.
        ValueError: a tensor without values (on the meta device).
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"sketch_of was given {type(tensor).__name__}; expected a torch.Tensor "
            "(for a NumPy array: halfscope.sketch.of_array)"
        )
    problem = problem_of(tensor)
    if problem is not None:
        raise problem
    with no_grad():
        plain = stored_elements(tensor, may_wait=True)
        assert plain is not None
        stored, num_implicit = plain
        sketcher, sketch = ArraySketcher(), Sketch.empty()
        # From a device a chunk at a time: the host may have less memory to spare.
        for part in (stored,) if stored.is_cpu else chunks(stored):
            sketch = merge([sketch, sketcher([_array(part.cpu())])[0].trimmed()])
    return with_zeros(sketch, np.asarray(num_implicit))


class HostSketcher:
    """Gradients in host memory."""

    def __init__(self) -> None:
        self._sketcher = ArraySketcher()

    def measure(self, grads: Sequence[torch.Tensor], divide_by: float = 1.0) -> Measured | None:
        """Sketches of the gradients, divided by a loss scale; None where there is nothing to sketch."""
        if not 0 < divide_by < math.inf:
            return None
        positions: list[int] = []
        arrays: list[Any] = []
        implicit: list[int] = []
        with no_grad():
            for at, grad in enumerate(grads):
                if type(grad) in _PLAIN and grad.dtype in _DIRECT and grad.is_cpu and grad.layout is torch.strided:
                    # What nearly every gradient is: at a small model each call shows.
                    positions.append(at)
                    arrays.append(_array(grad.detach() if grad.requires_grad else grad))
                    implicit.append(0)
                    continue
                plain = stored_elements(grad, may_wait=True) if problem_of(grad) is None else None
                if plain is not None and plain[0].is_cpu:
                    positions.append(at)
                    arrays.append(_array(plain[0]))
                    implicit.append(plain[1])
        if not positions:
            return None
        sketches = self._sketcher(arrays, divide_by)
        return Measured(positions, with_zeros(sketches, np.array(implicit)) if any(implicit) else sketches)


def _array(tensor: torch.Tensor) -> Any:
    """A tensor in host memory as `ArraySketcher` takes it; a view but of FP8."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.element_size() == 1:
        tensor = tensor.float()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def with_zeros(sketch: Sketch, num_implicit: Any) -> Sketch:
    """With zeros that were not stored, and all of them in n."""
    zeros = sketch.zeros + num_implicit
    n = zeros + sketch.nonfinite + sketch.nonzero
    return Sketch(
        n=n, zeros=zeros, nan=sketch.nan, pos_inf=sketch.pos_inf, neg_inf=sketch.neg_inf, sum=sketch.sum,
        sumsq=sketch.sumsq, absmax=sketch.absmax, absmin_nonzero=sketch.absmin_nonzero, lowest=sketch.lowest,
        counts=sketch.counts,
    )  # fmt: skip
