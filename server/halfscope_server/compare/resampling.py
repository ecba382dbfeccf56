"""Medians with intervals, by a bootstrap over blocks of neighbouring values.

Step times are not independent (a machine is busy for a while), so stretches are resampled, not single values: about the
square root of their number, each of that length. Must not import the store's tables. Invariant:
the same values give the same interval.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from halfscope_server.compare.noise import INTERVAL_SHARE, t_quantile
from halfscope_server.compare.types import Estimate

Floats = NDArray[np.float64]
Draw = Callable[[int], "Floats | None"]

NUM_RESAMPLES = 1000
MIN_BLOCKS, MAX_BLOCKS = 8, 128
"""With fewer blocks there is no interval."""
NUM_BINS = 512
"""Values are sorted into so many bins of equal count at most: a resample's median is that of its bin."""
HIGH = 0.5 + INTERVAL_SHARE / 2
SEED = 0


def median(values: Floats, draw: Draw | None = None) -> Estimate | None:
    """The median of values in their order of time; None: there is none.

    Args:
        draw: gives `resampled_medians` of them by seed, where they are kept.
    """
    if not values.size:
        return None
    middle = float(np.median(values))
    resampled = draw(SEED) if draw is not None else resampled_medians(values)
    if resampled is None:
        return Estimate(value=middle, count=values.size)
    low, high = _interval(np.log(resampled), np.log(middle), _num_blocks(values)) if middle > 0 else (None, None)
    return Estimate(value=middle, low=low, high=high, count=values.size)


def ratio(
    values: Floats,
    baseline: Floats,
    *,
    extra_log: float = 0.0,
    draw: Draw | None = None,
    baseline_draw: Draw | None = None,
) -> Estimate | None:
    """Median over median, both of positive values.

    Args:
        draw, baseline_draw: as of `median`.
        extra_log: half width of what else is uncertain, as a difference of logarithms.
    """
    if not values.size or not baseline.size or not np.median(baseline) > 0 or not np.median(values) > 0:
        return None
    middle = float(np.median(values) / np.median(baseline))
    count = min(values.size, baseline.size)
    own = draw(SEED) if draw is not None else resampled_medians(values)
    other = baseline_draw(SEED + 1) if baseline_draw is not None else resampled_medians(baseline, SEED + 1)
    if own is None or other is None:
        return Estimate(value=middle, count=count)
    num_blocks = min(_num_blocks(values), _num_blocks(baseline))
    low, high = _interval(np.log(own) - np.log(other), np.log(middle), num_blocks, extra_log)
    return Estimate(value=middle, low=low, high=high, count=count)


def resampled_medians(values: Floats, seed: int = SEED) -> Floats | None:
    """[R] medians of as many resamples; None: too few values for blocks."""
    num_blocks = _num_blocks(values)
    if not num_blocks:
        return None
    order = np.argsort(values, kind="stable")
    num_bins = min(NUM_BINS, values.size)
    bin_of_rank = np.arange(values.size) * num_bins // values.size
    bins = np.empty(values.size, np.int64)
    bins[order] = bin_of_rank
    block = np.arange(values.size) * num_blocks // values.size
    counts = np.bincount(block * num_bins + bins, minlength=num_blocks * num_bins).reshape(num_blocks, num_bins)
    chosen = np.random.default_rng(seed).integers(0, num_blocks, (NUM_RESAMPLES, num_blocks))
    offsets = np.arange(NUM_RESAMPLES)[:, None] * num_blocks
    times = np.bincount((chosen + offsets).ravel(), minlength=NUM_RESAMPLES * num_blocks)
    # Added up before they are drawn: the same whole numbers, of 128 blocks instead of 1,000 resamples.
    up_to_bin = np.cumsum(counts, axis=1).astype(np.float32)
    below = times.reshape(NUM_RESAMPLES, num_blocks).astype(np.float32) @ up_to_bin
    half = below[:, -1:] / 2
    lower, upper = np.count_nonzero(below < half, axis=1), np.count_nonzero(below <= half, axis=1)
    edges = np.searchsorted(bin_of_rank, np.arange(num_bins))
    inside = np.add.reduceat(values[order], edges) / np.diff(np.append(edges, values.size))
    medians: Floats = (inside[lower] + inside[upper]) / 2
    return medians


def _num_blocks(values: Floats) -> int:
    found = min(MAX_BLOCKS, int(np.sqrt(values.size)))
    return found if found >= MIN_BLOCKS else 0


def _interval(logs: Floats, middle: float, num_blocks: int, extra: float = 0.0) -> tuple[float, float]:
    """Around `middle`, widened for few blocks as a t distribution is wider than a normal one."""
    low, high = np.quantile(logs, [1 - HIGH, HIGH])
    wider = t_quantile(HIGH, num_blocks - 1) / t_quantile(HIGH, 1e9) * np.sqrt(num_blocks / (num_blocks - 1))
    down = np.hypot(max(0.0, middle - float(low)) * wider, extra)
    up = np.hypot(max(0.0, float(high) - middle) * wider, extra)
    return float(np.exp(middle - down)), float(np.exp(middle + up))
