"""Real small trainings on the handwritten digits, each recorded by a real agent, for whatever compares runs.

    python compared_trainings.py FOLDER [RECIPE-AS-JSON ...]

writes the journal of each recipe below FOLDER/<its key>. Recipes are data (no torch is needed to make one) and are
listed by name at the end. Invariant: what a recipe does not say differently is the same in all, to the bit.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

TROUBLE_STEP = 100
"""Where whatever goes wrong in a recipe begins to."""
NARROW_LOG2 = -12
"""The layer `narrow` works with large weights and takes its result down by this: gradients as small are what it has."""
OUTLIER = 1e6
"""No FP16 number, and harmless in FP32: the layer that sees it saturates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One training."""

    precision: Literal["FP32", "FP16", "FP16-unscaled", "BF16-AMP", "BF16"] = "FP32"
    """FP16 is autocast with a GradScaler, FP16-unscaled without one, BF16 is parameters of that type."""
    seed: int = 0
    """Of the weights, and of the order of the batches where that is not given."""
    order_seed: int | None = None
    batch_size: int = 64
    accumulate: int = 1
    """Micro-batches of `batch_size` to a step."""
    num_steps: int = 250
    learning_rate: float = 1e-3
    optimizer: Literal["adam", "sgd"] = "adam"
    eps: float = 1e-10
    """Adam's. With less, or with twice the learning rate, healthy FP16 ends up to 2% from FP32, either way."""
    net: Literal["digits", "wide", "plain", "tiny"] = "digits"
    """`wide` has other widths, `plain` no narrow layer; `tiny` is twenty linear layers of 64 x 64, which learn
    nothing."""
    scale: float = 2.0**16
    held_scale: float | None = None
    """What the scale is set to at `TROUBLE_STEP`, for good."""
    num_outliers: int = 0
    """Batches from `TROUBLE_STEP` on that hold a number beyond FP16."""
    max_norm: float | None = None
    loss_every: int = 1
    """Steps between two that tell their loss."""
    every: int = 10
    """Steps between two whose gradients are sketched."""
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    """torch's, of float32."""
    name: str = ""
    """Two of the same recipe are told apart by it."""

    @property
    def key(self) -> str:
        """One word that tells it from every other."""
        usual = asdict(Recipe())
        changed = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return "_".join(f"{name}-{value}" for name, value in changed.items()) or "usual"


SEEDS = (1, 2, 3)
SMALL_STEPS = 4e-5
NUM_OUTLIERS = 45
"""The scale is halved as often."""

RECIPES: dict[str, Recipe] = {
    # Nothing is wrong with these.
    "fp32": Recipe(),
    "fp32_again": Recipe(name="again"),
    **{f"fp32_seed{seed}": Recipe(seed=seed) for seed in SEEDS},
    "fp16": Recipe(precision="FP16"),
    **{f"fp16_seed{seed}": Recipe(precision="FP16", seed=seed) for seed in SEEDS[:1]},
    "bf16_amp": Recipe(precision="BF16-AMP"),
    "fp32_seldom": Recipe(loss_every=7, every=25),
    # Other data, other work.
    "fp32_other_order": Recipe(order_seed=77),
    "fp32_batch32": Recipe(batch_size=32, num_steps=500),
    "fp32_accumulated": Recipe(batch_size=32, accumulate=2),
    # Worse, and why.
    "fp16_underflow": Recipe(precision="FP16", held_scale=2.0**-5),
    "fp16_underflow_always": Recipe(precision="FP16", scale=2.0**-5),
    "fp32_small_steps": Recipe(learning_rate=SMALL_STEPS),
    "bf16_lost_updates": Recipe(precision="BF16", learning_rate=SMALL_STEPS),
    "fp32_outliers": Recipe(num_outliers=NUM_OUTLIERS),
    "fp16_collapsed": Recipe(precision="FP16", num_outliers=NUM_OUTLIERS),
    "fp16_poisoned": Recipe(precision="FP16-unscaled", num_outliers=NUM_OUTLIERS),
    # Speed.
    "tiny_fp32": Recipe(net="tiny", num_steps=100, batch_size=32),
    "tiny_fp16": Recipe(net="tiny", num_steps=100, batch_size=32, precision="FP16"),
}
"""By name. The baseline of those that are worse is `fp32`, `fp32_small_steps` or `fp32_outliers`: which shares their
other numbers. `fp16_underflow` begins at `TROUBLE_STEP`, in `narrow` and in what lies before it."""


def main(folder: Path, recipes: list[Recipe]) -> None:
    import torch

    torch.set_num_threads(1)
    for recipe in recipes:
        train(recipe, folder / recipe.key)


