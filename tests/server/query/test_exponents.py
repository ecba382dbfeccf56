"""The window chart's arrays against counts over the gradients that were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from halfscope_server.query import RunView, Views, Window
from halfscope_server.query import exponents as exponents_module
from halfscope_server.query.exponents import LOST, OVERFLOW, SUBNORMAL, Exponents, exponents, one_step
from halfscope_server.store.store import Store
from numpy.typing import NDArray

WriteRun = Callable[..., Any]
Values = NDArray[np.float64]


def newest(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


def spread(seed: int, middle: float = -20.0, n: int = 400) -> Values:
    """Values over some 40 powers of two, with zeros, NaN and Inf."""
    rng = np.random.default_rng(seed)
    values = np.exp2(rng.normal(middle, 9, n)).clip(2.0**-100, 2.0**60) * rng.choice([-1.0, 1.0], n)
    values[:20], values[20:23], values[23:25] = 0.0, np.nan, np.inf
    return values


def write(write_run: WriteRun, frames: dict[int, tuple[dict[str, Values], float]], precision: str = "FP16-AMP") -> None:
    """Steps to (gradients, scale)."""
    writer = write_run()
    writer.points("loss", range(max(frames) + 1), 1.0)
    writer.facts(precision=precision, sketches={"every": 10})
    for step, (gradients, scale) in frames.items():
        writer.frame(step, gradients, scale)
    writer.commit()


def found_in(view: RunView, **window: Any) -> Exponents:
    """The arrays of a window."""
    found = exponents(view, Window(**window))
    assert found is not None
    return found


def counted(values: list[tuple[Values, float]]) -> tuple[dict[int, int], dict[str, int]]:
    """(values, scale) of some frames together: elements per exponent of |value * scale|, and beyond FP16's limits."""
    bins: dict[int, int] = {}
    beyond = {"lost": 0, "subnormal": 0, "overflow": 0}
    for one, scale in values:
        scaled = np.abs(one[np.isfinite(one) & (one != 0)]) * scale
        for e in np.floor(np.log2(scaled)).astype(int).tolist():
            bins[e] = bins.get(e, 0) + 1
        beyond["lost"] += int((scaled < 2.0**-25).sum())
        beyond["subnormal"] += int(((scaled >= 2.0**-25) & (scaled < 2.0**-14)).sum())
        beyond["overflow"] += int((scaled >= 2.0**16).sum())
    return bins, beyond


def check_column(found: Exponents, k: int, parts: list[tuple[Values, float]]) -> None:
    """One column against the values it is made of."""
    bins, beyond = counted([(v, s if found.seen else 1.0) for v, s in parts])
    low, high = found.lowest, found.lowest + found.num_bins - 1
    expected = np.zeros(found.num_bins)
    for e, count in bins.items():
        expected[min(max(e, low), high) - low] += count
    assert found.counts[k].tolist() == expected.tolist()
    _, beyond = counted(parts)
    assert (found.lost[k], found.subnormal[k], found.overflow[k]) == tuple(beyond.values())
    every = np.concatenate([v for v, _ in parts])
    assert found.n[k] == every.size
    assert found.zeros[k] == (every == 0).sum()
    assert found.nan[k] == np.isnan(every).sum()
    assert found.infinite[k] == np.isinf(every).sum()


SCALES = [2.0**16, 2.0**15, 2.0**3, 2.0**-4, 2.0**20]


@pytest.mark.parametrize("gradient", ["seen", "true"])
def test_every_column_is_its_frame(lite: Store, write_run: WriteRun, gradient: str) -> None:
    """Each shifted by the scale of its own step; the outer bins hold all that lies beyond."""
    frames = {k * 10: ({"a.w": spread(k), "b.w": spread(k, -5)}, SCALES[k % 5]) for k in range(20)}
    write(write_run, frames)
    view = newest(lite)
    for layer in ("a.w", "b.w"):
        found = found_in(view, layer=layer, gradient=gradient)
        assert found.step.tolist() == list(frames)
        for k, (gradients, scale) in enumerate(frames.values()):
            check_column(found, k, [(gradients[layer], scale)])


