"""How long it takes to read one series of 1,000,000 points into a chart.

The series is committed and compacted by the real store on SQLite. Each round makes a fresh view, finds the loss panel,
computes its figure over the whole run and writes it as JSON: what a first viewer waits for, less the network.
Beside it, in turns: all points read into arrays, and plain sqlite3 rows read into an array.
Invariant: no round profits from what an earlier one computed; only the operating system's file cache is warm.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import orjson
from halfscope.config import new_run_id
from halfscope.wire.codec import chain, encode, pack_body
from halfscope.wire.messages import Batch, Column, Declare, End, Hello, Points, Series, Start, StreamInfo, Welcome
from halfscope_server import panels
from halfscope_server.query.view import Views
from halfscope_server.query.window import Window
from halfscope_server.store.store import Store

from tests.bench.report import Bench, Measurement, say

NUM_POINTS = 1_000_000
FRAME_ROWS = 4_000
STREAM = "0123456789abcdef"
STEP_US = 50_000


def _measure(quick: bool) -> Iterator[Measurement]:
    num_points = 100_000 if quick else NUM_POINTS
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        say(f"server.series_1m: storing a series of {num_points:,} points")
        values = loss_values(num_points)
        floor = _sqlite_rows(Path(folder) / "floor.db", values)
        store = Store.open(f"sqlite:///{Path(folder) / 'halfscope.db'}")
        try:
            run_id = store_series(store, values)
            times = in_turns(
                {
                    "server.series_1m_ms": lambda: _chart(store, run_id),
                    "server.series_1m.points_ms": lambda: _points(store, run_id, num_points),
                    "server.series_1m.floor_sqlite_rows_ms": lambda: _read_rows(floor, num_points),
                },
                rounds=3 if quick else 15,
            )
        finally:
            store.close()
            floor.close()
    for name, taken in times.items():
        yield Measurement(name=name, value=statistics.median(taken) * 1e3, unit="ms")


def in_turns(reads: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each round of each read, after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in reads}
    for read in reads.values():
        read()
    for _ in range(rounds):
        for name, read in reads.items():
            started = time.perf_counter()
            read()
            times[name].append(time.perf_counter() - started)
    return times


def _chart(store: Store, run_id: str) -> None:
    view = Views(store).get(run_id)
    assert view is not None, "the run was stored a moment ago"
    panel = panels.find(view, "loss")
    assert panel is not None, "a run with a loss has a loss panel"
    figure = orjson.dumps(panels.figure(view, panel, Window()))
    assert len(figure) > 1_000, "the chart of a long run is not empty"


def _points(store: Store, run_id: str, num_points: int) -> None:
    (series,) = [row for row in store.series(run_id) if row.name == "loss"]
    assert store.points(run_id, series.series_id).value.size == num_points


def loss_values(num_points: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A falling loss with float32 noise and a spike of one step."""
    noise = np.random.default_rng(5).normal(0.0, 0.05, num_points)
    loss = (2.0 / np.sqrt(1.0 + np.arange(num_points) / 1e3) + 0.3 + noise).astype(np.float32).astype(np.float64)
    loss[num_points // 3] = 1e4
    return loss


def store_series(store: Store, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    """Commits the series as an agent would send it, and compacts until nothing is left to do."""
    run_id, now_us = new_run_id(), time.time_ns() // 1000
    welcome = store.grant(Hello(run_id, STREAM, StreamInfo(started_us=now_us)), now_us=now_us)
    assert isinstance(welcome, Welcome), "nobody deleted this run"
    frames = [
        [
            encode(Start(time_us=now_us, project="bench", name="long")),
            encode(Declare([Series(0, "loss")])),
        ]
    ]
    for first in range(0, values.size, FRAME_ROWS):
        steps = np.arange(first, min(first + FRAME_ROWS, values.size), dtype=np.int64)
        column = Column(0, values[steps].astype("<f8").tobytes())
        frames.append([encode(Points(steps.tobytes(), (now_us + steps * STEP_US).tobytes(), [column]))])
    frames.append([encode(End("finished", int(values.size - 1), now_us + values.size * STEP_US))])
    digest, seq = welcome.digest, welcome.next
    for payloads in frames:
        for payload in payloads:
            digest = chain(digest, payload)
        raw_bytes, body = pack_body(payloads)
        batch = Batch(run_id, STREAM, welcome.epoch, seq, len(payloads), digest, raw_bytes, body)
        result = store.commit([batch], now_us=now_us)
        assert not result.refused, f"the store refused a frame: {result.refused}"
        seq += len(payloads)
    later_us = now_us + 600_000_000
    while store.compact(now_us=later_us, budget_s=10.0):
        pass
    return run_id


def _sqlite_rows(path: Path, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE point (series INTEGER, step INTEGER, value REAL, PRIMARY KEY (series, step)) WITHOUT ROWID"
    )
    with database:
        database.executemany("INSERT INTO point VALUES (1, ?, ?)", enumerate(values.tolist()))
    return database


def _read_rows(database: sqlite3.Connection, num_points: int) -> None:
    rows = database.execute("SELECT step, value FROM point WHERE series = 1 ORDER BY step").fetchall()
    assert np.asarray(rows).shape == (num_points, 2)


BENCHES = [
    Bench(
        names=["server.series_1m_ms", "server.series_1m.points_ms", "server.series_1m.floor_sqlite_rows_ms"],
        run=_measure,
    )
]
