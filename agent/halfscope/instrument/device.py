"""From the device to the host without waiting: numbers are queued in a ring on the device and read steps later.

Each attempt owns one row. A value is copied into the row on the training stream where it arises; when the attempt
closes, the row goes to pinned memory by one asynchronous copy with an event behind it; a later step boundary reads
it once that is done.
Invariant: nothing here waits for the device, and nothing runs while a CUDA graph is being captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from halfscope.kernels.events import ArrivalEvent


class DoneEvent(Protocol):
    """The part of `torch.cuda.Event` that is used."""

    def query(self) -> bool: ...
    def synchronize(self) -> Any: ...


class RecordedEvent(DoneEvent, Protocol):
    """One that is still to be put behind the work that it tells of."""

    def record(self) -> Any: ...


class InFlight(Protocol):
    """Something on its way to the host."""

    @property
    def event(self) -> DoneEvent: ...

    def land(self) -> None:
        """It was read, and its place is free."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Numbers on their way: a stretch of one row of a ring."""

    ring: DeviceRing
    row: int
    start: int
    count: int

    def read(self) -> list[float]:
        """The numbers; only after the flight of their row is done."""
        values: list[float] = self.ring.host[self.row, self.start : self.start + self.count].tolist()
        return values


@dataclass(frozen=True, slots=True)
class Flight:
    """A row on its way to the host."""

    ring: DeviceRing
    row: int
    event: DoneEvent

    def land(self) -> None:
        """Frees the row for another attempt."""
        self.ring.free(self.row)


class DeviceRing:
    """Rows of float64 on one device, with their twins in pinned host memory."""

    def __init__(
        self,
        device: torch.device,
        width: int,
        depth: int = 64,
        *,
        pinned: bool = True,
        make_event: Callable[[], RecordedEvent] | None = None,
        capturing: Callable[[], bool] | None = None,
    ) -> None:
        """
        Args:
            width: numbers one attempt can hold.
            depth: how many attempts the host may run ahead before numbers are left out.
            pinned: page-locked host memory; only such copies are asynchronous.
            make_event: how a row's arrival is known; by default a CUDA event.
            capturing: whether a CUDA graph is being captured on the current stream.
        """
        self.width, self.depth = width, depth
        self.host = torch.zeros(depth, width, dtype=torch.float64, pin_memory=pinned)
        self.capturing = capturing or torch.cuda.is_current_stream_capturing
        """Whether a CUDA graph is being captured on the current stream."""
        self._rows = torch.zeros(depth, width, dtype=torch.float64, device=device).unbind(0)
        self._host_rows = self.host.unbind(0)
        self.num_dropped = 0
        """Values left out because the row was full or the host too far ahead."""
        self._make_event: Callable[[], RecordedEvent] = make_event or ArrivalEvent
        self._row = 0
        self._used = 0
        self._in_flight: set[int] = set()

    def put(self, values: torch.Tensor) -> Slot | None:
        """Queues a copy of some numbers into the current attempt's row; None where there is no room or a graph is
        captured."""
        place = self.reserve(values.numel())
        if place is None:
            return None
        was_enabled = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            # One launch; converts to float64 on the way.
            torch._foreach_copy_([place[1]], [values.reshape(-1)])
        finally:
            torch._C._set_grad_enabled(was_enabled)
        return place[0]

    def reserve(self, count: int) -> tuple[Slot, torch.Tensor] | None:
        """Room in the current attempt's row for what the caller queues, and what it is read by; None as of `put`."""
        if self.capturing():
            return None
        start = self._used
        if self._row in self._in_flight or start + count > self.width:
            self.num_dropped += count
            return None
        self._used = start + count
        return Slot(self, self._row, start, count), self._rows[self._row].narrow(0, start, count)

    def seal(self) -> Flight | None:
        """Sends the current row on its way and turns to the next; None where nothing is in it."""
        if not self._used or self.capturing():
            return None
        row, used = self._row, self._used
        self._host_rows[row].narrow(0, 0, used).copy_(self._rows[row].narrow(0, 0, used), non_blocking=True)
        event = self._make_event()
        event.record()
        self._in_flight.add(row)
        self._row, self._used = (row + 1) % self.depth, 0
        return Flight(self, row, event)

    def free(self, row: int) -> None:
        """The numbers of a row have been read."""
        self._in_flight.discard(row)
