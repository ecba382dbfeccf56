"""How it is known that a device has come so far. Invariant: asking waits for nobody and breaks nothing."""

from __future__ import annotations

import torch


class ArrivalEvent(torch.cuda.Event):
    """An event that may be asked at any time: while a CUDA graph is captured a query would break the capture, and the
    answer is no."""

    def query(self) -> bool:
        return not torch.cuda.is_current_stream_capturing() and bool(super().query())  # type: ignore[no-untyped-call]
