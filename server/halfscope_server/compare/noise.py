"""How far two runs may differ by chance: errors of means whose values hang together, and quantiles of Student's t.

Plain arrays in, numbers out; must not import anything of the store. Invariant: what cannot be estimated from so few
values is None, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NUM_BLOCKS = 10
"""Blocks whose means stand for independent values; more of them are shorter and hang together more."""
MIN_BLOCKS = 4
INTERVAL_SHARE = 0.95
"""Of the intervals that are told."""
BAND_SHARE = 0.98
"""Of the band beyond which two runs are said to differ: wider than an interval, because whoever compares twenty pairs
wants none to be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """The standard error of a mean, and its degrees of freedom."""

    value: float
    freedom: float

    def half_width(self, share: float) -> float:
        """Of the interval that holds the true mean in this share of cases."""
        return t_quantile(0.5 + share / 2, self.freedom) * self.value


def error_of_mean(values: Floats, *, without_trend: bool = False) -> Error | None:
    """The error of the mean of values that may hang together, by the means of blocks of neighbours.

    What is left of the correlation between neighbouring blocks widens the error and takes degrees of freedom, as in a
    first-order process.

    Args:
        values: finite, in their order, about equally far apart.
        without_trend: leave out a straight line through the values first.
    """
    num_blocks = min(NUM_BLOCKS, values.size // 2)
    if num_blocks < MIN_BLOCKS:
        return None
    if without_trend:
        values = values - _line(values)
    size = values.size // num_blocks
    block = values[values.size - num_blocks * size :].reshape(num_blocks, size).mean(axis=1)
    rest = block - block.mean()
    # Squares of what is beyond 1e154 are no numbers any more.
    largest = float(np.abs(rest).max()) or 1.0
    rest = rest / largest
    power = float((rest**2).sum())
    spread = math.sqrt(power / (num_blocks - 1)) * largest
    # Of so few the estimate lies below the truth by about 1/n.
    correlation = float((rest[1:] * rest[:-1]).sum() / power) + 1 / num_blocks if power > 0 else 0.0
    correlation = min(max(correlation, 0.0), 0.8)
    inflation = (1 + correlation) / (1 - correlation)
    freedom = max(1.0, (num_blocks - 1) / inflation)
    return Error(value=spread * math.sqrt(inflation / num_blocks), freedom=freedom)


def _line(values: Floats) -> Floats:
    at = np.arange(values.size) - (values.size - 1) / 2
    return np.asarray(at * ((at * values).sum() / (at**2).sum()), np.float64)


def error_between_neighbours(values: Floats) -> Error | None:
    """The scatter of single values by the steps from each to the next (von Neumann): a trend, or one lasting jump, adds
    little to it, what goes to and fro all of itself."""
    if values.size < MIN_BLOCKS:
        return None
    return Error(value=root_mean_square(np.diff(values)) / math.sqrt(2), freedom=values.size - 1)


def root_mean_square(values: Floats) -> float:
    """Also of values whose squares are no numbers."""
    largest = float(np.abs(values).max())
    return largest * math.sqrt(float(((values / largest) ** 2).mean())) if largest > 0 else 0.0


def error_of_prediction(groups: Sequence[Sequence[float]], counts: tuple[int, int]) -> Error | None:
    """The error of a difference between two means, by the scatter of repeats within groups.

    Args:
        groups: the values of each configuration; those with one value tell nothing of the scatter.
        counts: values behind the two means.
    """
    rests = [np.asarray(group) - np.mean(group) for group in groups if len(group) > 1]
    freedom = sum(rest.size - 1 for rest in rests)
    if freedom < 1:
        return None
    variance = sum(float((rest**2).sum()) for rest in rests) / freedom
    return Error(value=math.sqrt(variance * (1 / counts[0] + 1 / counts[1])), freedom=freedom)


# ---- Student's t -------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def t_quantile(share: float, freedom: float) -> float:
    """The value below which Student's t lies with this probability (share above one half)."""
    assert 0.5 <= share < 1, share
    low, high = 0.0, 1.0
    while t_share(high, freedom) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_share(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def t_share(t: float, freedom: float) -> float:
    """The probability that Student's t lies below `t` >= 0."""
    return 1 - _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            found *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * found


def _away_from_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