def train(recipe: Recipe, directory: Path) -> None:
    """Records one training."""
    import halfscope
    import torch

    torch.set_float32_matmul_precision(recipe.matmul_precision)
    torch.manual_seed(recipe.seed)
    model = _net(recipe)
    if recipe.precision == "BF16":
        model = model.bfloat16()
    optimizer = _optimizer(recipe, model)
    scaler = None
    if recipe.precision == "FP16":
        scaler = torch.amp.GradScaler("cpu", init_scale=recipe.scale)
    run = halfscope.watch(
        model,
        optimizer,
        scaler,
        mode="offline",
        directory=directory,
        every=recipe.every,
        name=recipe.name or recipe.precision.lower(),
        project="compared",
        config={
            "seed": recipe.seed,
            "precision": recipe.precision,
            "batch_size": recipe.batch_size * recipe.accumulate,
            "learning_rate": recipe.learning_rate,
        },
    )
    for step, (inputs, targets) in enumerate(_batches(recipe)):
        if scaler is not None and step == TROUBLE_STEP and recipe.held_scale is not None:
            scaler.update(recipe.held_scale)
        loss = _step(recipe, model, optimizer, scaler, inputs, targets)
        told = loss if step % recipe.loss_every == 0 else None
        run.step(loss=told, samples=recipe.batch_size * recipe.accumulate)
    run.finish()


def _step(
    recipe: Recipe,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None,
    inputs: torch.Tensor,
    targets: torch.Tensor,
) -> float:
    import torch
    from torch.nn import functional

    kind = {"FP16": torch.float16, "FP16-unscaled": torch.float16, "BF16-AMP": torch.bfloat16}.get(recipe.precision)
    optimizer.zero_grad()
    total = 0.0
    for part, labels in zip(inputs.chunk(recipe.accumulate), targets.chunk(recipe.accumulate), strict=True):
        part = part.bfloat16() if recipe.precision == "BF16" else part
        with torch.autocast("cpu", dtype=kind, enabled=kind is not None):
            outputs = model(part)
        loss = functional.cross_entropy(outputs.float(), labels) / recipe.accumulate
        (loss if scaler is None else scaler.scale(loss)).backward()
        total += loss.item()
    if recipe.max_norm is not None:
        if scaler is not None:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_norm)
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    return total


def _net(recipe: Recipe) -> torch.nn.Module:
    import torch
    from torch import nn

    width = 64 if recipe.net == "wide" else 48
    gain = 2.0**NARROW_LOG2

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(64, width)
            self.narrow = nn.Linear(width, width)
            self.body = nn.Linear(width, width)
            self.head = nn.Linear(width, 10)
            with torch.no_grad():
                for parameter in self.narrow.parameters():
                    parameter.div_(gain)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.stem(images))
            hidden = torch.tanh(self.narrow(hidden) * gain)
            logits: torch.Tensor = self.head(torch.relu(self.body(hidden)))
            return logits

    if recipe.net == "tiny":
        return nn.Sequential(*[nn.Linear(64, 64) for _ in range(20)])
    if recipe.net == "plain":
        layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
        return nn.Sequential(*layers)
    return Net()


def _optimizer(recipe: Recipe, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The narrow layer's large weights take steps as large."""
    import torch

    named = dict(model.named_parameters())
    narrow = [parameter for name, parameter in named.items() if name.startswith("narrow")]
    others = [parameter for name, parameter in named.items() if not name.startswith("narrow")]
    groups: list[dict[str, Any]] = [{"params": others}]
    if narrow:
        power = 1 if recipe.optimizer == "adam" else 2
        groups.append({"params": narrow, "lr": recipe.learning_rate * 2.0 ** (-NARROW_LOG2 * power)})
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=0.9)
    return torch.optim.Adam(groups, lr=recipe.learning_rate, eps=recipe.eps, foreach=True)


def _batches(recipe: Recipe) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The images of every step in an order of their own."""
    import torch

    images, labels = _digits()
    generator = torch.Generator().manual_seed(recipe.seed if recipe.order_seed is None else recipe.order_seed)
    size = recipe.batch_size * recipe.accumulate
    for step in range(recipe.num_steps):
        chosen = torch.randint(len(images), (size,), generator=generator)
        inputs, targets = images[chosen], labels[chosen]
        if TROUBLE_STEP <= step < TROUBLE_STEP + recipe.num_outliers:
            inputs[0, 0] = OUTLIER
        yield inputs, targets


@functools.cache
def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    from halfscope.demo.data import load_digits

    digits = load_digits()
    return digits.train_images.flatten(1), digits.train_labels


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Recipe(**json.loads(text)) for text in sys.argv[2:]])
