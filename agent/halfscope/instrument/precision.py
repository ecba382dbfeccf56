"""The precision label of a run, from what autocast does in its first forward pass and what the parameters are.

Invariant: the label says what was seen; where no forward pass could be seen (compiled whole), it says `inferred`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

HALF_DTYPES = (torch.float16, torch.bfloat16)


def autocast_dtype(device_type: str) -> torch.dtype | None:
    """The half-precision type autocast works in at this moment, None where it is off or works in float32."""
    try:
        if not torch.is_autocast_enabled(device_type):
            return None
        dtype = torch.get_autocast_dtype(device_type)
    except (RuntimeError, TypeError):
        return None  # a device type that knows no autocast
    return dtype if dtype in HALF_DTYPES else None


def label(autocast: Iterable[torch.dtype], parameters: Iterable[torch.dtype], *, tf32: bool) -> str:
    """One of `FP32`, `TF32`, `FP16-AMP`, `FP16`, `BF16-AMP`, `BF16`, `mixed`.

    Args:
        autocast: half types that autocast worked in, during one forward pass.
        parameters: floating types of the parameters.
        tf32: whether float32 matmuls may round their inputs to TF32.
    """
    cast, stored = set(autocast), set(parameters)
    if len(stored) > 1 or len(cast) > 1:
        return "mixed"
    for dtype, name in ((torch.float16, "FP16"), (torch.bfloat16, "BF16")):
        if stored == {dtype}:
            return "mixed" if cast - {dtype} else name
    for dtype, name in ((torch.float16, "FP16"), (torch.bfloat16, "BF16")):
        if cast == {dtype}:
            return f"{name}-AMP"
    return "TF32" if tf32 else "FP32"


def uses_tf32(device: torch.device) -> bool:
    """Whether float32 matmuls on this device may run in TF32."""
    if device.type != "cuda":
        return False
    try:
        if torch.cuda.get_device_capability(device)[0] < 8:
            return False
        return torch.get_float32_matmul_precision() != "highest" or torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:
        return False  # the old and the new way to set it were mixed; torch refuses to tell


def parameter_dtypes(models: Iterable[torch.nn.Module]) -> set[torch.dtype]:
    """Floating types among the parameters."""
    return {p.dtype for model in models for p in model.parameters() if p.is_floating_point() or p.is_complex()}
