"""Real small trainings in which nothing is wrong, as usual as can be and as odd as healthy ones get.

    python healthy.py FOLDER COURSE PRECISION SEED NUM_STEPS

writes its journal below FOLDER, as a real agent does. Must not import halfscope_server. Invariant: whatever a course
does differently is something that people do on purpose and would not want to be woken for.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import halfscope
import torch
from torch import nn
from torch.nn import functional

BATCH, WIDTH, CLASSES = 32, 32, 8
LEARNING_RATE = 2e-3
GROWTH_INTERVAL = 500
"""So that the scale probes a few times in a few thousand steps."""
PAUSE_S = 0.25
"""A hundred times a step of these: an evaluation, or a checkpoint on a slow disk."""


class Training:
    """One of them; a course overrides what it does differently."""

    growth_interval = GROWTH_INTERVAL
    init_scale = 2.0**16
    micro_batches = 1
    max_norm: float | None = None
    loss_every = 1

    def __init__(self, precision: str, seed: int, num_steps: int) -> None:
        torch.manual_seed(seed)
        self.num_steps = num_steps
        self.kind = {"FP16": torch.float16, "BF16": torch.bfloat16}.get(precision)
        self.teacher = torch.randn(WIDTH, CLASSES)
        self.model = self.net()
        self.optimizer = self.make_optimizer()
        self.scaler = None
        if precision == "FP16":
            self.scaler = torch.amp.GradScaler("cpu", init_scale=self.init_scale, growth_interval=self.growth_interval)

    def net(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(WIDTH, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES)
        )

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE)

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Labels of a teacher, a tenth of them wrong."""
        inputs = torch.randn(BATCH, WIDTH)
        labels = (inputs @ self.teacher).argmax(dim=1)
        wrong = torch.rand(BATCH) < 0.1
        return inputs, torch.where(wrong, torch.randint(CLASSES, (BATCH,)), labels)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(inputs).float(), labels)

    def begin(self, step: int, run: Any) -> None:
        """Before each step."""

    def train(self, directory: Path, *, first: int = 0, run_id: str | None = None) -> str:
        """Gives the run's id."""
        run = halfscope.watch(
            self.model,
            self.optimizer,
            self.scaler,
            mode="offline",
            directory=directory,
            start_step=first,
            run_id=run_id,
            config={"batch_size": BATCH * self.micro_batches},
        )
        for step in range(first, first + self.num_steps):
            self.begin(step, run)
            loss = self.step(step)
            run.step(loss=loss if step % self.loss_every == 0 else None, samples=BATCH * self.micro_batches)
        run.finish()
        return str(run.id)

    def step(self, step: int) -> float:
        self.optimizer.zero_grad()
        total = 0.0
        for _ in range(self.micro_batches):
            inputs, labels = self.batch(step)
            with torch.autocast("cpu", dtype=self.kind, enabled=self.kind is not None):
                loss = self.loss(inputs, labels) / self.micro_batches
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            total += loss.item()
        self.clip()
        self.update()
        return total

    def clip(self) -> None:
        if self.max_norm is None:
            return
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)

    def update(self) -> None:
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def rate(self, share: float) -> None:
        """Of the learning rate it began with."""
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * share


class Settling(Training):
    """The scale begins far too high."""

    init_scale = 2.0**30


class NearZero(Training):
    """A loss that ends at nothing, of data without noise."""

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(BATCH, WIDTH)
        return inputs, 1e-3 * (inputs @ self.teacher)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(self.model(inputs).float(), labels)


class Memorised(Training):
    """One small set, learnt by heart: the loss and most gradients end at nearly nothing."""

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(step % 4)
        inputs = torch.randn(BATCH, WIDTH, generator=generator)
        return inputs, (inputs @ self.teacher).argmax(dim=1)


class Restarts(Training):
    """Warm-up, then a cosine that begins anew every 600 steps."""

    def begin(self, step: int, run: Any) -> None:
        warm, phase = min(1.0, (step + 1) / 200), (step % 600) / 600
        self.rate(warm * 0.5 * (1 + math.cos(math.pi * phase)) + 1e-4)


class Accumulated(Training):
    """Four micro-batches to a step."""

    micro_batches = 4


class Evaluated(Training):
    """A pause after every 250 steps, with what was measured in it."""

    def begin(self, step: int, run: Any) -> None:
        if step and step % 250 == 0:
            time.sleep(PAUSE_S)
            with torch.no_grad():
                inputs = torch.randn(512, WIDTH)
                right = self.model(inputs).argmax(dim=1) == (inputs @ self.teacher).argmax(dim=1)
            run.log({"val/accuracy": right.float().mean().item()})


class Saved(Training):
    """A checkpoint every 400 steps, on a slow disk."""

    def begin(self, step: int, run: Any) -> None:
        if step % 400 == 399:
            torch.save(self.model.state_dict(), "checkpoint.pt")
            time.sleep(PAUSE_S * 2)


class Spikes(Training):
    """One batch in sixty has gradients fifty times as large; they are clipped."""

    max_norm = 1.0

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, labels = super().batch(step)
        return (inputs * 50 if torch.rand(()) < 1 / 60 else inputs), labels


