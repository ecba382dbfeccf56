"""Thinned lines against plain loops over all points."""

from __future__ import annotations

import math

import numpy as np
from halfscope_server.query import downsample as down
from halfscope_server.query.window import MAX_POINTS, Span
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=100)
FINITE = st.lists(st.floats(min_value=-1e300, max_value=1e300), min_size=1, max_size=100)


def arrays(values: list[float], stride: int = 1) -> tuple[down.Ints, down.Ints, down.Floats]:
    """Steps, times and values of a series with a point every `stride` steps."""
    step = np.arange(len(values), dtype=np.int64) * stride
    return step, step * 10, np.array(values, np.float64)


@given(FINITE, st.integers(8, 40))
def test_a_thinned_line_keeps_its_extremes_and_its_ends(values: list[float], limit: int) -> None:
    """However few points are allowed, the smallest, the largest, the first and the last value are among them."""
    curve = down.thin(*arrays(values), limit=limit)
    assert curve.size <= limit
    assert min(values) in curve.value
    assert max(values) in curve.value
    assert (curve.value[0], curve.value[-1]) == (values[0], values[-1])
    assert np.all(np.diff(curve.step) > 0)


def test_every_one_step_spike_of_a_long_line_is_drawn() -> None:
    """Two hundred spikes of one step, no two of one sign within two pixels, in 200,000 points of noise."""
    rng = np.random.default_rng(1)
    value = rng.normal(0, 1, 200_000)
    spikes = np.arange(200) * 1000 + rng.integers(0, 100, 200)
    value[spikes] = np.where(np.arange(200) % 2, 50.0, -50.0)
    step = np.arange(200_000)
    curve = down.thin(step, step, value)
    assert curve.size <= MAX_POINTS
    assert curve.step[np.abs(curve.value) == 50.0].tolist() == spikes.tolist()


@given(FINITE, st.integers(1, 50), st.integers(1, 7))
def test_buckets_equal_a_plain_loop(values: list[float], width: int, stride: int) -> None:
    """Count, extremes, ends and mean of every stretch, recomputed by hand."""
    step, time_us, value = arrays(values, stride)
    buckets = down.bucketed(step, time_us, value, width)
    expected: dict[int, list[float]] = {}
    for s, v in zip(step.tolist(), values, strict=True):
        expected.setdefault(s // width, []).append(v)
    assert buckets.count.tolist() == [len(vs) for vs in expected.values()]
    assert buckets.minimum.tolist() == [min(vs) for vs in expected.values()]
    assert buckets.maximum.tolist() == [max(vs) for vs in expected.values()]
    assert buckets.first.tolist() == [vs[0] for vs in expected.values()]
    assert buckets.last.tolist() == [vs[-1] for vs in expected.values()]
    for mean, vs in zip(buckets.mean.tolist(), expected.values(), strict=True):
        assert math.isclose(mean, math.fsum(v / len(vs) for v in vs), rel_tol=1e-6, abs_tol=1e-9 * max(map(abs, vs)))


@given(VALUES, st.integers(1, 40))
def test_marks_count_every_nonfinite_value_once(values: list[float], num_places: int) -> None:
    """Joined marks add up to what a loop counts, kind by kind, and stay within the places there are."""
    step, time_us, value = arrays(values, 3)
    single = down.bad_marks(step, time_us, value)
    joined = down.merge_marks(single, Span(first_step=0, last_step=int(step[-1])), num_places)
    for marks in (single, joined):
        assert marks.num_nan.sum() == sum(map(math.isnan, values))
        assert marks.num_pos_inf.sum() == values.count(math.inf)
        assert marks.num_neg_inf.sum() == values.count(-math.inf)
    assert joined.step.size <= num_places
    assert np.all(joined.last_step >= joined.step)


@given(st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=1, max_size=200))
def test_changes_of_a_held_value_are_all_kept(values: list[float]) -> None:
    """Drawing the kept points in steps gives the value at every step."""
    step, time_us, value = arrays(values)
    curve = down.changes(step, time_us, value)
    held = curve.value[np.searchsorted(curve.step, step, side="right") - 1]
    assert held.tolist() == values


@given(st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=1, max_size=400), st.integers(4, 64))
def test_corners_of_a_held_value_keep_every_level_of_a_bucket(values: list[float], width: int) -> None:
    """The lowest and highest level of each stretch are drawn within it."""
    step, time_us, value = arrays(values)
    curve = down.corners(down.bucketed(step, time_us, value, width), width)
    for start in range(0, len(values), width):
        inside = (curve.step >= start) & (curve.step < start + width)
        before = curve.value[curve.step < start][-1:].tolist()
        levels = set(curve.value[inside].tolist() + before)
        assert {min(values[start : start + width]), max(values[start : start + width])} <= levels


@given(VALUES, st.floats(0.0, 0.99))
def test_nonfinite_values_leave_no_trace_in_an_average(values: list[float], weight: float) -> None:
    """The average over a series with gaps equals the one over the series without them."""
    bounded = [v if not math.isfinite(v) else max(-1e300, min(1e300, v)) for v in values]
    smooth = down.smoothed(np.array(bounded), weight)
    finite = [v for v in bounded if math.isfinite(v)]
    assert smooth[np.isfinite(bounded)].tolist() == down.smoothed(np.array(finite), weight).tolist()
    for k, average in enumerate(down.smoothed(np.array(finite), weight).tolist()):
        weights = [(1 - weight) * weight ** (k - j) for j in range(k + 1)]
        expected = math.fsum(w / math.fsum(weights) * v for w, v in zip(weights, finite, strict=False))
        assert math.isclose(average, expected, rel_tol=1e-6, abs_tol=1e-9 * max(map(abs, finite)))


def test_a_mean_whose_sum_overflows_stays_between_its_extremes() -> None:
    """Values near the end of float64 have a mean, not infinity."""
    step = np.arange(4)
    buckets = down.bucketed(step, step, np.array([1.7e308, 1.7e308, 1.6e308, 1.7e308]), 4)
    assert 1.6e308 <= buckets.mean[0] <= 1.7e308
