"""What charts of a comparison show, recomputed from what was recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.compare.comparison import Comparison, Comparisons
from halfscope_server.compare.types import Alignment, Options
from halfscope_server.panels import compared
from halfscope_server.panels.arrays import unpacked
from halfscope_server.query import Views, Window
from halfscope_server.store.store import Store

WriteRun = Callable[..., Any]

STEPS = np.arange(400)
SKIPPED = (50, 51, 200)
EVERY = 20


def gradient(step: int, factor: float) -> np.ndarray:
    """Of a layer of 300 elements: a tenth zeros, the rest normal."""
    found = np.random.default_rng(step).normal(size=300) * factor
    found[:30] = 0.0
    return found


@pytest.fixture
def pair(lite: Store, write_run: WriteRun) -> Callable[..., Comparison]:
    """FP32 and FP16 runs of 400 steps; the second skips three, has a loss a tenth higher and gradients a quarter as
    large."""
    for run_id, precision, factor, loss in (("a", "FP32", 1.0, 1.0), ("b", "FP16-AMP", 0.25, 1.1)):
        writer = write_run(run_id, name=run_id)
        writer.facts(precision=precision, sketches={"every": EVERY})
        writer.points("loss", STEPS, loss * (1 + 0.001 * np.sin(STEPS * 0.7)))
        writer.points("samples", STEPS, 32.0, kind="state")
        for step in range(0, STEPS.size, EVERY):
            writer.frame(step, {"body.weight": gradient(step, factor)}, 1024.0 if run_id == "b" else np.nan)
        if run_id == "b":
            for step in SKIPPED:
                writer.skip(step, "single")
        writer.commit()
    comparisons = Comparisons(Views(lite))
    return lambda align="attempts": comparisons.get(["a", "b"], Options(align=align))


def fill_of(comparison: Comparison, panel_id: str, window: Window) -> dict[str, Any]:
    """A panel's arrays."""
    panel = compared.find(comparison, panel_id)
    assert panel is not None
    return compared.fill(comparison, panel, window)


def line_x(fill: dict[str, Any], member: int) -> np.ndarray:
    """Places of a member's line."""
    per_member = (len(fill["data"]) - 1) // 2
    return unpacked(fill["data"][member * per_member + per_member - 2]["x"])


def test_lines_lie_where_their_steps_do_along_each_axis(pair: Callable[..., Comparison]) -> None:
    """Applied steps leave the skipped out; samples count 32 a step; a window is cut in what is aligned by."""
    applied = STEPS - np.searchsorted(SKIPPED, STEPS)
    expected: dict[Alignment, np.ndarray] = {"attempts": STEPS, "applied": applied, "samples": STEPS * 32}
    for align, places in expected.items():
        whole = fill_of(pair(align), "compare-quality", Window())
        np.testing.assert_allclose(line_x(whole, 1), places)
        low, high = float(places[100]), float(places[300])
        part = line_x(fill_of(pair(align), "compare-quality", Window(first=low, last=high)), 1)
        inside = places[(places >= low) & (places <= high)]
        np.testing.assert_allclose(part[(part >= low) & (part <= high)], inside)
        assert part.size <= inside.size + 2


def test_letters_stand_at_the_ends_of_lines(pair: Callable[..., Comparison]) -> None:
    """Runs are told apart without colour; the chart is called by its metric."""
    panel = compared.find(pair(), "compare-quality")
    assert panel is not None
    assert panel.title == "Quality: loss"
    fill = fill_of(pair(), "compare-quality", Window())
    assert fill["label"].startswith("Quality: loss of 2 runs")
    assert fill["layout"]["yaxis"]["title"]["text"] == "loss"
    notes = [(note["text"], note["x"], note["name"]) for note in fill["layout"]["annotations"]]
    assert notes == [("A", 399.0, "role:fp32"), ("B", 399.0, "role:fp16")]


def test_histograms_are_the_shares_of_the_elements_themselves(pair: Callable[..., Comparison]) -> None:
    """At a chosen step and over the last tenth of measured ones; the difference is of the shares, bin by bin."""
    for window, steps in (
        (Window(step=101), [100]),
        (Window(), [340, 360, 380]),
        (Window(first=0, last=210), [160, 180, 200]),
    ):
        fill = fill_of(pair(), "compare-histogram", window)
        low = int(fill["layout"]["xaxis"]["range"][0])
        shares = []
        for member, factor in enumerate((1.0, 0.25)):
            values = np.concatenate([gradient(step, factor) for step in steps])
            exponents = np.floor(np.log2(np.abs(values[values != 0]))).astype(int)
            drawn = fill["data"][3 * member]
            expected = np.bincount(exponents - low, minlength=unpacked(drawn["x"]).size) / values.size * 100
            shares.append(expected)
            np.testing.assert_allclose(unpacked(drawn["y"])[:-1], expected[:-1])
            np.testing.assert_allclose(unpacked(fill["data"][3 * member + 1]["y"]), [10.0, 0, 0])
        np.testing.assert_allclose(unpacked(fill["data"][5]["y"])[:-1], (shares[1] - shares[0])[:-1])
        (limit,) = fill["layout"]["shapes"] if fill["layout"]["shapes"] else [None]
        assert limit is None or limit["x0"] == -25 - 10


def test_windows_have_one_pair_of_axes(pair: Callable[..., Comparison]) -> None:
    """What lies at one place in both is equally large and equally far; columns lie along the axis."""
    comparison = pair("samples")
    fills = [fill_of(comparison, f"compare-window-{letter}", Window()) for letter in "ab"]
    for axis in ("xaxis", "yaxis"):
        assert fills[0]["layout"][axis]["range"] == fills[1]["layout"][axis]["range"]
    for fill in fills:
        edges = unpacked(fill["data"][0]["x"])
        np.testing.assert_allclose(edges, np.arange(0, STEPS.size + 1, EVERY) * 32)


def test_a_layers_statistic_is_that_of_its_elements(pair: Callable[..., Comparison]) -> None:
    """Norm and zeros at every measured step of both."""
    norms = fill_of(pair(), "compare-layer", Window(stat="norm", layer="body.weight"))
    zeros = fill_of(pair(), "compare-layer", Window(stat="zeros", layer="body.weight"))
    steps = range(0, STEPS.size, EVERY)
    for member, factor in enumerate((1.0, 0.25)):
        expected = [math.sqrt(math.fsum(gradient(step, factor) ** 2)) for step in steps]
        np.testing.assert_allclose(unpacked(norms["data"][member]["y"]), expected)
        np.testing.assert_allclose(unpacked(zeros["data"][member]["y"]), 10.0)
        assert unpacked(norms["data"][member]["x"]).tolist() == list(steps)


def test_the_difference_is_relative_to_the_baseline(pair: Callable[..., Comparison]) -> None:
    """A loss a tenth higher all along lies at +10%."""
    fill = fill_of(pair(), "compare-difference", Window())
    np.testing.assert_allclose(unpacked(fill["data"][2]["y"]), 10.0, rtol=1e-6)
    assert "B +10%" in fill["headline"]


def test_a_layer_that_a_run_lacks_is_said_to_be_missing(pair: Callable[..., Comparison]) -> None:
    """No other layer stands in for it; a wrapper's prefix is no other name."""
    fill = fill_of(pair(), "compare-window-a", Window(layer="nowhere.weight"))
    assert "no layer nowhere" in fill["empty"]
    assert not fill_of(pair(), "compare-window-a", Window(layer="module.body.weight"))["empty"]
