"""What a rank has of its own before its gradients are reduced, and what the reduction takes.

Invariant: changes no gradient; on the host the norm of a bucket is one pass over its memory, and only where that is out
of the ordinary a second, exact look at its layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from halfscope import native
from halfscope.probes import gradients
from halfscope.probes.spec import SeriesSpec

SERIES = (
    SeriesSpec(name="grad.norm_local", reduction="max"),
    SeriesSpec(name="grad.nonfinite_local", unit="layers", reduction="sum"),
    SeriesSpec(name="comm.wait_s", unit="s", reduction="max"),
    SeriesSpec(name="comm.time_s", unit="s", reduction="max", labels=("bucket",)),
    SeriesSpec(name="comm.bytes", unit="bytes", kind="state", labels=("bucket",)),
    SeriesSpec(name="rank.busy_s", unit="s", reduction="max"),
)

FLOAT16_OVERFLOWS_AT = 65520.0
"""From here on a number rounds to infinity in FP16."""
BFLOAT16_OVERFLOWS_AT = 2.0**128 * (1 - 2.0**-9)
OVERFLOWS_AT = {torch.float16: FLOAT16_OVERFLOWS_AT, torch.bfloat16: BFLOAT16_OVERFLOWS_AT}
_WIDE = frozenset({torch.float32, torch.float64})
_divide = getattr(native.helper, "divide", None)


def divide(buffer: torch.Tensor, divisor: int) -> float | None:
    """Sum of the squares of a bucket's elements, each of which is then multiplied by the inverse of a number, bit for
    bit as `mul_` does it. None, and nothing has changed: not by the compiled helper, or not of this kind."""
    squares: float | None = None if _divide is None else _divide(buffer, divisor)
    return squares


def read(buffer: torch.Tensor, layers: Callable[[], Sequence[torch.Tensor]]) -> gradients.HostNorm | None:
    """Norm of a bucket in host memory, and the positions of its layers that are not finite.

    Args:
        buffer: all of it.
        layers: gives its parts.

    Returns:
        None where it is of a kind whose norm cannot be told.
    """
    if buffer.layout is torch.strided and buffer.is_floating_point():
        norm = fast_norm(buffer)
        if is_trusted(norm):
            return gradients.HostNorm(norm, ())
    return gradients.read(layers())


def fast_norm(values: torch.Tensor) -> float:
    """L2 norm of dense numbers in host memory, in float32 or better."""
    norm: float = torch.linalg.vector_norm(values, dtype=None if values.dtype in _WIDE else torch.float32).item()
    return norm


def is_trusted(norm: float) -> bool:
    """Whether squares in float32 can have given it."""
    return gradients.SMALLEST_TRUSTED_NORM <= norm <= gradients.LARGEST_TRUSTED_NORM


def too_large(layers: Sequence[torch.Tensor], limit: float) -> tuple[int, ...]:
    """Positions of layers in host memory that hold a finite element of at least a magnitude."""
    found: list[int] = []
    for at, layer in enumerate(layers):
        values = layer.coalesce().values() if layer.layout is torch.sparse_coo else layer
        magnitudes = values.abs()
        if bool(((magnitudes >= limit) & (magnitudes < math.inf)).any()):
            found.append(at)
    return tuple(found)


def largest(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """The largest magnitude in each of some dense layers on one device, as a vector there; NaN where it holds one."""
    return torch.stack(torch._foreach_norm(list(layers), math.inf))
