"""Noise: quantiles against scipy, intervals by how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from halfscope_server.compare.noise import (
    error_between_neighbours,
    error_of_mean,
    error_of_prediction,
    t_quantile,
    t_share,
)
from scipy import signal, stats


@pytest.mark.parametrize("freedom", [1, 1.5, 2, 3, 4.7, 9, 30, 1000])
def test_quantiles_of_t_are_those_of_scipy(freedom: float) -> None:
    """From the middle to far out, whole degrees of freedom or not."""
    for share in (0.5, 0.6, 0.9, 0.975, 0.99, 0.9995):
        expected = float(stats.t.ppf(share, freedom))
        assert t_quantile(share, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert t_share(expected, freedom) == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize(("size", "correlation", "least"), [(20, 0.0, 0.92), (200, 0.5, 0.92), (1000, 0.9, 0.92)])
def test_an_interval_holds_the_true_mean_as_often_as_it_says(size: int, correlation: float, least: float) -> None:
    """Of values that hang together as well: 95% but for chance, of which a plain error of the mean would hold 40%."""
    rng = np.random.default_rng(4)
    noise = signal.lfilter([1.0], [1.0, -correlation], rng.normal(size=(300, size + 200)), axis=1)[:, 200:]
    errors = [error_of_mean(values) for values in noise]
    held = [abs(values.mean()) <= error.half_width(0.95) for values, error in zip(noise, errors, strict=True) if error]
    assert len(held) == 300
    assert least <= np.mean(held) <= 0.99


def test_a_trend_is_no_noise_of_a_level() -> None:
    """A loss that falls within its last tenth has the error of what is left, of which few values tell nothing."""
    fall, noise = np.linspace(3.0, 1.0, 100), np.random.default_rng(1).normal(0, 0.01, 100)
    plain, level = error_of_mean(fall + noise), error_of_mean(fall + noise, without_trend=True)
    assert plain is not None
    assert level is not None
    assert level.value < 0.004 < 0.1 < plain.value
    assert error_of_mean(np.arange(7.0)) is None


def test_neighbours_tell_scatter_but_neither_trend_nor_jump() -> None:
    """White noise in full; a ramp and a jump of ten times the noise by far less than their size."""
    rng = np.random.default_rng(2)
    white = error_between_neighbours(rng.normal(0, 1, 20_000))
    assert white is not None
    assert white.value == pytest.approx(1.0, rel=0.03)
    for values in (np.linspace(0, 10, 11), np.repeat([0.0, 10.0], 6)):
        found = error_between_neighbours(values)
        assert found is not None
        assert found.value < 2.3 < 0.7 * float(values.std(ddof=1))


def test_a_prediction_from_repeats_is_that_of_the_t_test() -> None:
    """Two groups with one variance: scipy's interval of the difference; groups of one tell nothing."""
    rng = np.random.default_rng(3)
    one, two = rng.normal(0, 1, 4), rng.normal(0, 1, 3)
    error = error_of_prediction([one.tolist(), two.tolist()], (4, 3))
    assert error is not None
    interval = stats.ttest_ind(two, one).confidence_interval(0.95)
    assert error.half_width(0.95) == pytest.approx((interval.high - interval.low) / 2, rel=1e-9)
    assert error_of_prediction([[1.0], [2.0]], (1, 1)) is None
