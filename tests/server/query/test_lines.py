"""Windows of series read from a real store, against the plain lists that were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.query import Line, RunView, Views, Window, read_line
from halfscope_server.query.window import MAX_POINTS
from halfscope_server.store.store import Store

WriteRun = Callable[..., Any]
STEP_US, BEGAN_US = 10_000, 1_700_000_000_000_000


def view_of(store: Store, run_id: str = "run1") -> RunView:
    """The newest view of a run that is there."""
    view = Views(store).get(run_id)
    assert view is not None
    return view


def line_of(view: RunView, name: str, **window: Any) -> Line:
    """The first series of a name over a window."""
    line = read_line(view, view.named(name)[0], Window(**window))
    assert line is not None
    return line


def noisy(num_steps: int, seed: int = 0) -> np.ndarray:
    """Noise with spikes of one step and non-finite steps."""
    rng = np.random.default_rng(seed)
    value = rng.normal(0, 1, num_steps)
    value[rng.choice(num_steps, 20, replace=False)] = 100 + np.arange(20)
    value[rng.choice(num_steps, 20, replace=False)] = -100 - np.arange(20)
    bad = rng.choice(num_steps, 30, replace=False)
    value[bad] = np.tile([np.nan, np.inf, -np.inf], 10)
    return value


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("num_steps", [1, 999, 5_000, 100_000])
def test_every_width_keeps_extremes_and_counts_what_is_not_finite(
    lite: Store, write_run: WriteRun, sealed: Callable[[], None], num_steps: int, is_sealed: bool
) -> None:
    """Raw, thinned and from rollups; before and after sealing."""
    value = noisy(num_steps) if num_steps > 100 else np.array([1.5])
    writer = write_run()
    writer.points("loss", np.arange(num_steps), value)
    writer.commit()
    if is_sealed:
        sealed()
    line = line_of(view_of(lite), "loss")
    finite = value[np.isfinite(value)]
    assert (line.minimum, line.maximum) == (finite.min(), finite.max())
    assert line.curve.size <= MAX_POINTS
    assert np.isfinite(line.curve.value).all()
    assert line.num_points == num_steps
    counts = (line.bad.num_nan.sum(), line.bad.num_pos_inf.sum(), line.bad.num_neg_inf.sum())
    assert counts == (np.isnan(value).sum(), np.isposinf(value).sum(), np.isneginf(value).sum())
    if line.band is not None:
        assert line.band.step.size <= MAX_POINTS
        assert (line.band.low <= line.band.high).all()


def test_each_bucket_of_a_wide_window_draws_its_own_extremes(lite: Store, write_run: WriteRun) -> None:
    """Low, high and mean of every drawn stretch equal those of the list."""
    value = noisy(100_000)
    writer = write_run()
    writer.points("loss", np.arange(value.size), value)
    writer.commit()
    line = line_of(view_of(lite), "loss")
    assert line.band is not None
    assert line.bucket_steps == 256
    for place, first in enumerate(line.band.step.tolist()):
        part = value[first : first + line.bucket_steps]
        part = part[np.isfinite(part)]
        assert (line.band.low[place], line.band.high[place]) == (part.min(), part.max())
        assert line.curve.value[place] == pytest.approx(part.mean())


@pytest.mark.parametrize("window", [(0, 0), (10, 20), (990, 5_000), (40_000, 90_000), (-50, 3), (99_990, 10**9)])
def test_a_window_of_steps_shows_its_steps_and_no_others(
    lite: Store, write_run: WriteRun, window: tuple[int, int]
) -> None:
    """Narrow ones exactly; wide ones up to the stretches their ends lie in."""
    value = np.arange(100_000, dtype=float)
    writer = write_run()
    writer.points("loss", np.arange(value.size), value)
    writer.commit()
    line = line_of(view_of(lite), "loss", first=window[0], last=window[1])
    first, last = max(0, window[0]), min(99_999, window[1])
    slack = 0 if line.bucket_steps == 1 else line.bucket_steps
    assert line.minimum is not None
    assert line.maximum is not None
    assert first - slack <= line.minimum <= first
    assert last <= line.maximum <= last + slack
    assert (line.curve.step >= first).all()


def test_a_window_of_time_shows_the_points_of_that_time(lite: Store, write_run: WriteRun) -> None:
    """Both ends in microseconds, cut to the point, although steps take longer and longer."""
    times = BEGAN_US + np.cumsum(np.arange(3000)) * 1000
    writer = write_run()
    writer.points("loss", np.arange(3000), np.arange(3000), times_us=times)
    writer.commit()
    first, last = int(times[700]) - 5, int(times[1300]) + 5
    line = line_of(view_of(lite), "loss", x="time", first=first, last=last)
    assert line.curve.step.tolist() == list(range(700, 1301))


def test_a_series_logged_now_and_then_is_drawn_point_by_point(lite: Store, write_run: WriteRun) -> None:
    """A thousand evaluations over a million steps are a thousand points, not buckets."""
    writer = write_run()
    writer.points("loss", np.arange(0, 1_000_000, 1000), 1.0)
    writer.points("val/accuracy", np.arange(0, 1_000_000, 2000), np.linspace(0, 1, 500))
    writer.commit()
    line = line_of(view_of(lite), "val/accuracy")
    assert line.curve.value.tolist() == np.linspace(0, 1, 500).tolist()
    assert (line.bucket_steps, line.band) == (1, None)


@pytest.mark.parametrize("num_steps", [900, 30_000, 200_000])
def test_a_held_value_shows_every_level_and_where_it_changes(lite: Store, write_run: WriteRun, num_steps: int) -> None:
    """A scale that halves for ten steps is seen to do so at every width."""
    value = np.full(num_steps, 65536.0)
    value[num_steps // 3 : num_steps // 3 + 10] = 32768.0
    writer = write_run()
    writer.points("amp.scale", np.arange(num_steps), value, kind="state")
    writer.commit()
    line = line_of(view_of(lite), "amp.scale")
    assert line.is_held
    assert set(line.curve.value.tolist()) == {65536.0, 32768.0}
    assert line.curve.size <= 10
    dip = int(line.curve.step[line.curve.value == 32768.0][0])
    assert 0 <= dip - num_steps // 3 + line.bucket_steps <= 2 * line.bucket_steps


def test_a_value_held_since_before_the_window_reaches_into_it(lite: Store, write_run: WriteRun) -> None:
    """A learning rate that was written once, long ago, holds at both ends of a window and to the newest step."""
    writer = write_run()
    writer.points("loss", np.arange(10_000), 1.0)
    writer.points("lr", [0, 6000], [0.1, 0.01], kind="state")
    writer.commit()
    view = view_of(lite)
    line = line_of(view, "lr", first=5000, last=7000)
    assert list(zip(line.curve.step.tolist(), line.curve.value.tolist(), strict=True)) == [
        (5000, 0.1),
        (6000, 0.01),
        (7000, 0.01),
    ]
    assert line_of(view, "lr").curve.step.tolist() == [0, 6000, 9999]
    assert line_of(view, "lr", first=7000, last=7500).curve.value.tolist() == [0.01, 0.01]


def test_a_restart_is_drawn_on_and_what_it_did_again_stays_as_a_ghost(lite: Store, write_run: WriteRun) -> None:
    """Attempt 0 counts up to where attempt 1 began; its later steps are the ghost."""
    first = write_run()
    first.points("loss", range(0, 100), 1.0)
    first.commit()
    second = write_run(attempt=1)
    second.points("loss", range(60, 150), 2.0)
    second.commit()
    line = line_of(view_of(lite), "loss")
    assert line.curve.step.tolist() == list(range(150))
    assert line.curve.value.tolist() == [1.0] * 60 + [2.0] * 90
    (ghost,) = line.ghosts
    assert (ghost.step.tolist(), set(ghost.value.tolist())) == (list(range(60, 100)), {1.0})


@pytest.mark.parametrize(
    ("reduction", "expected"), [("mean", 20.0), ("min", 10.0), ("max", 30.0), ("sum", 60.0), ("last", 10.0)]
)
def test_ranks_become_one_line_by_their_reduction(
    lite: Store, write_run: WriteRun, reduction: str, expected: float
) -> None:
    """With the smallest and largest rank as the band, where that says something."""
    for rank in range(3):
        writer = write_run(rank=rank, world_size=3)
        writer.points("loss", range(50), 10.0 * (rank + 1), reduction=reduction)
        writer.commit()
    line = line_of(view_of(lite), "loss")
    assert line.curve.step.tolist() == list(range(50))
    assert set(line.curve.value.tolist()) == {expected}
    if reduction == "sum":
        assert line.band is None
    else:
        assert line.band is not None
        assert (set(line.band.low.tolist()), set(line.band.high.tolist())) == ({10.0}, {30.0})


def test_a_rank_with_nan_is_counted_and_does_not_spoil_the_mean(lite: Store, write_run: WriteRun) -> None:
    """The other rank's value stands, and the mark says what was seen."""
    for rank, value in enumerate((4.0, float("nan"))):
        writer = write_run(rank=rank, world_size=2)
        writer.points("loss", [0, 1], [2.0, value], reduction="mean")
        writer.commit()
    line = line_of(view_of(lite), "loss")
    assert line.curve.value.tolist() == [2.0, 4.0]
    assert (line.bad.step.tolist(), line.bad.num_nan.tolist()) == ([1], [1])


