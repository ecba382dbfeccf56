"""Exponent sketches of tensors: of one that a user hands over, and of all gradients of an optimizer during training.

Two ways to the same counts. In host memory NumPy looks at the very bytes of the tensor; on a device stock torch
operations queue counts into rows that were allocated before, and nothing is read until they have arrived. Neither
changes a tensor or the state of autograd. No threads, no I/O.
Invariant: what cannot be sketched is left out, never made up; and nothing on the device path waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from halfscope.sketch import ArraySketcher, Sketch, merge

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_ELEMENTS = 1 << 21
"""Of a large tensor on a device: its temporaries take some 80 MiB. Far below 2^24, where float32 stops counting."""
GROUP_ELEMENTS = 1 << 16
"""Smaller tensors than this are counted together: twenty kernels for each would cost more than what they do."""
GROUP_LAYERS = 256


_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_DIRECT = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


class Measured(NamedTuple):
    """Sketches of some of the tensors that were given."""

    positions: Sequence[int]
    """Which ones."""
    sketches: Sketch
    """A stack of shape (len(positions),)."""


class DoneEvent(Protocol):
    """The part of `torch.cuda.Event` that is used."""

    def query(self) -> bool: ...
    def synchronize(self) -> Any: ...


def sketch_of(tensor: torch.Tensor) -> Sketch:
    """The exponent sketch of a tensor: its elements per power of two, zeros, NaN, infinities, and moments.

    FP16, BF16 and FP8 are counted at their exact values. Of a sparse tensor n and zeros include the elements that are
    not stored; of a complex one real and imaginary parts count as elements each; of a DTensor this rank's shard is
    sketched. A tensor on a device is copied to the host, which waits for the device.

    Raises:
        TypeError: not a tensor, or one that holds no floating-point numbers.
        ValueError: a tensor without values (on the meta device).
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"sketch_of was given {type(tensor).__name__}; expected a torch.Tensor "
            "(for a NumPy array: halfscope.sketch.of_array)"
        )
    problem = _problem(tensor)
    if problem is not None:
        raise problem
    with _no_grad():
        plain = _stored(tensor, may_wait=True)
        assert plain is not None
        stored, num_implicit = plain
        sketcher, sketch = ArraySketcher(), Sketch.empty()
        # From a device a chunk at a time: the host may have less memory to spare.
        for part in (stored,) if stored.is_cpu else _chunks(stored):
            sketch = merge([sketch, sketcher([_array(part.cpu())])[0].trimmed()])
    return _with_zeros(sketch, np.asarray(num_implicit))


class HostSketcher:
    """Gradients in host memory."""

    def __init__(self) -> None:
        self._sketcher = ArraySketcher()

    def measure(self, grads: Sequence[torch.Tensor], divide_by: float = 1.0) -> Measured | None:
        """Sketches of the gradients, divided by a loss scale; None where there is nothing to sketch."""
        if not 0 < divide_by < math.inf:
            return None
        positions: list[int] = []
        arrays: list[Any] = []
        implicit: list[int] = []
        with _no_grad():
            for at, grad in enumerate(grads):
                if type(grad) in _PLAIN and grad.dtype in _DIRECT and grad.is_cpu and grad.layout is torch.strided:
                    # What nearly every gradient is: at a small model each call shows.
                    positions.append(at)
                    arrays.append(_array(grad.detach() if grad.requires_grad else grad))
                    implicit.append(0)
                    continue
                plain = _stored(grad, may_wait=True) if _problem(grad) is None else None
                if plain is not None and plain[0].is_cpu:
                    positions.append(at)
                    arrays.append(_array(plain[0]))
                    implicit.append(plain[1])
        if not positions:
            return None
        sketches = self._sketcher(arrays, divide_by)
        return Measured(positions, _with_zeros(sketches, np.array(implicit)) if any(implicit) else sketches)


# ---- on a device ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where one gradient's counts lie: rows of a frame that add up to it."""

    position: int
    first: int
    count: int
    num_implicit: int


