"""Merging segments into chunks: when, how large, and what a killed process leaves."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from halfscope_server.store import compactor, schema
from halfscope_server.store.records import series_id
from halfscope_server.store.store import Store

Make = Callable[..., Any]
LOSS = series_id("loss", {})
FOREVER_US = 10**15


def fill(
    store: Store,
    sender: Any,
    make_points: Make,
    first: int,
    num_frames: int,
    rows: int = 4,
    now_us: int = 2,
    sketches: Callable[[int], Any] | None = None,
) -> None:
    """Frames of consecutive steps whose value is the step, in one group commit; a sketch at the last step of each."""
    batches = []
    for at in range(num_frames):
        steps = np.arange(first + at * rows, first + (at + 1) * rows)
        more = [] if sketches is None else [sketches(int(steps[-1]))]
        batches.append(sender.batch(make_points(steps, {0: steps}), *more))
    assert not store.commit(batches, now_us=now_us).refused


def counts(store: Store) -> tuple[int, list[tuple[bool, int]]]:
    """(segments, [(sealed, rows) of each chunk])."""
    database: Any = store._database
    with database.reading() as connection:
        segments = connection.execute(sa.select(sa.func.count()).select_from(schema.segment)).scalar_one()
        chunk = schema.chunk
        rows = connection.execute(
            sa.select(chunk.c.sealed, chunk.c.num_rows).order_by(chunk.c.run_id, chunk.c.first_seq)
        )
        return segments, [(row[0], row[1]) for row in rows]


def assert_steps(store: Store, run_id: str, num_steps: int) -> None:
    found = store.points(run_id, LOSS)
    assert np.array_equal(found.step, np.arange(num_steps))
    assert np.array_equal(found.value, np.arange(num_steps))


def test_a_stream_is_due_at_256_segments_or_after_a_minute(store: Store, begun: Make, make_points: Make) -> None:
    """One segment less, or a moment earlier, nothing is merged."""
    many, old = begun(run_id="many"), begun(run_id="old")
    fill(store, many, make_points, 0, 255)
    fill(store, old, make_points, 0, 1, now_us=1_000_000)
    assert store.compact(now_us=60_000_001, budget_s=60) == 0
    fill(store, many, make_points, 1020, 1)
    assert store.compact(now_us=60_000_001, budget_s=60) == 1
    assert counts(store) == (1, [(False, 1024)])
    assert store.compact(now_us=61_000_000, budget_s=60) == 1
    assert counts(store) == (0, [(False, 1024), (False, 4)])
    assert store.compact(now_us=FOREVER_US, budget_s=60) == 0


def test_an_open_chunk_is_rewritten_until_it_is_sealed(
    store: Store, begun: Make, make_points: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sealed one is never touched again."""
    monkeypatch.setattr(compactor, "SEAL_STEPS", 100)
    sender = begun()
    shapes = []
    for first in range(0, 240, 40):
        fill(store, sender, make_points, first, 10)
        store.compact(now_us=FOREVER_US, budget_s=60)
        shapes.append(counts(store)[1])
        assert_steps(store, sender.run_id, first + 40)
    assert shapes[:4] == [[(False, 40)], [(False, 80)], [(True, 100), (False, 20)], [(True, 100), (False, 60)]]
    assert shapes[-1] == [(True, 100), (True, 100), (False, 40)]


