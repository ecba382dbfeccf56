"""The training loop of the demo: an ordinary PyTorch loop, watched by the documented three lines.

Owns one run from seed to held-out accuracy. Invariant: what halfscope sees is real; nothing here makes up a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn import functional

import halfscope
from halfscope.config import Mode
from halfscope.demo.data import Digits, batch, load_digits
from halfscope.demo.models import ConvNet, RowTransformer
from halfscope.demo.trainings import Training

NUM_REPORTS = 100
"""Progress lines per run; each also measures the held-out accuracy."""
SHARD_START_SHARE = 0.4
"""Where in the run the loader comes to the odd shard."""
SHARD_STEPS = 80
"""How many steps it stays there: enough for the scale of the troubled run to fall by some thirty halvings, far below 1,
where the gradients of whole layers underflow until it has grown again."""
VISIT_EVERY = 300
VISIT_STEPS = 3
"""How often the last of several ranks reads the odd shard, and for how long: one or two of its batches overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands."""

    run: str
    step: int
    """Steps done."""
    total: int
    loss: float
    accuracy: float
    """Share of the held-out images named rightly."""


def train(
    training: Training,
    *,
    num_steps: int | None = None,
    server: str | None = None,
    mode: Mode | None = None,
    project: str = "halfscope-demo",
) -> Iterator[Progress]:
    """Trains one run and says now and then where it stands.

    Args:
        num_steps: fewer or more steps than the training's own.
        server: address of the server to send to.
        mode: as for `halfscope.watch`.
    """
    total = training.num_steps if num_steps is None else num_steps
    digits = load_digits()
    torch.manual_seed(training.seed)
    network: torch.nn.Module
    network = ConvNet() if training.network == "cnn" else RowTransformer(training.mask_constant)
    rank = 0
    model = network
    if training.num_ranks > 1:
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        model = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.learning_rate)
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=training.init_scale, growth_interval=training.growth_interval, enabled=training.fp16
    )
    run = halfscope.watch(
        model,
        optimizer,
        scaler,
        project=project,
        name=training.name,
        config={**training.config(), "num_steps": total},
        tags=["demo"],
        baseline=training.baseline,
        every=10,  # steps as short as these can afford far fewer, and the demo is there to show them
        server=server,
        mode=mode,
    )
    report_every = max(1, total // NUM_REPORTS)
    for step in range(total):
        for group in optimizer.param_groups:
            group["lr"] = training.learning_rate * lr_factor(step, total, training.warmup_share)
        images, labels = batch(
            digits,
            seed=training.seed + rank,
            step=step,
            size=training.batch_size,
            odd_shard=_reads_odd_shard(training, rank, step, total),
        )
        loss = update(model, optimizer, scaler, images, labels, training)
        run.step(loss=loss, samples=len(labels))
        if (step + 1) % report_every == 0 or step + 1 == total:
            accuracy = held_out_accuracy(network, digits, training)
            run.log(**{"val/accuracy": accuracy})
            yield Progress(run=training.name, step=step + 1, total=total, loss=float(loss), accuracy=accuracy)
    run.finish()
    if training.num_ranks > 1:
        dist.destroy_process_group()


def _reads_odd_shard(training: Training, rank: int, step: int, total: int) -> bool:
    if training.num_ranks > 1:
        return rank == training.num_ranks - 1 and step % VISIT_EVERY >= VISIT_EVERY - VISIT_STEPS
    start = int(SHARD_START_SHARE * total)
    return start <= step < start + SHARD_STEPS


def update(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    images: torch.Tensor,
    labels: torch.Tensor,
    training: Training,
) -> torch.Tensor:
    """One attempt to update; returns the loss, unscaled and detached."""
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16, enabled=training.fp16):
        loss = functional.cross_entropy(model(images), labels, label_smoothing=training.label_smoothing)
    scaler.scale(loss).backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    if training.max_norm is not None:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@torch.no_grad()
def held_out_accuracy(model: torch.nn.Module, digits: Digits, training: Training) -> float:
    """Share of the held-out images named rightly, computed in the precision that the run trains in."""
    with torch.autocast("cpu", dtype=torch.float16, enabled=training.fp16):
        named = model(digits.held_out_images).argmax(-1)
    return float((named == digits.held_out_labels).float().mean())


def lr_factor(step: int, total: int, warmup_share: float) -> float:
    """Linear rise over the warm-up, then a half cosine down to zero."""
    warmup = max(1, int(warmup_share * total))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))
