"""What is noted of a reduction while it runs: on the training thread when a bucket is ready, on any thread when it is
reduced.

Invariant: nothing here waits for a device or for another rank, and what was not seen is None.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from halfscope.guard import tried
from halfscope.instrument.attempt import Value, host
from halfscope.instrument.ddp.reducing import lengths
from halfscope.instrument.device import Slot
from halfscope.instrument.rings import Rings
from halfscope.probes import communication, gradients

ELEMENTS_PER_LAYER = 32
MAX_ELEMENTS = 4096
"""Of all of a model's layers together that are compared over ranks."""


class Moment(Protocol):
    """A point of time on a device: the part of `torch.cuda.Event` that is used."""

    def record(self) -> Any: ...
    def elapsed_time(self, end: Any) -> float: ...


class Clock:
    """Takes points of time: on the host, or on a device, where they are read when work before them is done."""

    def __init__(self, make_event: Callable[[], Moment] | None) -> None:
        self._make_event = make_event
        self._free: list[Moment] = []

    def now(self) -> int | Moment:
        if self._make_event is None:
            return time.perf_counter_ns()
        event = self._free.pop() if self._free else self._make_event()
        event.record()
        return event

    def give_back(self, *moments: int | Moment | None) -> None:
        """They have been read."""
        self._free += [moment for moment in moments if moment is not None and not isinstance(moment, int)]


def seconds(began: int | Moment, ended: int | Moment) -> float:
    """From one moment of a clock to another; of a device only when both have passed."""
    if isinstance(began, int):
        assert isinstance(ended, int)
        return (ended - began) / 1e9
    return began.elapsed_time(ended) / 1e3


