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
