"""How far apart the sizes of two tensors' elements lie, in bits.

The earth mover's distance between two exponent histograms: how many powers of two an element has to be moved on
average to turn one into the other. Must not import torch. Invariant: exact for histograms; it is 0 for equal ones and k
for a tensor and 2^k times that tensor, however many elements either has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfscope.sketch.algebra import Sketch, share


def distance_bits(one: Sketch, other: Sketch, above: ArrayLike = -np.inf) -> NDArray[np.float64]:
    """Mean distance between log2|x| of nonzero finite elements, by whole powers of two.

    For one dimension it is the area between the two cumulative shares. Zeros and what is not finite have no exponent
    and do not count; they have shares of their own.

    Args:
        one: a sketch or a stack, as is the other; their shapes broadcast.
        above: exponents below which sizes are not told apart: smaller elements count as if they lay there. Broadcasts
            like the shapes.

    Returns:
        Bits, 0 or more; NaN where either has no nonzero finite element.
    """
    lowest = min(one.lowest, other.lowest)
    end = max(one.lowest + one.counts.shape[-1], other.lowest + other.counts.shape[-1])
    area = np.zeros(np.broadcast_shapes(one.shape, other.shape, np.shape(above)))
    cumulated = [(sketch, np.zeros(sketch.shape), sketch.nonzero) for sketch in (one, other)]
    # A bin at a time: stacks are large, and cumulative shares of all bins would be several times as large as counts.
    for exponent in range(lowest, end):
        shares = []
        for sketch, below, nonzero in cumulated:
            at = exponent - sketch.lowest
            if 0 <= at < sketch.counts.shape[-1]:
                below += sketch.counts[..., at]
            shares.append(share(below, nonzero))
        area += np.where(exponent >= np.asarray(above), np.abs(shares[0] - shares[1]), 0.0 * (shares[0] + shares[1]))
    if lowest >= end:
        area[...] = np.nan
    return area