def test_of_a_value_sent_twice_the_later_counts(lite: Store, write_run: WriteRun) -> None:
    """A corrected value replaces the first, it is not drawn beside it."""
    writer = write_run()
    writer.points("loss", range(5), 1.0)
    writer.points("loss", [3], 9.0)
    writer.commit()
    assert line_of(view_of(lite), "loss").curve.value.tolist() == [1.0, 1.0, 1.0, 9.0, 1.0]


@pytest.mark.parametrize("num_steps", [500, 20_000, 100_000])
def test_smoothing_stays_inside_the_data_and_skips_what_is_not_finite(
    lite: Store, write_run: WriteRun, num_steps: int
) -> None:
    """The raw line stays as it was; the average never leaves the range of the finite values."""
    value = noisy(num_steps)
    writer = write_run()
    writer.points("loss", np.arange(num_steps), value)
    writer.commit()
    view = view_of(lite)
    plain, smooth = line_of(view, "loss"), line_of(view, "loss", smooth=0.9)
    assert plain.smooth is None
    assert smooth.smooth is not None
    assert 0 < smooth.smooth.size <= MAX_POINTS
    assert smooth.curve.value.tolist() == plain.curve.value.tolist()
    assert plain.minimum is not None
    assert plain.maximum is not None
    assert smooth.smooth.value.min() >= plain.minimum
    assert smooth.smooth.value.max() <= plain.maximum


