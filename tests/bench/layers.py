"""How long it takes to read sketches into a page: one layer over many frames, all layers at once; and their size.

The frames are packed by the agent's own code, committed and compacted by the real store on SQLite. The heatmap is what
a first viewer waits for, less the network; of it, the store's part is told apart. Beside them, in turns: plain sqlite3
rows, one per layer and frame, read into arrays.
Invariant: no round profits from what an earlier one computed; only the operating system's file cache is warm.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
from halfscope.config import new_run_id
from halfscope.sketch import share
from halfscope.sketch.packing import pack
from halfscope.wire.codec import chain, encode, pack_body
from halfscope.wire.messages import (
    Batch,
    Column,
    Declare,
    Hello,
    Layer,
    Layers,
    Points,
    Series,
    Start,
    StreamInfo,
    Welcome,
)
from halfscope_server import panels
from halfscope_server.query.frames import COUNTED
from halfscope_server.query.view import Views
from halfscope_server.query.window import Window
from halfscope_server.store.sketch_records import layer_id
from halfscope_server.store.store import Store

from tests.bench.reading import STEP_US, STREAM, in_turns, used_bytes
from tests.bench.report import Bench, Measurement, say
from tests.bench.watched_senders import NUM_BINS, moving_sketches

EVERY = 10
"""Steps from one sketch to the next."""
ROW = np.dtype([("n", "<i8"), ("zeros", "<i8"), ("sums", "<f8", 2), ("extremes", "<f4", 2), ("bins", "<u4", NUM_BINS)])
"""What a plain row holds of a layer's sketch."""


def _measure(quick: bool) -> Iterator[Measurement]:
    many = (50, 64) if quick else (500, 1_000)
    long = (25, 128) if quick else (25, 2_000)
    rounds = 3 if quick else 15
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        floor = sqlite3.connect(Path(folder) / "floor.db")
        store = Store.open(f"sqlite:///{Path(folder) / 'halfscope.db'}")
        try:
            heatmap = _stored(store, floor, "many", *many)
            sizes = [used_bytes(Path(folder) / name) for name in ("halfscope.db", "floor.db")]
            one = _stored(store, floor, "long", *long)
            times = in_turns(
                {
                    "server.layer_2000_frames_ms": lambda: _one_layer(store, one, long),
                    "server.layer_2000_frames.floor_sqlite_rows_ms": lambda: _one_layer_rows(floor, long),
                    "server.layers_heatmap_ms": lambda: _heatmap(store, heatmap),
                    "server.layers_heatmap.moments_ms": lambda: _moments(store, heatmap, many),
                    "server.layers_heatmap.floor_sqlite_rows_ms": lambda: _heatmap_rows(floor, many),
                },
                rounds,
            )
        finally:
            store.close()
            floor.close()
    for name, taken in times.items():
        yield Measurement(name=name, value=statistics.median(taken) * 1e3, unit="ms")
    cells = many[0] * many[1]
    names = ("server.bytes_per_layer_frame", "server.bytes_per_layer_frame.floor_sqlite_rows")
    for name, size in zip(names, sizes, strict=True):
        yield Measurement(name=name, value=size / cells, unit="bytes")


def _one_layer(store: Store, run_id: str, size: tuple[int, int]) -> None:
    found = store.frame_sketches(run_id, [layer_id("layer.7.weight")])
    assert found.present.sum() == size[1]
    assert found.sketches.would_flush_share().shape == (size[1], 1)


def _one_layer_rows(floor: sqlite3.Connection, size: tuple[int, int]) -> None:
    rows = floor.execute("SELECT sketch FROM long WHERE layer = 7 ORDER BY frame").fetchall()
    assert np.frombuffer(b"".join(row[0] for row in rows), ROW)["bins"].shape == (size[1], NUM_BINS)


def _heatmap(store: Store, run_id: str) -> None:
    view = Views(store).get(run_id)
    assert view is not None, "the run was stored a moment ago"
    panel = panels.find(view, "layers-heatmap")
    assert panel is not None, "a run with layers has a heatmap of them"
    figure = orjson.dumps(panels.figure(view, panel, Window()))
    assert len(figure) > 10_000, "the heatmap of many layers is not empty"


