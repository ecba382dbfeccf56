"""Whether ranks hold the same weights: one number of a few elements of each parameter.

Changes no tensor and no state of autograd. Invariant: the number depends on the bits of the elements and their order
alone, on the host as on a device; nothing waits for a device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from halfscope.probes.spec import SeriesSpec
from halfscope.probes.stored import no_grad
from halfscope.probes.strided import sampled

SERIES = (SeriesSpec(name="weights.checksum", labels=("optimizer",)),)

ELEMENTS = 8
"""Of each parameter: an optimizer that parts from the others changes nearly all of them."""
_WHOLE_NUMBERS = (1 << 53) - 1
"""What float64 holds exactly."""
_FACTOR = 0x9E3779B1
"""Odd, so that no bit of an element is lost; with its place in it, an exchange of two elements shows."""


def capture(parameters: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The number, as a float64 tensor where the parameters are: those that lie with the first of them.

    Returns:
        None where no parameter has elements that can be looked at.
    """
    with no_grad():
        found = [part for parameter in parameters if (part := sampled(parameter, ELEMENTS, may_wait=False)) is not None]
        found = [part.float() for part in found if part.device == found[0].device]
        if not found:
            return None
        bits = torch.cat(found).view(torch.int32).to(torch.int64)
        places = torch.arange(len(bits), device=bits.device, dtype=torch.int64)
        mixed = bits * (places * 2 + _FACTOR)
        return (mixed ^ (mixed >> 29)).sum().bitwise_and(_WHOLE_NUMBERS).double()
