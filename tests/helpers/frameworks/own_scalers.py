"""DeepSpeed and Megatron on one CPU. Imports both, and joins a process group of one rank while it is used.

Neither means to scale losses here: DeepSpeed asks its accelerator whether it has FP16 instructions, and would compile
a helper for talking between processes; Megatron makes its tensors on "cuda". What computes is theirs all the same.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from megatron.core import parallel_state
from megatron.core.optimizer.grad_scaler import DynamicGradScaler
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params
from megatron.core.optimizer.optimizer_config import OptimizerConfig
from torch.overrides import TorchFunctionMode

__all__ = ["alone", "deepspeed_engine", "megatron_optimizer", "on_cpu"]


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """In a process group of one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    torch.distributed.init_process_group("gloo")
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def deepspeed_engine(model: torch.nn.Module, *, stage: int, accumulation: int) -> Any:
    """An engine for FP16 with clipping, and hysteresis where its optimizer has one (ZeRO)."""
    get_accelerator().is_fp16_supported = lambda: True
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 0.5,
        "fp16": {"enabled": True, "initial_scale_power": 17, "loss_scale_window": 3, "hysteresis": 2},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


class on_cpu(TorchFunctionMode):
    """What asks for "cuda" gets the CPU, and tensors say they are on it."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        result = function(*args, **kwargs)
        is_name = function is torch.Tensor.type and isinstance(result, str)
        return result.replace("torch.", "torch.cuda.") if is_name else result


def megatron_optimizer(model: torch.nn.Module) -> Any:
    """For FP16, with clipping and hysteresis. Made and stepped within `on_cpu`."""
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel()
    scaler = DynamicGradScaler(
        initial_scale=2.0**18, min_scale=1.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=3, hysteresis=2
    )
    config = OptimizerConfig(fp16=True, clip_grad=0.5, params_dtype=torch.float16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    made = Float16OptimizerWithFloat16Params(optimizer, config, scaler, lambda *_: None)
    made.grad_stats_parallel_group = torch.distributed.group.WORLD
    return made
