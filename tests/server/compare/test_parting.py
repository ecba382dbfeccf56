"""Where series part, against brute force, scipy, and series of which it is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from halfscope_server.compare.parting import (
    STAY,
    carried,
    first_lasting,
    last_in_a_row,
    part,
    running_median,
    scatter,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.ndimage import median_filter

SMALL = st.floats(-4, 4, width=16)
SERIES = hnp.arrays(np.float64, st.tuples(st.integers(5, 30), st.integers(1, 3)), elements=SMALL)


@settings(max_examples=20)
@given(SERIES)
def test_medians_are_scipys(values: Any) -> None:
    """Of five frames, the outermost repeated beyond the ends."""
    np.testing.assert_array_equal(running_median(values), median_filter(values, size=(5, 1), mode="nearest"))


@settings(max_examples=30)
@given(SERIES, st.floats(0.5, 3))
def test_it_parts_behind_the_last_frame_that_was_near(values: Any, threshold: float) -> None:
    """By looking at every frame from the end."""
    found = first_lasting(values, np.full(values.shape[1], threshold))
    for layer, series in enumerate(values.T):
        expected = -1
        for at in range(len(series) - 1, -1, -1):
            if series[at] < STAY * threshold:
                break
            if series[at] >= threshold:
                expected = at
        assert found[layer] == expected


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_marks_in_a_row_are_counted_from_the_end(marks: list[bool]) -> None:
    """Up to the last gap."""
    expected = next((at for at, mark in enumerate(reversed(marks)) if not mark), len(marks))
    assert last_in_a_row(np.array(marks, bool)[:, None]).tolist() == [expected]


def test_what_is_not_known_is_as_it_was() -> None:
    """But before the first that is known."""
    nan = np.nan
    found = carried(np.array([[nan, 1.0], [2.0, nan], [nan, nan], [3.0, 4.0]]))
    np.testing.assert_array_equal(found, [[nan, 1.0], [2.0, 1.0], [2.0, 1.0], [3.0, 4.0]])


def test_the_scatter_is_that_of_the_noise_and_not_of_the_level() -> None:
    """Normal noise of sd 2 over a level that jumps by a hundred."""
    values = np.random.default_rng(0).normal(0, 2, (4000, 3))
    values[2000:] += 100
    np.testing.assert_allclose(scatter(values), 2.0, rtol=0.08)


@pytest.mark.parametrize("start", [0, 1, 7, 33, 90])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_lasting_difference_is_dated_to_its_frame(start: int, sign: float) -> None:
    """Under noise of an eighth of it, in either direction, and with frames that are not known."""
    rng = np.random.default_rng(start)
    values = rng.normal(0, 0.125, (100, 50))
    values[start:] += sign
    values[rng.random(values.shape) < 0.05] = np.nan
    found = part(values, slice(90, None), 0.5)
    # Where the very frame is not known it is the next.
    late = np.isnan(values[start])
    assert (found.first[~late] == start).all()
    assert (np.abs(found.first - start) <= 3).all()
    assert (found.level * sign > 0.8).all()
    assert (found.excess > 1).all()


def test_what_comes_and_goes_has_not_parted() -> None:
    """Spikes, a stretch that is over, noise that wanders, and a difference no larger than the noise."""
    rng = np.random.default_rng(5)
    values = rng.normal(0, 0.1, (200, 40))
    values[rng.random(values.shape) < 0.02] += 50
    values[60:120, 10:20] += 3
    values[:, 20:30] += np.cumsum(rng.normal(0, 0.01, (200, 10)), axis=0)
    values[:, 30:] = rng.normal(0.5, 0.4, (200, 10))
    assert (part(values, slice(180, None), 0.5).first == -1).all()


def test_nothing_is_made_of_nothing() -> None:
    """A layer that is not known in any frame has no level and does not part."""
    found = part(np.full((10, 1), np.nan), slice(7, None), 0.5)
    assert found.first.tolist() == [-1]
    assert np.isnan(found.level).all()
    assert found.excess.tolist() == [0.0]
