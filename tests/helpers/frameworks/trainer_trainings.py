"""Trainings by Hugging Face's Trainer that keep what they see of each of their steps. Imports Transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate.utils import imports
from transformers import Trainer, TrainerCallback, TrainingArguments

from tests.helpers.frameworks.seen import Seen, look_once, norm_of

__all__ = ["BATCH", "NUM_ROWS", "Net", "TrainerCallback", "trainer"]

NUM_ROWS, BATCH = 40, 4
look_once(imports, "_is_package_available")


class Net(torch.nn.Module):
    """A small regression with the signature that the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        if labels is None:
            return {"logits": logits}
        return {"loss": (logits.float() - labels).pow(2).mean(), "logits": logits}


def rows() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    found = [
        {"x": torch.randn(6, generator=generator), "labels": torch.randn(2, generator=generator)}
        for _ in range(NUM_ROWS)
    ]
    for row in found[NUM_ROWS // 2 : NUM_ROWS // 2 + BATCH]:
        row["x"].mul_(3e4)  # overflows FP16
    return found


class Reading(Trainer):
    """Keeps what it sees of each of its steps; makes FP16 real on a CPU, where Accelerate quietly trains in FP32."""

    def __init__(self, *args: Any, fused: bool = False, **kwargs: Any) -> None:
        self.seen: list[Seen] = []
        self.open: Seen | None = None
        self.fused = fused
        super().__init__(*args, **kwargs)

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.args.fp16:
            self.accelerator.native_amp = True
            self.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=3)

    def create_optimizer(self, *args: Any) -> torch.optim.Optimizer:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2, fused=self.fused)
        return self.optimizer

    def _get_train_sampler(self, *args: Any) -> None:
        return None  # in order

    def training_step(self, model: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        scaler = self.accelerator.scaler
        scale = None if scaler is None else scaler.get_scale()
        loss = super().training_step(model, *args, **kwargs)
        if self.open is None:
            self.open = Seen([0.0], scale)
        self.open.losses[0] += float(loss)
        self.open.norm = norm_of(list(model.parameters())) / (scale or 1.0)
        self.open.applied = scaler is None or self.open.norm < float("inf")
        self.open.rate = self.optimizer.param_groups[0]["lr"]
        if self.accelerator.sync_gradients:
            self.seen.append(self.open)
            self.open = None
        return loss


def trainer(
    folder: Path,
    precision: str = "fp32",
    callbacks: Any = None,
    *,
    fused: bool = False,
    model: Net | None = None,
    **options: Any,
) -> Reading:
    """Ready to train ten batches."""
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=BATCH, num_train_epochs=1, use_cpu=True, report_to=[],
        disable_tqdm=True, fp16=precision == "fp16", bf16=precision == "bf16", save_strategy=options.pop("save", "no"),
        logging_steps=options.pop("logging_steps", 2), **options,
    )  # fmt: skip
    return Reading(
        model or Net(), arguments, train_dataset=rows(), eval_dataset=rows()[:8], callbacks=callbacks, fused=fused
    )
