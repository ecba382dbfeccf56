"""A few elements of a large tensor, always the same ones: evenly strided over its memory.

Changes no tensor and no state of autograd. Invariant: the elements of a tensor depend on its size and layout alone, so
that two tensors of one shape, or one tensor at two times, are looked at in the same places.
"""

from __future__ import annotations

import torch

from halfscope.probes.stored import problem_of, stored_elements


def sampled(tensor: torch.Tensor, most: int, *, may_wait: bool) -> torch.Tensor | None:
    """At most `most` elements as a flat view where the tensor's own memory can be looked at, else a copy.

    Args:
        may_wait: for a device, where there is no other way.

    Returns:
        None where there are no floating-point elements to look at.
    """
    plain = stored_elements(tensor, may_wait=may_wait) if problem_of(tensor) is None else None
    if plain is None or not plain[0].numel():
        return None
    return plain[0][:: stride(plain[0].numel(), most)]


def stride(count: int, most: int) -> int:
    """How far apart at most `most` evenly strided elements of `count` lie."""
    return -(-count // most)
