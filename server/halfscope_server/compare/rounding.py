"""Which sizes of a layer's gradient are rounding noise.

Some gradients are zero but for rounding: of a bias in front of a normalisation, of the keys' bias in attention. What is
seen of them grows with the coarseness of the format, by a thousand times from FP32 to FP16, and means nothing. Must not
import plotly. Invariant: what lies above the noise is never touched, and zeros are left to those who count them.

Suffixes: P pairs of frames, L common layers.
"""

from __future__ import annotations

import numpy as np
from halfscope.formats import BF16, FP16
from numpy.typing import NDArray

from halfscope_server.compare.pairing import Pairs
from halfscope_server.query.states import precision_of

Floats = NDArray[np.float64]

FINE_LABELS = ("FP32", "TF32", "FP16-AMP", "FP16")
"""Formats that round no coarser than FP16; FP32 is among them because its matmuls may have been TF32's."""
ROUNDINGS = 4.0
"""Times the format's epsilon: sums of many rounded terms seldom stray further."""


def noise_floor(pairs: Pairs, absmax: tuple[Floats, Floats]) -> Floats:
    """[P, L] magnitude below which a gradient is rounding noise.

    Of every layer a few epsilons of its own largest element; of a vector, such as a bias, of the largest in its
    module, whose terms are the same but for a factor.

    Args:
        absmax: [P, L] of the baseline and of the member.
    """
    # Of the smaller run: what is larger in the other by more than rounding is to be seen.
    largest = np.where(np.minimum(*absmax) > 0, np.minimum(*absmax), np.maximum(*absmax))
    floor = largest.copy()
    modules: dict[str, list[int]] = {}
    for at, name in enumerate(pairs.names):
        modules.setdefault(name.rpartition(".")[0], []).append(at)
    shapes = [pairs.frames.layers[column].shape for column in pairs.columns.tolist()]
    for layers in modules.values():
        vectors = [at for at in layers if len(shapes[at]) < 2]
        if vectors and len(layers) > 1:
            floor[:, vectors] = largest[:, layers].max(axis=1, keepdims=True)
    return floor * (ROUNDINGS * _epsilon(pairs))


def _epsilon(pairs: Pairs) -> float:
    labels = {precision_of(view.row) for view in (pairs.baseline, pairs.member)}
    return FP16.epsilon if labels <= set(FINE_LABELS) else BF16.epsilon
