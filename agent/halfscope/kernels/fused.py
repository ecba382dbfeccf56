"""All gradients of a device in one pass: where they lie, how they are cut into pieces, and the launches of the kernels.

Owns the tables that the kernels read, and remembers them: gradients of the same sizes at the same addresses, as most
steps have them, cost a look-up. Imports triton only when a device asks for kernels.
Invariant: waits for the device only in `prepare`; what it cannot take is refused, never guessed; and kernels whose
answer to an example was not NumPy's are not used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import torch

from halfscope.kernels import rows
from halfscope.sketch import ArraySketcher, Sketch

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
NAMES: Mapping[torch.dtype, str] = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "uint16"}
"""To what the kernels call them: of BF16 they take the bits. Wider ones have no kernel; FP8 is widened first."""
_dtype = attrgetter("dtype")
_NOTHING = nullcontext()
_Grid = tuple[int, int, int]

TABLES = 64
"""Of so many steps the addresses are kept: as many as the host may run ahead of the device."""
MAX_PLANS = 16
MAX_PIECE = 1 << 24
_ROWS = 16
_NORM_BLOCK = 128
_EXAMPLE_ELEMENTS = 5_000


class DoneEvent(Protocol):
    """The part of `torch.cuda.Event` that is used."""

    def record(self) -> Any: ...
    def query(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """How the work is cut."""

    squares_block: int = 4096
    squares_warps: int = 4
    sketch_block: int = 512
    sketch_warps: int = 4
    columns: int = 64
    num_pieces: int = 2048
    """About so many programs, some for each multiprocessor of any device; more where there are many small layers."""
    min_piece: int = 1 << 14


@dataclass(frozen=True, slots=True)
class _Group:
    """Gradients of one type: their pieces, and where in the scratch memory their programs write."""

    dtype: torch.dtype
    num_pieces: int
    pieces: torch.Tensor
    """Shape (pieces, 3): the tensor, the byte at which the piece begins, the number of its elements."""
    squares: torch.Tensor
    rows: torch.Tensor
    sums: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Plan:
    """Gradients of some sizes and types, cut into pieces; and memory that one stream's kernels hand to each other."""

    num_tensors: int
    groups: Sequence[_Group]
    bounds: torch.Tensor
    """Shape (tensors, 2): the first of a tensor's pieces, and the one behind the last."""
    squares: torch.Tensor
    rows: torch.Tensor
    sums: torch.Tensor


@dataclass(frozen=True, slots=True)
class Work:
    """Gradients that the kernels can take."""

    stream: int
    plan: _Plan
    addresses: torch.Tensor


