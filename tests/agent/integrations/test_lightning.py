"""The callback in real Lightning trainings, step by step against what the training itself reads."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from halfscope.integrations.lightning import HalfscopeCallback
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins import MixedPrecision

from tests.agent.integrations.conftest import Seen, assert_same, norm_of, only

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Lightning warns of few workers, small data and what else
]

NUM_BATCHES = 10


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
        self.save_hyperparameters()
        self.settings = settings
        self.seen: list[Seen] = []
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        inputs, targets = batch
        loss = (self.net(inputs).float() - targets).pow(2).mean()
        self.losses.append(float(loss.detach()))
        self.log("fit/loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-2, **self.settings)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        scale = None if scaler is None else scaler.get_scale()
        divide_by = scale if scale is not None and self.settings.get("fused") else 1.0
        norm = norm_of(list(self.parameters())) / divide_by
        applied = scaler is None or (norm == norm and norm != float("inf"))
        self.seen.append(Seen(self.losses, scale, norm, applied))
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


@pytest.mark.parametrize(
    ("precision", "accumulation", "clipping"), list(itertools.product(["fp32", "fp16", "bf16"], [1, 4], [None, 0.5]))
)
def test_every_step_is_what_the_training_sees(
    precision: str, accumulation: int, clipping: float | None, journals: Path
) -> None:
    """Scale, skip, applied steps, loss and norm of each step; weights bit for bit those of a training without us."""
    options = {"accumulate_grad_batches": accumulation, "gradient_clip_val": clipping}
    plain = Net()
    trainer(precision, **options).fit(plain)
    watched = Net()
    trainer(precision, callbacks=[HalfscopeCallback()], **options).fit(watched)
    assert [p.tolist() for p in plain.parameters()] == [p.tolist() for p in watched.parameters()]
    recorded = only(journals)
    assert len(plain.seen) == -(-NUM_BATCHES // accumulation)
    if precision == "fp16":
        assert {seen.applied for seen in plain.seen} == {True, False}
    assert_same(recorded, plain.seen)
    assert recorded.end is not None
    assert recorded.end.outcome == "finished"
    assert recorded.facts["precision"] == {"fp32": "FP32", "fp16": "FP16-AMP", "bf16": "BF16-AMP"}[precision]
    if clipping is not None:
        clipped = recorded.series("grad.norm_clipped")
        assert clipped
        assert all(norm <= clipping * 1.001 for norm in clipped.values())
