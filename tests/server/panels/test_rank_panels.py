"""Charts of ranks: they keep to the contract, name the worst, and are there only where there are several ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server import panels
from halfscope_server.panels.arrays import unpacked
from halfscope_server.query import RunView, Views, Window, read_line
from halfscope_server.query.ranks import MAX_ROWS, rank_cells
from halfscope_server.store.store import Store
from numpy.typing import NDArray

from tests.helpers.figures import check_figure

WriteRun = Callable[..., Any]

EVIL = "<a href='javascript:alert(1)'>$x$ %{y} & co</a>"
SECTIONS = ("ranks", "one rank")
WINDOWS = [
    Window(),
    Window(x="time"),
    Window(first=10, last=40),
    Window(first=10_000_000, last=10_000_001),
    Window(y="log", smooth=0.9),
    Window(rank=1),
    Window(rank=1, first=5, last=300, x="step"),
    Window(rank=77, step=7),
    Window(rank=1, step=7, x="time"),
]
SERIES: dict[str, dict[str, str]] = {
    "loss": {"reduction": "mean"},
    "time.step_s": {"unit": "s", "reduction": "max"},
    "rank.busy_s": {"unit": "s", "reduction": "max"},
    "comm.wait_s": {"unit": "s", "reduction": "max"},
    "grad.norm_local": {"unit": "norm", "reduction": "max"},
    "grad.nonfinite_local": {"reduction": "sum"},
    "memory.rss_bytes": {"unit": "bytes", "reduction": "sum"},
}
BY_BUCKET: dict[str, dict[str, str]] = {
    "comm.time_s": {"unit": "s", "reduction": "max"},
    "comm.bytes": {"unit": "bytes", "kind": "state"},
}


def write_ranks(
    write_run: WriteRun, num_ranks: int, num_steps: int, value: Callable[[NDArray[np.int64], int], Any]
) -> None:
    """A run of several ranks with all that charts of ranks draw."""
    steps = np.arange(num_steps)
    for rank in range(num_ranks):
        writer = write_run(name=EVIL, rank=rank, world_size=num_ranks)
        columns = {writer.series(name, **options): value(steps, rank) for name, options in SERIES.items()}
        for bucket in range(2):
            for name, options in BY_BUCKET.items():
                columns[writer.series(name, **options, bucket=str(bucket))] = value(steps, rank)
        writer.columns(steps, columns)
        writer.commit()


def view_of(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


def of_ranks(view: RunView) -> list[panels.Panel]:
    """The charts of ranks that a run has."""
    return [panel for panel in panels.for_run(view) if panel.section in SECTIONS]


KINDS: dict[str, tuple[int, int, Callable[[NDArray[np.int64], int], Any]]] = {
    "one step": (2, 1, lambda s, r: 1.0 + r),
    "plain": (3, 300, lambda s, r: np.exp(np.sin(s) + r)),
    "long": (2, 9000, lambda s, r: 2.0 + np.sin(s / 100) + r),
    "many": (66, 70, lambda s, r: 1.0 + (r == 57) * (s == 33)),
    "zeros": (2, 100, lambda s, r: 0.0),
    "full of NaN": (2, 2500, lambda s, r: np.nan),
    "mixed": (2, 200, lambda s, r: np.where(s % 7 == r, np.inf, -1.0 * r)),
    "huge": (2, 100, lambda s, r: np.where(s % 2, 1.7e308, 5e-324)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_charts_of_ranks_keep_to_the_contract(lite: Store, write_run: WriteRun, kind: str) -> None:
    """Types, sizes, finite arrays, roles, axes, labels and tables, in every window, on every kind of values."""
    write_ranks(write_run, *KINDS[kind])
    view = view_of(lite)
    expected = {panel.id for panel in panels.discover() if panel.section in SECTIONS and panel.id != "buckets-error"}
    assert {panel.id for panel in of_ranks(view)} == expected
    for panel in of_ranks(view):
        for window in WINDOWS if kind in ("plain", "long") else WINDOWS[:1]:
            check_figure(panels.figure(view, panel, window), validate=window is WINDOWS[0])
        table = panels.table(view, panel, Window())
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_a_run_of_one_rank_has_none_of_them(lite: Store, write_run: WriteRun) -> None:
    """There is nothing to tell apart."""
    write_ranks(write_run, 1, 50, lambda s, r: 1.0)
    assert of_ranks(view_of(lite)) == []


@pytest.mark.parametrize("num_steps", [400, 9000])
def test_the_worst_rank_of_many_is_drawn_and_named(lite: Store, write_run: WriteRun, num_steps: int) -> None:
    """One step of one rank in 66, whether raw points or stretches are read; rows stand for several ranks."""
    at = num_steps * 3 // 4

    def value(step: NDArray[np.int64], rank: int) -> NDArray[np.float64]:
        busy = np.asarray(0.1 + 0.3 * ((step == at) & (rank == 57)))
        return np.where((step == at) & (rank == 13), np.inf, busy)

    for rank in range(66):
        writer = write_run(rank=rank, world_size=66)
        writer.points("rank.busy_s", np.arange(num_steps), value(np.arange(num_steps), rank), unit="s")
        writer.commit()
    view = view_of(lite)
    (series,) = view.named("rank.busy_s")
    cells = rank_cells(view, series, Window())
    assert cells is not None
    assert cells.first_name.size <= MAX_ROWS
    row, column = np.unravel_index(int(np.nanargmax(cells.value)), cells.value.shape)
    assert cells.worst[row, column] == 57
    assert cells.step[column] <= at <= cells.last_step[column]
    panel = panels.find(view, "ranks-busy")
    assert panel is not None
    fill = panels.fill(view, panel, Window())
    assert fill["headline"].startswith("most 400 ms on rank 57 at ")
    heat, crosses = fill["data"]
    assert np.nanmax(unpacked(heat["z"])) == pytest.approx(400)
    told = unpacked(heat["customdata"])
    assert told[np.unravel_index(int(np.nanargmax(told[..., 0])), told.shape[:2])][1] == 57
    # Whoever looks at the cell of a mark is led to the rank that was not finite, not to the one with the largest value.
    assert [text.rsplit(", ", 1)[1] for text in crosses["text"]] == ["most on rank 13"]
    assert told[int(unpacked(crosses["y"])[0])][told[0, :, 0] >= 0][:, 2].tolist().count(13) == 1


def test_a_rank_that_another_attempt_lacks_is_blank_there(lite: Store, write_run: WriteRun) -> None:
    """A restart with fewer ranks."""
    for attempt, num_ranks in ((0, 3), (1, 2)):
        for rank in range(num_ranks):
            writer = write_run(rank=rank, world_size=num_ranks, attempt=attempt)
            first = 50 * attempt
            writer.points("rank.busy_s", np.arange(first, first + 50), 1.0, unit="s")
            writer.points("loss", np.arange(first, first + 50), 1.0, reduction="mean")
            writer.commit()
    view = view_of(lite)
    cells = rank_cells(view, view.named("rank.busy_s")[0], Window())
    assert cells is not None
    assert np.isnan(cells.value[2]).tolist() == [False] * 50 + [True] * 50
    assert not np.isnan(cells.value[:2]).any()


@pytest.mark.parametrize("num_steps", [300, 40_000])
def test_one_ranks_line_stands_among_the_others(lite: Store, write_run: WriteRun, num_steps: int) -> None:
    """The band is that of all but this one, and the line holds its own extremes."""
    steps = np.arange(num_steps)
    own = np.where(steps == num_steps // 2, 50.0, 5.0)
    for rank in range(3):
        writer = write_run(rank=rank, world_size=3)
        writer.points("loss", steps, own if rank == 1 else 1.0 + rank, reduction="mean")
        writer.commit()
    view = view_of(lite)
    line = read_line(view, view.named("loss")[0], Window(rank=1))
    assert line is not None
    assert line.band is not None
    panel = panels.find(view, "one-loss")
    assert panel is not None
    (mark,) = panels.fill(view, panel, Window(rank=1, step=num_steps // 3))["layout"]["shapes"]
    assert (mark["x0"], mark["x1"]) == (num_steps // 3, num_steps // 3)
    assert (line.curve.value.min(), line.curve.value.max()) == (5.0, 50.0)
    assert (set(line.band.low.tolist()), set(line.band.high.tolist())) == ({1.0}, {3.0})
