"""The sketch of an array: one pass over its bits, in blocks that stay in the cache, on one thread.

A float's exponent field *is* its bin, so no logarithm is taken: the bits are shifted down and counted, by the compiled
helper where there is one and by NumPy where not: the same counts, and sums that differ by rounding alone. Must not
import torch. Invariant: counts are exact for every value of every format that is taken (float16, float32, float64,
and BF16 as its bits), subnormals in their own bins, and no temporary is larger than a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope import native
from halfscope.sketch.algebra import Sketch

Array = NDArray[Any]

_F16, _F32, _F64, _BF16_BITS = map(np.dtype, (np.float16, np.float32, np.float64, np.uint16))
_TAKEN = frozenset((_F16, _F32, _F64, _BF16_BITS))
BLOCK_ELEMENTS = 32_768
"""Its bits, its bins and its float64 values together stay below 1 MiB."""
_SMALL_ELEMENTS = 4_096
MAX_GROUP_FIELDS = 1 << 18
"""Counts of one group: 2 MiB."""
_DOT_ELEMENTS = 8_192
"""A BLAS may use further threads for a longer product."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layout:
    """How a float lies in its bits."""

    bits: type[np.unsignedinteger[Any]]
    value_type: type[np.floating[Any]]
    mantissa_bits: int
    exponent_bits: int

    @property
    def bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1

    @property
    def num_fields(self) -> int:
        """Values of the exponent field."""
        return 1 << self.exponent_bits

    @property
    def lowest(self) -> int:
        """floor(log2) of the smallest subnormal."""
        return 1 - self.bias - self.mantissa_bits

    @property
    def infinite(self) -> int:
        """Bits of infinity, shifted left by one: NaNs lie above."""
        return (self.num_fields - 1) << (self.mantissa_bits + 1)

    @property
    def num_bins(self) -> int:
        """One per subnormal power of two and one per exponent field, but those of zero and of infinity."""
        return self.mantissa_bits + self.num_fields - 2

    def value(self, bits: int) -> float:
        """Of a positive finite number, by whole numbers: a processor told to flush subnormals reads them as 0."""
        field, mantissa = divmod(bits, 1 << self.mantissa_bits)
        if not field:
            return math.ldexp(mantissa, self.lowest)
        return math.ldexp(mantissa + (1 << self.mantissa_bits), self.lowest + field - 1)


_SINGLE = _Layout(bits=np.uint32, value_type=np.float32, mantissa_bits=23, exponent_bits=8)
_DOUBLE = _Layout(bits=np.uint64, value_type=np.float64, mantissa_bits=52, exponent_bits=11)


def of_array(values: Array) -> Sketch:
    """The sketch of an array of any shape, without empty bins at its ends.

    Args:
        values: float16, float32 or float64; or uint16, which are the bits of BF16 numbers (NumPy has no type for them).

    Raises:
        TypeError: any other type.
    """
    whole = np.asarray(values)
    if not whole.dtype.isnative:
        whole = whole.astype(whole.dtype.newbyteorder("="))
    return ArraySketcher(min(BLOCK_ELEMENTS, max(1, whole.size)))([whole])[0].trimmed()


def filled(num_rows: int, fill: Callable[[int, Array, Array, Array], bool], *, double: bool) -> Sketch | None:
    """Sketches that a function of the compiled helper counts: given the lowest exponent of the tables, and those.

    Args:
        double: of float64; else of what is between two numbers of float32.
    """
    table = _Table([0] * num_rows, _DOUBLE if double else _SINGLE, num_more=0 if double else 1)
    return table.sketch() if fill(*table.parts) else None