def _moments(store: Store, run_id: str, size: tuple[int, int]) -> None:
    found = store.frame_moments(run_id, columns=COUNTED)
    assert found.n.shape == (size[1], size[0])
    assert found.present.all()


def _heatmap_rows(floor: sqlite3.Connection, size: tuple[int, int]) -> None:
    rows = floor.execute("SELECT sketch FROM many ORDER BY frame, layer").fetchall()
    sketches = np.frombuffer(b"".join(row[0] for row in rows), ROW)
    assert share(sketches["bins"][:, :4].sum(axis=1), sketches["n"] - sketches["zeros"]).size == size[0] * size[1]


def _stored(store: Store, floor: sqlite3.Connection, name: str, num_layers: int, num_frames: int) -> str:
    """Commits a run as an agent would send it and compacts until nothing is left to do; the same into plain rows."""
    say(f"server.layers: storing {num_layers} layers over {num_frames:,} frames")
    floor.execute(
        f"CREATE TABLE {name} (layer INTEGER, frame INTEGER, sketch BLOB, PRIMARY KEY (layer, frame)) WITHOUT ROWID"
    )
    run_id, now_us = new_run_id(), time.time_ns() // 1000
    welcome = store.grant(Hello(run_id, STREAM, StreamInfo(started_us=now_us)), now_us=now_us)
    assert isinstance(welcome, Welcome), "nobody deleted this run"
    layers = [Layer(lid, f"layer.{lid}.weight", [256, 256], "float32") for lid in range(num_layers)]
    start = Start(time_us=now_us, project="bench", name=name)
    batches = [[encode(start), encode(Declare([Series(0, "loss")])), encode(Layers(layers))]]
    lids = np.arange(num_layers)
    for frame, sketch in enumerate(itertools.islice(moving_sketches(num_layers), num_frames)):
        step = frame * EVERY
        time_us = now_us + step * STEP_US
        records = pack(sketch, lids, step=step, time_us=time_us, point="unscale", clipped="no", scale=65536.0)
        batches.append([*map(encode, records), encode(_losses(step, now_us))])
        rows = np.zeros(num_layers, ROW)
        rows["n"], rows["zeros"], rows["bins"] = sketch.n, sketch.zeros, sketch.counts
        rows["sums"] = np.stack((sketch.sum, sketch.sumsq), -1)
        rows["extremes"] = np.stack((sketch.absmax, sketch.absmin_nonzero), -1)
        floor.executemany(
            f"INSERT INTO {name} VALUES (?, ?, ?)", [(lid, frame, row.tobytes()) for lid, row in enumerate(rows)]
        )
    floor.commit()
    _commit(store, welcome, batches, now_us)
    return run_id


def _losses(step: int, now_us: int) -> Points:
    """A point for each step up to the next sketch."""
    steps = np.arange(step, step + EVERY)
    return Points(steps.tobytes(), (now_us + steps * STEP_US).tobytes(), [Column(0, np.ones(EVERY).tobytes())])


def _commit(store: Store, welcome: Welcome, batches: list[list[bytes]], now_us: int) -> None:
    digest, seq = welcome.digest, welcome.next
    for payloads in batches:
        for payload in payloads:
            digest = chain(digest, payload)
        raw_bytes, body = pack_body(payloads)
        batch = Batch(
            welcome.run_id, welcome.stream, welcome.epoch, seq, len(payloads), digest, raw_bytes, body
        )  # fmt: skip
        assert not store.commit([batch], now_us=now_us).refused
        seq += len(payloads)
        if seq % 256 == 0:
            store.compact(now_us=now_us, budget_s=60.0)
    while store.compact(now_us=now_us + 10**9, budget_s=60.0):
        pass


BENCHES = [
    Bench(
        names=[
            "server.layer_2000_frames_ms",
            "server.layer_2000_frames.floor_sqlite_rows_ms",
            "server.layers_heatmap_ms",
            "server.layers_heatmap.moments_ms",
            "server.layers_heatmap.floor_sqlite_rows_ms",
            "server.bytes_per_layer_frame",
            "server.bytes_per_layer_frame.floor_sqlite_rows",
        ],
        run=_measure,
    )
]
