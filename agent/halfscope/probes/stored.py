"""The elements that a tensor holds: whether they are floating-point numbers, and where they lie.

Changes no tensor and no state of autograd. Invariant: nothing is made up, and nothing waits for a device unless the
caller may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.parameter import is_lazy

CHUNK_ELEMENTS = 1 << 21
"""Of a large tensor on a device: its temporaries take some 80 MiB. Far below 2^24, where float32 stops counting."""


def num_elements(parameter: torch.Tensor) -> int:
    """How many elements a parameter has; 0 for one that has no shape before the first forward pass."""
    return 0 if is_lazy(parameter) else parameter.numel()


def num_stored(parameter: torch.Tensor) -> int:
    """How many numbers a dense gradient of a parameter holds here: of a DTensor those of this rank's shard."""
    local = getattr(parameter, "to_local", None)
    tensor = parameter if local is None else local()
    return int(tensor.numel()) * (2 if tensor.is_complex() else 1)


def problem_of(tensor: torch.Tensor) -> Exception | None:
    """Why a tensor has no sketch; None where it has one."""
    if tensor.is_quantized:
        return TypeError("a quantised tensor has no floating-point elements; expected sketch_of(tensor.dequantize())")
    if not (tensor.is_floating_point() or tensor.is_complex()) or "float4" in str(tensor.dtype):
        return TypeError(
            f"a tensor of {tensor.dtype}; expected a floating-point or complex one, as tensor.float() gives"
        )
    if tensor.is_nested:
        return TypeError("a nested tensor; expected one of its parts, as tensor.unbind() gives")
    if tensor.device.type == "meta":
        return ValueError("a tensor on the meta device has no values; expected one on the CPU or on a device")
    return None


def stored_elements(tensor: torch.Tensor, *, may_wait: bool) -> tuple[torch.Tensor, int] | None:
    """The stored elements as a flat real dense tensor, and how many zeros are not stored; None where that cannot be
    had (without waiting for a device)."""
    local = getattr(tensor, "to_local", None)
    if local is not None:
        tensor = local()  # this rank's shard: the whole would be a collective
    num_all = tensor.numel()
    if tensor.layout is torch.sparse_coo:
        if not tensor.is_coalesced():
            if not tensor.is_cpu and not may_wait:
                return None  # coalescing counts duplicates on the host
            tensor = tensor.coalesce()
        tensor = tensor._values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        tensor = tensor.values()
    elif tensor.layout is not torch.strided:
        return None
    num_implicit = num_all - tensor.numel()
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
        num_implicit *= 2
    return flat(tensor.resolve_neg()), num_implicit


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in any order: a view where they lie dense in memory, whatever the order of dimensions."""
    if not tensor.is_contiguous():
        strides = tensor.stride()
        tensor = tensor.permute(sorted(range(tensor.dim()), key=strides.__getitem__, reverse=True))
    return tensor.reshape(-1)


def chunks(flat: torch.Tensor) -> Iterator[torch.Tensor]:
    for start in range(0, flat.numel(), CHUNK_ELEMENTS):
        yield flat.narrow(0, start, min(CHUNK_ELEMENTS, flat.numel() - start))


@contextmanager
def no_grad() -> Iterator[None]:
    """A gradient made with create_graph=True has a graph of its own, which must not grow by our reading."""
    was_enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        yield
    finally:
        torch._C._set_grad_enabled(was_enabled)
