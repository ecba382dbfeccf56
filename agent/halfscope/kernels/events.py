"""How it is known that a device has come so far. Invariant: asking waits for nobody and breaks nothing."""

from __future__ import annotations

from typing import Any

import torch

_streams: dict[tuple[int, int], torch.cuda.Stream] = {}
"""By device and address. To make the object costs more than to record an event on it."""


class ArrivalEvent(torch.cuda.Event):
    """An event that may be asked at any time: while a CUDA graph is captured a query would break the capture, and the
    answer is no. It may be recorded again once it is done."""

    def __new__(cls, device: torch.device) -> ArrivalEvent:
        """
        Args:
            device: whose current stream it is recorded on, whichever device is the current one.
        """
        made: ArrivalEvent = super().__new__(cls)  # type: ignore[no-untyped-call]
        made._index = torch.cuda.current_device() if device.index is None else device.index
        return made

    _index: int

    def record(self, stream: Any = None) -> None:
        super().record(current_stream(self._index) if stream is None else stream)

    def query(self) -> bool:
        return not torch.cuda.is_current_stream_capturing() and bool(super().query())  # type: ignore[no-untyped-call]


def current_stream(index: int) -> torch.cuda.Stream:
    """The current stream of a device, one object for each."""
    key = index, torch._C._cuda_getCurrentRawStream(index)
    stream = _streams.get(key)
    if stream is None:
        stream = _streams[key] = torch.cuda.current_stream(index)
    return stream