class Sparse(Training):
    """Rows of an embedding that few batches touch, an expert that few use, dropout, and a frozen layer."""

    def net(self) -> nn.Module:
        return _Sparse()

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        # As words are: a few of them make up most of a text.
        words = (torch.rand(BATCH, 6).pow(4) * 400).long()
        return words, words.sum(dim=1) % CLASSES


class _Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(400, 32)
        self.frozen = nn.Linear(32, 32)
        self.frozen.requires_grad_(False)
        self.usual, self.seldom = nn.Linear(32, 32), nn.Linear(32, 32)
        self.head = nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, CLASSES))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.frozen(self.words(words).mean(dim=1)))
        expert = self.seldom if torch.rand(()) < 0.1 else self.usual
        logits: torch.Tensor = self.head(expert(hidden))
        return logits


class Seldom(Training):
    """The loss is told every fiftieth step."""

    loss_every = 50


class AroundZero(Training):
    """A policy's loss: on both sides of zero, with no level of its own."""

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        chances = torch.log_softmax(self.model(inputs).float(), dim=1)
        taken = torch.multinomial(chances.exp(), 1).squeeze(1)
        reward = (taken == labels).float()
        return -(chances.gather(1, taken[:, None]).squeeze(1) * (reward - reward.mean())).mean()


class Momentum(Training):
    """SGD, with a rate that drops tenfold twice."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def begin(self, step: int, run: Any) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = 0.05 * 0.1 ** (3 * step // self.num_steps)


class Ends(Training):
    """A schedule that ends at a rate of nothing."""

    def begin(self, step: int, run: Any) -> None:
        self.rate(max(0.0, 1 - step / (0.9 * self.num_steps)))


class Gan(Training):
    """Two players with an optimizer each, under one scaler."""

    def __init__(self, precision: str, seed: int, num_steps: int) -> None:
        super().__init__(precision, seed, num_steps)
        self.critic = nn.Sequential(nn.Linear(WIDTH, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
        self.maker = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, WIDTH))
        self.players = [torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.99)) for m in (self.critic, self.maker)]
        self.shape = torch.randn(16, WIDTH) / 4
        self.model = nn.ModuleDict({"critic": self.critic, "maker": self.maker})
        self.optimizer = {"critic": self.players[0], "maker": self.players[1]}  # type: ignore[assignment]

    def step(self, step: int) -> float:
        real = torch.tanh(torch.randn(BATCH, 16) @ self.shape)
        total = 0.0
        for at, player in enumerate(self.players):
            player.zero_grad()
            with torch.autocast("cpu", dtype=self.kind, enabled=self.kind is not None):
                made = self.maker(torch.randn(BATCH, 16))
                told = self.critic(made.detach() if at == 0 else made).float()
                loss = functional.softplus(told if at == 0 else -told).mean()
                if at == 0:
                    loss = loss + functional.softplus(-self.critic(real).float()).mean()
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            if self.scaler is None:
                player.step()
            else:
                self.scaler.step(player)
            total += loss.item()
        if self.scaler is not None:
            self.scaler.update()
        return total


class Resumed(Training):
    """Stopped after two thirds and begun anew a little before, from its checkpoint; the scale begins at its start."""

    def train(self, directory: Path, *, first: int = 0, run_id: str | None = None) -> str:
        whole, self.num_steps = self.num_steps, 2 * self.num_steps // 3
        run = super().train(directory)
        first, self.num_steps = self.num_steps - 50, whole - self.num_steps + 50
        self.optimizer = self.make_optimizer()
        if self.scaler is not None:
            self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=self.growth_interval)
        return super().train(directory, first=first, run_id=run)


class WarmUp(Training):
    """A scale that begins at 2^24, under a rate that begins at nothing."""

    init_scale = 2.0**24

    def begin(self, step: int, run: Any) -> None:
        self.rate(min(1.0, step / 400))


class Short(Training):
    """Twenty steps, to see whether it runs."""

    def __init__(self, precision: str, seed: int, num_steps: int) -> None:
        super().__init__(precision, seed, 20)


class Done(Memorised):
    """A hinge loss of examples that are soon told apart: exactly 0 from then on, and no gradient."""

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.multi_margin_loss(self.model(inputs).float(), labels)


class Thawed(Training):
    """The first layer is frozen for a third, learns for a third, and is frozen again."""

    def begin(self, step: int, run: Any) -> None:
        learns = self.num_steps // 3 <= step < 2 * self.num_steps // 3
        first = next(iter(self.model.children()))
        for parameter in first.parameters():
            parameter.requires_grad_(learns)


class Usual(Training):
    """As PyTorch comes."""

    growth_interval = 2000


COURSES: dict[str, Callable[[str, int, int], Training]] = {
    "usual": Usual,
    "probing": Training,
    "settling": Settling,
    "near_zero": NearZero,
    "memorised": Memorised,
    "restarts": Restarts,
    "accumulated": Accumulated,
    "evaluated": Evaluated,
    "saved": Saved,
    "spikes": Spikes,
    "sparse": Sparse,
    "seldom": Seldom,
    "around_zero": AroundZero,
    "momentum": Momentum,
    "ends": Ends,
    "gan": Gan,
    "resumed": Resumed,
    "warm_up": WarmUp,
    "short": Short,
    "done": Done,
    "thawed": Thawed,
}


def main(folder: Path, course: str, precision: str, seed: int, num_steps: int) -> None:
    torch.set_num_threads(1)
    COURSES[course](precision, seed, num_steps).train(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
