"""From which frame on two series of differences part, and stay apart.

Pure arithmetic on arrays. Must not import anything of the project. Invariant: a difference that does not last to the
end, or that is no larger than the series scatters by itself, has not parted.

Suffixes: P pairs of frames, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

HALF_WIDTH = 2
"""Running medians are of five frames: two that are off beside each other part nothing, and a step stays a step."""
STAY = 0.5
"""Of the threshold: what has parted stays so while it is above this share of it, so that what lies about the threshold
does not come and go."""
SCATTERS = 4.0
"""Standard deviations of the noise from frame to frame that a lasting difference must be above."""
_NORMAL_MAD = 1.4826
"""Standard deviation of normal numbers over their median absolute deviation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parted:
    """What became of a difference in each layer. All [L]."""

    level: Floats
    """At the end: the median over the last frames; NaN: not known."""
    threshold: Floats
    first: Ints
    """The first pair from which on it is apart; -1: it is not."""

    @property
    def excess(self) -> Floats:
        """How many times what is tolerated it is at the end; 0 where it is not known."""
        times: Floats = np.nan_to_num(np.abs(self.level) / self.threshold)
        return times


def part(difference: Floats, tail: slice, floor: Floats | float) -> Parted:
    """Where signed differences part.

    Args:
        difference: [P, L]; NaN where it is not known.
        tail: the pairs that stand for the end.
        floor: the smallest threshold, [L] or one for all.
    """
    filled = carried(difference)
    threshold = np.maximum(floor, SCATTERS * scatter(filled))
    level = _median(filled[tail])
    smooth = running_median(np.nan_to_num(filled)) * np.where(level < 0, -1.0, 1.0)
    first = first_lasting(smooth, threshold)
    return Parted(level=level, threshold=threshold, first=np.where(np.abs(level) >= threshold, first, -1))


def first_lasting(smooth: Floats, threshold: Floats) -> Ints:
    """[L] the first pair at or above the threshold behind the last one that is below `STAY` of it; -1: none."""
    if not smooth.shape[0]:
        return np.full(smooth.shape[1], -1, np.int64)
    num = smooth.shape[0]
    low = smooth < STAY * threshold
    behind = np.where(low.any(axis=0), num - low[::-1].argmax(axis=0), 0)
    high = (smooth >= threshold) & (np.arange(num)[:, None] >= behind)
    return np.where(high.any(axis=0), high.argmax(axis=0), -1).astype(np.int64)


def carried(values: Floats) -> Floats:
    """What is not known is as it was in the frame before; NaN before the first that is known."""
    known = ~np.isnan(values)
    if known.all():
        return values
    place = np.where(known, np.arange(values.shape[0])[:, None], 0)
    carried_from = np.maximum.accumulate(place, axis=0)
    result: Floats = np.take_along_axis(values, carried_from, axis=0)
    return result


def scatter(values: Floats) -> Floats:
    """[L] standard deviation of the noise from frame to frame: robust, and blind to a level that shifts."""
    if values.shape[0] < 2:
        return np.zeros(values.shape[1])
    deviation: Floats = _NORMAL_MAD / np.sqrt(2.0) * np.nan_to_num(_median(np.abs(np.diff(values, axis=0))))
    return deviation


def running_median(values: Floats) -> Floats:
    """Medians of five frames around each; at the ends the outermost frame counts as often as others are missing."""
    num = values.shape[0]
    if num < 2 * HALF_WIDTH + 1:
        return values
    padded = np.concatenate([values[:1]] * HALF_WIDTH + [values] + [values[-1:]] * HALF_WIDTH)
    a, b, c, d, e = (padded[at : at + num] for at in range(2 * HALF_WIDTH + 1))
    # The middle of five by comparisons of whole arrays: what is neither the largest nor the smallest of four pairs.
    a, b = np.minimum(a, b), np.maximum(a, b)
    d, e = np.minimum(d, e), np.maximum(d, e)
    low, high = np.maximum(a, d), np.minimum(b, e)
    low, high = np.minimum(low, high), np.maximum(low, high)
    result: Floats = np.maximum(low, np.minimum(high, c))
    return result


def last_in_a_row(mask: Bools) -> Ints:
    """[L] how many of the last pairs are marked, without a gap."""
    gaps = ~mask[::-1]
    row: Ints = np.where(gaps.any(axis=0), gaps.argmax(axis=0), mask.shape[0]).astype(np.int64)
    return row


def _median(values: Floats) -> Floats:
    """Over the first axis; NaN where any is."""
    return np.median(values, axis=0) if values.shape[0] else np.full(values.shape[1], np.nan)
