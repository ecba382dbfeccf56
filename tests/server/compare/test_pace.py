"""How fast runs go: steps of all starts and ranks, warm-up, units."""

from __future__ import annotations

import numpy as np
import pytest
from halfscope_server.compare.pace import MIN_STEPS, STEPS, Pace, pace, unit_of
from halfscope_server.query import Views
from halfscope_server.store.store import Store

from tests.server.conftest import RunWriter


def _pace(store: Store, run_id: str = "run1") -> Pace:
    view = Views(store).get(run_id)
    assert view is not None
    return pace(view)


def _write(writer: RunWriter, step_s: np.ndarray, *, first: int = 1, samples: float = 32.0) -> None:
    steps = np.arange(first, first + step_s.size)
    writer.columns(
        steps,
        {
            writer.series("time.step_s", unit="s", reduction="max"): step_s,
            writer.series("throughput.samples_per_s", unit="samples/s", reduction="sum"): samples / step_s,
        },
    )
    writer.commit()


@pytest.mark.parametrize("num_slow", [0, 1, 7, 60])
def test_the_warm_up_ends_where_steps_become_usual(sqlite_store: Store, num_slow: int) -> None:
    """However long it takes; what comes after it is all there, in order."""
    rng = np.random.default_rng(num_slow)
    step_s = 0.02 * rng.lognormal(0.0, 0.03, 400)
    step_s[:num_slow] *= np.linspace(20, 3, num_slow)
    _write(RunWriter(sqlite_store), step_s)
    found = _pace(sqlite_store)
    # A usual step may be among the slowest 5%, which puts the end off by a few.
    assert num_slow <= found.warmup_steps <= (num_slow + 30 if num_slow else 30)
    rest = step_s[step_s.size - found.step_s.size :]
    assert found.step_s == pytest.approx(rest)
    assert found.rates["samples/s"] == pytest.approx(32 / rest)
    assert found.rates[STEPS] == pytest.approx(1 / rest)
    low, middle, high = np.percentile(rest, [5, 50, 95])
    assert found.spread == pytest.approx((high - low) / middle)


def test_a_run_that_never_settles_keeps_half_of_its_steps(sqlite_store: Store) -> None:
    """Ever faster steps are no warm-up that ends."""
    _write(RunWriter(sqlite_store), np.geomspace(10, 0.01, 200))
    assert 90 <= _pace(sqlite_store).step_s.size <= 110


def test_ranks_count_together(sqlite_store: Store) -> None:
    """The slowest one's time, and the samples of all."""
    for rank, step_s in enumerate((0.02, 0.03)):
        _write(RunWriter(sqlite_store, rank=rank, world_size=2), np.full(100, step_s))
    found = _pace(sqlite_store)
    assert set(found.step_s.tolist()) == {0.03}
    assert found.rates["samples/s"] == pytest.approx(np.full(100, 32 / 0.02 + 32 / 0.03))


def test_a_value_that_was_sent_twice_counts_once(sqlite_store: Store) -> None:
    """The later one, of each rank: work is not added up with itself."""
    for rank in range(2):
        writer = RunWriter(sqlite_store, rank=rank, world_size=2)
        _write(writer, np.full(100, 0.04))
        _write(writer, np.full(100, 0.02))
    found = _pace(sqlite_store)
    assert found.rates["samples/s"] == pytest.approx(np.full(100, 2 * 32 / 0.02))


def test_a_step_that_only_some_ranks_have_told_is_no_slow_one(sqlite_store: Store) -> None:
    """While one rank is still to tell its part, the work of the others is not taken for all."""
    for rank, num in enumerate((100, 80)):
        _write(RunWriter(sqlite_store, rank=rank, world_size=2), np.full(num, 0.02))
    assert set(_pace(sqlite_store).rates["samples/s"].tolist()) == {2 * 32 / 0.02}


def test_the_newest_start_that_is_long_enough_counts(sqlite_store: Store) -> None:
    """One that has only begun says little; the one before it is told of."""
    _write(RunWriter(sqlite_store), np.full(300, 0.5))
    _write(RunWriter(sqlite_store, attempt=1), np.full(200, 0.25), first=301)
    _write(RunWriter(sqlite_store, attempt=2), np.full(MIN_STEPS // 2, 3.0), first=501)
    assert set(_pace(sqlite_store).step_s.tolist()) == {0.25}


def test_a_long_run_is_looked_at_in_stretches_all_over_it(sqlite_store: Store) -> None:
    """The median is that of all its steps, to within chance, though few are read; the warm-up is found."""
    rng = np.random.default_rng(0)
    step_s = np.linspace(0.01, 0.03, 150_000) * rng.lognormal(0.0, 0.05, 150_000)
    step_s[:100] = 5.0
    _write(RunWriter(sqlite_store), step_s)
    found = _pace(sqlite_store)
    assert found.step_s.size < 40_000
    assert 100 <= found.warmup_steps < 130
    assert np.quantile(found.step_s, [0.05, 0.5, 0.95]) == pytest.approx(
        np.quantile(step_s, [0.05, 0.5, 0.95]), rel=0.05
    )


def test_a_run_without_times_has_no_pace(sqlite_store: Store) -> None:
    """Before its first step, and where times were not recorded."""
    writer = RunWriter(sqlite_store)
    writer.commit()
    assert _pace(sqlite_store).step_s.size == 0
    writer.points("loss", np.arange(10), 1.0)
    writer.commit()
    found = _pace(sqlite_store)
    assert (found.step_s.size, found.warmup_steps, found.spread) == (0, 0, None)


def test_work_is_told_in_a_unit_that_all_have() -> None:
    """Samples where all know them, else tokens, else steps."""

    def of(*units: str) -> Pace:
        return Pace(step_s=np.ones(1), rates={unit: np.ones(1) for unit in units}, warmup_steps=0)

    both, tokens, none = of("samples/s", "tokens/s", STEPS), of("tokens/s", STEPS), of(STEPS)
    assert unit_of([both, both]) == "samples/s"
    assert unit_of([both, tokens]) == "tokens/s"
    assert unit_of([both, none]) == STEPS
