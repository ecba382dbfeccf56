"""The distance between histograms against scipy's, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from halfscope.sketch import Sketch, distance_bits, of_array, stack
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import wasserstein_distance

SIZES = hnp.arrays(np.int64, st.integers(1, 40), elements=st.integers(-40, 20))


def of_exponents(exponents: Any) -> Sketch:
    """With zeros, NaN and Inf, which must not count."""
    return of_array(np.concatenate([np.ldexp(1.5, exponents), [0.0, 0.0, np.nan, np.inf]]))


@settings(max_examples=60)
@given(SIZES, SIZES)
def test_it_is_scipys_distance_of_the_exponents(one: Any, two: Any) -> None:
    """For any two sets of exponents, in either order."""
    expected = wasserstein_distance(one, two)
    for pair in ((one, two), (two, one)):
        found = distance_bits(of_exponents(pair[0]), of_exponents(pair[1]))
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_power_of_two_is_its_bits_whatever_the_number_of_elements() -> None:
    """Twice the elements at an eighth of their size are 3 bits away; equal shares are 0 bits away."""
    values = np.random.default_rng(0).normal(size=500)
    assert distance_bits(of_array(values), of_array(np.tile(values / 8, 2))) == 3.0
    assert distance_bits(of_array(values), of_array(np.tile(values, 3))) == 0.0


def test_stacks_are_compared_one_by_one_and_nothing_to_compare_is_nan() -> None:
    """Against one sketch or a stack; where one has no nonzero finite element nothing is made up."""
    values = [np.float64([1, 2, 4]), np.float64([0, 0, np.inf]), np.float64([1e-9])]
    whole = stack([of_array(v) for v in values])
    found = distance_bits(whole, whole[0])
    np.testing.assert_allclose(found[[0, 2]], [0.0, np.mean([30, 31, 32])])
    assert np.isnan(found[1])
    np.testing.assert_array_equal(distance_bits(whole, whole), [0.0, np.nan, 0.0])
    assert np.isnan(distance_bits(whole[1], whole[1]))
    assert distance_bits(whole[:0], whole[:0]).shape == (0,)


@settings(max_examples=30)
@given(SIZES, SIZES, st.integers(-45, 25))
def test_below_an_exponent_sizes_are_not_told_apart(one: Any, two: Any, above: int) -> None:
    """As if every smaller element lay there."""
    found = distance_bits(of_exponents(one), of_exponents(two), above)
    expected = wasserstein_distance(np.maximum(one, above), np.maximum(two, above))
    np.testing.assert_allclose(found, expected, atol=1e-12)
