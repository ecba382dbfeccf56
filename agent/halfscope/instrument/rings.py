"""Values that hooks come across, on the host at once or on their way from a device.

Owns the device rings and the kernels of a run, one of each per device. Invariant: asking for a value never waits for a
device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import torch

from halfscope.guard import tried
from halfscope.instrument.attempt import Value
from halfscope.instrument.device import DeviceRing, Flight, Slot
from halfscope.kernels.fused import FusedPass, Work, load
from halfscope.probes import gradients
from halfscope.probes.device_sketches import DeviceSketcher

SPARE_WIDTH = 96
"""Room per attempt for what is not a layer's norm: losses, flags, scales, learning rates, logged tensors."""

MAX_REASON = 300
MAX_KNOWN = 8

MakeSketcher = Callable[[torch.device, Sequence[int], bool, FusedPass | None], DeviceSketcher | None]


def make_ring(device: torch.device, width: int) -> DeviceRing | None:
    """Other devices than CUDA's have no asynchronous copy that we know to be one: their values are not available."""
    return DeviceRing(device, width) if device.type == "cuda" else None


def make_sketcher(
    device: torch.device, num_elements: Sequence[int], has_double: bool, fused: FusedPass | None
) -> DeviceSketcher | None:
    """Likewise for sketches: only of gradients on CUDA's devices."""
    if device.type != "cuda":
        return None
    return DeviceSketcher(device, num_elements, has_double=has_double, fused=fused)


def make_fused(device: torch.device) -> FusedPass | None:
    """Likewise for kernels: only on CUDA's devices, and never while a graph is being captured."""
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return None
    return load(device)


in_host_memory: Callable[[torch.Tensor], bool] = attrgetter("is_cpu")
"""Whether reading a tensor waits for nobody."""


class Rings:
    """Makes the ring of a device when it is first needed; a training that lives on the host has none."""

    def __init__(
        self,
        num_layers: int,
        *,
        make: Callable[[torch.device, int], DeviceRing | None] = make_ring,
        on_host: Callable[[torch.Tensor], bool] = in_host_memory,
        make_sketcher: MakeSketcher = make_sketcher,
        make_fused: Callable[[torch.device], FusedPass | None] = make_fused,
    ) -> None:
        """
        Args:
            num_layers: how many gradients there are. An attempt reads the norm of each, and again behind clipping.
            make: the ring of a device, given its width; None where the device has no way to deliver later.
            on_host: whether a tensor can be read at once.
            make_sketcher: what sketches gradients on a device, given how many elements each layer has, whether some are
                float64, and the kernels; None where nothing can.
            make_fused: the kernels of a device.
        """
        self.on_host = on_host
        self.make_sketcher = make_sketcher
        self._make, self._make_fused = make, make_fused
        self._width = 2 * num_layers + SPARE_WIDTH
        self._fused: dict[torch.device, FusedPass | None] = {}
        self.stock_because = ""
        """Why gradients on a device are read by stock operations; empty where kernels of ours read them."""
        self._rings: dict[torch.device, DeviceRing | None] = {}
        self._known: dict[int, tuple[torch.Tensor, int, Slot]] = {}
        """By id, what `later` was asked for: the tensor, its version, and the number."""
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

    def later(self, tensor: torch.Tensor, *, is_versioned: bool = True) -> Value:
        """As `value`, of a scaler's numbers, which `update` alone changes: call `flush` before and after that.

        A scale that nobody has touched since it was asked for last is what it was then.

        Args:
            is_versioned: whether torch counts the changes of this tensor; it does not where one operation changes
                several, as of the growth tracker.
        """
        if self.on_host(tensor) or tensor.numel() != 1:
            return self.value(tensor)
        ring = self._ring(tensor.device)
        if ring is None or ring.capturing():
            return None
        version = tensor._version if is_versioned and not tensor.is_inference() else None
        known = self._known.get(id(tensor))
        if known is not None and known[0] is tensor and known[1] == version:
            self.used = True
            return known[2]
        slot = ring.put_later(tensor)
        if slot is not None:
            self.used = True
            if version is not None:
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[id(tensor)] = tensor, version, slot
        return slot

    def flush(self) -> None:
        """Queues what was asked for by `later`: its tensors are about to change."""
        for ring in self._rings.values():
            if ring is not None:
                ring.flush()

    def put(self, tensor: torch.Tensor) -> Slot | None:
        """Several numbers on a device, to be read later."""
        ring = self._ring(tensor.device)
        slot = None if ring is None else ring.put(tensor)
        if slot is not None:
            self.used = True
        return slot

    def norms(self, grads: Sequence[torch.Tensor]) -> list[tuple[Sequence[int], Slot]]:
        """The L2 norm of each of some gradients, to be read later: of every device their positions, and the norms."""
        device = grads[0].device
        work = self._find(device, grads)
        if work is not None or all(grad.device == device for grad in grads):
            slot = self._norms_on(device, grads, work)
            return [] if slot is None else [(range(len(grads)), slot)]
        by_device: dict[torch.device, list[int]] = {}
        for at, grad in enumerate(grads):
            by_device.setdefault(grad.device, []).append(at)
        captured: list[tuple[Sequence[int], Slot]] = []
        for device, positions in by_device.items():
            there = [grads[at] for at in positions]
            slot = self._norms_on(device, there, self._find(device, there))
            if slot is not None:
                captured.append((positions, slot))
        return captured

    def _find(self, device: torch.device, grads: Sequence[torch.Tensor]) -> Work | None:
        """Tables of gradients for the kernels of a device; None where they do not take them, or some lie elsewhere."""
        fused, ring = self._fused.get(device), self._ring(device)
        return None if fused is None or ring is None or ring.capturing() else fused.find(grads)

    def _norms_on(self, device: torch.device, grads: Sequence[torch.Tensor], work: Work | None) -> Slot | None:
        ring, fused = self._ring(device), self._fused.get(device)
        if ring is None or ring.capturing():
            return None
        if fused is None or work is None:
            norms = gradients.capture(grads, fused)
            return None if norms is None else self.put(norms)
        place = ring.reserve(len(grads))
        if place is None:
            return None
        fused.norms(work, place[1])
        self.used = True
        return place[0]

    def prepare(self, device: torch.device) -> None:
        """Allocates a device's ring now, so that nothing is allocated while it trains."""
        if device.type != "cpu":
            self._ring(device)

    def prepare_kernels(self, device: torch.device, parameters: Sequence[torch.Tensor]) -> FusedPass | None:
        """Compiles and tries the kernels for gradients of some parameters; None where stock operations have to do."""
        if device not in self._fused:
            self._fused[device] = self._tried(device, lambda: self._make_fused(device))
        fused = self._fused[device]
        if fused is not None:
            self._tried(device, lambda: fused.prepare(parameters))
        return self._fused[device]

    def _tried(self, device: torch.device, make: Callable[[], FusedPass | None]) -> FusedPass | None:
        made = tried(make)
        if not isinstance(made, Exception):
            return made
        self.stock_because = f"{type(made).__name__}: {made}"[:MAX_REASON]
        self._fused[device] = None
        return None

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