class Layout:
    """The layers of a bucket, and which of its elements are compared over ranks."""

    def __init__(self, bucket: Any, number: int, names: Sequence[str], most_per_layer: int) -> None:
        buffer = bucket.buffer()
        self.number = number
        self.parameters: list[torch.Tensor] = bucket.parameters()
        self.names = names
        self.ids = tuple(map(id, self.parameters))
        self.dtype = str(buffer.dtype).removeprefix("torch.")
        self.lengths = lengths(self.parameters)
        self.num_elements = sum(self.lengths)
        self.counts: list[int] = []
        self.places: torch.Tensor | None = None
        """Of the elements in the bucket; None where it is no plain row of numbers."""
        if buffer.layout is torch.strided and buffer.numel() == self.num_elements:
            self.places = self._places(most_per_layer, buffer.device)

    def parts(self, buffer: torch.Tensor) -> Sequence[torch.Tensor]:
        """Each layer's elements."""
        return [buffer] if self.places is None else torch.split(buffer, self.lengths)

    def _places(self, most: int, device: torch.device) -> torch.Tensor:
        places: list[np.ndarray[Any, Any]] = []
        begin = 0
        for count in self.lengths:
            places.append(np.arange(begin, begin + count, max(1, -(-count // most)), dtype=np.int64))
            begin += count
        self.counts = [len(each) for each in places]
        found = torch.from_numpy(np.concatenate(places))
        if device.type == "cpu":
            return found
        # From ordinary memory the copy would be waited for.
        pinned = torch.empty(found.shape, dtype=found.dtype, pin_memory=True).copy_(found)
        return pinned.to(device, non_blocking=True)


class BucketNote:
    """One bucket of one reduction."""

    def __init__(self, reduction: Reduction, layout: Layout, num_bytes: int, began: int | Moment) -> None:
        self.reduction, self.layout, self.num_bytes, self.began = reduction, layout, num_bytes, began
        self.ended: int | Moment | None = None
        self.sample: Sample | None = None
        self.result_norm: Value = None
        """Where it was asked for: whether it is finite is what counts."""
        self.wants_norm = False
        self.buffer: torch.Tensor | None = None
        """Where it is still to be measured."""

    def measured(self, norm: float, divisor: int) -> None:
        """Its L2 norm before it was divided, in float32."""
        if communication.is_trusted(norm):
            self.reduction.norms.append(norm)
        else:
            failure = tried(lambda: self._look(divisor))
            if failure is not None:
                self.reduction.failed(failure)
        self.buffer = None

    def _look(self, divisor: int) -> None:
        """The exact way, out of the ordinary. Whether a layer is finite does not depend on the division."""
        assert self.buffer is not None
        found = gradients.read(self.layout.parts(self.buffer))
        if found is None:
            self.reduction.is_measured = False
        else:
            self.reduction.norms.append(found.norm * divisor)
            self.reduction.nonfinite += [self.layout.names[at] for at in found.nonfinite]

    def reduced(self, result: torch.Tensor) -> None:
        """The reduction of this bucket is over; what it gave."""
        failure = tried(lambda: self._reduced(result))
        if failure is not None:
            self.reduction.failed(failure)

    def _reduced(self, result: torch.Tensor) -> None:
        reduction = self.reduction
        self.ended = reduction.clock.now()
        if self.sample is not None:
            self.sample.take_reduced(result)
        if reduction.checks_result:
            values = result.coalesce().values() if result.layout is torch.sparse_coo else result
            self.result_norm = reduction.rings.one(torch.linalg.vector_norm(values.detach()))


class Reduction:
    """One reduction of all gradients of a model, at the end of one backward pass."""

    def __init__(
        self,
        model: int,
        ranks: Sequence[int],
        clock: Clock,
        rings: Rings,
        failed: Callable[[Exception], Any],
        *,
        checks_result: bool,
        is_sampled: bool,
    ) -> None:
        """
        Args:
            model: its place among the models of the run.
            ranks: those that take part, in the whole job's numbers.
            failed: told of what went wrong when a bucket was reduced.
            checks_result: whether the sum is finite is to be known, too.
            is_sampled: some elements are compared over ranks.
        """
        self.model, self.ranks, self.clock, self.rings, self.failed = model, ranks, clock, rings, failed
        self.checks_result, self.is_sampled = checks_result, is_sampled
        self.num_ranks = len(ranks)
        self.buckets: list[BucketNote] = []
        self.norms: list[float] = []
        """Of buckets on the host, with the loss scale."""
        self.layer_norms: list[tuple[Layout, Sequence[int], Slot]] = []
        """Of layers on a device: their positions in a bucket, and the norms on the way."""
        self.largest: list[tuple[Layout, Slot, float]] = []
        """Likewise the largest magnitudes of a bucket's layers, and from which on they overflow when they are sent."""
        self.nonfinite: list[str] = []
        """Layers that are not finite before the reduction."""
        self.too_large: list[str] = []
        """Layers that are finite, but not when they are sent."""
        self.is_measured = True
        """Every bucket of it could be."""
        self.is_complete = False
        """All of its buckets were ready."""

    def arrive(self) -> None:
        """What was on its way from devices is there: put it where the host's numbers are."""
        for layout, positions, slot in self.layer_norms:
            norms = slot.read()
            self.norms += norms
            self.nonfinite += [
                layout.names[at] for at, norm in zip(positions, norms, strict=True) if not math.isfinite(norm)
            ]
        for layout, slot, limit in self.largest:
            found = zip(layout.names, slot.read(), strict=True)
            self.too_large += [name for name, largest in found if limit <= largest < math.inf]
        self.layer_norms, self.largest = [], []
        for bucket in self.buckets:
            bucket.result_norm = host(bucket.result_norm)

    @property
    def norm(self) -> float | None:
        """Of this rank's own gradient, with the loss scale."""
        return math.hypot(*self.norms) if self.is_measured and self.is_complete else None

    @property
    def result_is_finite(self) -> bool | None:
        """Whether what the reduction gave is; None where that was not looked at."""
        norms = [bucket.result_norm for bucket in self.buckets]
        if not self.is_complete or not all(isinstance(norm, float) for norm in norms):
            return None
        return all(isinstance(norm, float) and math.isfinite(norm) for norm in norms)

    @property
    def wait_s(self) -> float | None:
        """From the moment at which the last bucket was ready to the end of the last."""
        if not self.is_complete:
            return None
        ends = [bucket.ended for bucket in self.buckets if bucket.ended is not None]
        if len(ends) < len(self.buckets):
            return None
        ready = self.buckets[-1].began
        return max(0.0, *(seconds(ready, end) for end in ends))


class Sample:
    """Some elements of a bucket, before its reduction and after it."""

    def __init__(self, places: torch.Tensor) -> None:
        self._places = places
        self.local: torch.Tensor | None = None
        self.reduced: torch.Tensor | None = None

    def take_local(self, buffer: torch.Tensor) -> None:
        self.local = self._taken(buffer)

    def take_reduced(self, result: torch.Tensor) -> None:
        self.reduced = self._taken(result)

    def _taken(self, values: torch.Tensor) -> torch.Tensor:
        return values.detach().reshape(-1).index_select(0, self._places).float()


class DeviceSample(Sample):
    """Likewise on a device: both go to the host by themselves, and the event behind the second says when they are
    there. Invariant of `InFlight` holds."""

    def __init__(self, places: torch.Tensor, event: Any, *, pinned: bool) -> None:
        super().__init__(places)
        self.event = event
        self._sent = torch.empty(2, places.numel(), pin_memory=pinned)

    def take_local(self, buffer: torch.Tensor) -> None:
        self._sent[0].copy_(self._taken(buffer), non_blocking=True)
        self.local = self._sent[0]
        self.event.record()

    def take_reduced(self, result: torch.Tensor) -> None:
        self._sent[1].copy_(self._taken(result), non_blocking=True)
        self.reduced = self._sent[1]
        self.event.record()

    def land(self) -> None:
        """Nothing to free: pinned memory goes back to torch's own cache."""
