"""Medians with intervals, against brute force, scipy and known truths."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
from halfscope_server.compare import resampling
from halfscope_server.compare.resampling import Floats


def _brute_force(values: Floats, num_blocks: int) -> Floats:
    """Medians of resamples of whole blocks, put together one by one."""
    rng = np.random.default_rng(5)
    blocks = [values[np.arange(values.size) * num_blocks // values.size == at] for at in range(num_blocks)]
    picks = rng.integers(0, num_blocks, (800, num_blocks))
    return np.array([np.median(np.concatenate([blocks[at] for at in row])) for row in picks])


@pytest.mark.parametrize("size", [100, 777, 5000])
def test_resampled_medians_are_those_of_whole_blocks(size: int) -> None:
    """Their distribution is that of blocks drawn and joined one by one, to within a bin and chance."""
    rng = np.random.default_rng(size)
    values = rng.lognormal(0.0, 0.5, size) + np.repeat(rng.normal(1.0, 0.1, size), 3)[:size]
    found = resampling.resampled_medians(values)
    assert found is not None
    expected = _brute_force(values, min(resampling.MAX_BLOCKS, int(size**0.5)))
    spread = expected.std()
    assert np.quantile(found, [0.025, 0.5, 0.975]) == pytest.approx(
        np.quantile(expected, [0.025, 0.5, 0.975]), abs=0.3 * spread
    )


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_the_interval_holds_the_true_median_as_often_as_it_says(memory: float) -> None:
    """Of independent step times, and of such as hang together: in about 95 of 100 series."""
    rng = np.random.default_rng(1)
    hits, trials = 0, 60
    for _ in range(trials):
        noise = scipy.signal.lfilter([1.0], [1.0, -memory], rng.normal(0.0, 1.0, 600))
        found = resampling.median(np.exp(0.1 * noise[100:]))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.0 <= found.high
    assert 0.85 <= hits / trials <= 1.0


def test_a_ratio_holds_the_true_one_as_often_as_it_says() -> None:
    """Of two series whose true medians are 3 and 2."""
    rng = np.random.default_rng(2)
    hits, trials = 0, 60
    for _ in range(trials):
        found = resampling.ratio(3 * rng.lognormal(0.0, 0.2, 300), 2 * rng.lognormal(0.0, 0.3, 250))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1.5 <= found.high
        assert found.count == 250
    assert 0.85 <= hits / trials <= 1.0


def test_what_else_is_uncertain_widens_the_interval() -> None:
    """As independent errors add up: in squares, as logarithms."""
    rng = np.random.default_rng(3)
    one, two = rng.lognormal(0.0, 0.1, 400), rng.lognormal(0.0, 0.1, 400)
    plain, wide = resampling.ratio(one, two), resampling.ratio(one, two, extra_log=0.3)
    assert plain is not None
    assert wide is not None
    assert plain.high is not None
    assert wide.high is not None
    assert np.log(wide.high / wide.value) == pytest.approx(np.hypot(np.log(plain.high / plain.value), 0.3))


def test_few_values_have_no_interval() -> None:
    """A median of ten is told, how exact it is is not; of none there is nothing."""
    few = resampling.median(np.arange(1.0, 11.0))
    assert few is not None
    assert (few.value, few.low, few.high, few.count) == (5.5, None, None, 10)
    assert resampling.median(np.empty(0)) is None
    assert resampling.ratio(np.ones(100), np.empty(0)) is None


def test_equal_values_have_an_interval_of_no_width() -> None:
    """All steps alike: nothing is uncertain."""
    found = resampling.median(np.full(400, 2.0))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((2.0, 2.0))
