"""Who holds the others up: busy times of a block of steps, and the rank that is slow all through it.

Must not read the store. Invariant: a rank that is slow only now and then, by a hiccup or a checkpoint, is none.

Suffixes: R ranks, S steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCK = 50
"""Steps that are looked at together."""
SLOW_SHARE = 0.2
"""Over the others' median: from here on it is told."""
LEAST_EXTRA_S = 1e-3
"""Of steps of a few milliseconds a fifth is noise of the clock and the scheduler."""
LEAST_STEPS = 0.8
"""Of a half block: so many steps must have been timed on each rank."""
SLOW_STEPS = 0.75
"""In so many of the steps of each half it must itself have been slower than the others by half of that share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Busy times of 50 steps, the first a multiple of 50."""

    first_step: int
    ranks: tuple[int, ...]
    busy_s: NDArray[np.float64]
    """[R, S]; NaN where it is not known."""
    step_s: float | None
    """Median step time of all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A rank that holds the others up."""

    rank: int
    since_step: int
    busy_s: float
    others_s: float
    step_s: float | None

    @property
    def extra_s(self) -> float:
        return self.busy_s - self.others_s

    @property
    def cost_share(self) -> float:
        """Of the job's step time."""
        return min(1.0, self.extra_s / self.step_s) if self.step_s else self.extra_s / self.busy_s


def slowest(block: Block) -> Slow | None:
    """The slowest rank, where it is slow in both halves of the block."""
    half = block.busy_s.shape[1] // 2
    both = [_slow_in(block.busy_s[:, part]) for part in (slice(0, half), slice(half, None))]
    if both[0] is None or both[0] != both[1]:
        return None
    row = both[0]
    medians = np.nanmedian(block.busy_s, axis=1)
    others = float(np.median(np.delete(medians, row)))
    return Slow(
        rank=block.ranks[row],
        since_step=block.first_step,
        busy_s=float(medians[row]),
        others_s=others,
        step_s=block.step_s,
    )


def _slow_in(busy_s: NDArray[np.float64]) -> int | None:
    """Row of the slowest rank, where it is slow."""
    if len(busy_s) < 2 or bool((np.isfinite(busy_s).mean(axis=1) < LEAST_STEPS).any()):
        return None
    medians = np.nanmedian(busy_s, axis=1)
    row = int(medians.argmax())
    others = float(np.median(np.delete(medians, row)))
    is_slow = medians[row] > (1 + SLOW_SHARE) * others and medians[row] - others > LEAST_EXTRA_S
    of_steps = np.delete(busy_s, row, axis=0)
    with np.errstate(all="ignore"):
        beside = np.nanmedian(of_steps, axis=0) if not np.isnan(of_steps).all(axis=0).any() else np.full(1, others)
        slow_steps = busy_s[row] > (1 + SLOW_SHARE / 2) * beside
    return row if is_slow and float(slow_steps.mean()) >= SLOW_STEPS else None