class FusedPass:
    """The kernels of one device, and their tables."""

    def __init__(
        self,
        device: torch.device,
        kernels: Any,
        types: Mapping[torch.dtype, Any],
        *,
        tuning: Tuning | None = None,
        pinned: bool = True,
        address: Callable[[torch.Tensor], int] = torch.Tensor.data_ptr,
        stream: Callable[[], int] | None = None,
        make_event: Callable[[], DoneEvent] | None = None,
        here: Callable[[], AbstractContextManager[Any]] | None = None,
    ) -> None:
        """
        Args:
            kernels: has `squares`, `norms`, `sketches` and `tensors`, as `halfscope.kernels.triton_kernels` does.
            types: of each type of element that may be taken what the kernels call it.
            pinned: page-locked host memory; only copies from such are asynchronous.
            address: where a tensor's elements lie.
            stream: identifies the current stream.
            make_event: how it is known that a table has left the host.
            here: what kernels are launched in, for they run on the current device.
        """
        self.device = device
        self.types: dict[torch.dtype, Any] = {}
        """Those that are taken: they were tried."""
        self._kernels, self._untried = kernels, dict(types)
        self._tuning = tuning or Tuning()
        self._pinned, self._address = pinned, address
        self._stream = stream or (lambda: torch._C._cuda_getCurrentRawStream(device.index))
        self._make_event = make_event or torch.cuda.Event
        self._here = here or self._on_device
        self._plans: dict[Any, _Plan] = {}
        self._tables: dict[tuple[int, int], _Tables] = {}
        self._work: dict[Any, Work] = {}
        self._compiled: dict[tuple[str, torch.dtype | None, _Grid], Callable[..., Any]] = {}

    def prepare(self, parameters: Iterable[torch.Tensor], *, tried: bool = False) -> None:
        """Makes ready for gradients of these parameters: compiles and tries what their types need, and allocates.

        Waits for the device, unless they are taken as `tried`.

        Raises:
            RuntimeError: the kernels' answer to an example was wrong.
        """
        plain = [parameter for parameter in parameters if type(parameter) in _PLAIN]
        for dtype in {_read_as(parameter.dtype) for parameter in plain} & self._untried.keys():
            self.types[dtype] = self._untried.pop(dtype)
            problem = None if tried else self._tried(dtype)
            if problem is not None:
                del self.types[dtype]
                raise RuntimeError(problem)
        taken = [parameter for parameter in plain if parameter.dtype in self.types]
        if taken:
            stream = self._stream()
            with self._here():
                self._tables_for(stream, len(taken))
                self._plan(stream, tuple(map(torch.Tensor.numel, taken)), tuple(map(_dtype, taken)))

    def find(self, grads: Sequence[torch.Tensor]) -> Work | None:
        """The tables of some gradients, made and sent to the device if they are not there yet.

        Returns:
            None where one of them is not a plain dense tensor of a type that is taken, where some lie on another
            device, or where the host is so far ahead that no table is free.
        """
        try:
            if not (_PLAIN.issuperset(map(type, grads)) and all(map(torch.Tensor.is_contiguous, grads))):
                return None
            addresses = tuple(map(self._address, grads))
        except RuntimeError:
            return None  # a layout without strides, or without memory of its own
        key = self._stream(), addresses, tuple(map(torch.Tensor.numel, grads)), tuple(map(_dtype, grads))
        # Who lies at an address that was looked at lies where that was: one address space spans all devices.
        return self._work.get(key) or self._new(key, grads)

    def norms(self, work: Work, out: torch.Tensor) -> None:
        """Queues the L2 norm of each gradient, into a float64 vector on the device."""
        plan, tuning = work.plan, self._tuning
        with self._here():
            for group in plan.groups:
                self._launch(
                    work.stream, "squares", group.dtype, (group.num_pieces, 1, 1), tuning.squares_warps,
                    work.addresses, group.pieces, group.squares, self.types[group.dtype], tuning.squares_block,
                )  # fmt: skip
            self._launch(
                work.stream, "norms", None, (plan.num_tensors, 1, 1), 4, plan.squares, plan.bounds, out, _NORM_BLOCK
            )

    def sketch(self, work: Work, scale: torch.Tensor, out: torch.Tensor) -> None:
        """Queues a row of counts and moments for each gradient.

        Args:
            scale: what they are divided by; one float32.
            out: int64 on the device, of shape (gradients, ROW_WIDTH).
        """
        plan, tuning = work.plan, self._tuning
        grid = plan.num_tensors, -(-rows.NUM_COUNTS // tuning.columns) + 1, 1
        with self._here():
            for group in plan.groups:
                self._launch(
                    work.stream, "sketches", group.dtype, (group.num_pieces, 1, 1), tuning.sketch_warps,
                    work.addresses, group.pieces, scale, group.rows, group.sums,
                    self.types[group.dtype], tuning.sketch_block,
                )  # fmt: skip
            self._launch(
                work.stream, "tensors", None, grid, 4,
                plan.rows, plan.sums, plan.bounds, scale, out, out.view(torch.float64), _ROWS, tuning.columns,
            )  # fmt: skip

    def _launch(
        self, stream: int, name: str, dtype: torch.dtype | None, grid: _Grid, num_warps: int, *arguments: Any
    ) -> None:
        """Runs a kernel. What was compiled at its first launch is called at once: what Triton does to find that again
        takes several times as long as the launch, and nothing but the type that is read makes a difference here."""
        key = name, dtype, grid
        compiled = self._compiled.get(key)
        if compiled is not None:
            compiled(*arguments, stream=stream)
            return
        made = getattr(self._kernels, name)[grid](*arguments, num_warps=num_warps)
        # The interpreter compiles nothing; and for AMD's devices a kernel depends on more than it is given here.
        if hasattr(made, "__getitem__") and torch.version.hip is None:
            self._compiled[key] = made[grid]

    def _on_device(self) -> AbstractContextManager[Any]:
        return _NOTHING if torch.cuda.current_device() == self.device.index else torch.cuda.device(self.device)

    def _new(
        self,
        key: tuple[int, tuple[int, ...], tuple[int, ...], tuple[torch.dtype, ...]],
        grads: Sequence[torch.Tensor],
    ) -> Work | None:
        stream, addresses, sizes, dtypes = key
        if not addresses or not self.types.keys() >= set(dtypes):
            return None
        if any(grad.device != self.device for grad in grads):
            return None
        with self._here():
            plan = self._plan(stream, sizes, dtypes)
            placed = self._tables_for(stream, len(addresses)).place(addresses, key)
        if placed is None:
            return None
        table, former = placed
        self._work.pop(former, None)
        work = self._work[key] = Work(stream, plan, table)
        return work

    def _tables_for(self, stream: int, num_tensors: int) -> _Tables:
        width = 1 << (num_tensors - 1).bit_length()
        found = self._tables.get((stream, width))
        if found is None:
            found = self._tables[stream, width] = _Tables(self.device, width, self._pinned, self._make_event)
        return found

    def _plan(self, stream: int, sizes: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> _Plan:
        plan = self._plans.get((stream, sizes, dtypes))
        if plan is None:
            if len(self._plans) >= MAX_PLANS:
                # A training that has ever other gradients: what was kept for it is of no use.
                self._plans.clear()
                self._work.clear()
                self._compiled.clear()
            plan = self._plans[stream, sizes, dtypes] = self._cut(sizes, dtypes)
        return plan

    def _cut(self, sizes: Sequence[int], dtypes: Sequence[torch.dtype]) -> _Plan:
        longest = max(self._tuning.min_piece, sum(sizes) // self._tuning.num_pieces)
        longest = min(1 << (longest - 1).bit_length(), MAX_PIECE)
        pieces: list[tuple[int, int, int]] = []
        bounds = np.zeros((len(sizes), 2), np.int64)
        edges: list[tuple[torch.dtype, int, int]] = []
        for dtype in dict.fromkeys(dtypes):
            first = len(pieces)
            for at, size in enumerate(sizes):
                if dtypes[at] is not dtype:
                    continue
                bounds[at, 0] = len(pieces)
                pieces += [
                    (at, begin * dtype.itemsize, min(longest, size - begin)) for begin in range(0, size, longest)
                ]
                bounds[at, 1] = len(pieces)
            if len(pieces) > first:
                edges.append((dtype, first, len(pieces)))
        num = max(len(pieces), 1)
        squares = torch.empty(num, dtype=torch.float64, device=self.device)
        counts = torch.empty((num, self._kernels.PIECE_WIDTH), dtype=torch.int32, device=self.device)
        sums = torch.empty((num, 2), dtype=torch.float64, device=self.device)
        table = self._sent(np.array(pieces, np.int64).reshape(-1, 3))
        return _Plan(
            len(sizes),
            [
                _Group(dtype, end - at, *(each.narrow(0, at, end - at) for each in (table, squares, counts, sums)))
                for dtype, at, end in edges
            ],
            self._sent(bounds), squares, counts, sums,
        )  # fmt: skip

    def _sent(self, values: Any) -> torch.Tensor:
        host = torch.empty(values.shape, dtype=torch.int64, pin_memory=self._pinned)
        host.copy_(torch.from_numpy(values))
        return host.to(self.device, non_blocking=True)

    # ---- trying ---------------------------------------------------------------------------------

    def _tried(self, dtype: torch.dtype) -> str | None:
        """What is wrong with the kernels' answer to an example of a type; None where it is right."""
        arrays, tensors = _example(dtype, self.device)
        work = self.find(tensors)
        if work is None:
            return f"an example of {dtype} was not taken; expected tables for {len(tensors)} tensors"
        norms = torch.empty(len(tensors), dtype=torch.float64, device=self.device)
        out = torch.empty((len(tensors), rows.ROW_WIDTH), dtype=torch.int64, device=self.device)
        for _ in range(2):  # the first launch compiles; what counts is how all others go
            norms.fill_(-1.0)
            out.fill_(-1)
            self.norms(work, norms)
            self.sketch(work, torch.full((), 3.0, device=self.device), out)
        sketches = rows.decode(out.cpu().numpy())
        expected = ArraySketcher()(arrays, 3.0)
        with np.errstate(invalid="ignore"):
            wide = [_as_double(array) for array in arrays]
            lengths = [float(np.sqrt(np.sum(values * values))) for values in wide]
        if not np.allclose(norms.cpu().numpy(), lengths, rtol=1e-9, atol=0.0, equal_nan=True):
            return f"norms of an example of {dtype} are {norms.tolist()}; expected {lengths}"
        wrong = ["all"] if sketches is None else _differences(sketches.trimmed(), expected.trimmed())
        return f"the sketch of an example of {dtype} differs in {', '.join(wrong)}" if wrong else None


class _Tables:
    """Where the gradients of recent steps lie, for kernels of one stream."""

    def __init__(self, device: torch.device, width: int, pinned: bool, make_event: Callable[[], DoneEvent]) -> None:
        self._host = torch.zeros(TABLES, width, dtype=torch.int64, pin_memory=pinned).unbind(0)
        self._device = torch.zeros(TABLES, width, dtype=torch.int64, device=device).unbind(0)
        self._make_event = make_event
        self._gone: list[DoneEvent | None] = [None] * TABLES
        self._keys: list[Any] = [None] * TABLES
        self._next = 0

    def place(self, addresses: Sequence[int], key: Any) -> tuple[torch.Tensor, Any] | None:
        """Sends addresses to the device; the table there, and the key of what was in it. None where none is free."""
        at = self._next
        gone = self._gone[at]
        if gone is not None and not gone.query():
            return None
        self._next = (at + 1) % TABLES
        count = len(addresses)
        host = self._host[at].narrow(0, 0, count)
        host.copy_(torch.tensor(addresses, dtype=torch.int64))
        table = self._device[at]
        torch.ops.aten.copy_.default(table.narrow(0, 0, count), host, True)
        event = self._gone[at] = self._make_event()
        event.record()
        former, self._keys[at] = self._keys[at], key
        return table, former


def load(device: torch.device, tuning: Tuning | None = None) -> FusedPass:
    """The kernels of a CUDA device.

    Raises:
        ImportError: there is no triton.
    """
    language = importlib.import_module("triton.language")
    kernels = importlib.import_module("halfscope.kernels.triton_kernels")
    return FusedPass(device, kernels, {dtype: getattr(language, name) for dtype, name in NAMES.items()}, tuning=tuning)


def _read_as(dtype: torch.dtype) -> torch.dtype:
    """The type in which gradients of a type are handed over: FP8 is widened, complex numbers are taken apart."""
    if dtype.is_floating_point:
        return torch.float32 if dtype.itemsize == 1 else dtype
    return torch.float32 if dtype is torch.complex64 else dtype


def _example(dtype: torch.dtype, device: torch.device) -> tuple[list[Any], list[torch.Tensor]]:
    """Numbers of every kind, as NumPy has them (BF16 as bits) and on a device: none at all, all bit patterns mixed, and
    finite ones that begin off a multiple of 16 bytes."""
    bits: Any = np.uint32 if dtype is torch.float32 else np.uint16
    of_bits = {torch.float32: np.float32, torch.float16: np.float16, torch.bfloat16: np.uint16}[dtype]
    infinity = {torch.float32: 0x7F800000, torch.float16: 0x7C00, torch.bfloat16: 0x7F80}[dtype]
    mixed = np.random.default_rng(0).integers(0, np.iinfo(bits).max, _EXAMPLE_ELEMENTS, dtype=bits, endpoint=True)
    sign = bits(1 << (bits(0).itemsize * 8 - 1))
    special = np.array([0, 1, infinity - 1, infinity, infinity + 1, np.iinfo(bits).max >> 1], bits)
    mixed[: special.size] = special
    mixed[special.size : 2 * special.size] = special | sign
    finite = mixed[(mixed & ~sign) < infinity]
    chosen = [finite[:0], mixed, finite]
    signed: Any = np.int32 if dtype is torch.float32 else np.int16
    on_device = [torch.from_numpy(values.view(signed)).to(device).view(dtype) for values in chosen]
    on_device[2] = torch.cat([on_device[2][:1], on_device[2]])[1:]
    return [values.view(of_bits) for values in chosen], on_device


def _as_double(array: Any) -> Any:
    if array.dtype == np.uint16:  # BF16: the upper half of a float32
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def _differences(one: Sketch, other: Sketch) -> list[str]:
    """Fields in which two stacks differ: counts and extremes at all, sums by more than rounding."""
    if one.lowest != other.lowest or one.counts.shape != other.counts.shape:
        return ["bins"]
    exact = ("n", "zeros", "nan", "pos_inf", "neg_inf", "counts", "absmax", "absmin_nonzero")
    wrong = [name for name in exact if not np.array_equal(getattr(one, name), getattr(other, name))]
    if not np.allclose(one.sumsq, other.sumsq, rtol=1e-9, atol=0.0):
        wrong.append("sumsq")
    if not (np.abs(one.sum - other.sum) <= 1e-9 * np.sqrt(other.n * other.sumsq)).all():
        wrong.append("sum")
    return wrong
