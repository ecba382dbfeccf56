"""Which frames stand for a run, and how they are added up, against loops over the gradients that were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.query import RunView, Views, frames
from halfscope_server.query.frames import FrameTable, columns, in_columns, node_largest, node_sums, run_frames
from halfscope_server.store.store import Store
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

WriteRun = Callable[..., Any]


def newest(views: Views) -> RunView:
    """The newest view of run1."""
    view = views.get("run1")
    assert view is not None
    return view


def table_of(view: RunView) -> FrameTable:
    """Its frames."""
    found = run_frames(view)
    assert found is not None
    return found.table


def gradient(seed: int, n: int = 50) -> NDArray[np.float64]:
    """Values over many powers of two, with zeros among them."""
    rng = np.random.default_rng(seed)
    values = np.exp2(rng.uniform(-30, -5, n)) * rng.choice([-1.0, 1.0], n)
    values[rng.random(n) < 0.2] = 0.0
    return values


def test_a_table_holds_what_the_gradients_hold(lite: Store, write_run: WriteRun) -> None:
    """Counted again from the values: zeros, NaN and Inf, what FP16 flushes and what it keeps with fewer bits."""
    writer, scale = write_run(), 2.0**12
    writer.points("loss", range(100), 1.0)
    written = {}
    for step in range(0, 100, 10):
        values = gradient(step)
        if step == 50:
            values[:5] = [np.nan, np.inf, -np.inf, np.nan, np.inf]
        written[step] = values
        writer.frame(step, {"a.w": values, "b.w": gradient(step + 1)} if step != 30 else {"a.w": values}, scale)
    writer.commit()
    found = run_frames(newest(Views(lite)))
    assert found is not None
    assert found.tree.leaves == ("a.w", "b.w")
    table, sizes = found.table, found.sizes
    assert table.step.tolist() == list(written)
    for row, values in enumerate(written.values()):
        finite = values[np.isfinite(values)]
        scaled = np.abs(finite[finite != 0]) * scale
        assert table.n[row, 0] == values.size
        assert table.zeros[row, 0] == (values == 0).sum()
        assert table.nonfinite[row, 0] == (~np.isfinite(values)).sum()
        assert table.infinite[row, 0] == np.isinf(values).sum()
        assert table.nonzero[row, 0] == scaled.size
        assert table.flushed[row, 0] == (scaled < 2.0**-25).sum()
        assert table.subnormal[row, 0] == ((scaled >= 2.0**-25) & (scaled < 2.0**-14)).sum()
        assert sizes.sumsq[row, 0] == pytest.approx((finite**2).sum())
        assert sizes.absmax[row, 0] == pytest.approx(np.abs(finite).max())
    assert table.present[:, 1].tolist() == [step != 30 for step in written]


def test_the_newest_attempt_wins_where_steps_overlap(lite: Store, write_run: WriteRun) -> None:
    """What a restart did again is not counted twice."""
    for attempt, (low, high, n) in enumerate(((0, 100, 10), (50, 150, 20))):
        writer = write_run(attempt=attempt)
        writer.points("loss", range(low, high), 1.0)
        for step in range(low, high, 10):
            writer.frame(step, {"w": gradient(step, n)})
        writer.commit()
    table = table_of(newest(Views(lite)))
    assert table.step.tolist() == list(range(0, 150, 10))
    assert table.n[:, 0].tolist() == [10] * 5 + [20] * 10


def test_the_lowest_rank_that_has_frames_stands_for_the_run(lite: Store, write_run: WriteRun) -> None:
    """Rank 0 may have none: every rank has the same gradient after the reduction."""
    for rank in range(3):
        writer = write_run(rank=rank, world_size=3)
        writer.points("loss", range(30), 1.0)
        if rank:
            for step in range(0, 30, 10):
                writer.frame(step, {"w": gradient(step, 10 + rank)})
        writer.commit()
    found = run_frames(newest(Views(lite)))
    assert found is not None
    assert found.table.n[:, 0].tolist() == [11, 11, 11]


def test_a_run_read_as_it_grows_is_the_run_read_at_once(lite: Store, write_run: WriteRun) -> None:
    """Frames that come in parts, a layer that comes later, a restart: the kept part of the table never goes stale. Who
    looked at the run before what is kept was read gets the table of then."""
    views, step = Views(lite), 0
    earlier: RunView | None = None
    for attempt in range(2):
        writer = write_run(attempt=attempt)
        step = max(0, step - 35)
        for tick in range(6):
            writer.points("loss", range(step, step + 20), 1.0)
            writer.frame(step, {"a": gradient(step)}, 2.0**10)
            writer.commit()
            newest(views)
            table_of(newest(views))
            writer.frame(step, {"b": gradient(step + 1)}, 2.0**10)  # the rest of the same frame
            if tick > 3:
                writer.frame(step + 10, {"a": gradient(step), "c": gradient(step + 2)}, 2.0**10)
            writer.commit()
            step += 20
            grown, fresh = run_frames(newest(views)), run_frames(newest(Views(lite)))
            assert grown is not None
            assert fresh is not None
            for name in FrameTable.__dataclass_fields__:
                np.testing.assert_array_equal(getattr(grown.table, name), getattr(fresh.table, name), err_msg=name)
            if tick % 4:  # with the same layers as at the tick before
                assert earlier is not None
                behind = run_frames(earlier)
                assert behind is not None
                then = fresh.table.rows(slice(0, behind.table.num_frames))
                assert behind.table.step[-1] < step - 20 <= fresh.table.step[-1]
                for name in FrameTable.__dataclass_fields__:
                    np.testing.assert_array_equal(getattr(behind.table, name), getattr(then, name), err_msg=name)
            earlier = newest(views)
            if tick % 2:
                for name in ("sumsq", "absmax"):
                    np.testing.assert_array_equal(getattr(grown.sizes, name), getattr(fresh.sizes, name), err_msg=name)
    assert grown.table.step.size > 10


def test_a_very_long_run_is_added_up_without_losing_a_count(
    lite: Store, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer rows, read in several chunks, with the same sums."""
    writer = write_run()
    writer.points("loss", range(1000), 1.0)
    for step in range(0, 1000, 10):
        writer.frame(step, {"a": gradient(step), "b": gradient(step + 1)}, 2.0**8)
    writer.commit()
    whole = run_frames(newest(Views(lite)))
    assert whole is not None
    sizes = whole.sizes
    monkeypatch.setattr(frames, "MAX_CELLS", 60)
    monkeypatch.setattr(frames, "CHUNK_CELLS", 50)
    found = run_frames(newest(Views(lite)))
    assert found is not None
    assert found.group == 4
    assert 25 <= found.table.num_frames < 35
    for name in ("frames", "n", "zeros", "flushed", "subnormal"):
        np.testing.assert_array_equal(getattr(found.table, name).sum(axis=0), getattr(whole.table, name).sum(axis=0))
    for step, last_step, sumsq, absmax in zip(
        found.table.step, found.table.last_step, found.sizes.sumsq, found.sizes.absmax, strict=True
    ):
        inside = (whole.table.step >= step) & (whole.table.step <= last_step)
        np.testing.assert_allclose(sumsq, sizes.sumsq[inside].sum(axis=0))
        np.testing.assert_array_equal(absmax, sizes.absmax[inside].max(axis=0))
    assert found.table.last_step[-1] == 990


