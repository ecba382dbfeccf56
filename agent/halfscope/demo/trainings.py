"""What the demo trains: five runs, and one of two ranks, each a few numbers.

Must not import torch, so that `--list` answers at once. Invariant: runs of one network share seed,
batches and schedule; only precision and the stated mistakes differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

SAFE_MASK_CONSTANT = -1e4
"""Large enough that softmax makes it zero, small enough for FP16 (65,504)."""
TROUBLED_MASK_CONSTANT = -1e9
"""Fine in FP32 and BF16. FP16 has no such number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One run of the demo."""

    name: str
    network: Literal["cnn", "transformer"]
    fp16: bool
    """FP16 autocast with GradScaler; FP32 otherwise."""
    learning_rate: float
    mask_constant: float = SAFE_MASK_CONSTANT
    max_norm: float | None = 1.0
    """Gradients are clipped to this norm; None: not clipped."""
    init_scale: float = 2.0**16
    growth_interval: int = 300
    """Clean steps before the scale doubles. PyTorch's 2,000 would leave a run this short with one growth at most; far
    fewer would hold the scale so close to its limit that every harder batch than usual is a skip."""
    label_smoothing: float = 0.1
    """Keeps gradients of a like size to the end. Without it they fall by thousands once the digits are known, and the
    few images that are not stand out so far that they alone overflow, at any scale that suits the rest."""
    batch_size: int = 32
    warmup_share: float = 0.015
    """Part of the steps over which the learning rate rises from zero; it then falls along a cosine."""
    num_steps: int = 3000
    seed: int = 7
    baseline: str | None = None
    """The run that it is compared with."""
    num_ranks: int = 1
    """Processes under DistributedDataParallel; the last of them reads the odd shard now and then."""

    def config(self) -> Mapping[str, Any]:
        """What the run shows on its Config page."""
        return {key: value for key, value in asdict(self).items() if key != "baseline"}


TRAININGS = (
    Training(name="fp32-cnn", network="cnn", fp16=False, learning_rate=4e-3),
    # Too high at first, so that a scale is seen to settle.
    Training(name="fp16-cnn", network="cnn", fp16=True, learning_rate=4e-3, init_scale=2.0**20, baseline="fp32-cnn"),
    Training(name="fp32-transformer", network="transformer", fp16=False, learning_rate=1.5e-3),
    Training(
        name="fp16-transformer", network="transformer", fp16=True, learning_rate=1.5e-3, baseline="fp32-transformer"
    ),
    Training(
        name="fp16-troubled",
        network="transformer",
        fp16=True,
        learning_rate=2e-2,
        mask_constant=TROUBLED_MASK_CONSTANT,
        max_norm=None,
        init_scale=2.0**24,
        # Its scale has a long way back.
        growth_interval=100,
        baseline="fp32-transformer",
    ),
)

RANKS_TRAININGS = (
    Training(
        name="fp16-two-ranks",
        network="transformer",
        fp16=True,
        learning_rate=1.5e-3,
        mask_constant=TROUBLED_MASK_CONSTANT,
        # Between two visits to the odd shard the scale has time to come back.
        growth_interval=100,
        num_ranks=2,
    ),
)
"""Of `halfscope demo --ranks`."""


def find(name: str) -> Training:
    """The training of that name.

    Raises:
        ValueError: there is none; names those that exist.
    """
    trainings = TRAININGS + RANKS_TRAININGS
    for training in trainings:
        if training.name == name:
            return training
    raise ValueError(f"no demo run is called {name!r}; there are {', '.join(each.name for each in trainings)}")
