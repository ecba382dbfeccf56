"""What the server takes in: points per second under full load, and the wait for an acknowledgement under a steady one.

Each is a real `halfscope serve` on SQLite with real agents over websockets from other processes. The floor beside it is
plain sqlite3 with one row per point on the same disk, measured before and after.
Invariant: a point counts when the batch it came in was acknowledged, that is, committed.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from halfscope_server.store.store import Store

from tests.bench.report import Bench, Measurement, say
from tests.bench.senders import Plan, Result
from tests.bench.server_process import serving

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Popen = subprocess.Popen[str]
NUM_PROCESSES = 2
FLOOR_COMMIT_ROWS = 20_000


def _unpaced(quick: bool) -> Iterator[Measurement]:
    num_agents, num_series = (10 if quick else 50), 20
    num_steps = 100 if quick else 8_000
    say(f"server.ingest: {num_agents} agents, {num_agents * num_series * num_steps:,} points as fast as they are taken")
    floors = [_sqlite_rows_per_s(quick)]
    with serving() as server:
        results = run_senders(
            [
                Plan(
                    url=server.url,
                    token=server.token,
                    agents=num_agents // NUM_PROCESSES,
                    series=num_series,
                    steps=num_steps,
                    steps_per_s=0.0,
                    seed=seed,
                )
                for seed in range(NUM_PROCESSES)
            ]
        )
    floors.append(_sqlite_rows_per_s(quick))
    took_s = max(each.last_ack_s for each in results) - min(each.first_sent_s for each in results)
    points = sum(each.points for each in results)
    yield Measurement(name="server.ingest.points_per_s", value=points / took_s, unit="points/s")
    yield Measurement(name="server.ingest.floor_sqlite_rows_per_s", value=statistics.mean(floors), unit="points/s")


def _paced(quick: bool) -> Iterator[Measurement]:
    num_agents, num_series, steps_per_s = (20 if quick else 100), 20, 50.0
    seconds = 1 if quick else 60
    say(f"server.ingest: {num_agents} agents x {steps_per_s:g} steps/s x {num_series} scalars for {seconds} s")
    plans = [
        Plan(
            url="",
            token="",
            agents=num_agents // NUM_PROCESSES,
            series=num_series,
            steps=int(seconds * steps_per_s),
            steps_per_s=steps_per_s,
            seed=seed,
        )
        for seed in range(NUM_PROCESSES)
    ]
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        with serving(Path(folder)) as server:
            before_s = processor_s(server.pid)
            results = run_senders([replace(plan, url=server.url, token=server.token) for plan in plans])
            spent_s = processor_s(server.pid) - before_s
        num_stored = _num_points(Path(folder), [run for each in results for run in each.runs])
    latencies = sorted(latency for each in results for latency in each.ack_ms)
    took_s = max(each.last_ack_s for each in results) - min(each.first_sent_s for each in results)
    num_sent = sum(each.points for each in results)
    yield Measurement(name="server.ingest.lost", value=num_sent - num_stored, unit="points")
    yield Measurement(name="server.ingest.cores", value=spent_s / took_s, unit="cores")
    yield Measurement(name="server.ingest.ack_p50_ms", value=quantile(latencies, 0.50), unit="ms")
    yield Measurement(name="server.ingest.ack_p99_ms", value=quantile(latencies, 0.99), unit="ms")
    yield Measurement(name="server.ingest.paced_points_per_s", value=num_sent / took_s, unit="points/s")


@contextmanager
def prepared(plans: Sequence[DataclassInstance], module: str = "tests.bench.senders") -> Iterator[list[Popen]]:
    """One process of a module per plan, each ready to begin; what still runs when the context is left is ended."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(asdict(plan))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for plan in plans
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"a process of {module} ended with code {process.wait()} before it was ready")
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def begin(process: Popen) -> None:
    """Lets one that is ready begin."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def run_senders(plans: Sequence[DataclassInstance], module: str = "tests.bench.senders") -> list[Result]:
    """Runs one process of a module per plan, all beginning at the same moment."""
    with prepared(plans, module) as processes:
        for process in processes:
            begin(process)
        results = []
        for process in processes:
            said, _ = process.communicate()
            if process.returncode != 0:
                raise RuntimeError(f"a process of {module} ended with code {process.returncode}")
            results.append(Result(**json.loads(said)))
        return results


def processor_s(pid: int) -> float:
    """What a process has used of processors so far, its threads and ended children included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _num_points(home: Path, runs: Sequence[str]) -> int:
    """Of some runs, in a database whose server has ended."""
    store = Store.open(f"sqlite:///{home / 'halfscope.db'}")
    try:
        found = [store.extent(run, row.series_id) for run in runs for row in store.series(run)]
        return sum(extent.num_points for extent in found if extent is not None)
    finally:
        store.close()


def quantile(ascending: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    return ascending[min(len(ascending) - 1, max(0, -int(-share * len(ascending) // 1) - 1))]


def _sqlite_rows_per_s(quick: bool) -> float:
    """Plain rows with a key, committed in groups with synchronous=FULL: what a table of points costs."""
    noise = random.Random(1)
    num_rows = 20_000 if quick else 300_000
    rows = [("run", index % 20, index // 20, noise.gauss(2.0, 0.1)) for index in range(num_rows)]
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        database = sqlite3.connect(Path(folder) / "floor.db")
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute(
            "CREATE TABLE point (run TEXT, series INTEGER, step INTEGER, value REAL,"
            " PRIMARY KEY (run, series, step)) WITHOUT ROWID"
        )
        started = time.perf_counter()
        for at in range(0, num_rows, FLOOR_COMMIT_ROWS):
            with database:
                database.executemany("INSERT INTO point VALUES (?, ?, ?, ?)", rows[at : at + FLOOR_COMMIT_ROWS])
        took_s = time.perf_counter() - started
        database.close()
    return num_rows / took_s


BENCHES = [
    Bench(names=["server.ingest.points_per_s", "server.ingest.floor_sqlite_rows_per_s"], run=_unpaced),
    Bench(
        names=[
            "server.ingest.ack_p50_ms",
            "server.ingest.ack_p99_ms",
            "server.ingest.lost",
            "server.ingest.cores",
            "server.ingest.paced_points_per_s",
        ],
        run=_paced,
    ),
]