class ArraySketcher:
    """Sketches arrays, with memory that is allocated once. Not for two threads at a time."""

    def __init__(self, block_elements: int = BLOCK_ELEMENTS) -> None:
        self._block_elements = block_elements
        self._small_elements = min(_SMALL_ELEMENTS, block_elements)
        self._index = np.empty(block_elements, np.int64)
        self._magnitude = {layout.bits: np.empty(block_elements, layout.bits) for layout in (_SINGLE, _DOUBLE)}
        self._single = np.empty(block_elements, np.float32)
        self._double = np.empty(block_elements, np.float64)

    def __call__(self, arrays: Sequence[Array], divide_by: float = 1.0) -> Sketch:
        """Sketches of some arrays, as a stack of shape (L,).

        Args:
            arrays: as `of_array` takes them.
            divide_by: the sketches are of the values divided by this, as if that were done in float64.

        Raises:
            TypeError: an array of another type.
            ValueError: `divide_by` is not finite and positive.
        """
        for array in arrays:
            if array.dtype not in _TAKEN:
                raise TypeError(
                    f"an array of {array.dtype}; expected float16, float32, float64, or uint16 holding the bits of BF16"
                )
        if not 0 < divide_by < math.inf:
            raise ValueError(f"divide_by is {divide_by}; expected a finite number above 0")
        fraction, exponent = math.frexp(divide_by)
        is_exact = fraction == 0.5  # a power of two moves bins, and no element has to be divided
        is_double = not is_exact or any(array.dtype == _F64 for array in arrays)
        table = _Table([array.size for array in arrays], _DOUBLE if is_double else _SINGLE)
        if native.helper is None:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                self._count(table, arrays, None if is_exact else divide_by)
        else:
            table.count(native.helper, arrays, 0.0 if is_exact else divide_by)
        sketch = table.sketch()
        return sketch.shifted(1 - exponent) if is_exact and exponent != 1 else sketch

    def _count(self, table: _Table, arrays: Sequence[Array], divide_by: float | None) -> None:
        groups = {_F32: _Group(_SINGLE, self._single), _F64: _Group(_DOUBLE, self._double)}
        for row, array in enumerate(arrays):
            flat = array.ravel(order="K")  # a view of whatever lies dense in memory, in any order of its axes
            group = groups.get(flat.dtype) if divide_by is None and 0 < flat.size <= self._small_elements else None
            if group is not None:
                if not group.has_room(flat.size):
                    self._add_group(table, group)
                group.add(row, flat)
                continue
            for start in range(0, flat.size, self._block_elements):
                block = self._loaded(flat[start : start + self._block_elements])
                if divide_by is not None:
                    block = np.divide(block, divide_by, out=self._double[: block.size], dtype=np.float64)
                self._add(table, row, block)
        for group in groups.values():
            self._add_group(table, group)

    def _loaded(self, block: Array) -> Array:
        """A block as float32 or float64; without a copy where it is that already."""
        if block.dtype == _F32 or block.dtype == _F64:
            return block
        single = self._single[: block.size]
        if block.dtype == _F16:
            _half_table().take(block.view(np.uint16), out=single, mode="clip")
        else:
            np.left_shift(block, 16, out=single.view(np.uint32), dtype=np.uint32)
        return single

    def _add(self, table: _Table, row: int, block: Array) -> None:
        """Counts a block of one array."""
        layout = _SINGLE if block.dtype == _F32 else _DOUBLE
        bits, size = block.view(layout.bits), block.size
        index, magnitude = self._index[:size], self._magnitude[layout.bits][:size]
        np.right_shift(bits, layout.mantissa_bits, out=index, casting="unsafe")
        both = np.bincount(index, minlength=2 * layout.num_fields)
        fields = both[: layout.num_fields] + both[layout.num_fields :]
        np.left_shift(bits, 1, out=magnitude)  # drops the sign: from here on larger bits are larger numbers
        num_zeros = size - int(np.count_nonzero(magnitude)) if fields[0] else 0
        if num_zeros < fields[0]:
            table.add_subnormals(row, magnitude, layout)
        if fields[-1]:
            table.add_nonfinite(row, block)
            magnitude[magnitude >= layout.infinite] = 0
        largest = int(magnitude.max()) >> 1
        magnitude -= 1  # zero becomes the largest there is
        smallest = (int(magnitude.min()) + 1) >> 1
        table.add_fields(row, fields, num_zeros, layout)
        if largest:
            table.add_extremes(row, layout.value(largest), layout.value(smallest))
        double = self._double[:size]
        if block.base is not self._double:
            np.copyto(double, block)
        if fields[-1]:
            double[~np.isfinite(double)] = 0.0
        table.sum[row] += double.sum()
        for start in range(0, size, _DOT_ELEMENTS):
            part = double[start : start + _DOT_ELEMENTS]
            table.sumsq[row] += part.dot(part)

    def _add_group(self, table: _Table, group: _Group) -> None:
        """Counts several small arrays at once, and empties the group: a call of NumPy costs as much as a thousand
        elements."""
        members, layout = group.members, group.layout
        if not members:
            return
        group.members, group.size = [], 0
        rows = np.array([row for row, _ in members])
        sizes = np.array([array.size for _, array in members])
        starts = np.cumsum(sizes) - sizes
        size = int(sizes.sum())
        block = np.concatenate([array for _, array in members], out=group.block[:size], casting="equiv")
        index, magnitude, double = self._index[:size], self._magnitude[layout.bits][:size], self._double[:size]
        np.left_shift(block.view(layout.bits), 1, out=magnitude)
        np.right_shift(magnitude, layout.mantissa_bits + 1, out=index, casting="unsafe")
        index += np.repeat(np.arange(len(members)) * layout.num_fields, sizes)
        fields = np.bincount(index, minlength=len(members) * layout.num_fields).reshape(len(members), -1)
        largest = np.maximum.reduceat(magnitude, starts) >> 1
        num_zeros = np.add.reduceat(magnitude == 0, starts, dtype=np.int64)
        magnitude -= 1
        smallest = (np.minimum.reduceat(magnitude, starts) + layout.bits(1)) >> 1
        if layout is _SINGLE:
            np.copyto(double, block)
        plain = (fields[:, -1] == 0) & (fields[:, 0] == num_zeros)
        if not plain.all():
            double[np.repeat(~plain, sizes)] = 0.0
        table.sum[rows] = np.add.reduceat(double, starts)
        double *= double
        table.sumsq[rows] = np.add.reduceat(double, starts)
        table.add_fields(rows[plain], fields[plain], num_zeros[plain], layout)
        alive = plain & (largest > 0)
        table.add_extremes(rows[alive], largest[alive].view(layout.value_type), smallest[alive].view(layout.value_type))
        for at in np.flatnonzero(~plain).tolist():
            self._add(table, *members[at])


