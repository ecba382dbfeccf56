"""Gradient norm, and which layers are non-finite: one multi-tensor pass over an optimizer's gradients.

Two ways to the same numbers: `read` for tensors in host memory, `capture` for a device, where nothing is read but
norms are queued on the training stream. Neither changes a gradient or the state of autograd.
Invariant: `grad.norm` is of the unscaled gradient and equals what `clip_grad_norm_` returns; where float32 squares
would underflow or overflow it is recomputed in float64, and non-finite layers are found by looking at elements, not
at norms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from halfscope import native
from halfscope.probes.spec import SeriesSpec
from halfscope.probes.stored import flat

if TYPE_CHECKING:
    from halfscope.kernels.fused import FusedPass

SERIES = (
    SeriesSpec(name="grad.norm", unit="1", reduction="norm", labels=("optimizer",)),
    SeriesSpec(name="grad.norm_clipped", unit="1", reduction="norm", labels=("optimizer",)),
)

SMALLEST_TRUSTED_NORM = 1e-15
LARGEST_TRUSTED_NORM = 1e15
"""A float32 norm outside of these is recomputed: squares of 1e-24 read 0 in float32, of 1e20 infinity."""
SMALLEST_TRUSTED_SQUARES = 1e-280
"""Of a sum in float64: below, squares may have been lost to 0."""
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""Of a subclass (DTensor) even a norm may be a collective: those are taken one by one, each its local part."""
_WIDE = frozenset({torch.float32, torch.float64})
_item, _foreach_norm, _float32 = torch.Tensor.item, torch._foreach_norm, torch.float32
_is_grad_enabled, _set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
"""As names of this module: in a training that has just used all of the cache, each look into the large dictionary of
torch's costs microseconds."""


def _helper() -> Any:
    """The compiled helper, where it was built and can be told where tensors lie (of torch from 2.10 on)."""
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    built = native.helper
    usable = built is not None and table is not None
    return built if usable and built.use_torch(table, torch.Tensor, torch.nn.Parameter) else None


helper = _helper()
_squares = None if helper is None else helper.squares
_gradient_squares = None if helper is None else helper.gradient_squares
_gradient_state = None if helper is None else helper.gradient_state
IS_QUICK = helper is not None
"""`quick_norm` and `state` can be had."""


class HostNorm(NamedTuple):
    """Norm of gradients in host memory."""

    norm: float
    """Global L2 norm, divided by the scale."""
    nonfinite: tuple[int, ...]
    """Positions, in the list that was given, of gradients that hold an infinity or a NaN."""


def read(grads: Sequence[torch.Tensor], divide_by: float = 1.0, *, exact: bool = False) -> HostNorm | None:
    """Global L2 norm of gradients in host memory.

    Args:
        grads: dense or sparse, any floating dtype; at least one.
        divide_by: the loss scale still on them.
        exact: to the last bit what `clip_grad_norm_` returns; otherwise the sum over layers is in float64, which for a
            few small layers costs a third less, and a tenth by the compiled helper.

    Returns:
        None where no tensor is of a kind whose norm can be told (integer, meta, quantised).
    """
    if _squares is not None and not exact:
        squares = _squares(grads)
        found = None if squares is None else of_squares(squares)
        if found is not None:
            return HostNorm(found.norm / divide_by, ())
    was_enabled = _is_grad_enabled()
    # A gradient made with create_graph=True has a graph of its own, which must not grow by our reading.
    _set_grad_enabled(False)
    try:
        if _PLAIN.issuperset(map(type, grads)):
            try:
                if exact:
                    norm = _as_clipping_does(grads) / divide_by
                else:
                    # A norm of half precision would be rounded to it; of float64 this raises.
                    norms = _foreach_norm(grads, 2, _float32)  # type: ignore[arg-type]
                    norm = math.hypot(*map(_item, norms)) / divide_by
            except (RuntimeError, TypeError, NotImplementedError):
                # Sparse, mixed or exotic tensors: the careful way deals with them one by one.
                norm = 0.0
            if SMALLEST_TRUSTED_NORM <= norm <= LARGEST_TRUSTED_NORM:
                return HostNorm(norm, ())
        return _read_carefully(grads, divide_by)
    finally:
        _set_grad_enabled(was_enabled)


def of_squares(squares: float) -> HostNorm | None:
    """The norm whose sum of squares, in float64, this is; None where elements have to be looked at."""
    # An infinity or a NaN is looked for by its element.
    return HostNorm(math.sqrt(squares), ()) if SMALLEST_TRUSTED_SQUARES <= squares < math.inf else None


