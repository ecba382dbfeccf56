"""Two runs of the same computation tensor by tensor: where they first differ by more than their formats explain.

    for item in halfscope.compare_tensors(stages_fp32, stages_fp16):
        print(item)

Owns what "diverges" means between two tensors. Must not import torch: tensors are taken as they come, by what they can
do. Invariant: errors are computed in float64 from all elements; what cannot be compared says why and never diverges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope.formats import BF16, FP8_E4M3, FP8_E5M2, FP16
from halfscope.sketch import Sketch, distance_bits, merge, of_array

Flat = NDArray[Any]

LEAST_TOLERANCE, MOST_TOLERANCE = 0.01, 0.5
"""Ten roundings to FP8 are more than the whole: a tensor that became zero would be within them."""
ROUNDINGS = 10
"""A chain of so many roundings that all go the same way is still explained by the coarser of the two formats."""
CHUNK_ELEMENTS = 1 << 20
_EPSILONS = {
    "bfloat16": BF16.epsilon,
    "float16": FP16.epsilon,
    "float8_e4m3": FP8_E4M3.epsilon,
    "float8_e5m2": FP8_E5M2.epsilon,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDifference:
    """One tensor against its reference."""

    name: str
    relative_error: float
    """L2(other - reference) / L2(reference); infinite where one has NaN or Inf that the other has not."""
    tolerance: float
    """Above it the tensor diverges."""
    distance_bits: float
    """How far apart the sizes of nonzero elements lie (`halfscope.sketch.distance_bits`); NaN: one has none."""
    zero_share: float
    reference_zero_share: float
    lost_share: float
    """Of the reference's nonzero elements those that are zero in the other; NaN: it has none."""
    nonfinite: int
    """Elements that are NaN or infinite."""
    reference_nonfinite: int
    problem: str = ""
    """Why it could not be compared."""

    @property
    def diverges(self) -> bool:
        """Whether it differs by more than the tolerance, or in what is not finite."""
        return not self.problem and self.relative_error > self.tolerance

    def __str__(self) -> str:
        if self.problem:
            return f"{self.name}: not compared, {self.problem}"
        parts = [f"relative error {self.relative_error:.3g}"]
        if self.nonfinite != self.reference_nonfinite:
            parts.append(f"{self.nonfinite:,} elements NaN or Inf against {self.reference_nonfinite:,}")
        if self.zero_share != self.reference_zero_share:
            parts.append(f"zeros {self.zero_share:.3%} against {self.reference_zero_share:.3%}")
        if not math.isnan(self.distance_bits):
            parts.append(f"{self.distance_bits:.2g} bits apart")
        return f"{self.name}: {'DIVERGES' if self.diverges else 'same'}, {', '.join(parts)}"


def compare_tensors(
    reference: Mapping[str, Any], other: Mapping[str, Any], *, tolerance: float | None = None
) -> list[TensorDifference]:
    """Compare tensors of the same names: outputs of each stage of an exported model, activations of each module in two
    precisions, eager against compiled.

    The first that diverges is where to look:
    `next((item for item in halfscope.compare_tensors(a, b) if item.diverges), None)`.

    Args:
        reference: name to tensor, in the order of computation. PyTorch tensors of any type and device, NumPy arrays
            and whatever NumPy can make an array of.
        other: likewise; names that only it has are left out.
        tolerance: relative error from which on a tensor diverges. By default that of ten roundings to the coarser of
            both types, and at least 1%, at most 50%: 1% for FP16 and FP32, 7.8% for BF16.

    Returns:
        One entry per name of the reference, in its order.

    Raises:
        TypeError: not two mappings.
        ValueError: no name in common, or a tolerance that is no number above 0.
    """
    for what, given in (("reference", reference), ("other", other)):
        if not isinstance(given, Mapping):
            raise TypeError(f"{what} is {type(given).__name__}; expected a mapping of names to tensors")
    if tolerance is not None and not 0 < tolerance < math.inf:
        raise ValueError(f"tolerance is {tolerance}; expected a number above 0, such as 0.01 for 1%")
    if not reference.keys() & other.keys():
        raise ValueError(
            f"no name in common: the reference has {_some(reference)}, the other {_some(other)}; "
            "expected the same names in both"
        )
    return [
        _compare(name, tensor, other[name], tolerance)
        if name in other
        else _problem(name, "the other has no such name")
        for name, tensor in reference.items()
    ]


def _some(named: Mapping[str, Any]) -> str:
    names = ", ".join(repr(name) for name in list(named)[:3])
    return names + (", ..." if len(named) > 3 else "") if names else "none"


