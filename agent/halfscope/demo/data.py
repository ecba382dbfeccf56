"""The handwritten digits that scikit-learn ships, cut into training and held-out images, and the order of reading.

Must not import the agent: these are plain trainings. Invariant: the batches are a function of (seed, step) alone, so
runs that differ only in precision see the same images in the same order.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

NUM_HELD_OUT = 360
"""A fifth of the 1,797 images."""
SIDE = 8
"""The images are 8 x 8 pixels."""
SHARD_SHIFT_ROWS = 1
"""How far down the scans of the odd shard sit: so many rows at their top are blank."""
SHARD_SHARE = 0.02
"""Chance that an image comes from the odd shard while that is read: about every second batch of 32 then holds one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """Images as float32 in 0..1 of shape (count, SIDE, SIDE), labels 0..9."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    held_out_images: torch.Tensor
    held_out_labels: torch.Tensor


def load_digits() -> Digits:
    """The data set, always cut the same way.

    Raises:
        ImportError: scikit-learn is not installed; says how to get it.
    """
    table = np.loadtxt(_packaged_file(), delimiter=",", dtype=np.float32)
    images = torch.from_numpy(table[:, :-1].reshape(-1, SIDE, SIDE) / np.float32(16.0))
    targets = torch.from_numpy(table[:, -1].astype(np.int64))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1797))
    held_out, train = order[:NUM_HELD_OUT], order[NUM_HELD_OUT:]
    return Digits(
        train_images=images[train],
        train_labels=targets[train],
        held_out_images=images[held_out],
        held_out_labels=targets[held_out],
    )


def _packaged_file() -> Path:
    """Where scikit-learn keeps the digits.

    Read from the file, because importing scikit-learn for its `load_digits` costs two seconds of processor time in each
    of the five trainings that begin together.
    """
    found = importlib.util.find_spec("sklearn")
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz" if found and found.origin else None
    if path is None or not path.is_file():
        raise ImportError(
            "the demo trains on the digits that scikit-learn ships, and scikit-learn is not installed: "
            "pip install 'halfscope[demo]'"
        )
    return path


def shift_down(images: torch.Tensor, rows: int) -> torch.Tensor:
    """The same scans lower on the page: blank rows at the top, the lowest rows cut off."""
    return torch.nn.functional.pad(images[:, : SIDE - rows], (0, 0, rows, 0))


def batch(digits: Digits, *, seed: int, step: int, size: int, odd_shard: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of one step.

    Args:
        odd_shard: the loader is inside the shard whose scans sit lower on the page: some images have blank first rows.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    picked = torch.randint(0, len(digits.train_images), (size,), generator=generator)
    images, labels = digits.train_images[picked], digits.train_labels[picked]
    if odd_shard:
        low = torch.rand(size, generator=generator) < SHARD_SHARE
        images = torch.where(low[:, None, None], shift_down(images, SHARD_SHIFT_ROWS), images)
    return images, labels
