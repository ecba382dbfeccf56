"""A few elements of a large tensor, always the same ones: evenly strided over its memory.

Changes no tensor and no state of autograd. Invariant: the elements of a tensor depend on its size and layout alone, so
that two tensors of one shape, or one tensor at two times, are looked at in the same places.
"""

from __future__ import annotations

import torch
from torch.nn.parameter import is_lazy

from halfscope.probes.stored import problem_of, stored_elements


def sampled(tensor: torch.Tensor, most: int, *, may_wait: bool) -> torch.Tensor | None:
    """At most `most` elements: a view where the tensor lies dense in memory, else a copy. Call it without gradients.

    Args:
        may_wait: for a device, where there is no other way.

    Returns:
        None where there are no floating-point elements to look at.
    """
    if is_lazy(tensor) or problem_of(tensor) is not None:
        return None
    plain = stored_elements(tensor, may_wait=may_wait)
    if plain is None or not plain[0].numel():
        return None
    return every(plain[0], most)


def every(flat: torch.Tensor, most: int) -> torch.Tensor:
    """At most `most` evenly strided elements of a tensor that lies dense in memory, in the order of that memory."""
    count = flat.numel()
    step = -(-count // most)
    # Not by an index: that asks for the device's support even where tensors are only named after it.
    return flat.as_strided((-(-count // step),), (step,))


def num_sampled(count: int, most: int) -> int:
    """How many of `count` elements are taken."""
    return -(-count // -(-count // most)) if count else 0
