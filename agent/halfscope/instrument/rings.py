"""Values that hooks come across, on the host at once or on their way from a device.

Owns the device rings of a run, one per device. Invariant: asking for a value never waits for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from halfscope.instrument.attempt import Value
from halfscope.instrument.device import DeviceRing, Flight, Slot
from halfscope.probes.sketches import DeviceSketcher

SPARE_WIDTH = 96
"""Room per attempt for what is not a layer: losses, flags, scales, learning rates, logged tensors."""


def make_ring(device: torch.device, width: int) -> DeviceRing | None:
    """Other devices than CUDA's have no asynchronous copy that we know to be one: their values are not available."""
    return DeviceRing(device, width) if device.type == "cuda" else None


def make_sketcher(device: torch.device, num_elements: Sequence[int], has_double: bool) -> DeviceSketcher | None:
    """Likewise for sketches: only of gradients on CUDA's devices."""
    return DeviceSketcher(device, num_elements, has_double=has_double) if device.type == "cuda" else None


def in_host_memory(tensor: torch.Tensor) -> bool:
    """Whether reading it waits for nobody."""
    return tensor.is_cpu


class Rings:
    """Makes the ring of a device when it is first needed; a training that lives on the host has none."""

    def __init__(
        self,
        num_layers: int,
        *,
        make: Callable[[torch.device, int], DeviceRing | None] = make_ring,
        on_host: Callable[[torch.Tensor], bool] = in_host_memory,
        make_sketcher: Callable[[torch.device, Sequence[int], bool], DeviceSketcher | None] = make_sketcher,
    ) -> None:
        """
        Args:
            num_layers: how many gradient norms an attempt has.
            make: the ring of a device, given its width; None where the device has no way to deliver later.
            on_host: whether a tensor can be read at once.
            make_sketcher: what sketches gradients on a device, given how many elements each layer has and whether some
                are float64; None where nothing can.
        """
        self.on_host = on_host
        self.make_sketcher = make_sketcher
        self._make = make
        self._width = num_layers + SPARE_WIDTH
        self._rings: dict[torch.device, DeviceRing | None] = {}
        self.used = False
        """A value went into a ring since the last `seal`."""

    def value(self, tensor: torch.Tensor) -> Value:
        """The sum of a tensor; None where it can be had neither at once nor later."""
        return self.one(tensor if tensor.numel() == 1 else tensor.detach().sum())

    def one(self, tensor: torch.Tensor) -> Value:
        """Likewise of what is known to have one element."""
        if self.on_host(tensor):
            return float(tensor.item())
        return self.put(tensor)

    def put(self, tensor: torch.Tensor) -> Slot | None:
        """Several numbers on a device, to be read later."""
        ring = self._ring(tensor.device)
        slot = None if ring is None else ring.put(tensor.detach())
        if slot is not None:
            self.used = True
        return slot

    def prepare(self, device: torch.device) -> None:
        """Allocates a device's ring now, so that nothing is allocated while it trains."""
        if device.type != "cpu":
            self._ring(device)

    def seal(self) -> list[Flight]:
        """Sends the attempt's rows on their way."""
        self.used = False
        flights = (ring.seal() for ring in self._rings.values() if ring is not None)
        return [flight for flight in flights if flight is not None]

    @property
    def num_dropped(self) -> int:
        """Values left out so far because a ring was full."""
        return sum(ring.num_dropped for ring in self._rings.values() if ring is not None)

    def _ring(self, device: torch.device) -> DeviceRing | None:
        try:
            return self._rings[device]
        except KeyError:
            ring = self._rings[device] = self._make(device, self._width)
            return ring