def test_what_lies_outside_the_lines_is_what_is_printed(lite: Store, write_run: WriteRun) -> None:
    """As FP16 sees it the lines lie on bin edges: the bins beyond them add up to the shares, exactly."""
    frames = {k * 10: ({"w": spread(k)}, SCALES[k % 5]) for k in range(20)}
    write(write_run, frames)
    found = found_in(newest(lite), layer="w", gradient="seen")
    edges = np.arange(found.lowest, found.lowest + found.num_bins)
    np.testing.assert_array_equal(found.counts[:, edges < LOST].sum(axis=1), found.lost)
    inside = (edges >= LOST) & (edges < SUBNORMAL)
    np.testing.assert_array_equal(found.counts[:, inside].sum(axis=1), found.subnormal)
    np.testing.assert_array_equal(found.counts[:, edges >= OVERFLOW].sum(axis=1), found.overflow)
    np.testing.assert_array_equal(found.counts.sum(axis=1) + found.zeros + found.nan + found.infinite, found.n)
    assert found.lowest >= -34
    assert found.lowest + found.num_bins <= 20
    assert found.lost.any()
    assert found.overflow.any()


def test_the_true_gradients_limits_move_with_the_scale(lite: Store, write_run: WriteRun) -> None:
    """So what lies beyond them is the same."""
    frames = {k * 10: ({"w": spread(k)}, SCALES[k % 5]) for k in range(20)}
    write(write_run, frames)
    found = found_in(newest(lite), layer="w", gradient="true")
    edges = np.arange(found.lowest, found.lowest + found.num_bins)
    for k, (_, scale) in enumerate(frames.values()):
        assert found.limit(LOST)[k] == LOST - np.log2(scale)
        assert found.counts[k, edges < found.limit(LOST)[k]].sum() == found.lost[k]
        assert found.counts[k, edges >= found.limit(OVERFLOW)[k]].sum() == found.overflow[k]


