"""Under what conditions a run trains: what two runs must have in common for their difference to be one of precision.

Reads torch's state, changes none of it. Invariant: what torch does not tell is left out, never guessed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from halfscope.guard import tried

LARGEST_CHOSEN_SEED = 1 << 32
"""torch draws a seed of 63 bits where nobody sets one: it is below this once in 2^31 times."""
MAX_GROUPS = 32
"""Parameter groups whose settings are told."""
_PLAIN = (bool, int, float, str)

_backends = torch.backends
_SETTINGS: Mapping[str, Callable[[], Any]] = {
    "float32_matmul_precision": torch.get_float32_matmul_precision,
    "cuda_matmul_allow_tf32": lambda: _backends.cuda.matmul.allow_tf32,
    "cuda_matmul_fp32_precision": lambda: getattr(_backends.cuda.matmul, "fp32_precision", None),
    "cudnn_allow_tf32": lambda: _backends.cudnn.allow_tf32,
    "cudnn_conv_fp32_precision": lambda: getattr(getattr(_backends.cudnn, "conv", None), "fp32_precision", None),
    "mkldnn_matmul_fp32_precision": lambda: getattr(getattr(_backends.mkldnn, "matmul", None), "fp32_precision", None),
    "allow_fp16_reduced_precision_reduction": lambda: _backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "allow_bf16_reduced_precision_reduction": lambda: _backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    "allow_fp16_accumulation": lambda: getattr(_backends.cuda.matmul, "allow_fp16_accumulation", None),
    "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "cudnn_benchmark": lambda: _backends.cudnn.benchmark,
    "cudnn_deterministic": lambda: _backends.cudnn.deterministic,
}
"""torch refuses to tell some of them where old and new ways to set them were mixed."""


def seed() -> dict[str, Any]:
    """`seed`, and `seed_is_set` where it is known that somebody chose it."""
    number = torch.initial_seed()
    if 0 <= number < LARGEST_CHOSEN_SEED:
        return {"seed": number, "seed_is_set": True}
    return {"seed": str(number)}  # more than browsers count to


def settings() -> dict[str, bool | str]:
    """What torch is told about precision and determinism."""
    found = {name: tried(read) for name, read in _SETTINGS.items()}
    return {name: value for name, value in found.items() if isinstance(value, (bool, str))}


def is_compiled(models: Iterable[torch.nn.Module]) -> bool:
    """Whether a module is compiled, or anything was compiled in this process so far (a function of a step)."""
    # Looked for among what is loaded: importing it takes seconds.
    frame = sys.modules.get("torch._dynamo.eval_frame")
    optimized = getattr(frame, "OptimizedModule", ())
    for model in models:
        for module in model.modules():
            if isinstance(module, optimized) or getattr(module, "_compiled_call_impl", None) is not None:
                return True
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return counters is not None and bool(counters["stats"]["unique_graphs"])


def hyperparameters(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Of each parameter group all that is a plain value: learning rate, betas, weight decay and what else it has."""
    return [_plain_values(group) for group in optimizer.param_groups[:MAX_GROUPS]]


def _plain_values(group: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in group.items():
        if isinstance(value, torch.Tensor) and value.is_cpu and value.numel() == 1:
            found[name] = value.item()
        elif value is None or isinstance(value, _PLAIN):
            found[name] = value
        elif isinstance(value, (list, tuple)) and name != "params" and all(isinstance(each, _PLAIN) for each in value):
            found[name] = list(value)
    return found
