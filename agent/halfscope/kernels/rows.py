"""What the kernels write of each gradient, and the sketch that it is.

Owns the layout that kernels and host share. Must not import torch nor triton.
Invariant: the power of two in a scale moves bins and moments here, without error; the device has only taken account of
the rest of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope.sketch import Sketch

NUM_FIELDS = 256
"""The first columns: elements by FP32 exponent field, less one where the scale's mantissa takes them down to the next
power of two. The last of them is always 0: no finite number has it."""
NUM_SUBNORMAL = 32
"""Then subnormals by exponent from LOWEST. The last of them is always 0."""
KINDS = NUM_FIELDS + NUM_SUBNORMAL
"""Then zeros, NaN, infinity, minus infinity."""
NUM_COUNTS = KINDS + 4
ROW_WIDTH = NUM_COUNTS + 5
"""Behind the counts lie float64: sum, sum of squares, largest and smallest nonzero magnitude, and the scale."""

LOWEST = -150
"""2^-149 is the smallest subnormal; a scale's mantissa takes it down by one."""
_FIELD_OF_LOWEST = 23
"""Elements in field 0 have exponent -127."""
_SMALLEST_NORMAL = 2.0**-126


def decode(rows: NDArray[np.int64]) -> Sketch | None:
    """The sketches of gradients.

    Args:
        rows: shape (gradients, ROW_WIDTH).

    Returns:
        A stack of shape (gradients,), of the gradients divided by the scale; None where that is no number to divide by.
    """
    moments = rows.view(np.float64)[:, NUM_COUNTS:]
    scale = float(moments[0, 4]) if len(rows) else 1.0
    if not _SMALLEST_NORMAL <= scale < math.inf:
        return None
    fields, below = rows[:, : NUM_FIELDS - 1], rows[:, NUM_FIELDS : NUM_FIELDS + _FIELD_OF_LOWEST + 1]
    counts = np.zeros((len(rows), _FIELD_OF_LOWEST + NUM_FIELDS - 1), np.int64)
    counts[:, _FIELD_OF_LOWEST:] = fields
    counts[:, : _FIELD_OF_LOWEST + 1] += below
    kinds: Any = {name: rows[:, KINDS + at].copy() for at, name in enumerate(("zeros", "nan", "pos_inf", "neg_inf"))}
    return Sketch(
        **kinds,
        n=counts.sum(axis=1) + rows[:, KINDS:NUM_COUNTS].sum(axis=1),
        sum=moments[:, 0] / scale,
        sumsq=moments[:, 1] / scale / scale,
        absmax=moments[:, 2] / scale,
        absmin_nonzero=moments[:, 3] / scale,
        lowest=LOWEST - (math.frexp(scale)[1] - 1),
        counts=counts,
    )