def test_more_frames_than_columns_are_added_up_each_by_its_own_scale(
    lite: Store, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No column loses an element."""
    assert exponents_module.NUM_COLUMNS == 400
    monkeypatch.setattr(exponents_module, "NUM_COLUMNS", 40)
    frames = {k * 10: ({"w": spread(k, n=40)}, SCALES[k % 5]) for k in range(198)}
    write(write_run, frames)
    found = found_in(newest(lite), layer="w", gradient="seen")
    assert found.step.size == 40
    assert found.num_frames.sum() == 198
    assert found.num_frames[0] == 5
    for k in (0, 7, found.step.size - 1):
        steps = [s for s in frames if found.step[k] <= s <= found.last_step[k]]
        assert len(steps) == found.num_frames[k]
        check_column(found, k, [(frames[s][0]["w"], frames[s][1]) for s in steps])


def test_a_scale_that_is_no_power_of_two_divides_bins_and_says_so(lite: Store, write_run: WriteRun) -> None:
    """Log-uniformly: nothing is lost, and the shares are those of the divided bins."""
    write(write_run, {0: ({"w": spread(0, n=4000)}, 1000.0)})
    found = found_in(newest(lite), layer="w", gradient="seen")
    assert found.interpolated
    assert found.counts.sum() + found.zeros[0] + found.nan[0] + found.infinite[0] == pytest.approx(found.n[0])
    edges = np.arange(found.lowest, found.lowest + found.num_bins)
    assert found.counts[0, edges < LOST].sum() == pytest.approx(found.lost[0])
    _, beyond = counted([(spread(0, n=4000), 1000.0)])
    assert found.lost[0] == pytest.approx(beyond["lost"], rel=0.1)


def test_a_modules_columns_are_those_of_its_layers_together(lite: Store, write_run: WriteRun) -> None:
    """Also where one of them has no gradient in a step, and where they are too many to read at once."""
    frames: dict[int, tuple[dict[str, Values], float]] = {}
    for k in range(6):
        gradients = {f"m.l{j}": spread(k * 100 + j, n=30) for j in range(70) if j != k}
        frames[k * 10] = {**gradients, "other": spread(k)}, 2.0**k
    write(write_run, frames)
    found = found_in(newest(lite), layer="m", gradient="seen")
    for k, (gradients, scale) in enumerate(frames.values()):
        check_column(found, k, [(v, scale) for name, v in gradients.items() if name.startswith("m.")])


@pytest.mark.parametrize("gradient", ["seen", "true"])
def test_layers_of_one_step_are_counted_each_at_its_own_scale(
    lite: Store, write_run: WriteRun, gradient: Literal["seen", "true"]
) -> None:
    """Several scalers, and an optimizer without one: as FP16 sees them all lie where their own scale puts them."""
    writer = write_run()
    writer.points("loss", range(31), 1.0)
    writer.facts(precision="FP16-AMP", sketches={"every": 10})
    scales = {"m.a": 2.0**14, "m.b": 2.0**-6, "m.c": np.nan}
    frames = [{name: spread(10 * k + j, n=300 + 100 * j) for j, name in enumerate(scales)} for k in range(3)]
    del frames[1]["m.a"]
    for k, gradients in enumerate(frames):
        for name, values in gradients.items():
            writer.frame(10 * k, {name: values}, scales[name] * (1 + k % 2))
    writer.commit()
    found = found_in(newest(lite), layer="m", gradient=gradient)
    assert (found.is_mixed, found.has_scaler, found.interpolated) == (True, True, False)
    for k, gradients in enumerate(frames):
        at = {name: 1.0 if np.isnan(scale) else scale * (1 + k % 2) for name, scale in scales.items()}
        parts = [(values, at[name]) for name, values in gradients.items()]
        if gradient == "seen":
            check_column(found, k, parts)
            continue
        _, beyond = counted(parts)
        assert {name: int(getattr(found, name)[k]) for name in beyond} == beyond
        there = [at[name] for name in gradients]
        assert (found.least_scale[k], found.most_scale[k]) == (min(there), max(there))
    for name, scale in scales.items():
        alone = found_in(newest(lite), layer=name, gradient=gradient)
        assert not alone.is_mixed
        assert alone.scale[0] == (1.0 if np.isnan(scale) else scale)


def test_frames_of_a_restart_follow_those_it_did_not_do_again(lite: Store, write_run: WriteRun) -> None:
    """One picture, each step once."""
    for attempt, (low, high) in enumerate(((0, 100), (50, 150))):
        writer = write_run(attempt=attempt)
        writer.points("loss", range(low, high), 1.0)
        writer.facts(precision="FP16-AMP")
        for step in range(low, high, 10):
            writer.frame(step, {"w": spread(step + attempt, middle=-10.0 - 9 * attempt)}, 1.0)
        writer.commit()
    found = found_in(newest(lite), layer="w")
    assert found.step.tolist() == list(range(0, 150, 10))
    check_column(found, 4, [(spread(40, middle=-10.0), 1.0)])
    check_column(found, 5, [(spread(51, middle=-19.0), 1.0)])


@pytest.mark.parametrize(
    ("precision", "scale", "seen", "assumed"),
    [("FP16-AMP", 1024.0, True, 1024.0), ("FP32", np.nan, False, 65536.0), ("FP16", np.nan, True, 1.0)],
)
def test_the_view_and_scale_follow_from_the_run(
    lite: Store, write_run: WriteRun, precision: str, scale: float, seen: bool, assumed: float
) -> None:
    """FP16 as it sees itself; others as they are, with the limits of the scale that a scaler begins with."""
    write(write_run, {0: ({"w": spread(0)}, scale)}, precision)
    found = found_in(newest(lite), layer="w")
    assert (found.seen, found.scale[0], found.has_scaler) == (seen, assumed, not np.isnan(scale))
    check_column(found, 0, [(spread(0), assumed)])


def test_a_step_is_the_measured_one_nearest_to_it(lite: Store, write_run: WriteRun) -> None:
    """Without one it is the newest of the window; steps in which the layer had no gradient are passed over."""
    frames = {k * 10: ({"w": spread(k), "x": spread(k)}, 1024.0) for k in range(10)}
    frames[50] = {"x": spread(5)}, 1024.0
    write(write_run, frames)
    view = newest(lite)
    for asked, window, expected in (
        (None, {}, 90),
        (44, {}, 40),
        (52, {}, 60),
        (10**9, {}, 90),
        (0, {}, 0),
        (None, {"first": 0, "last": 45}, 40),
    ):
        found = one_step(view, Window(layer="w", step=asked, **window))
        assert found is not None
        assert found.exponents.step.tolist() == [expected]
        check_column(found.exponents, 0, [(spread(expected // 10), 1024.0)])
        finite = spread(expected // 10)
        finite = finite[np.isfinite(finite)]
        assert float(found.sketch.norm) == pytest.approx(np.sqrt((finite**2).sum()))
        assert (found.point, found.maybe_clipped) == ("unscale", False)


def test_nothing_measured_is_nothing(lite: Store, write_run: WriteRun) -> None:
    """No layer, no frame in the window, a layer that never had a gradient."""
    writer = write_run()
    writer.points("loss", range(100), 1.0)
    writer.commit()
    assert exponents(newest(lite), Window()) is None
    assert one_step(newest(lite), Window()) is None
    writer.frame(0, {"w": spread(0)})
    writer.commit()
    view = newest(lite)
    assert exponents(view, Window(first=50, last=90)) is None
    assert exponents(view, Window(layer="w")) is not None
    assert exponents(view, Window(layer="not there")) is not None, "an old address shows the layer that is worst now"
