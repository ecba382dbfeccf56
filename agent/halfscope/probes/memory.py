"""Memory of the process and of its device, and the exact bytes of what a training holds.

Device numbers are the allocator's own counters, kept on the host: reading them does not wait for the device.
Invariant: what cannot be told is left out, never 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from halfscope.probes.gradients import byte_size
from halfscope.probes.spec import SeriesSpec

SERIES = (
    SeriesSpec(name="memory.rss_bytes", unit="bytes", reduction="sum"),
    SeriesSpec(name="memory.device_allocated_bytes", unit="bytes", reduction="sum"),
    SeriesSpec(name="memory.device_peak_bytes", unit="bytes", reduction="sum"),
)

INTERVAL_S = 1.0

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def rss_bytes() -> int | None:
    """Resident memory of this process, from /proc/self/statm; None on systems without it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read(128).split()[1]) * _PAGE_BYTES
    except OSError:
        return None


def device_bytes(device: torch.device) -> tuple[int, int] | None:
    """(allocated now, most allocated since the start) of torch's allocator; None where the device keeps no count."""
    if device.type != "cuda":
        return None
    return torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)


def training_bytes(models: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, int]:
    """Exact bytes of parameters, gradients, buffers and optimizer state; each tensor once, however often it is
    shared."""
    counted = {"parameter_bytes": 0, "gradient_bytes": 0, "buffer_bytes": 0, "optimizer_state_bytes": 0}
    seen: set[int] = set()

    def add(kind: str, tensor: Any) -> None:
        if isinstance(tensor, torch.Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            counted[kind] += byte_size(tensor)

    optimizers = list(optimizers)
    for parameter in _parameters(models, optimizers):
        add("parameter_bytes", parameter)
        add("gradient_bytes", parameter.grad)
    for model in models:
        for buffer in model.buffers():
            add("buffer_bytes", buffer)
    for optimizer in optimizers:
        for tensor in _nested(dict(optimizer.state)):
            add("optimizer_state_bytes", tensor)
    return counted


def _parameters(
    models: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]
) -> Iterable[torch.nn.Parameter]:
    for model in models:
        yield from model.parameters()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def _nested(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _nested(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _nested(item)
