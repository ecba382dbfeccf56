"""Loops around an Accelerator that keep what they see of each of their steps. Imports Accelerate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import imports

from tests.helpers.frameworks.seen import Seen, look_once, norm_of

__all__ = ["NUM_BATCHES", "Accelerator", "accelerator_for", "batches", "loop", "net"]

NUM_BATCHES = 10
look_once(imports, "_is_package_available")


def accelerator_for(precision: str, **options: Any) -> Accelerator:
    """With FP16 as on a GPU: on a CPU `mixed_precision="fp16"` alone quietly trains in FP32."""
    AcceleratorState._reset_state(True)  # one for all Accelerators of a process, and its precision is the first one's
    GradientState._reset_state()
    made = Accelerator(mixed_precision={"fp32": "no"}.get(precision, precision), cpu=True, **options)
    if precision == "fp16":
        made.native_amp, made.scaler = True, torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=3)
    return made


def net() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    found = [
        (torch.randn(4, 6, generator=generator), torch.randn(4, 2, generator=generator)) for _ in range(NUM_BATCHES)
    ]
    found[NUM_BATCHES // 2][0].mul_(3e4)  # overflows FP16
    return found


def loop(
    accelerator: Accelerator,
    clipping: float | None,
    begin: Callable[..., Any] = lambda accelerator: None,
    fused: bool = False,
) -> tuple[list[Seen], torch.nn.Module]:
    """A loop as Accelerate's own guide has it."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=fused)
    loader = torch.utils.data.DataLoader(batches(), batch_size=None)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    begin(accelerator)
    seen: list[Seen] = []
    losses: list[float] = []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = (model(inputs).float() - targets).pow(2).mean()
            losses.append(float(loss))
            scale = None if accelerator.scaler is None else accelerator.scaler.get_scale()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norm = norm_of(list(model.parameters())) / (scale or 1.0)
                rate = optimizer.param_groups[0]["lr"]
                seen.append(Seen(losses, scale, norm, scale is None or norm < float("inf"), rate))
                losses = []
                if clipping is not None:
                    accelerator.clip_grad_norm_(model.parameters(), clipping)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    accelerator.end_training()
    return seen, model