def test_a_run_full_of_nan_has_marks_and_no_line(lite: Store, write_run: WriteRun) -> None:
    """Nothing to draw as a line is not nothing to show."""
    writer = write_run()
    writer.points("loss", np.arange(50_000), np.nan)
    writer.commit()
    line = line_of(view_of(lite), "loss", width_px=800)
    assert line.curve.size == 0
    assert (line.minimum, line.maximum) == (None, None)
    assert line.bad.total == 50_000
    assert line.bad.step.size <= 200
    assert not line.is_empty


def test_a_norm_over_ranks_is_the_root_of_the_sum_of_squares(lite: Store, write_run: WriteRun) -> None:
    """Only of steps of which every rank has told its part; a NaN part leaves no norm."""
    values = [np.random.default_rng(rank).uniform(0.1, 10.0, 60) for rank in range(3)]
    values[1][7] = np.nan
    for rank, value in enumerate(values):
        writer = write_run(rank=rank, world_size=3)
        told = 60 if rank != 2 else 50
        writer.points("grad.norm", range(told), value[:told], reduction="norm")
        writer.commit()
    line = line_of(view_of(lite), "grad.norm")
    expected = [float(np.sqrt(sum(v[s] ** 2 for v in values))) for s in range(50) if s != 7]
    assert line.curve.step.tolist() == [s for s in range(50) if s != 7]
    assert line.curve.value == pytest.approx(expected)
    assert line.bad.step.tolist() == [7]


