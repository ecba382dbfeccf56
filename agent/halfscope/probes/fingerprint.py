"""What tells the weights of one run from those of another: sums, and digests of the values.

Of each parameter a few elements are looked at. On a device that is queued and read later, as everything there.
Changes no tensor and no state of autograd. Invariant: equal weights have equal digests, whatever device they lie on and
whatever wraps their model; sums of them differ by rounding alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import torch

from halfscope.probes.stored import no_grad
from halfscope.probes.strided import sampled

MOST_ELEMENTS = 1024
"""Of one parameter. Evenly strided ones: of a network's first and last rows alike."""
_STORED = (None, torch.float16, torch.bfloat16)
"""What values are rounded to before a digest is formed of them."""
_GOLDEN, _MIX_1, _MIX_2 = (
    number - (1 << 64) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
"""Of SplitMix64, as signed numbers."""
_HALF = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Part:
    """Parameters that follow each other on one device."""

    numbers: torch.Tensor
    """float64 on that device: sum, sum of magnitudes, and of each digest its lower and upper half."""
    num_tensors: int
    num_elements: int


def capture(parameters: Sequence[torch.Tensor]) -> list[Part]:
    """Looks at parameters in their order; launches kernels and reads nothing."""
    with no_grad():
        picked = [sampled(parameter, MOST_ELEMENTS, may_wait=False) for parameter in parameters]
        parts: list[Part] = []
        start = 0
        for _, group in groupby((each for each in picked if each is not None), key=lambda each: each.device):
            # FP8 is not promoted with others.
            wide = [each.float() if each.element_size() == 1 else each for each in group]
            values = torch.cat(wide).double()
            parts.append(Part(_numbers(values, start), len(wide), values.numel()))
            start += values.numel()
        return parts


def joined(parts: Sequence[tuple[Part, Sequence[float]]]) -> dict[str, Any]:
    """The fingerprint, of parts and their numbers as they arrived on the host; empty where there are none.

    Keys: `sum` and `sum_abs` in float64, `num_tensors` and `num_elements` looked at, `digest` of the values, and
    `digest_float16` and `digest_bfloat16` of the values rounded to those: weights that are stored in half precision
    agree with the FP32 ones that they were made from in one of these alone.
    """
    if not parts:
        return {}
    total, total_abs, *halves = (sum(numbers) for numbers in zip(*(found for _, found in parts), strict=True))
    digests = [int(low) + (int(high) << 32) & (1 << 64) - 1 for low, high in list(pairwise(halves))[::2]]
    names = ["digest" if dtype is None else "digest_" + str(dtype).removeprefix("torch.") for dtype in _STORED]
    return {
        "sum": total,
        "sum_abs": total_abs,
        "num_tensors": sum(part.num_tensors for part, _ in parts),
        "num_elements": sum(part.num_elements for part, _ in parts),
        **{name: f"{digest:016x}" for name, digest in zip(names, digests, strict=True)},
    }


def _numbers(values: torch.Tensor, start: int) -> torch.Tensor:
    numbers = [values.sum(), values.abs().sum()]
    place = torch.arange(start, start + values.numel(), device=values.device)
    for dtype in _STORED:
        rounded = values if dtype is None else values.to(dtype).double()
        digest = _digest(rounded, place)
        numbers += [(digest & _HALF).double(), (digest >> 32 & _HALF).double()]
    return torch.stack(numbers)


def _digest(values: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """A sum of whole numbers, each mixed of an element's bits and its place: exact in any order, on any device."""
    # A NaN may have any payload, and zero a sign: neither tells weights apart.
    mixed = values.masked_fill(values.isnan(), float("nan")).add_(0.0).view(torch.int64) + place * _GOLDEN
    mixed = (mixed ^ (mixed >> 30)) * _MIX_1
    mixed = (mixed ^ (mixed >> 27)) * _MIX_2
    return (mixed ^ (mixed >> 31)).sum()
