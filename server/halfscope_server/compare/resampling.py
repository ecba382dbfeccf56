"""Medians with intervals, by a bootstrap over blocks of neighbouring values.

Step times are not independent (a machine is busy for a while), so stretches are resampled, not single values: about the
square root of their number, each of that length. Must not import the store's tables. Invariant:
the same values give the same interval.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halfscope_server.compare.noise import INTERVAL_SHARE, t_quantile
from halfscope_server.compare.types import Estimate

Floats = NDArray[np.float64]

NUM_RESAMPLES = 1000
MIN_BLOCKS, MAX_BLOCKS = 8, 128
"""With fewer blocks there is no interval."""
NUM_BINS = 512
"""Values are sorted into so many bins of equal count at most: a resample's median is that of its bin."""
HIGH = 0.5 + INTERVAL_SHARE / 2
SEED = 0


def median(values: Floats, resampled: Floats | None = None) -> Estimate | None:
    """The median of values in their order of time; None: there is none.

    Args:
        resampled: their `resampled_medians`, where they are known.
    """
    if not values.size:
        return None
    middle = float(np.median(values))
    resampled = resampled_medians(values) if resampled is None else resampled
    if resampled is None:
        return Estimate(value=middle, count=values.size)
    low, high = _interval(np.log(resampled), np.log(middle), _num_blocks(values)) if middle > 0 else (None, None)
    return Estimate(value=middle, low=low, high=high, count=values.size)


def ratio(
    values: Floats,
    baseline: Floats,
    *,
    extra_log: float = 0.0,
    resampled: Floats | None = None,
    baseline_resampled: Floats | None = None,
) -> Estimate | None:
    """Median over median, both of positive values.

    Args:
        resampled, baseline_resampled: as of `median`.
        extra_log: half width of what else is uncertain, as a difference of logarithms.
    """
    if not values.size or not baseline.size:
        return None
    own_middle, other_middle = float(np.median(values)), float(np.median(baseline))
    if not own_middle > 0 or not other_middle > 0:
        return None
    middle = own_middle / other_middle
    count = min(values.size, baseline.size)
    own = resampled_medians(values) if resampled is None else resampled
    other = resampled_medians(baseline) if baseline_resampled is None else baseline_resampled
    if own is None or other is None:
        return Estimate(value=middle, count=count)
    num_blocks = min(_num_blocks(values), _num_blocks(baseline))
    # Both were drawn alike: beside the next resample of the other each stands by itself.
    low, high = _interval(np.log(own) - np.log(np.roll(other, 1)), np.log(middle), num_blocks, extra_log)
    return Estimate(value=middle, low=low, high=high, count=count)


def resampled_medians(values: Floats) -> Floats | None:
    """[R] medians of as many resamples; None: too few values for blocks."""
    num_blocks = _num_blocks(values)
    if not num_blocks:
        return None
    num_bins = min(NUM_BINS, values.size)
    bin_of_rank = np.arange(values.size) * num_bins // values.size
    order = np.argsort(values)
    bins = np.empty(values.size, np.int64)
    bins[order] = bin_of_rank
    block = np.arange(values.size) * num_blocks // values.size
    counts = np.bincount(block * num_bins + bins, minlength=num_blocks * num_bins).reshape(num_blocks, num_bins)
    # Added up before they are drawn: the same whole numbers, of 128 blocks instead of 1,000 resamples.
    up_to_bin = np.cumsum(counts, axis=1).astype(np.float32)
    times = _times_drawn(num_blocks)
    half = (times @ up_to_bin[:, -1:]) / 2
    # Medians lie near the middle: the other bins are only looked at where one does not.
    low, high = num_bins // 4, num_bins - num_bins // 4
    edges = times @ up_to_bin[:, [low, high - 1]]
    if (edges[:, :1] >= half).any() or (edges[:, 1:] <= half).any():
        low, high = 0, num_bins
    below = times @ up_to_bin[:, low:high]
    lower, upper = np.count_nonzero(below < half, axis=1) + low, np.count_nonzero(below <= half, axis=1) + low
    starts = np.searchsorted(bin_of_rank, np.arange(num_bins))
    inside = np.add.reduceat(values[order], starts) / np.diff(np.append(starts, values.size))
    medians: Floats = (inside[lower] + inside[upper]) / 2
    return medians


@lru_cache(maxsize=16)
def _times_drawn(num_blocks: int) -> NDArray[np.float32]:
    """[R, blocks] how often each block is in each resample."""
    chosen = np.random.default_rng(SEED).integers(0, num_blocks, (NUM_RESAMPLES, num_blocks))
    offsets = np.arange(NUM_RESAMPLES)[:, None] * num_blocks
    times = np.bincount((chosen + offsets).ravel(), minlength=NUM_RESAMPLES * num_blocks)
    return times.reshape(NUM_RESAMPLES, num_blocks).astype(np.float32)


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