class _Group:
    """Small arrays of one type, waiting to be counted together."""

    def __init__(self, layout: _Layout, block: Array) -> None:
        self.layout = layout
        self.block = block
        """Memory for all of them."""
        self.members: list[tuple[int, Array]] = []
        self.size = 0

    def has_room(self, size: int) -> bool:
        """Whether an array of so many elements fits in."""
        return self.size + size <= self.block.size and len(self.members) * self.layout.num_fields < MAX_GROUP_FIELDS

    def add(self, row: int, array: Array) -> None:
        self.members.append((row, array))
        self.size += array.size


class _Table:
    """What is being counted, one row per array."""

    def __init__(self, sizes: Sequence[int], layout: _Layout, *, num_more: int = 0) -> None:
        """
        Args:
            num_more: bins above those of the layout.
        """
        self._lowest = layout.lowest
        self._numbers, self._moments = np.zeros((5, len(sizes)), np.int64), np.zeros((4, len(sizes)))
        self._n, self._zeros, self._nan, self._pos_inf, self._neg_inf = self._numbers
        self.sum, self.sumsq, self._absmax, self._absmin = self._moments
        self._n += np.array(sizes, np.int64)
        self._absmin += np.inf
        self._counts = np.zeros((len(sizes), layout.num_bins + num_more), np.int64)

    @property
    def parts(self) -> tuple[int, Array, Array, Array]:
        """As the compiled helper takes them."""
        return self._lowest, self._counts, self._numbers, self._moments

    def count(self, helper: Any, arrays: Sequence[Array], divide_by: float) -> None:
        """Counts all arrays by the compiled helper; each is the row of its place."""
        # A view of whatever lies dense in memory, in any order of its axes.
        flat = [array if array.ndim == 1 and array.flags.c_contiguous else array.ravel(order="K") for array in arrays]
        helper.sketch(flat, divide_by, *self.parts)

    def add_fields(self, row: Any, fields: NDArray[np.int64], num_zeros: Any, layout: _Layout) -> None:
        """Counts per exponent field, of a row or of several different ones: those of normal numbers are bins."""
        first = layout.lowest + layout.mantissa_bits - self._lowest
        self._counts[row, first : first + layout.num_fields - 2] += fields[..., 1:-1]
        self._zeros[row] += num_zeros

    def add_subnormals(self, row: int, magnitude: Array, layout: _Layout) -> None:
        """Numbers whose exponent field is 0: their mantissa, a whole number, has the exponent."""
        mantissas = magnitude[(magnitude > 0) & (magnitude < 2 << layout.mantissa_bits)] >> 1
        exponents = np.frexp(mantissas.astype(np.float64))[1] - 1 + layout.lowest - self._lowest
        self._counts[row] += np.bincount(exponents, minlength=self._counts.shape[1])

    def add_nonfinite(self, row: int, block: Array) -> None:
        self._nan[row] += np.count_nonzero(np.isnan(block))
        self._pos_inf[row] += np.count_nonzero(block == np.inf)
        self._neg_inf[row] += np.count_nonzero(block == -np.inf)

    def add_extremes(self, row: Any, largest: Any, smallest: Any) -> None:
        self._absmax[row] = np.maximum(self._absmax[row], largest)
        self._absmin[row] = np.minimum(self._absmin[row], smallest)

    def sketch(self) -> Sketch:
        """Everything counted."""
        return Sketch(
            n=self._n, zeros=self._zeros, nan=self._nan, pos_inf=self._pos_inf, neg_inf=self._neg_inf,
            sum=self.sum, sumsq=self.sumsq, absmax=self._absmax, absmin_nonzero=self._absmin,
            lowest=self._lowest, counts=self._counts,
        )  # fmt: skip


@cache
def _half_table() -> NDArray[np.float32]:
    """Every FP16 number as float32, by its bits: several times as fast as a conversion without hardware for it."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
