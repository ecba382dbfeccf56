"""The report of a run's ranks: rows, origins and buckets as stored data have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.query.view import Views
from halfscope_server.ranks.reports import Ranks
from halfscope_server.ranks.types import RanksReport
from halfscope_server.store.store import Store

from tests.server.ranks.conftest import slices


def report_of(store: Store, run_id: str = "run1") -> RanksReport:
    view = Views(store).get(run_id)
    assert view is not None
    return Ranks(store).report(view)


def test_rows_have_each_rank_as_far_as_it_is(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Step, lag behind the furthest, medians of the own last 200 steps, memory, skips."""
    for rank, writer in enumerate(ranks_of(3)):
        steps = np.arange(500 - 10 * rank)
        busy = np.where(steps < 250, 9.0, 0.1 * (rank + 1))
        writer.points("time.step_s", steps, 0.4)
        writer.points("rank.busy_s", steps, busy)
        writer.points("comm.wait_s", steps, 0.4 - 0.1 * (rank + 1))
        writer.points("memory.rss_bytes", [300, 400], [5.0, 1e9 + rank])
        writer.points("amp.scale", [0], 1024.0)
        writer.skip(7, "settling")
        writer.commit()
    found = report_of(lite)
    assert (found.world_size, found.num_seen, found.attempt) == (3, 3, 0)
    assert [row.last_step for row in found.ranks] == [499, 489, 479]
    assert [row.num_behind for row in found.ranks] == [0, 10, 20]
    assert [row.busy_s for row in found.ranks] == pytest.approx([0.1, 0.2, 0.3])
    assert [row.step_s for row in found.ranks] == pytest.approx([0.4, 0.4, 0.4])
    assert [row.wait_share for row in found.ranks] == pytest.approx([0.75, 0.5, 0.25])
    assert [row.memory_bytes for row in found.ranks] == [1e9, 1e9 + 1, 1e9 + 2]
    assert [row.num_skipped for row in found.ranks] == [1, 1, 1]
    assert {row.state for row in found.ranks} == {"training"}


def test_a_rank_that_was_not_seen_is_said_to_be_missing(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Of four ranks two have come: nothing is called healthy."""
    for writer in ranks_of(4)[:2]:
        writer.points("time.step_s", range(10), 0.1)
        writer.commit()
    lite.commit([], now_us=1)
    found = report_of(lite)
    assert found.world_size == 4
    assert found.role == "unknown"


def test_an_origin_names_the_rank_before_the_reduction(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """The backward of a rank comes before what a hook made of it, and both before the sum."""
    zero, one = ranks_of(2)
    for writer in (zero, one):
        writer.points("time.step_s", range(30), 0.1)
    one.event("rank_origin", 20, "warning", ["fc.weight"])
    zero.event("comm_overflow", 20, "warning", ["other.weight"])
    zero.event("comm_overflow", 25, "warning", ["fc.weight"])
    for writer in (zero, one):
        writer.commit()
    found = report_of(lite)
    assert [(o.step, o.kind, o.ranks, o.layers) for o in found.origins] == [
        (25, "compression", (0,), ("fc.weight",)),
        (20, "backward", (1,), ("fc.weight",)),
    ]
    assert found.num_origins == 2
    assert found.ranks[1].num_nonfinite == 1
    assert found.ranks[1].first_nonfinite_step == 20
    assert found.role == "unhealthy"
    assert found.sentence == "Step 25 became NaN or Inf in the compression on rank 0 in fc.weight."


def test_the_error_of_a_reduction_is_against_the_float64_mean(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Recomputed here element by element; the newest step that all ranks have told counts."""
    rng = np.random.default_rng(0)
    local = rng.normal(size=(2, 16)).astype(np.float32)
    reduced = (local.sum(axis=0) / 2).astype(np.float16).astype(np.float32)
    zero, one = ranks_of(2)
    for writer, values in zip((zero, one), local, strict=True):
        writer.points("time.step_s", range(30), 0.1)
        writer.points("comm.time_s", range(30), 0.01, bucket="0")
        writer.points("comm.bytes", [0], 4096.0, kind="state", bucket="0")
        writer.record(slices(10, values, reduced))
    zero.record(slices(20, local[0], np.zeros(16)))
    zero.facts(
        buckets={"0": {"layers": ["fc.weight"], "num_elements": 16, "dtype": "float32"}},
        comm_hook={"name": "fp16_compress", "watched": True},
    )
    for writer in (zero, one):
        writer.commit()
    (bucket,) = report_of(lite).buckets
    right = [(float(a) + float(b)) / 2 for a, b in zip(local[0], local[1], strict=True)]
    off = sum((float(r) - x) ** 2 for r, x in zip(reduced, right, strict=True)) ** 0.5
    size = sum(x**2 for x in right) ** 0.5
    assert bucket.error == pytest.approx(off / size, rel=1e-12)
    assert bucket.worst_layer == "fc.weight"
    assert bucket.worst_error == pytest.approx(off / size, rel=1e-12)
    assert (bucket.num_bytes, bucket.dtype, bucket.layers) == (4096, "float32", ("fc.weight",))
    assert bucket.bandwidth_bytes_per_s == pytest.approx(409_600)
    assert report_of(lite).comm_hook == "fp16_compress"


def test_a_restart_shows_the_newest_attempt(lite: Store, ranks_of: Callable[..., Any]) -> None:
    """Rows are of the attempt that runs, and what was killed before is past."""
    for writer in ranks_of(2):
        writer.points("time.step_s", range(100), 0.1)
        writer.commit()
    for writer in ranks_of(2, attempt=1):
        writer.points("time.step_s", range(50, 60), 0.1)
        writer.end("finished", 59)
        writer.commit()
    found = report_of(lite)
    assert found.attempt == 1
    assert [(row.attempt, row.last_step, row.state) for row in found.ranks] == [(1, 59, "finished")] * 2
