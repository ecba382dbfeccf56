"""Exponent sketches of gradients by stock torch operations, for devices without kernels of ours, and for float64.

Some twenty launches for each large tensor and for each group of small ones, over float64 copies of a chunk at a time.
No threads, no I/O. Invariant: what cannot be sketched is left out, never made up; nothing here waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from halfscope.probes import stored
from halfscope.probes.sketches import Measured, with_zeros
from halfscope.probes.stored import chunks, problem_of, stored_elements
from halfscope.sketch import Sketch

GROUP_ELEMENTS = 1 << 16
"""Smaller tensors than this are counted together: twenty kernels for each would cost more than what they do."""
GROUP_LAYERS = 256


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where one gradient's counts lie: rows of a frame that add up to it."""

    position: int
    first: int
    count: int
    num_implicit: int


class StockCounter:
    """Counts the gradients of some layers into rows of float64."""

    dtype = torch.float64

    def __init__(self, device: torch.device, num_elements: Sequence[int], has_double: bool) -> None:
        """
        Args:
            num_elements: of each layer that may be counted, by its number.
            has_double: there are float64 gradients among them, whose exponents reach further.
        """
        self.device = device
        self._num_elements = list(num_elements)
        self._coder = _Coder(-1100, 1100) if has_double else _Coder(-190, 150)
        self._has_double = has_double
        self._groups, self._place = _grouped(num_elements)
        self._num_grouped = sum(len(group) for group in self._groups)
        num_pieces = sum(-(-size // stored.CHUNK_ELEMENTS) for size in num_elements if size > GROUP_ELEMENTS)
        self.shape = self._num_grouped + num_pieces, self._coder.width + 4
        self._index: dict[int, torch.Tensor] = {}

    def count(
        self,
        target: torch.Tensor,
        grads: Sequence[torch.Tensor],
        slots: Sequence[int],
        divide_by: torch.Tensor | None,
    ) -> tuple[int, Sequence[_Rows]] | None:
        """Queues counts; how many rows hold some, and whose. None where nothing can be counted."""
        with _any_order():
            rows = self._count(target, grads, slots, divide_by)
        return (max(row.first + row.count for row in rows), rows) if rows else None

    def read(self, values: np.ndarray[Any, Any], rows: Sequence[_Rows]) -> Measured:
        """The sketches that rows hold."""
        stacks = [self._coder.decode(values[row.first : row.first + row.count]) for row in rows]
        fields = {name: np.array([stack[name] for stack in stacks]) for name in stacks[0]}
        sketches = Sketch(**fields, n=np.zeros(len(rows), np.int64), lowest=self._coder.lowest)
        implicit = np.array([row.num_implicit for row in rows], np.int64)
        return Measured([row.position for row in rows], with_zeros(sketches, implicit))

    def _count(
        self,
        target: torch.Tensor,
        grads: Sequence[torch.Tensor],
        slots: Sequence[int],
        divide_by: torch.Tensor | None,
    ) -> list[_Rows]:
        rows: list[_Rows] = []
        small: dict[int, list[tuple[int, torch.Tensor]]] = {}
        next_row = self._num_grouped
        for position, (grad, slot) in enumerate(zip(grads, slots, strict=True)):
            plain = self._plain(grad, slot)
            if plain is None:
                continue
            values, num_implicit = plain
            place = self._place.get(slot)
            if place is not None:
                small.setdefault(place[0], []).append((slot, values))
                rows.append(_Rows(position, place[1], 1, num_implicit))
                continue
            first = next_row
            for part in chunks(values):
                _put(target.narrow(0, next_row, 1), self._coder.count(_double(part, divide_by)).unsqueeze(0))
                next_row += 1
            rows.append(_Rows(position, first, next_row - first, num_implicit))
        for group, members in small.items():
            self._count_group(target, group, members, divide_by)
        return rows

    def _count_group(
        self,
        target: torch.Tensor,
        group: int,
        members: Sequence[tuple[int, torch.Tensor]],
        divide_by: torch.Tensor | None,
    ) -> None:
        first = self._place[self._groups[group][0]][1]
        size = len(self._groups[group])
        # One dtype before they are joined: FP8 is not promoted with others.
        wide = [value.float() if value.element_size() == 1 else value for _, value in members]
        values = _double(torch.cat([value.reshape(-1) for value in wide]), divide_by)
        index = torch.cat([self._place_index(slot, value.numel()) for slot, value in members])
        _put(target.narrow(0, first, size), self._coder.count_several(values, index, size))

    def _place_index(self, slot: int, count: int) -> torch.Tensor:
        """A layer's place in its group, once for each of its elements."""
        index = self._index.get(slot)
        if index is None:
            group, row = self._place[slot]
            place = row - self._place[self._groups[group][0]][1]
            size = self._num_elements[slot]
            index = self._index[slot] = torch.full((size,), place, dtype=torch.int64, device=self.device)
        return index.narrow(0, 0, count)

    def _plain(self, grad: torch.Tensor, slot: int) -> tuple[torch.Tensor, int] | None:
        if problem_of(grad) is not None:
            return None
        plain = stored_elements(grad, may_wait=False)
        if plain is None or plain[0].device != self.device or plain[0].numel() > self._num_elements[slot]:
            return None
        return None if plain[0].dtype is torch.float64 and not self._has_double else plain


class _Coder:
    """Elements as small whole numbers: one for each exponent, and one for each kind that has none."""

    def __init__(self, lowest: int, highest: int) -> None:
        self.lowest = lowest
        self._highest = highest
        self._zero, self._nan, self._pos_inf, self._neg_inf = range(highest + 1, highest + 5)
        self.width = highest + 5 - lowest

    def count(self, values: torch.Tensor) -> torch.Tensor:
        """A row: counts, and the four moments. Changes `values`, which are float64."""
        counts = torch.histc(self._codes(values), self.width, self.lowest - 0.5, self.lowest - 0.5 + self.width)
        finite = values.nan_to_num_(0.0, 0.0, 0.0)
        norm = torch.linalg.vector_norm(finite)
        magnitude = finite.abs()
        smallest = magnitude.masked_fill(finite == 0, math.inf).amin()
        return torch.cat([counts.double(), torch.stack([finite.sum(), norm * norm, magnitude.amax(), smallest])])

    def count_several(self, values: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
        """The same for several tensors that lie one after another, `index` saying which element is whose."""
        codes = self._codes(values).add_(index * self.width)
        edge = self.lowest - 0.5
        counts = torch.histc(codes, self.width * size, edge, edge + self.width * size).view(size, self.width)
        finite = values.nan_to_num_(0.0, 0.0, 0.0)
        magnitude = finite.abs()
        nothing = counts.new_zeros(size, dtype=torch.float64)
        moments = [
            nothing.index_add(0, index, finite),
            nothing.index_add(0, index, finite.square()),
            nothing.scatter_reduce(0, index, magnitude, "amax"),
            torch.full_like(nothing, math.inf).scatter_reduce(
                0, index, magnitude.masked_fill(finite == 0, math.inf), "amin"
            ),
        ]
        return torch.cat([counts.double(), torch.stack(moments, 1)], 1)

    def decode(self, rows: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
        """Fields of the sketch that some rows add up to."""
        counts = rows[:, : self.width].astype(np.int64).sum(axis=0)
        num_bins = self._highest + 1 - self.lowest
        zeros, nan, pos_inf, neg_inf = counts[num_bins:]
        return {
            "counts": counts[:num_bins],
            "zeros": zeros,
            "nan": nan,
            "pos_inf": pos_inf,
            "neg_inf": neg_inf,
            "sum": rows[:, self.width].sum(),
            "sumsq": rows[:, self.width + 1].sum(),
            "absmax": rows[:, self.width + 2].max(initial=0.0),
            "absmin_nonzero": rows[:, self.width + 3].min(initial=np.inf),
        }

    def _codes(self, values: torch.Tensor) -> torch.Tensor:
        exponents = torch.frexp(values).exponent
        codes = exponents.to(torch.float32).sub_(1).clamp_(self.lowest, self._highest)
        codes.masked_fill_(values == 0, self._zero)
        codes.masked_fill_(values.isnan(), self._nan)
        codes.masked_fill_(values == math.inf, self._pos_inf)
        return codes.masked_fill_(values == -math.inf, self._neg_inf)


def _grouped(num_elements: Sequence[int]) -> tuple[list[list[int]], dict[int, tuple[int, int]]]:
    """Groups of small layers; and of each such layer its group and its row."""
    groups: list[list[int]] = []
    place: dict[int, tuple[int, int]] = {}
    in_group = 0
    for slot, size in enumerate(num_elements):
        if size > GROUP_ELEMENTS:
            continue
        if not groups or len(groups[-1]) == GROUP_LAYERS or in_group + size > stored.CHUNK_ELEMENTS:
            groups.append([])
            in_group = 0
        place[slot] = (len(groups) - 1, len(place))
        groups[-1].append(slot)
        in_group += size
    return groups, place


def _put(target: torch.Tensor, rows: torch.Tensor) -> None:
    torch._foreach_copy_([target], [rows])  # `copy_` has no meta kernel between devices that are only named


def _double(values: torch.Tensor, divide_by: torch.Tensor | None) -> torch.Tensor:
    """As float64 of its own memory, divided."""
    double = values.to(torch.float64, copy=True)
    return double if divide_by is None else double.div_(divide_by)


@contextmanager
def _any_order() -> Iterator[None]:
    """Counts do not depend on the order in which they are added up, whatever the training asked of its own
    operations."""
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    if not was_deterministic:
        yield
        return
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_deterministic, warn_only=warn_only)