def _problem(name: str, problem: str) -> TensorDifference:
    nan = math.nan
    return TensorDifference(
        name=name, relative_error=nan, tolerance=nan, distance_bits=nan, zero_share=nan, reference_zero_share=nan,
        lost_share=nan, nonfinite=0, reference_nonfinite=0, problem=problem,
    )  # fmt: skip


def _compare(name: str, reference: Any, other: Any, tolerance: float | None) -> TensorDifference:
    try:
        a, b = _array(reference), _array(other)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        return _problem(name, f"no array of numbers: {error}")
    if a.shape != b.shape:
        return _problem(name, f"its shape is {b.shape} against {a.shape}")
    if not a.size:
        return _problem(name, "it has no element")
    epsilon = max(_epsilon(reference), _epsilon(other))
    return _measure(name, a, b, tolerance or min(MOST_TOLERANCE, max(LEAST_TOLERANCE, ROUNDINGS * epsilon)))


def _measure(name: str, a: Flat, b: Flat, tolerance: float) -> TensorDifference:
    # Powers of two, so that squares of very large or small numbers neither overflow nor vanish, and nothing rounds.
    power = -math.frexp(max(_largest(x, y) for x, y in _chunks(a, b)))[1]
    error = size = 0.0
    is_same_nonfinite, num_lost = True, 0
    sketches: tuple[list[Sketch], list[Sketch]] = ([], [])
    for x, y in _chunks(a, b):
        finite = np.isfinite(x) & np.isfinite(y)
        is_same_nonfinite &= bool(((x == y) | (np.isnan(x) & np.isnan(y)))[~finite].all())
        with np.errstate(under="ignore"):
            near_one = [np.ldexp(part[finite], power) for part in (x, y)]
            size += float(np.square(near_one[0]).sum())
            error += float(np.square(near_one[1] - near_one[0]).sum())
        num_lost += int(np.count_nonzero((y == 0) & (x != 0) & finite))
        for found, part in zip(sketches, (x, y), strict=True):
            found.append(of_array(part))
    one, two = merge(sketches[0]), merge(sketches[1])
    relative = math.sqrt(error / size) if size else 0.0 if not error else math.inf
    return TensorDifference(
        name=name,
        relative_error=relative if is_same_nonfinite else math.inf,
        tolerance=tolerance,
        distance_bits=float(distance_bits(one, two)),
        zero_share=float(two.zeros / two.n),
        reference_zero_share=float(one.zeros / one.n),
        lost_share=num_lost / float(one.nonzero) if one.nonzero else math.nan,
        nonfinite=int(two.nonfinite),
        reference_nonfinite=int(one.nonfinite),
    )


def _chunks(a: Flat, b: Flat) -> Iterator[tuple[Flat, Flat]]:
    """Both as float64, some elements at a time."""
    for start in range(0, a.size, CHUNK_ELEMENTS):
        part = slice(start, start + CHUNK_ELEMENTS)
        yield a.ravel()[part].astype(np.float64), b.ravel()[part].astype(np.float64)


def _largest(x: Flat, y: Flat) -> float:
    """The largest finite magnitude of both."""
    return max(float(np.abs(part[np.isfinite(part)]).max(initial=0.0)) for part in (x, y))


def _array(tensor: Any) -> Flat:
    """A tensor's numbers on the host; of complex ones real and imaginary parts.

    Raises:
        TypeError: it holds no numbers. Others: whatever its library raises where it has no values.
    """
    if callable(getattr(tensor, "detach", None)):
        tensor = tensor.detach()
        if "strided" not in str(getattr(tensor, "layout", "strided")):
            tensor = tensor.to_dense()
        if "bfloat16" in str(tensor.dtype) or "float8" in str(tensor.dtype):
            tensor = tensor.float()  # NumPy has no such type
        tensor = tensor.resolve_conj().resolve_neg().cpu().numpy()
    array = np.ascontiguousarray(tensor)
    if array.dtype.kind == "c":
        array = array.view(array.real.dtype)
    if array.dtype.kind not in "biufV":
        raise TypeError(f"its type is {array.dtype}")
    return array if array.dtype.kind != "V" else array.astype(np.float32)  # types of other libraries: ml_dtypes


def _epsilon(tensor: Any) -> float:
    name = str(getattr(tensor, "dtype", "")).rsplit(".", 1)[-1]
    return next((value for known, value in _EPSILONS.items() if name.startswith(known)), 0.0)