def test_late_values_do_not_make_chunks_shorter(
    store: Store, begun: Make, make_points: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are counted, not rows: a second record of the same steps shares them."""
    monkeypatch.setattr(compactor, "SEAL_STEPS", 100)
    sender = begun(["loss", "late"])
    for first in range(0, 120, 10):
        steps = np.arange(first, first + 10)
        late = make_points(steps, {1: -steps}, times_us=1000 * steps + 5)
        store.commit([sender.batch(make_points(steps, {0: steps}), late)], now_us=2)
    store.compact(now_us=FOREVER_US, budget_s=60)
    assert counts(store)[1] == [(True, 200), (False, 40)]
    assert store.points(sender.run_id, series_id("late", {})).value.tolist() == [-step for step in range(120)]


def test_one_step_written_for_ever_is_sealed_too(
    store: Store, begun: Make, make_points: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its chunk would be rewritten at any size."""
    monkeypatch.setattr(compactor, "SEAL_STEPS", 10)
    monkeypatch.setattr(compactor, "SEAL_ROWS", 40)
    sender = begun()
    for at in range(10):
        times = np.arange(10) + 100 * at
        store.commit([sender.batch(make_points([7] * 10, {0: times}, times_us=times))], now_us=2)
    store.compact(now_us=FOREVER_US, budget_s=60)
    assert counts(store)[1] == [(True, 40), (True, 40), (False, 20)]
    expected = [float(value + 100 * at) for at in range(10) for value in range(10)]
    assert store.points(sender.run_id, LOSS).value.tolist() == expected


def test_a_backlog_is_merged_in_bites(store: Store, begun: Make, make_points: Make) -> None:
    """No transaction decodes more than 256 segments, and a budget that is used up stops in between."""
    sender = begun()
    for first in range(0, 600, 150):
        fill(store, sender, make_points, first, 150, rows=1)
    assert store.compact(now_us=3, budget_s=0) == 1
    assert counts(store)[0] == 600 - 256
    assert store.compact(now_us=3, budget_s=60) == 1
    assert counts(store)[0] == 600 - 512
    assert_steps(store, sender.run_id, 600)


def test_a_bite_is_bounded_in_bytes(
    store: Store, begun: Make, make_points: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few segments that are; one that is larger by itself is merged alone."""
    sender = begun()
    fill(store, sender, make_points, 0, 10, rows=4)
    database: Any = store._database
    with database.reading() as connection:
        size = connection.execute(sa.select(sa.func.max(schema.segment.c.raw_bytes))).scalar_one()
    left = []
    for limit in (3 * size, size, 1):
        monkeypatch.setattr(compactor, "MAX_RAW_BYTES", limit)
        assert store.compact(now_us=FOREVER_US, budget_s=0) == 1
        left.append(counts(store)[0])
    assert left == [7, 6, 5]
    assert_steps(store, sender.run_id, 40)


def test_chunks_know_their_extremes_and_non_finite_values(store: Store, begun: Make, make_points: Make) -> None:
    """Numbers over finite values; NULL where there is none."""
    sender = begun(["loss", "bad"])
    record = make_points([1, 2, 3, 4], {0: [1.5, np.nan, -2.0, np.inf], 1: [np.nan, np.nan, -np.inf, np.inf]})
    store.commit([sender.batch(record)], now_us=2)
    store.compact(now_us=FOREVER_US, budget_s=60)
    database: Any = store._database
    columns = [
        schema.series_chunk.c[name]
        for name in (
            "num_points",
            "num_nan",
            "num_pos_inf",
            "num_neg_inf",
            "minimum",
            "maximum",
            "total",
            "first_step",
            "last_step",
        )
    ]
    with database.reading() as connection:
        rows = {
            row[0]: tuple(row[1:]) for row in connection.execute(sa.select(schema.series_chunk.c.series_id, *columns))
        }
    assert rows[LOSS] == (4, 1, 1, 0, -2.0, 1.5, -0.5, 1, 4)
    assert rows[series_id("bad", {})] == (4, 2, 1, 1, None, None, None, 1, 4)


def test_points_of_float32_noise_take_at_most_three_and_a_half_bytes(
    store: Store, begun: Make, make_points: Make
) -> None:
    """Values, their share of steps and times, and both rollups together."""
    names = [f"series{k}" for k in range(20)]
    sender = begun(names)
    rng = np.random.default_rng(0)
    num_steps, at_us = 16_384, 0
    for first in range(0, num_steps, 512):
        steps = np.arange(first, first + 512)
        times = at_us + np.cumsum(20_000 + rng.normal(0, 100, 512)).astype(np.int64)
        at_us = int(times[-1])
        noise = {sid: rng.normal(1, 0.1, 512).astype("f4") for sid in range(20)}
        store.commit([sender.batch(make_points(steps, noise, times_us=times))], now_us=2)
    store.compact(now_us=FOREVER_US, budget_s=60)
    database: Any = store._database
    length = sa.func.length
    table = schema.series_chunk.c
    with database.reading() as connection:
        of_series = sa.select(sa.func.sum(length(table.body) + length(table.rollup_64) + length(table.rollup_4096)))
        num_bytes = connection.execute(of_series).scalar_one()
        num_bytes += connection.execute(sa.select(sa.func.sum(length(schema.chunk.c.axis)))).scalar_one()
    assert num_bytes / (20 * num_steps) <= 3.5


KILLER = textwrap.dedent(
    """
    import os, signal, sys
    import sqlalchemy as sa
    from halfscope_server.store import compactor
    from halfscope_server.store.store import Store

    compactor.SEAL_STEPS = 100

    def compact(url, die_at):
        store = Store.open(url)
        statements = 0

        def count(*_args):
            nonlocal statements
            statements += 1
            if statements == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

        sa.event.listen(store._database._writer, "before_cursor_execute", count)
        store.compact(now_us=10**15, budget_s=60)
        os._exit(0)

    for line in sys.stdin:
        url, die_at = line.split()
        child = os.fork()
        if child == 0:
            compact(url, int(die_at))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """
)
"""Compacts in one process per line of input, a fork so that imports are paid once, killed before a statement."""


def test_a_process_killed_while_compacting_loses_and_doubles_nothing(
    store_url: str, make_sender: Make, make_points: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """Killed before every fifth statement in turn: points and sketches stay the same, and the next start goes on."""
    store = Store.open(store_url)
    sender = make_sender()
    sender.greet(store)
    store.commit([sender.begin("loss"), sender.batch(make_layers("a", "b"))], now_us=1)

    sketches = two_layers(make_sketches, make_cell)
    num_steps, statuses = 0, []
    with subprocess.Popen(
        [sys.executable, "-c", KILLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as killer:
        assert killer.stdin is not None
        assert killer.stdout is not None
        while not statuses or statuses[-1] == -signal.SIGKILL:
            fill(store, sender, make_points, num_steps, 30, sketches=sketches)
            num_steps += 120
            store.close()
            killer.stdin.write(f"{store_url} {1 + 5 * len(statuses)}\n")
            killer.stdin.flush()
            statuses.append(int(killer.stdout.readline()))
            store = Store.open(store_url)
            assert_steps(store, sender.run_id, num_steps)
            assert_sketches(store, sender.run_id, num_steps)
        killer.stdin.close()
    assert statuses == [-signal.SIGKILL] * (len(statuses) - 1) + [0]
    assert len(statuses) > 4
    assert counts(store)[0] == 0
    store.close()


def two_layers(make_sketches: Make, make_cell: Make) -> Callable[[int], Any]:
    """Makes the sketches of a step: one element that is the step, and one whose exponent tells it beside a zero."""
    return lambda step: make_sketches(step, {0: make_cell([step]), 1: make_cell([2.0 ** -(step % 97), 0.0])})


def assert_sketches(store: Store, run_id: str, num_steps: int) -> None:
    """One frame for every four steps, each layer in each of them, once."""
    steps = np.arange(3, num_steps, 4)
    found = store.frame_sketches(run_id, None)
    assert np.array_equal(found.step, steps)
    assert np.array_equal(found.sketches.n, np.tile([1, 2], (len(steps), 1)))
    assert np.array_equal(found.sketches.sum[:, 0], steps)
    exponents = found.sketches.counts[:, 1].argmax(axis=-1) + found.sketches.lowest
    assert np.array_equal(exponents, -(steps % 97))
    assert store.count_frames(run_id) == len(steps)


def test_two_replicas_compact_one_database(
    postgres_url: str, make_sender: Make, make_points: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """Each takes the stream as the other left it."""
    sketches = two_layers(make_sketches, make_cell)
    stores = [Store.open(postgres_url) for _ in range(2)]
    senders = [make_sender(run_id=f"run{at}") for at in range(4)]
    for sender in senders:
        sender.greet(stores[0])
        stores[0].commit([sender.begin("loss"), sender.batch(make_layers("a", "b"))], now_us=1)
        fill(stores[0], sender, make_points, 0, 40, sketches=sketches)
    failures: list[BaseException] = []

    def compact(store: Store) -> None:
        try:
            store.compact(now_us=FOREVER_US, budget_s=60)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=compact, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for store, sender in zip(stores * 2, senders, strict=True):
        assert_steps(store, sender.run_id, 160)
        assert_sketches(store, sender.run_id, 160)
    assert counts(stores[0]) == (0, [(False, 160)] * 4)
    for store in stores:
        store.close()