def test_a_sum_ends_where_a_rank_is_behind_and_goes_on_without_one_that_ended(lite: Store, write_run: WriteRun) -> None:
    """A rank whose records have not come yet makes no dip."""
    for rank, told in enumerate((60, 50, 20)):
        writer = write_run(rank=rank, world_size=3)
        writer.points("rate", range(told), 10.0, reduction="sum")
        if rank == 2:
            writer.end("exception", 20)
        writer.commit()
    line = line_of(view_of(lite), "rate")
    assert line.curve.value.tolist() == [30.0] * 20 + [20.0] * 30


@pytest.mark.parametrize("reduction", ["mean", "min", "max", "sum", "norm"])
def test_a_wide_window_of_ranks_lies_between_what_its_steps_have(
    lite: Store, write_run: WriteRun, sealed: Callable[[], None], reduction: str
) -> None:
    """Of stretches the values that steps had are inside the band; each rank counts by what it had itself."""
    steps = np.arange(40_000)
    values = [2.0 + np.sin(steps / 5000 + rank) + (rank == 2) for rank in range(3)]
    for rank, value in enumerate(values):
        writer = write_run(rank=rank, world_size=3)
        writer.points("x", steps, value, reduction=reduction)
        writer.commit()
    sealed()
    line = line_of(view_of(lite), "x")
    assert line.bucket_steps > 1
    assert line.band is not None
    stacked = np.stack(values)
    exact = {
        "mean": stacked.mean(axis=0),
        "min": stacked.min(axis=0),
        "max": stacked.max(axis=0),
        "sum": stacked.sum(axis=0),
        "norm": np.sqrt((stacked**2).sum(axis=0)),
    }[reduction]
    starts = line.curve.step
    inside = np.searchsorted(starts, steps, "right") - 1
    assert (exact >= line.band.low[inside] - 1e-9).all()
    assert (exact <= line.band.high[inside] + 1e-9).all()
    assert line.curve.value == pytest.approx(exact[np.minimum(starts + line.bucket_steps // 2, 39_999)], abs=0.02)
    assert line.apart is None or line.apart.rank == 2


def test_a_rank_that_is_always_the_highest_is_named_and_a_noisy_one_is_not(lite: Store, write_run: WriteRun) -> None:
    """Of four ranks, where one is 30% above the others, and where all are alike."""
    rng = np.random.default_rng(1)
    for rank in range(4):
        writer = write_run(rank=rank, world_size=4)
        writer.points("slow", range(300), rng.normal(1.3 if rank == 2 else 1.0, 0.02, 300), reduction="max")
        writer.points("noise", range(300), rng.normal(1.0, 0.2, 300), reduction="max")
        writer.points("same", range(300), 1.0, reduction="max")
        writer.commit()
    view = view_of(lite)
    found = line_of(view, "slow").apart
    assert found is not None
    assert (found.rank, found.is_high) == (2, True)
    assert found.value == pytest.approx(1.3, abs=0.01)
    assert line_of(view, "noise").apart is None
    assert line_of(view, "same").apart is None


def test_numbers_of_a_run_are_those_of_all_its_ranks(lite: Store, write_run: WriteRun) -> None:
    """Throughput and memory add up, the loss is the mean, a loss that is NaN on one rank is no number."""
    for rank in range(2):
        writer = write_run(rank=rank, world_size=2)
        writer.points("loss", range(30), 1.0 + rank, reduction="mean")
        writer.points("throughput.samples_per_s", range(30), 100.0, reduction="sum")
        writer.commit()
        writer.points("loss", [30], 1.0, reduction="mean")  # the other rank has not told of it
        if rank == 0:
            writer.commit()
    view = view_of(lite)
    assert view.latest("loss") == 1.5
    assert set(view.recent("throughput.samples_per_s").tolist()) == {200.0}
    writer.commit()
    for rank in range(2):
        more = write_run(rank=rank, world_size=2, attempt=1)
        more.points("loss", range(31, 40), np.nan if rank else 1.0, reduction="mean")
        more.commit()
    assert np.isnan(view_of(lite).latest("loss") or 0.0)
