"""Exponent sketches, shared by agent and server: the algebra, the sketch of an array, how far apart two lie, which
zeros are structural, and how sketches travel.

Must not import torch.
"""

from halfscope.sketch.algebra import (
    DEFAULT_SCALE,
    Sketch,
    concatenate,
    excess_zero_share,
    headroom,
    merge,
    share,
    stack,
)
from halfscope.sketch.array import ArraySketcher, filled, of_array
from halfscope.sketch.distance import distance_bits
from halfscope.sketch.packing import pack, unpack
from halfscope.sketch.structural import structural_zeros

__all__ = [
    "DEFAULT_SCALE",
    "ArraySketcher",
    "Sketch",
    "concatenate",
    "distance_bits",
    "excess_zero_share",
    "filled",
    "headroom",
    "merge",
    "of_array",
    "pack",
    "share",
    "stack",
    "structural_zeros",
    "unpack",
]
