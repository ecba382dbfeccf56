"""What goes into the model: the largest magnitude in its input batch, its mean, and the elements that are NaN or
infinite.

Told apart because a bad batch looks like a precision problem everywhere behind it. A mask that is added to attention
scores holds minus infinity on purpose: a tensor of zeros and minus infinities alone is one. The mean tells whether two
runs were fed the same. No threads, no I/O.
Invariant: a batch is never kept alive by looking at it later, and nothing waits for a device.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from halfscope.probes.spec import SeriesSpec

SERIES = (
    SeriesSpec(name="input.absmax", unit="", reduction="max"),
    SeriesSpec(name="input.mean", unit="", reduction="mean"),
    SeriesSpec(name="input.nonfinite", unit="elements", reduction="sum"),
)

MAX_DEPTH = 3
"""How deep in containers of a call's arguments tensors are looked for."""
MAX_TENSORS = 16
"""Of one call that are looked at."""
MAX_HELD = 64
"""Of one call that are held, of whatever type."""
_WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


@dataclass(frozen=True, slots=True)
class InputReading:
    """One look at a batch."""

    argument: str
    """Where the first bad tensor, or the first tensor at all, was given: `0`, `images`, `0.pixel_values`."""
    absmax: float | None
    """Of the finite elements; None where they are whole numbers, such as tokens: those are neither large nor NaN."""
    num_nan: int
    num_inf: int
    first_row: int
    """Along the first dimension, of the first tensor that has a non-finite element; -1 where none has."""
    sum: float
    """Of the finite elements, in float64."""
    num_finite: int

    @property
    def num_nonfinite(self) -> int:
        return self.num_nan + self.num_inf

    @property
    def mean(self) -> float | None:
        """Of the finite elements; None where there are none."""
        return self.sum / self.num_finite if self.num_finite else None


class InputBatch:
    """The tensors of one forward call, held weakly. Mostly they are not looked at: so which of them are floating-point
    numbers is found out only then."""

    __slots__ = ("_held",)

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._held: list[tuple[str | int, weakref.ref[torch.Tensor]]] = []
        for at, value in enumerate(args):
            if isinstance(value, torch.Tensor):
                self._held.append((at, weakref.ref(value)))
            else:
                _collect(str(at), value, self._held, MAX_DEPTH)
        if kwargs:
            for name, value in kwargs.items():
                _collect(name, value, self._held, MAX_DEPTH)

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Those that are still alive and can be looked at: the floating-point numbers, and where there are none, the
        whole numbers."""
        found = [
            (str(name), tensor) for name, held in self._held if (tensor := held()) is not None and _is_readable(tensor)
        ]
        floating = [(name, tensor) for name, tensor in found if tensor.is_floating_point()]
        return (floating or found)[:MAX_TENSORS]


def read(tensors: Sequence[tuple[str, torch.Tensor]]) -> InputReading | None:
    """Looks at tensors in host memory; None where there are none."""
    result: InputReading | None = None
    for name, tensor in tensors:
        result = _joined(result, _read_one(name, tensor))
    return result


def capture(tensor: torch.Tensor) -> torch.Tensor:
    """As float64 on the tensor's device: [largest finite magnitude, number of NaN, number of infinities, first bad row
    or -1, sum, number of finite elements], of whole numbers [sum, number]. Launches kernels and reads nothing."""
    was_enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        if not tensor.is_floating_point():
            total = tensor.sum(dtype=torch.float64)
            return torch.stack([total, torch.full_like(total, tensor.numel())])
        rows = tensor.detach().reshape(tensor.shape[0] if tensor.dim() else 1, -1)
        if rows.element_size() == 1:
            rows = rows.float()
        above = rows == math.inf
        below = rows == -math.inf
        bad = above | below | rows.isnan()
        # Not nan_to_num: it would turn infinities of a half-precision tensor into its largest number.
        finite = rows.masked_fill(bad, 0.0)
        largest, total = finite.abs().amax().double(), finite.sum(dtype=torch.float64)
        num_finite = rows.numel() - bad.sum().double()
        zero = rows == 0
        bad &= ((zero | below).all() & zero.any()).logical_not()  # a mask is not bad
        num_nan = rows.isnan().sum().double()
        bad_rows = bad.any(1)
        first = torch.where(bad_rows.any(), bad_rows.to(torch.uint8).argmax(), -1)
        num_inf = bad.sum().double() - num_nan
        return torch.stack([largest, num_nan, num_inf, first.double(), total, num_finite])
    finally:
        torch._C._set_grad_enabled(was_enabled)


def of_captured(name: str, values: Sequence[float]) -> InputReading:
    """What `capture` gave, once it has arrived."""
    if len(values) == 2:
        return InputReading(name, None, 0, 0, -1, values[0], int(values[1]))
    absmax, num_nan, num_inf, first_row, total, num_finite = values
    return InputReading(name, absmax, int(num_nan), int(num_inf), int(first_row), total, int(num_finite))


def joined(readings: Sequence[InputReading]) -> InputReading | None:
    """Of several tensors of one batch."""
    result: InputReading | None = None
    for reading in readings:
        result = _joined(result, reading)
    return result


def _collect(name: str, value: Any, held: list[tuple[str | int, weakref.ref[torch.Tensor]]], depth: int) -> None:
    if isinstance(value, torch.Tensor):
        if len(held) < MAX_HELD:
            held.append((name, weakref.ref(value)))
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            _collect(f"{name}.{key}", item, held, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            if len(held) >= MAX_HELD:
                return
            _collect(f"{name}.{at}", item, held, depth - 1)


def _is_readable(tensor: torch.Tensor) -> bool:
    return (
        (tensor.is_floating_point() or tensor.dtype in _WHOLE)
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and tensor.device.type != "meta"
        and tensor.numel() > 0
        and not hasattr(tensor, "to_local")
    )


def _read_one(name: str, tensor: torch.Tensor) -> InputReading:
    plain = tensor.detach().resolve_neg()
    if not plain.is_floating_point():
        return InputReading(name, None, 0, 0, -1, float(plain.numpy().sum(dtype=np.float64)), plain.numel())
    if plain.element_size() == 1 or plain.dtype is torch.bfloat16:
        plain = plain.float()
    values = plain.numpy()
    high, low = float(values.max()), float(values.min())
    absmax = max(high, -low)
    if absmax < np.inf:  # a NaN would have come out of both
        return InputReading(name, absmax, 0, 0, -1, float(values.sum(dtype=np.float64)), values.size)
    bad = ~np.isfinite(values)
    num_nan = int(np.count_nonzero(np.isnan(values)))
    finite = values[~bad]
    absmax, total = float(np.abs(finite).max(initial=0.0)), float(finite.sum(dtype=np.float64))
    if high == absmax == 0.0:
        return InputReading(name, 0.0, 0, 0, -1, total, finite.size)  # a mask
    first_row = int(np.argmax(bad.reshape(values.shape[0] if values.ndim else 1, -1).any(axis=1)))
    num_inf = int(np.count_nonzero(bad)) - num_nan
    return InputReading(name, absmax, num_nan, num_inf, first_row, total, finite.size)


def _joined(one: InputReading | None, other: InputReading) -> InputReading:
    if one is None:
        return other
    first = one if one.num_nonfinite or not other.num_nonfinite else other
    largest = [reading.absmax for reading in (one, other) if reading.absmax is not None]
    return InputReading(
        first.argument,
        max(largest, default=None),
        one.num_nan + other.num_nan,
        one.num_inf + other.num_inf,
        first.first_row,
        one.sum + other.sum,
        one.num_finite + other.num_finite,
    )
