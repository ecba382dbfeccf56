"""From the device to the host without waiting: numbers are queued in a ring on the device and read steps later.

Each attempt owns one row. A value is copied into the row on the training stream where it arises, or, where it is known
who changes it next, just before that, together with others; when the attempt closes, the row goes to pinned memory by
one asynchronous copy with an event behind it; a later step boundary reads it once that is done.
Whatever can be made once is: between two steps a training leaves nothing of ours in the caches, and each operation
costs several times what it does in a loop of its own.
Invariant: nothing here waits for the device, and nothing runs while a CUDA graph is being captured.
"""

from __future__ import annotations

from collections.abc import Callable
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


MAX_VIEWS = 64
"""Stretches of a row that are remembered: a training logs the same numbers at most steps."""
_is_grad_enabled, _set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
_copy, _foreach_copy = torch.ops.aten.copy_.default, torch._foreach_copy_
"""Of a single one the launch costs half of what several do together."""


class Slot:
    """Numbers on their way: a stretch of one row of a ring."""

    __slots__ = ("_values", "count", "ring", "row", "start")

    def __init__(self, ring: DeviceRing, row: int, start: int, count: int) -> None:
        self.ring, self.row, self.start, self.count = ring, row, start, count
        self._values: list[float] | None = None

    def read(self) -> list[float]:
        """The numbers; first asked for between the arrival of their row and its release."""
        if self._values is None:
            self._values = self.ring.arrived(self.row)[self.start : self.start + self.count]
        return self._values


class Flight:
    """A row on its way to the host."""

    __slots__ = ("event", "ring", "row")

    def __init__(self, ring: DeviceRing, row: int, event: DoneEvent) -> None:
        self.ring, self.row, self.event = ring, row, event

    def land(self) -> None:
        """Frees the row for another attempt."""
        self.ring.free(self.row)


class _Unsent:
    """The event of a row that was complete while a graph was being captured: it is sent when it is asked for later."""

    def __init__(self, ring: DeviceRing, row: int, used: int) -> None:
        self._ring, self._row, self._used = ring, row, used
        self._event: DoneEvent | None = None

    def query(self) -> bool:
        return not self._ring.capturing() and self._sent().query()

    def synchronize(self) -> None:
        self._sent().synchronize()

    def _sent(self) -> DoneEvent:
        if self._event is None:
            self._event = self._ring.send(self._row, self._used)
        return self._event


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
        self._views: list[dict[tuple[int, int], torch.Tensor]] = [{} for _ in range(depth)]
        """Of each row the stretches that were used: mostly the same ones in every attempt."""
        self._pairs: list[tuple[int, torch.Tensor, torch.Tensor] | None] = [None] * depth
        """Of each row how much of it was sent last, and that part on the host and on the device."""
        self._values: list[list[float] | None] = [None] * depth
        self.num_dropped = 0
        """Values left out because the row was full or the host too far ahead."""
        self._make_event: Callable[[], RecordedEvent] = make_event or (lambda: ArrivalEvent(device))
        self._events: list[RecordedEvent | None] = [None] * depth
        self._row = 0
        self._used = 0
        self._in_flight: set[int] = set()
        self._waiting: list[torch.Tensor] = []
        self._places: list[torch.Tensor] = []

    def put(self, values: torch.Tensor) -> Slot | None:
        """Queues a copy of some numbers into the current attempt's row, with what waits for that; None where there is
        no room or a graph is captured."""
        slot = self.put_later(values)
        if slot is not None:
            self.flush()
        return slot

    def put_later(self, values: torch.Tensor) -> Slot | None:
        """As `put`, of numbers that are not going to change before the next `put`, `flush` or `seal`."""
        count = values.numel()
        place = self.reserve(count)
        if place is None:
            return None
        self._waiting.append(values if count == 1 and values.dim() <= 1 else values.reshape(-1))
        self._places.append(place[1])
        return place[0]

    def flush(self) -> None:
        """Queues the copies that wait."""
        waiting, places = self._waiting, self._places
        if not waiting:
            return
        was_enabled = _is_grad_enabled()
        _set_grad_enabled(False)
        try:
            # Converted on the way; of one type, by one launch.
            if len(waiting) == 1:
                _copy(places[0], waiting[0])
            else:
                _foreach_copy(places, waiting)
        finally:
            _set_grad_enabled(was_enabled)
            waiting.clear()
            places.clear()

    def reserve(self, count: int) -> tuple[Slot, torch.Tensor] | None:
        """Room in the current attempt's row for what the caller queues, and what it is read by; None as of `put`."""
        if self.capturing():
            return None
        row, start = self._row, self._used
        if row in self._in_flight or start + count > self.width:
            self.num_dropped += count
            return None
        self._used = start + count
        views = self._views[row]
        view = views.get((start, count))
        if view is None:
            if len(views) >= MAX_VIEWS:
                views.clear()
            view = views[start, count] = self._rows[row].narrow(0, start, count)
        return Slot(self, row, start, count), view

    def seal(self) -> Flight | None:
        """Sends the current row on its way and turns to the next; None where nothing is in it."""
        if not self._used:
            return None
        row, used = self._row, self._used
        self._in_flight.add(row)
        self._row, self._used = (row + 1) % self.depth, 0
        return Flight(self, row, _Unsent(self, row, used) if self.capturing() else self.send(row, used))

    def send(self, row: int, used: int) -> DoneEvent:
        """Queues the copy of a row that is complete; what is behind it."""
        self.flush()
        pair = self._pairs[row]
        if pair is None or pair[0] != used:
            pair = self._pairs[row] = used, self._host_rows[row].narrow(0, 0, used), self._rows[row].narrow(0, 0, used)
        pair[1].copy_(pair[2], non_blocking=True)
        event = self._events[row]
        if event is None:
            event = self._events[row] = self._make_event()
        event.record()
        return event

    def arrived(self, row: int) -> list[float]:
        """The numbers of a row; only after its flight is done, and before it is freed."""
        values = self._values[row]
        if values is None:
            pair = self._pairs[row]
            values = self._values[row] = [] if pair is None else pair[1].tolist()
        return values

    def free(self, row: int) -> None:
        """The numbers of a row have been read."""
        self._values[row] = None
        self._in_flight.discard(row)
