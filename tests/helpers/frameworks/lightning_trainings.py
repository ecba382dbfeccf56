"""Trainings by Lightning that keep what they see of each of their steps. Imports Lightning."""

from __future__ import annotations

from typing import Any

import torch
from lightning.fabric.utilities import registry
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins import MixedPrecision

from tests.helpers.frameworks.seen import Seen, look_once, norm_of

__all__ = ["NUM_BATCHES", "Net", "Trainer", "batches", "norm_of", "trainer"]

NUM_BATCHES = 10
look_once(registry, "entry_points")


def batches(num: int = NUM_BATCHES, size: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    found = [(torch.randn(size, 6, generator=generator), torch.randn(size, 2, generator=generator)) for _ in range(num)]
    found[num // 2][0].mul_(3e4)  # overflows FP16
    return found


class Net(LightningModule):
    """A small regression that keeps what it sees of each of its steps."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        self.save_hyperparameters({"weight_decay": 0.0, **settings})
        self.settings = settings
        self.seen: list[Seen] = []
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        inputs, targets = batch
        loss = (self.net(inputs).float() - targets).pow(2).mean()
        self.losses.append(float(loss.detach()))
        self.log("fit/loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2, **self.settings)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        scale = None if scaler is None else scaler.get_scale()
        divide_by = scale if scale is not None and self.settings.get("fused") else 1.0
        norm = norm_of(list(self.parameters())) / divide_by
        applied = scaler is None or (norm == norm and norm != float("inf"))
        self.seen.append(Seen(self.losses, scale, norm, applied, optimizer.param_groups[0]["lr"]))
        self.losses = []

    def train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(batches(), batch_size=None)


def trainer(precision: str = "fp32", **options: Any) -> Trainer:
    plugins: list[Any] = []
    if precision == "fp16":
        # Lightning makes BF16 of precision="16-mixed" on a CPU: this is what it does on a GPU.
        plugins = [
            MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3))
        ]
    elif precision == "bf16":
        options["precision"] = "bf16-mixed"
    return Trainer(
        accelerator="cpu", plugins=plugins, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, max_epochs=options.pop("max_epochs", 1), **options,
    )  # fmt: skip
