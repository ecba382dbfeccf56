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
from collections.abc import Callable, Iterator, Mapping
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
NUM_CHARTS = 20
FRAME_ROWS = 4_000
STREAM = "0123456789abcdef"
STEP_US = 50_000

Values = np.ndarray[tuple[int], np.dtype[np.float64]]


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


def _measure_page(quick: bool) -> Iterator[Measurement]:
    num_points = 20_000 if quick else NUM_POINTS
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        say(f"server.page_20_charts_1m: storing {NUM_CHARTS} series of {num_points:,} points of float32 noise")
        path = Path(folder) / "halfscope.db"
        store = Store.open(f"sqlite:///{path}")
        try:
            empty = used_bytes(path)
            noise = np.random.default_rng(3)
            names = ["loss", *(f"noise/{at}" for at in range(1, NUM_CHARTS))]
            run_id = store_many(
                store, {name: noise.normal(2.0, 0.1, num_points).astype(np.float32).astype(float) for name in names}
            )
            stored = used_bytes(path) - empty
            times = in_turns({"page": lambda: _page(store, run_id)}, rounds=3 if quick else 9)
        finally:
            store.close()
    yield Measurement(name="server.page_20_charts_1m_ms", value=statistics.median(times["page"]) * 1e3, unit="ms")
    yield Measurement(name="server.bytes_per_noisy_point", value=stored / num_points / NUM_CHARTS, unit="bytes")


def _page(store: Store, run_id: str) -> None:
    """A first view of a page of charts, one after the other, on one core."""
    view = Views(store).get(run_id)
    assert view is not None, "the run was stored a moment ago"
    wanted = {panels.of_series(row.name) for row in view.series}
    charts = [panel for panel in panels.for_run(view) if panel.id in wanted]
    assert len(charts) == NUM_CHARTS, [panel.id for panel in charts]
    for panel in charts:
        assert len(orjson.dumps(panels.figure(view, panel, Window()), option=orjson.OPT_SERIALIZE_NUMPY)) > 1_000


def used_bytes(path: Path) -> int:
    """Of a database's pages that hold something."""
    database = sqlite3.connect(path)
    pages, free, size = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    database.close()
    return int((pages - free) * size)


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


def loss_values(num_points: int) -> Values:
    """A falling loss with float32 noise and a spike of one step."""
    noise = np.random.default_rng(5).normal(0.0, 0.05, num_points)
    loss = (2.0 / np.sqrt(1.0 + np.arange(num_points) / 1e3) + 0.3 + noise).astype(np.float32).astype(np.float64)
    loss[num_points // 3] = 1e4
    return loss


def store_series(store: Store, values: Values) -> str:
    """Commits one series, the loss, as an agent would send it."""
    return store_many(store, {"loss": values})


def store_many(store: Store, series: Mapping[str, Values]) -> str:
    """Commits series of one run as an agent would send them, and compacts until nothing is left to do."""
    run_id, now_us = new_run_id(), time.time_ns() // 1000
    welcome = store.grant(Hello(run_id, STREAM, StreamInfo(started_us=now_us)), now_us=now_us)
    assert isinstance(welcome, Welcome), "nobody deleted this run"
    frames = [
        [
            encode(Start(time_us=now_us, project="bench", name="long")),
            encode(Declare([Series(sid, name) for sid, name in enumerate(series)])),
        ]
    ]
    num_steps = max(values.size for values in series.values())
    for first in range(0, num_steps, FRAME_ROWS):
        steps = np.arange(first, min(first + FRAME_ROWS, num_steps), dtype=np.int64)
        columns = [Column(sid, values[steps].astype("<f8").tobytes()) for sid, values in enumerate(series.values())]
        frames.append([encode(Points(steps.tobytes(), (now_us + steps * STEP_US).tobytes(), columns))])
    frames.append([encode(End("finished", num_steps - 1, now_us + num_steps * STEP_US))])
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


def _sqlite_rows(path: Path, values: Values) -> sqlite3.Connection:
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
    ),
    Bench(names=["server.page_20_charts_1m_ms", "server.bytes_per_noisy_point"], run=_measure_page),
]
