"""Every aggregation: tables by hand, and windows against gathering them anew."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.aggregations.base import MAX_CELLS, Aggregator, Shape
from halfscope_server.alerts.aggregations.usual import MAX_KEPT, Usual
from halfscope_server.alerts.packing import pack, unpack
from hypothesis import given, settings
from hypothesis import strategies as st

NAN = math.nan

TABLES: dict[str, tuple[int, float | None, list[float], list[float]]] = {
    # window, argument, values of steps 0, 1, 2 ..., what is compared at each
    "last": (1, None, [3, NAN, 4], [3, NAN, 4]),
    "mean": (3, None, [3, 6, NAN, 4, 2], [3, 4.5, NAN, 5, 3]),
    "max": (2, None, [3, 1, 2, NAN, 0, 0], [3, 3, 2, NAN, 0, 0]),
    "min": (2, None, [3, 1, 2, NAN, 5, 6], [3, 1, 1, NAN, 5, 5]),
    "sum": (3, None, [1, 2, 4, 8, NAN, 16], [1, 3, 7, 14, NAN, 24]),
    "rate": (4, None, [1, 0, 1, 1, 1, 0], [0.25, 0.25, 0.5, 0.75, 0.75, 0.75]),
    "quantile": (3, 0.5, [3, 1, 2, 8, NAN, 9], [3, 2, 2, 2, NAN, 8.5]),
    "change": (3, None, [3, 1, 2, 8, NAN, 9], [0, -2, -1, 7, NAN, 1]),
    "below_best": (1, None, [2, 4, 3, NAN, 5, 1], [0, 0, 0.25, NAN, 0, 0.8]),
    "above_best": (1, None, [4, 2, 3, NAN, 1, 5], [0, 0, 0.5, NAN, 0, 4]),
}


def _fed(aggregator: Aggregator, steps: list[int], values: list[float], cut: int = 1000) -> list[float]:
    found: list[float] = []
    for at in range(0, len(steps), cut):
        key, value = np.array(steps[at : at + cut]), np.array(values[at : at + cut])[:, None]
        found += aggregator.feed(key, value)[:, 0].tolist()
    return found


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("cut", [1000, 2, 1])
def test_an_aggregation_does_as_its_table(name: str, cut: int) -> None:
    """By hand, for any cut; a value that is missing is neither compared nor in any window."""
    window, argument, values, expected = TABLES[name]
    aggregator = aggregations()[name].make(Shape(window=window, by_time=False, argument=argument))
    found = _fed(aggregator, list(range(len(values))), values, cut)
    assert found == pytest.approx(expected, nan_ok=True)


def test_a_ratio_is_to_the_runs_own_median_or_to_a_baseline() -> None:
    """The first 20 values are no measure, and 100 make a past; a baseline is one from the start."""
    values = [1.0] * 20 + [10.0] * 100 + [5.0] * 10
    make, shape = aggregations()["ratio"].make, Shape(window=2, by_time=False)
    found = _fed(make(shape), list(range(130)), values)
    assert np.isnan(found[:119]).all()
    assert found[119:123] == [1.0, 0.75, 0.5, 0.5]
    with_baseline = make(Shape(window=2, by_time=False, reference=20.0))
    assert _fed(with_baseline, [0, 1], [10.0, 30.0]) == [0.5, 1.0]


@pytest.mark.parametrize("period", [7, 64, 100, 1024])
def test_the_usual_value_is_not_that_of_what_happens_now_and_then(period: int) -> None:
    """A fortieth of the steps or fewer are ten times as slow, at multiples of powers of two as well: neither are they
    what is usual, nor are they a deviation. The median of a part of all values is near that of all."""
    rng = np.random.default_rng(period)
    pace = rng.normal(100.0, 5.0, 200_000)
    pace[::period] = 10.0
    usual = Usual()
    medians = np.concatenate([usual.feed(part) for part in np.array_split(pace, 37)])
    assert len(usual.state()["kept"]) < MAX_KEPT
    for end in (300, 1_000, 20_000, 200_000):
        below = float((pace[:end] < medians[end - 1]).mean())
        assert 0.5 - 4 * 0.5 / math.sqrt(MAX_KEPT / 2) < below < 0.5 + 4 * 0.5 / math.sqrt(MAX_KEPT / 2)
    ratio = aggregations()["ratio"].make(Shape(window=200, by_time=False))
    found = ratio.feed(np.arange(20_000), pace[:20_000, None])[1_000:, 0]
    assert 0.95 < found.min() < found.max() < 1.05


LONG = {
    "steps": (Shape(window=60_000, by_time=False), 1),
    "seconds": (Shape(window=60_000_000, by_time=True), 1_000),
    "a clock that stands still": (Shape(window=1_000, by_time=True), 0),
}
GATHERED: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "mean": np.mean, "sum": np.sum, "max": np.max, "min": np.min, "quantile": np.median,
}  # fmt: skip


@pytest.mark.parametrize("name", list(aggregations()))
@pytest.mark.parametrize("case", LONG)
def test_what_is_kept_of_a_long_window_is_bounded_and_still_right(name: str, case: str) -> None:
    """Of many steps, a minute at a thousand a second, a clock that was set back: less is kept than lies in the window,
    for any cut; and what is said of it is nearly what gathering it says."""
    shape, pace = LONG[case]
    rng = np.random.default_rng(11)
    keys = np.arange(150_000, dtype=np.int64) * pace + 12_345
    values = rng.normal(3.0, 1.0, keys.size) + np.arange(keys.size) / keys.size
    make = aggregations()[name].make
    aggregator, parts = make(shape), []
    for part in np.array_split(np.arange(keys.size), 5):
        parts.append(aggregator.feed(keys[part], values[part, None])[:, 0])
        state = aggregator.state()
        assert _size(state) < 11 * MAX_CELLS
        aggregator = make(shape)
        aggregator.load(unpack(pack(state)) or {})
    found = np.concatenate(parts)
    assert np.array_equal(found, make(shape).feed(keys, values[:, None])[:, 0], equal_nan=True)
    for at in (30_000, 90_001, 149_999) if pace else ():
        inside = values[max(0, at - 59_999) : at + 1]
        if name == "change":
            assert np.abs(inside[:12] - (values[at] - found[at])).min() < 1e-12
        if name in GATHERED:
            near = 0.05 if name == "quantile" else 1e-9
            assert found[at] == pytest.approx(GATHERED[name](inside), rel=3e-4, abs=near)


def _size(state: Any) -> int:
    """Numbers in it."""
    if isinstance(state, dict):
        return sum(map(_size, state.values()))
    return int(np.size(state)) if isinstance(state, (np.ndarray, list)) else 1


def test_a_deviation_is_measured_in_what_was_before() -> None:
    """Mean of the window less mean of the past, in its standard deviations; a past of 100 values, or nothing."""
    values = [1.0, 3.0] * 60 + [9.0, 9.0]
    found = _fed(aggregations()["zscore"].make(Shape(window=2, by_time=False)), list(range(122)), values)
    assert np.isnan(found[:101]).all()
    assert found[101] == pytest.approx(0.0)
    assert found[121] == pytest.approx(7.0)


def test_a_restart_empties_windows_but_not_the_past() -> None:
    """Sums begin anew; the best of a run is of the whole run."""
    total = aggregations()["sum"].make(Shape(window=10, by_time=False))
    best = aggregations()["below_best"].make(Shape(window=1, by_time=False))
    for aggregator in (total, best):
        _fed(aggregator, [0, 1], [4.0, 8.0])
        aggregator.restart()
    assert _fed(total, [1, 2], [1.0, 2.0]) == [1.0, 3.0]
    assert _fed(best, [1, 2], [2.0, 4.0]) == [0.75, 0.5]


@st.composite
def samples(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Steps with or without gaps, and values of quarters: their sums are exact."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 600))
    keys = np.arange(count) + draw(st.integers(0, 50)) if draw(st.booleans()) else np.cumsum(rng.integers(1, 9, count))
    values = rng.integers(-20, 20, (count, draw(st.sampled_from([1, 3])))) / 4
    values[rng.random(values.shape) < draw(st.sampled_from([0.0, 0.3]))] = np.nan
    return keys.astype(np.int64), values


@settings(max_examples=40)
@given(samples(), st.sampled_from([1, 2, 5, 20, 64, 300]), st.sampled_from(["sum", "mean", "max", "min"]), st.data())
def test_windows_hold_what_lies_in_them(
    found: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], window: int, name: str, data: st.DataObject
) -> None:
    """Sums, means and extremes of several groups against gathering every window anew, cut and restarted anywhere."""
    keys, values = found
    make, shape = aggregations()[name].make, Shape(window=window, by_time=False)
    aggregator, parts, at = make(shape), [], 0
    if name not in ("mean", "max", "min"):
        values = values[:, :1]
    while at < keys.size:
        end = at + data.draw(st.integers(1, keys.size))
        parts.append(aggregator.feed(keys[at:end], values[at:end]))
        state = unpack(pack(aggregator.state()))
        assert state is not None
        aggregator = make(shape)
        aggregator.load(state)
        at = end
    gather = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[name]
    for row, compared in enumerate(np.concatenate(parts)):
        inside = (keys <= keys[row]) & (keys > keys[row] - window)
        for group in range(values.shape[1]):
            column = values[inside, group]
            expected = np.nan if np.isnan(values[row, group]) else gather(column[~np.isnan(column)])
            assert compared[group] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", list(aggregations()))
def test_any_aggregation_can_be_saved_and_cut_anywhere(name: str) -> None:
    """A contract of all there are, those that are added later too: bit for bit the same."""
    rng = np.random.default_rng(7)
    keys = np.cumsum(rng.integers(1, 3, 700))
    values = rng.normal(3.0, 1.0, (700, 1))
    values[rng.random(values.shape) < 0.05] = np.nan
    make, shape = aggregations()[name].make, Shape(window=30, by_time=False)
    at_once = make(shape).feed(keys, values)
    aggregator, parts = make(shape), []
    for at in range(0, 700, 13):
        parts.append(aggregator.feed(keys[at : at + 13], values[at : at + 13]))
        state = unpack(pack(aggregator.state()))
        assert state is not None
        aggregator = make(shape)
        aggregator.load(state)
    assert np.array_equal(np.concatenate(parts), at_once, equal_nan=True)
    assert np.isfinite(at_once).sum() > 400


def test_every_aggregation_says_what_it_is() -> None:
    """A title for sentences, a text for people, and an id of its own."""
    for name, item in aggregations().items():
        assert item.id == name
        assert item.title
        assert item.text.endswith(".")


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_quantiles_of_a_long_block_are_numpys(kind: str) -> None:
    """However wide the values are that are sorted: of numbers that float32 holds and of others, to the last bits."""
    values = np.random.default_rng(3).lognormal(size=12_000)
    values[5_000:5_100] = 1e39 if kind == "float64" else 3e38
    values = values.astype(kind).astype(np.float64)
    quantile = aggregations()["quantile"].make(Shape(window=200, by_time=False, argument=0.37))
    found = quantile.feed(np.arange(12_000), values[:, None])[:, 0]
    at = np.arange(1_000, 12_000, 190)  # of every tenth step it is found anew
    expected = [np.quantile(values[end - 199 : end + 1], 0.37) for end in at.tolist()]
    assert found[at].tolist() == pytest.approx(expected, rel=1e-14)
    assert found[at + 9].tolist() == found[at].tolist()