@dataclass(frozen=True, slots=True)
class SketchFlight:
    """A frame on its way to the host."""

    sketcher: DeviceSketcher
    frame: int
    rows: Sequence[_Rows]
    event: DoneEvent

    def read(self) -> Measured:
        """The sketches; only after the event is done, and before `land`."""
        return self.sketcher.read(self.frame, self.rows)

    def land(self) -> None:
        """Frees the frame for another step."""
        self.sketcher.free(self.frame)


class DeviceSketcher:
    """Gradients on one device. Everything that it keeps is allocated at the start."""

    def __init__(
        self,
        device: torch.device,
        num_elements: Sequence[int],
        *,
        has_double: bool = False,
        depth: int = 4,
        pinned: bool = True,
        make_event: Callable[[], DoneEvent] | None = None,
        capturing: Callable[[], bool] | None = None,
    ) -> None:
        """
        Args:
            num_elements: of each layer that may be sketched here, by its number (`slots` of `capture`).
            has_double: there are float64 gradients among them, whose exponents reach further.
            depth: how many frames may be on their way at once; further ones are left out.
            pinned: page-locked host memory; only such copies are asynchronous.
            make_event: makes and records what tells that a frame has arrived; by default a CUDA event.
            capturing: whether a CUDA graph is being captured on the current stream.
        """
        self.device = device
        self._num_elements = list(num_elements)
        self._coder = _Coder(-1100, 1100) if has_double else _Coder(-190, 150)
        self._has_double = has_double
        self._groups, self._place = _grouped(num_elements)
        self._num_grouped = sum(len(group) for group in self._groups)
        num_pieces = sum(-(-size // CHUNK_ELEMENTS) for size in num_elements if size > GROUP_ELEMENTS)
        shape = (depth, self._num_grouped + num_pieces, self._coder.width + 4)
        self._device_rows = torch.zeros(shape, dtype=torch.float64, device=device).unbind(0)
        self._host_rows = torch.zeros(shape, dtype=torch.float64, pin_memory=pinned).unbind(0)
        self._index: dict[int, torch.Tensor] = {}
        self._free = list(range(depth))
        self._make_event = make_event or self._record_event
        self._capturing = capturing or torch.cuda.is_current_stream_capturing
        self.num_dropped = 0
        """Sketches left out because earlier ones have not arrived yet, or a graph was being captured."""

    def capture(
        self, grads: Sequence[torch.Tensor], slots: Sequence[int], divide_by: torch.Tensor | None = None
    ) -> SketchFlight | None:
        """Queues the sketches of some gradients; launches kernels and reads nothing.

        Args:
            slots: the number of each gradient's layer, all different.
            divide_by: the loss scale still on them, on the same device.
        """
        if self._capturing() or not self._free or (divide_by is not None and divide_by.device != self.device):
            self.num_dropped += len(grads)
            return None
        frame = self._free.pop()
        try:
            with _no_grad(), _any_order():
                rows = self._count(self._device_rows[frame], grads, slots, divide_by)
                used = max((row.first + row.count for row in rows), default=0)
                if used:
                    target = self._host_rows[frame].narrow(0, 0, used)
                    target.copy_(self._device_rows[frame].narrow(0, 0, used), non_blocking=True)
        except BaseException:
            self._free.append(frame)
            raise
        if not rows:
            self._free.append(frame)
            return None
        return SketchFlight(self, frame, rows, self._make_event())

    def read(self, frame: int, rows: Sequence[_Rows]) -> Measured:
        """What `SketchFlight.read` gives."""
        values = self._host_rows[frame].numpy()
        stacks = [self._coder.decode(values[row.first : row.first + row.count]) for row in rows]
        fields = {name: np.array([stack[name] for stack in stacks]) for name in stacks[0]}
        sketches = Sketch(**fields, n=np.zeros(len(rows), np.int64), lowest=self._coder.lowest)
        implicit = np.array([row.num_implicit for row in rows], np.int64)
        return Measured([row.position for row in rows], _with_zeros(sketches, implicit))

    def free(self, frame: int) -> None:
        """A frame has been read."""
        self._free.append(frame)

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
            stored, num_implicit = plain
            place = self._place.get(slot)
            if place is not None:
                small.setdefault(place[0], []).append((slot, stored))
                rows.append(_Rows(position, place[1], 1, num_implicit))
                continue
            first = next_row
            for part in _chunks(stored):
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
        if _problem(grad) is not None:
            return None
        plain = _stored(grad, may_wait=False)
        if plain is None or plain[0].device != self.device or plain[0].numel() > self._num_elements[slot]:
            return None
        return None if plain[0].dtype is torch.float64 and not self._has_double else plain

    def _record_event(self) -> DoneEvent:
        event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event


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
        if not groups or len(groups[-1]) == GROUP_LAYERS or in_group + size > CHUNK_ELEMENTS:
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


# ---- both ---------------------------------------------------------------------------------------------


def num_stored(parameter: torch.Tensor) -> int:
    """How many numbers a dense gradient of a parameter holds here: of a DTensor those of this rank's shard."""
    local = getattr(parameter, "to_local", None)
    tensor = parameter if local is None else local()
    return int(tensor.numel()) * (2 if tensor.is_complex() else 1)


def _problem(tensor: torch.Tensor) -> Exception | None:
    """Why a tensor has no sketch; None where it has one."""
    if tensor.is_quantized:
        return TypeError("a quantised tensor has no floating-point elements; expected sketch_of(tensor.dequantize())")
    if not (tensor.is_floating_point() or tensor.is_complex()) or "float4" in str(tensor.dtype):
        return TypeError(
            f"a tensor of {tensor.dtype}; expected a floating-point or complex one, as tensor.float() gives"
        )
    if tensor.is_nested:
        return TypeError("a nested tensor; expected one of its parts, as tensor.unbind() gives")
    if tensor.device.type == "meta":
        return ValueError("a tensor on the meta device has no values; expected one on the CPU or on a device")
    return None


def _stored(tensor: torch.Tensor, *, may_wait: bool) -> tuple[torch.Tensor, int] | None:
    """The stored elements as a flat real dense tensor, and how many zeros are not stored; None where that cannot be
    had (without waiting for a device)."""
    local = getattr(tensor, "to_local", None)
    if local is not None:
        tensor = local()  # this rank's shard: the whole would be a collective
    num_all = tensor.numel()
    if tensor.layout is torch.sparse_coo:
        if not tensor.is_coalesced():
            if not tensor.is_cpu and not may_wait:
                return None  # coalescing counts duplicates on the host
            tensor = tensor.coalesce()
        tensor = tensor._values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        tensor = tensor.values()
    elif tensor.layout is not torch.strided:
        return None
    num_implicit = num_all - tensor.numel()
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
        num_implicit *= 2
    return _flat(tensor.resolve_neg()), num_implicit


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in any order: a view where they lie dense in memory, whatever the order of dimensions."""
    if not tensor.is_contiguous():
        strides = tensor.stride()
        tensor = tensor.permute(sorted(range(tensor.dim()), key=strides.__getitem__, reverse=True))
    return tensor.reshape(-1)


def _chunks(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    for start in range(0, flat.numel(), CHUNK_ELEMENTS):
        yield flat.narrow(0, start, min(CHUNK_ELEMENTS, flat.numel() - start))


def _array(tensor: torch.Tensor) -> Any:
    """A tensor in host memory as `ArraySketcher` takes it; a view but of FP8."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.element_size() == 1:
        tensor = tensor.float()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def _with_zeros(sketch: Sketch, num_implicit: Any) -> Sketch:
    """With zeros that were not stored, and all of them in n."""
    zeros = sketch.zeros + num_implicit
    n = zeros + sketch.nonfinite + sketch.nonzero
    return Sketch(
        n=n, zeros=zeros, nan=sketch.nan, pos_inf=sketch.pos_inf, neg_inf=sketch.neg_inf, sum=sketch.sum,
        sumsq=sketch.sumsq, absmax=sketch.absmax, absmin_nonzero=sketch.absmin_nonzero, lowest=sketch.lowest,
        counts=sketch.counts,
    )  # fmt: skip


@contextmanager
def _no_grad() -> Iterator[None]:
    """A gradient made with create_graph=True has a graph of its own, which must not grow by our reading."""
    was_enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        yield
    finally:
        torch._C._set_grad_enabled(was_enabled)


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
