"""Alignment, against plain loops over the steps as they were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.compare import align
from halfscope_server.compare.align import Axis, Grid, NoAxis, Track
from halfscope_server.compare.beside import Pair, pair
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Alignment, Options
from halfscope_server.query import RunView, Views
from halfscope_server.store.store import Store

WriteRun = Callable[..., Any]
STEP_US = 10_000


def views(store: Store, *run_ids: str) -> tuple[RunView, ...]:
    """The newest views."""
    found = [Views(store).get(run_id) for run_id in run_ids]
    return tuple(view for view in found if view is not None)


def axis_of(view: RunView, how: Alignment) -> Axis:
    """An axis that is there."""
    found = align.axis(view, how)
    assert isinstance(found, Axis), found
    return found


def track_of(view: RunView, how: Alignment = "attempts") -> Track:
    """The loss along an axis."""
    found = align.track(view, "loss", how)
    assert isinstance(found, Track), found
    return found


def paired(store: Store, how: Alignment = "attempts") -> Pair:
    """`run1` as the baseline and `run2`."""
    found = pair(Comparison(views(store, "run1", "run2"), Options(align=how)), 1)
    assert isinstance(found, Pair), found
    return found


def test_a_step_lies_at_the_applied_steps_before_it(lite: Store, write_run: WriteRun) -> None:
    """Skips at the start, in a row, and at the end; what follows a skipped step lies where that did."""
    skipped = {0, 1, 7, 20, 21, 22, 39}
    writer = write_run()
    writer.points("loss", range(40), np.arange(40.0))
    for step in sorted(skipped):
        writer.skip(step, "single")
    writer.commit()
    (view,) = views(lite, "run1")
    expected = [sum(before not in skipped for before in range(step)) for step in range(40)]
    axis = axis_of(view, "applied")
    assert axis.x_at(np.arange(40)).tolist() == expected
    # Of all steps at a place the last: the one that was applied.
    for x in range(33):
        assert axis.step_at(x) == max(step for step in range(40) if expected[step] == x)


def test_samples_add_up_over_changing_batches_and_ranks(lite: Store, write_run: WriteRun) -> None:
    """Two ranks, one of which changes its batch twice; the size is written only where it changes."""
    sizes = [np.repeat([64, 32, 128], [10, 5, 15]), np.repeat([64], 30)]
    for rank, size in enumerate(sizes):
        writer = write_run(rank=rank, world_size=2)
        writer.points("loss", range(30), 1.0, reduction="mean")
        changed = np.flatnonzero(np.diff(size, prepend=0))
        writer.points("samples", changed, size[changed], kind="state", reduction="sum")
        writer.commit()
    (view,) = views(lite, "run1")
    total = np.concatenate([[0], np.cumsum(sizes[0] + sizes[1])])
    assert axis_of(view, "samples").x_at(np.arange(30)).tolist() == total[:30].tolist()
    found = align.axis(view, "tokens")
    assert isinstance(found, NoAxis)
    assert "run.step(tokens=...)" in found.reason


def test_time_counts_training_alone(lite: Store, write_run: WriteRun) -> None:
    """A day between a crash and the restart, which goes back in steps, does not count; nor does what was done again."""
    first, second = write_run(attempt=0), write_run(attempt=1)
    first.points("loss", range(50), 1.0, times_us=np.arange(50) * STEP_US)
    first.commit()
    second.points("loss", range(30, 60), 2.0, times_us=86_400 * 10**6 + np.arange(30) * 2 * STEP_US)
    second.commit()
    (view,) = views(lite, "run1")
    x = axis_of(view, "time").x_at(np.arange(60))
    expected = np.concatenate([np.arange(30) * 0.01, 30 * 0.01 + np.arange(30) * 0.02])
    np.testing.assert_allclose(x, expected, atol=1e-9)
    assert track_of(view).mean.tolist() == [1.0] * 30 + [2.0] * 30


@pytest.mark.parametrize("how", ["attempts", "applied", "samples"])
def test_cells_hold_what_a_loop_over_all_steps_finds(lite: Store, write_run: WriteRun, how: Alignment) -> None:
    """Long enough for summaries, with restarts off their grid, skips and values that are no numbers: number, sum,
    extremes, last and non-finite ones of every cell, but for what a stretch of 64 steps smears where steps and cells
    lie crosswise."""
    rng = np.random.default_rng(5)
    spans = ((0, 30_011), (29_950, 40_003))
    values: dict[int, float] = {}
    for attempt, (low, high) in enumerate(spans):
        writer = write_run(attempt=attempt)
        loss = np.float32(rng.normal(2.0, 0.1, high - low)).astype(np.float64)
        loss[rng.integers(0, high - low, 40)] = np.nan
        writer.points("loss", range(low, high), loss)
        writer.points("samples", [low], 32.0, kind="state")
        for step in range(low, high, 1_000):
            writer.skip(step, "single")
        writer.commit()
        values |= dict(zip(range(low, high), loss.tolist(), strict=True))
    (view,) = views(lite, "run1")
    track = track_of(view, how)
    assert not track.is_raw
    assert (int(track.count.sum()), int(track.bad.sum())) == (
        sum(np.isfinite(list(values.values()))),
        sum(np.isnan(list(values.values()))),
    )
    grid = Grid(origin=0.0, width=128.0 * (32 if how == "samples" else 1), num_cells=320)
    cells = align.into_cells(track, grid)
    step = np.array(sorted(values))
    value, place = np.array([values[s] for s in step]), axis_of(view, how).x_at(step)
    exact = np.bincount(grid.cell(place[np.isfinite(value)]), minlength=320)[:320]
    if how == "applied":
        assert np.abs(cells.count - exact).max() <= 64
        return
    assert cells.count.tolist() == exact.tolist()
    for cell in range(0, 313, 13):
        inside = value[(grid.cell(place) == cell) & np.isfinite(value)]
        assert cells.total[cell] == pytest.approx(inside.sum(), rel=1e-12)
        assert (cells.minimum[cell], cells.maximum[cell]) == (inside.min(), inside.max())
        assert cells.last[cell] == inside[-1]
        assert cells.bad[cell] == int(np.isnan(value[grid.cell(place) == cell]).sum())


def test_runs_that_log_at_other_intervals_are_compared_where_both_have_a_value(
    lite: Store, write_run: WriteRun
) -> None:
    """Every step against every seventh: what batches do to both cancels to the last bit."""
    batches = np.random.default_rng(6).normal(0, 1, 400)
    for run, every, level in (("run1", 1, 2.0), ("run2", 7, 2.5)):
        writer = write_run(run)
        step = np.arange(0, 400, every)
        writer.points("loss", step, level + batches[step])
        writer.commit()
    found = paired(lite)
    assert found.x.size == 58
    np.testing.assert_allclose(found.difference, 0.5, atol=1e-12)
    assert found.is_in_step


def test_skips_shift_what_lies_beside_each_other(lite: Store, write_run: WriteRun) -> None:
    """By applied steps a run that skipped lies beside the baseline's earlier steps, by attempts beside the same."""
    writer = write_run("run1")
    writer.points("loss", range(300), np.arange(300.0))
    writer.commit()
    writer = write_run("run2")
    writer.points("loss", range(300), np.arange(300.0))
    for step in range(100, 110):
        writer.skip(step, "streak")
    writer.commit()
    assert set(paired(lite).difference.tolist()) == {0.0}
    applied = paired(lite, "applied")
    assert applied.difference[:100].tolist() == [0.0] * 100
    assert applied.difference[101:].tolist() == [10.0] * (applied.x.size - 101)
    assert not applied.is_in_step


def test_accumulation_lies_beside_the_batch_it_adds_up_to(lite: Store, write_run: WriteRun) -> None:
    """Half the batch with twice the steps: by samples, each step lies beside the one that had seen as many."""
    for run, size, num_steps in (("run1", 64, 200), ("run2", 32, 400)):
        writer = write_run(run)
        writer.points("loss", range(num_steps), np.arange(num_steps) * size / 64.0)
        writer.points("samples", [0], float(size), kind="state")
        writer.commit()
    found = paired(lite, "samples")
    assert found.grid.width == 64
    assert found.difference.tolist() == [0.0] * 200
    assert found.member.step.tolist() == list(range(0, 400, 2))


def test_a_metric_that_only_one_has_is_told(lite: Store, write_run: WriteRun) -> None:
    """By whom it is missed."""
    for run, name in (("run1", "loss"), ("run2", "val/loss")):
        writer = write_run(run)
        writer.points(name, range(10), 1.0)
        writer.commit()
    found = pair(Comparison(views(lite, "run1", "run2")), 1)
    assert found == NoAxis(reason="the run has no loss")