def test_tables_that_are_not_looked_at_make_room(
    lite: Store, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one looked at last stays; another is read again when it is asked for."""
    monkeypatch.setattr(frames, "CACHED_CELLS", 15)
    views = Views(lite)
    for run in ("one", "two"):
        writer = write_run(run)
        writer.points("loss", range(100), 1.0)
        for step in range(0, 100, 10):
            writer.frame(step, {"w": gradient(step)})
        writer.commit()
    held = {}
    for run in ("one", "two"):
        view = views.get(run)
        assert view is not None
        held[run] = view, run_frames(view)
    assert run_frames(held["two"][0]) is held["two"][1]
    again = run_frames(held["one"][0])
    assert again is not held["one"][1]
    assert again is not None
    assert again.table.num_frames == 10


def test_a_run_without_layers_has_no_frames(lite: Store, write_run: WriteRun) -> None:
    """None, rather than an empty picture."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.commit()
    view = newest(Views(lite))
    assert run_frames(view) is None
    assert view.num_frames == 0


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 10**6))
def test_columns_and_node_sums_equal_loops(num_rows: int, most: int, seed: int) -> None:
    """Any grouping of rows, any ranges of columns; counts beyond 32 bits."""
    rng = np.random.default_rng(seed)
    step = np.cumsum(rng.choice([10, 10, 10, 100], num_rows))
    starts = columns(step, most, 10)
    ends = np.append(starts[1:], num_rows)
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    size = 7
    counts = rng.integers(0, 2**31 - 1, (num_rows, size)).astype(np.int32)
    added = in_columns(np.add, counts, starts)
    assert added.tolist() == [
        [sum(int(v) for v in counts[a:b, k]) for k in range(size)] for a, b in zip(starts, ends, strict=True)
    ]
    first = rng.integers(0, size, 5)
    end = np.array([rng.integers(low + 1, size + 1) for low in first])
    assert node_sums(added, first, end).tolist() == [
        [int(row[a:b].sum()) for a, b in zip(first, end, strict=True)] for row in added
    ]
    floats = rng.random((num_rows, size)) * 10.0 ** rng.integers(-20, 20, size)
    np.testing.assert_allclose(
        node_sums(floats, first, end), [[row[a:b].sum() for a, b in zip(first, end, strict=True)] for row in floats]
    )
    assert node_largest(floats, first, end).tolist() == [
        [row[a:b].max() for a, b in zip(first, end, strict=True)] for row in floats
    ]


def test_a_column_does_not_reach_over_a_gap() -> None:
    """Else a stretch that was not measured would look measured."""
    step = np.concatenate([np.arange(0, 1000, 10), np.arange(5000, 6000, 10)])
    starts = columns(step, 40, 10)
    assert 100 in starts
    assert starts.size <= 42
