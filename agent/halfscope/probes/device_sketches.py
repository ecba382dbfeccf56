"""Exponent sketches of all gradients on a device, queued on the training stream and read when they have arrived.

Two ways to the same counts: kernels that look at every gradient once, and, where those are not to be had, stock torch
operations. They fill the rows of frames that were allocated before. No threads, no I/O.
Invariant: what cannot be sketched is left out, never made up; and nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from halfscope.kernels import rows as layout
from halfscope.kernels.events import ArrivalEvent
from halfscope.kernels.fused import FusedPass
from halfscope.probes.sketches import Measured, with_zeros
from halfscope.probes.stock_sketches import StockCounter
from halfscope.probes.stored import no_grad, problem_of, stored_elements
from halfscope.sketch import Sketch

_NARROW = frozenset({torch.float16, torch.bfloat16, torch.float32})


class DoneEvent(Protocol):
    """The part of `torch.cuda.Event` that is used."""

    def query(self) -> bool: ...
    def synchronize(self) -> Any: ...


class Counter(Protocol):
    """A way to count gradients into rows on the device."""

    dtype: torch.dtype
    shape: tuple[int, int]
    """Rows that a frame needs, and their width."""

    def count(
        self,
        target: torch.Tensor,
        grads: Sequence[torch.Tensor],
        slots: Sequence[int],
        divide_by: torch.Tensor | None,
    ) -> tuple[int, Any] | None:
        """Queues counts; how many rows hold some, and what `read` needs to know. None where nothing can be counted."""

    def read(self, values: np.ndarray[Any, Any], counted: Any) -> Measured:
        """The sketches that rows hold, on the host."""


@dataclass(frozen=True, slots=True)
class SketchFlight:
    """A frame on its way to the host."""

    sketcher: DeviceSketcher
    frame: int
    num_rows: int
    counted: Any
    event: DoneEvent

    def read(self) -> Measured:
        """The sketches; only after the event is done, and before `land`."""
        return self.sketcher.read(self.frame, self.num_rows, self.counted)

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
        fused: FusedPass | None = None,
        depth: int = 4,
        pinned: bool = True,
        make_event: Callable[[], DoneEvent] | None = None,
        capturing: Callable[[], bool] | None = None,
    ) -> None:
        """
        Args:
            num_elements: of each layer that may be sketched here, by its number (`slots` of `capture`).
            has_double: there are float64 gradients among them, whose exponents reach further.
            fused: kernels that were prepared for the layers' types; None: stock operations.
            depth: how many frames may be on their way at once; further ones are left out.
            pinned: page-locked host memory; only such copies are asynchronous.
            make_event: makes and records what tells that a frame has arrived; by default a CUDA event.
            capturing: whether a CUDA graph is being captured on the current stream.
        """
        self.device = device
        self.counter: Counter = (
            StockCounter(device, num_elements, has_double)
            if fused is None or has_double
            else FusedCounter(fused, len(num_elements))
        )
        shape, dtype = (depth, *self.counter.shape), self.counter.dtype
        self._device_rows = torch.zeros(shape, dtype=dtype, device=device).unbind(0)
        self._host_rows = torch.zeros(shape, dtype=dtype, pin_memory=pinned).unbind(0)
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
            with no_grad():
                found = self.counter.count(self._device_rows[frame], grads, slots, divide_by)
                if found is not None:
                    target = self._host_rows[frame].narrow(0, 0, found[0])
                    target.copy_(self._device_rows[frame].narrow(0, 0, found[0]), non_blocking=True)
        except BaseException:
            self._free.append(frame)
            raise
        if found is None:
            self._free.append(frame)
            return None
        return SketchFlight(self, frame, *found, self._make_event())

    def read(self, frame: int, num_rows: int, counted: Any) -> Measured:
        """What `SketchFlight.read` gives."""
        return self.counter.read(self._host_rows[frame].numpy()[:num_rows], counted)

    def free(self, frame: int) -> None:
        """A frame has been read."""
        self._free.append(frame)

    def _record_event(self) -> DoneEvent:
        event = ArrivalEvent(self.device)
        event.record()
        return event


class FusedCounter:
    """Counts gradients by the kernels: one row of int64 for each."""

    dtype = torch.int64

    def __init__(self, fused: FusedPass, num_layers: int) -> None:
        self._fused = fused
        self.shape = num_layers, layout.ROW_WIDTH
        self._one = torch.ones((), device=fused.device)

    def count(
        self,
        target: torch.Tensor,
        grads: Sequence[torch.Tensor],
        slots: Sequence[int],
        divide_by: torch.Tensor | None,
    ) -> tuple[int, tuple[Sequence[int], Sequence[int]]] | None:
        """Queues counts; rows, and of each its position and how many zeros were not stored."""
        positions: Sequence[int] = range(len(grads))
        implicit: Sequence[int] = ()
        # A lazily negated tensor's memory holds the numbers before that.
        work = None if any(map(torch.Tensor.is_neg, grads)) else self._fused.find(grads)
        if work is None:
            # Kept until the kernels are queued: among them may be copies, whose memory is given to others after that.
            plain, positions, implicit = self._as_plain(grads)
            work = self._fused.find(plain)
        scale = self._one if divide_by is None else divide_by
        if work is None or scale.dtype not in _NARROW or scale.numel() != 1 or len(positions) > self.shape[0]:
            return None
        self._fused.sketch(work, scale.float(), target)
        return len(positions), (positions, implicit)

    def read(self, values: np.ndarray[Any, Any], counted: tuple[Sequence[int], Sequence[int]]) -> Measured:
        """The sketches that rows hold; none where their scale was no number to divide by."""
        positions, implicit = counted
        sketches = layout.decode(values)
        if sketches is None:
            return Measured([], Sketch.empty((0,)))
        return Measured(positions, with_zeros(sketches, np.array(implicit)) if any(implicit) else sketches)

    def _as_plain(self, grads: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[int], list[int]]:
        """Those that can be looked at as some plain tensor, their positions, and how many zeros they do not store."""
        plain: list[torch.Tensor] = []
        positions: list[int] = []
        implicit: list[int] = []
        for at, grad in enumerate(grads):
            found = stored_elements(grad, may_wait=False) if problem_of(grad) is None else None
            if found is None or found[0].device != self._fused.device:
                continue
            values = found[0].float() if found[0].element_size() == 1 else found[0]
            if values.dtype in self._fused.types:
                plain.append(values)
                positions.append(at)
                implicit.append(found[1])
        return plain, positions, implicit
