"""Charts of the reduction's buckets against what was written, cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope.wire.messages import Layer, Layers
from halfscope_server import panels
from halfscope_server.query import Views, Window
from halfscope_server.query.buckets import bytes_cells, rate_cells
from halfscope_server.query.view import RunView
from halfscope_server.ranks import over_time
from halfscope_server.ranks.over_time import error_cells
from halfscope_server.store.store import Store
from numpy.testing import assert_allclose, assert_array_equal

from tests.helpers.figures import check_figure
from tests.server.ranks.conftest import slices

NUM_STEPS = 60
REBUILT = 10
"""From this step on the buckets have other sizes."""
SIZES = {0: (1_000.0, 3_000.0), 1: (2_000.0, 500.0)}


def took(rank: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(rank)
    return {bucket: 1e-3 * (1 + rank + rng.random(NUM_STEPS)) for bucket in SIZES}


@pytest.fixture
def view(lite: Store, write_run: Callable[..., Any]) -> RunView:
    """Two ranks; at every fifth step slices, of which the reduction loses a hundredth of bucket 1."""
    steps = np.arange(NUM_STEPS)
    for rank in range(2):
        writer = write_run(rank=rank, world_size=2)
        writer.record(Layers([Layer(0, "fc.weight", [4], "float32")]))
        writer.points("time.step_s", steps, 0.1, unit="s", reduction="max")
        for bucket, seconds in took(rank).items():
            writer.points("comm.time_s", steps, seconds, unit="s", reduction="max", bucket=str(bucket))
            told = SIZES[bucket]
            writer.points("comm.bytes", [0, REBUILT], told, unit="bytes", kind="state", bucket=str(bucket))
        for step in range(0, NUM_STEPS, 5):
            local = np.random.default_rng(step).normal(size=(2, 4)).astype(np.float32)
            for bucket in SIZES:
                reduced = local.sum(axis=0) / 2 * (0.99 if bucket else 1.0)
                writer.record(slices(step, local[rank], reduced, bucket=bucket))
        writer.commit()
    found = Views(lite).get("run1")
    assert found is not None
    return found


def test_bytes_hold_until_others_are_told(view: RunView) -> None:
    """Also where the window begins behind the change."""
    cells = bytes_cells(view, Window())
    assert cells is not None
    is_rebuilt = np.arange(NUM_STEPS) >= REBUILT
    assert cells.step.tolist() == cells.last_step.tolist() == list(range(NUM_STEPS))
    assert_array_equal(cells.value, [np.where(is_rebuilt, after, before) for before, after in SIZES.values()])
    later = bytes_cells(view, Window(first=30, last=40))
    assert later is not None
    assert_array_equal(later.value, [[after] * 11 for _, after in SIZES.values()])


def test_bandwidth_is_that_of_the_slowest_rank(view: RunView) -> None:
    """Bytes over the longest time of each step."""
    cells = rate_cells(view, Window())
    assert cells is not None
    assert cells.step.tolist() == list(range(NUM_STEPS))
    for bucket, (before, after) in SIZES.items():
        slowest = np.max([took(rank)[bucket] for rank in range(2)], axis=0)
        size = np.where(np.arange(NUM_STEPS) < REBUILT, before, after)
        assert_allclose(cells.value[bucket], size / slowest, rtol=1e-12)


def test_errors_are_those_of_the_sampled_steps(view: RunView) -> None:
    """One bucket is right to rounding, the other loses a hundredth."""
    cells = error_cells(view, Window(first=20, last=40))
    assert cells is not None
    assert cells.step.tolist() == [20, 25, 30, 35, 40]
    assert (cells.value[0] < 1e-6).all()
    assert_allclose(cells.value[1], 0.01, rtol=1e-4)


def test_what_is_read_of_slices_is_bounded(view: RunView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are left out evenly, the first and the last are there; of a job of too many ranks there is no chart."""
    monkeypatch.setattr(over_time, "MAX_SLICES", 4 * over_time.LEAST_STEPS)
    cells = error_cells(view, Window())
    assert cells is not None
    assert len(cells.step) == over_time.LEAST_STEPS
    assert cells.step[[0, -1]].tolist() == [0, NUM_STEPS - 5]
    assert panels.find(view, "buckets-error") is not None
    monkeypatch.setattr(over_time, "MAX_SLICES", 4 * over_time.LEAST_STEPS - 1)
    assert panels.find(view, "buckets-error") is None


@pytest.mark.parametrize("name", ["buckets-bytes", "buckets-rate", "buckets-error", "buckets-time"])
@pytest.mark.parametrize(
    "window", [Window(), Window(x="time"), Window(first=30, last=31), Window(first=10_000, last=10_001)]
)
def test_figures_keep_to_the_contract(view: RunView, name: str, window: Window) -> None:
    """Whole, zoomed, by time, and beside the data."""
    panel = panels.find(view, name)
    assert panel is not None
    check_figure(panels.figure(view, panel, window))
    if window == Window():
        assert panels.fill(view, panel, window)["headline"].startswith("most ")
        assert len(panels.table(view, panel, window).rows) == len(SIZES)