def quick_norm(groups: Sequence[dict[str, Any]]) -> float | None:
    """The norm as `read` gives it, of the gradients of an optimizer's groups, in one call where that can be had: by the
    compiled helper, of dense gradients in host memory that are finite. None elsewhere."""
    squares = None if _gradient_squares is None else _gradient_squares(groups)
    if squares is not None and SMALLEST_TRUSTED_SQUARES <= squares < math.inf:
        return math.sqrt(squares)  # as `of_squares`: at a small model each call shows
    return None


def state(groups: Sequence[dict[str, Any]]) -> int | None:
    """A number that tells whether the gradients of an optimizer's groups are the same tensors, unchanged: torch's count
    of changes in place is in it, and for what torch does not count a sample of the elements. By the compiled helper, of
    dense float32 and float64 in host memory; None elsewhere."""
    found: int | None = None if _gradient_state is None else _gradient_state(groups)
    return found


def capture(grads: Sequence[torch.Tensor], fused: FusedPass | None = None) -> torch.Tensor | None:
    """L2 norms of gradients on one device, as a float64 vector on that device; launches kernels and reads nothing.

    float64 from the start: on a device a later second look is not possible.

    Args:
        fused: kernels that read gradients once, at the speed of the memory. Stock torch operations, which read them at
            a tenth of that, where there are none or where they cannot take one of these.

    Returns:
        None where a gradient is of a kind that cannot be read without waiting for the device.
    """
    was_enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        values = [_values(grad) for grad in grads]
        dense = [value for value in values if value is not None]
        if len(dense) != len(values) or not dense:
            return None
        if fused is not None:
            elements = [flat(value) for value in dense]
            work = fused.find(elements)
            if work is not None:
                norms = torch.empty(len(dense), dtype=torch.float64, device=dense[0].device)
                fused.norms(work, norms)
                return norms
        return torch.stack(torch._foreach_norm(dense, 2, dtype=torch.float64))
    finally:
        torch._C._set_grad_enabled(was_enabled)


def nonfinite_positions(norms: Sequence[float]) -> tuple[int, ...]:
    """Positions of the layers whose float64 norm is not finite: of float32 and narrower gradients exactly the
    non-finite."""
    return tuple(at for at, norm in enumerate(norms) if not math.isfinite(norm))


def total(norms: Sequence[float], divide_by: float = 1.0) -> float:
    """Global norm from per-layer norms."""
    return math.sqrt(sum(norm * norm for norm in norms)) / divide_by


def byte_size(tensor: torch.Tensor) -> int:
    """Bytes that a tensor's elements take; for a sparse one indices and values."""
    if tensor.layout is torch.sparse_coo:
        return byte_size(tensor._values()) + byte_size(tensor._indices())
    return tensor.numel() * tensor.element_size()


def _as_clipping_does(grads: Sequence[torch.Tensor]) -> float:
    """By the very operations of clip_grad_norm_; 0 where they would lose digits."""
    total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))  # type: ignore[arg-type]
    return total.item() if total.dtype in _WIDE else 0.0


def _read_carefully(grads: Sequence[torch.Tensor], divide_by: float) -> HostNorm | None:
    norms: list[float] = []
    nonfinite: list[int] = []
    for at, grad in enumerate(grads):
        values = _values(grad)
        if values is None:
            continue
        norm = torch.linalg.vector_norm(values, dtype=torch.float64).item()
        if not math.isfinite(norm) and not bool(torch.isfinite(values).all()):
            nonfinite.append(at)
        norms.append(norm)
    if not norms:
        return None
    return HostNorm(norm=total(norms, divide_by), nonfinite=tuple(nonfinite))


def _values(grad: torch.Tensor) -> torch.Tensor | None:
    """The elements of a gradient as a dense real floating tensor; None where there is no such thing.

    Of a sharded (DTensor) gradient this rank's part: asking for the whole would be a collective.
    """
    local = getattr(grad, "to_local", None)
    if local is not None:
        grad = local()
    if grad.layout is torch.sparse_coo:
        if not grad.is_coalesced():
            if grad.device.type != "cpu":
                return None  # coalescing counts duplicates on the host, which waits for the device
            grad = grad.coalesce()
        grad = grad._values()
    elif grad.layout is not torch.strided:
        return None
    if grad.is_complex():
        grad = torch.view_as_real(grad)
    if grad.device.type == "meta" or grad.is_quantized or not grad.is_floating_point():
        return None
    if grad.element_size() == 1:
        return grad.float()  # FP8 has no arithmetic of its own
    return grad
