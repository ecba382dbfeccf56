"""How long the first picture of a comparison takes: two very long runs, and eight runs with layers.

Runs are committed and compacted by the real store on SQLite. Each round makes fresh views, works out the whole report
and the two charts that are seen first (the metric over each other, the difference on its band), and writes all as JSON:
what a first viewer waits for, less the network. Beside it, in turns: the loss chart of one of the long runs.
Invariant: no round profits from what an earlier one computed; only the operating system's file cache is warm.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import orjson
from halfscope.config import new_run_id
from halfscope.sketch import of_array, stack
from halfscope.sketch.packing import pack
from halfscope.wire.codec import chain, encode, pack_body
from halfscope.wire.messages import (
    Batch,
    Column,
    Declare,
    End,
    Facts,
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
from halfscope_server.compare.comparison import Comparisons
from halfscope_server.panels import compared
from halfscope_server.query.view import Views
from halfscope_server.query.window import Window
from halfscope_server.store.store import Store

from tests.bench.reading import FRAME_ROWS, STEP_US, STREAM, in_turns
from tests.bench.report import Bench, Measurement, say

NUM_STEPS, NUM_EIGHT_STEPS = 1_000_000, 100_000
NUM_LAYERS, NUM_FRAMES = 50, 100
SERIES = ("loss", "grad.norm", "time.step_s", "throughput.samples_per_s", "memory.rss_bytes")
SEEN_FIRST = ("compare-quality", "compare-difference")
PRECISIONS = ("FP32", "FP16-AMP", "BF16-AMP", "FP32")


def _measure(quick: bool) -> Iterator[Measurement]:
    num_long, num_eight = (50_000, 5_000) if quick else (NUM_STEPS, NUM_EIGHT_STEPS)
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        store = Store.open(f"sqlite:///{Path(folder) / 'halfscope.db'}")
        try:
            say(f"compare: storing two runs of {num_long:,} steps, and eight of {num_eight:,}")
            long = [stored(store, at, num_long, num_layers=0) for at in range(2)]
            eight = [stored(store, at, num_eight, num_layers=NUM_LAYERS) for at in range(8)]
            times = in_turns(
                {
                    "compare.first_view_1m_ms": lambda: _first_view(store, long),
                    "compare.eight_runs_ms": lambda: _first_view(store, eight),
                    "compare.floor_one_loss_chart_ms": lambda: _loss_chart(store, long[0]),
                },
                rounds=3 if quick else 9,
            )
        finally:
            store.close()
    for name, taken in times.items():
        yield Measurement(name=name, value=statistics.median(taken) * 1e3, unit="ms")


def _first_view(store: Store, run_ids: Sequence[str]) -> None:
    comparison = Comparisons(Views(store)).get(run_ids)
    assert len(orjson.dumps(comparison.report)) > 1_000
    for panel_id in SEEN_FIRST:
        panel = compared.find(comparison, panel_id)
        assert panel is not None, "runs with a loss have both charts"
        assert len(orjson.dumps(compared.figure(comparison, panel, Window()))) > 1_000


def _loss_chart(store: Store, run_id: str) -> None:
    view = Views(store).get(run_id)
    assert view is not None, "the run was stored a moment ago"
    panel = panels.find(view, "loss")
    assert panel is not None, "a run with a loss has a loss panel"
    assert len(orjson.dumps(panels.figure(view, panel, Window()))) > 1_000


def stored(store: Store, at: int, num_steps: int, *, num_layers: int) -> str:
    """Commits a run as an agent would send it and compacts until nothing is left to do.

    Args:
        at: which of several it is: their noise is their own, what they learn is the same.
    """
    run_id, now_us = new_run_id(), time.time_ns() // 1000
    welcome = store.grant(Hello(run_id, STREAM, StreamInfo(started_us=now_us)), now_us=now_us)
    assert isinstance(welcome, Welcome), "nobody deleted this run"
    rng = np.random.default_rng(at)
    step = np.arange(num_steps, dtype=np.int64)
    loss = 2.0 / np.sqrt(1.0 + step / 1e3) + 0.3 + rng.normal(0.0, 0.05, num_steps)
    step_s = np.abs(rng.normal(0.05, 0.002, num_steps))
    columns = [loss, np.exp(rng.normal(0.0, 0.3, num_steps)), step_s, 64.0 / step_s, np.full(num_steps, 2.0**30)]
    rounded = [column.astype(np.float32).astype("<f8") for column in columns]
    frames = [
        [
            encode(Start(time_us=now_us, project="bench", name=f"run {at}", config={"seed": at})),
            encode(Declare([Series(sid, name) for sid, name in enumerate(SERIES)])),
            encode(Facts(now_us, {"precision": PRECISIONS[at % len(PRECISIONS)]})),
        ]
    ]
    for first in range(0, num_steps, FRAME_ROWS):
        part = step[first : first + FRAME_ROWS]
        values = [Column(sid, column[part].tobytes()) for sid, column in enumerate(rounded)]
        frames.append([encode(Points(part.tobytes(), (now_us + part * STEP_US).tobytes(), values))])
    frames += _sketched(rng, num_layers, num_steps, now_us)
    frames.append([encode(End("finished", num_steps - 1, now_us + num_steps * STEP_US))])
    _commit(store, run_id, welcome, frames, now_us)
    return run_id


def _sketched(rng: np.random.Generator, num_layers: int, num_steps: int, now_us: int) -> list[list[bytes]]:
    if not num_layers:
        return []
    layers = [Layer(lid, f"layer.{lid}.weight", [16, 16], "float32") for lid in range(num_layers)]
    frames = [[encode(Layers(layers))]]
    for step in range(0, num_steps, num_steps // NUM_FRAMES):
        sketch = stack([of_array(rng.normal(size=256) * 1e-3) for _ in layers])
        records = pack(
            sketch,
            np.arange(num_layers),
            step=step,
            time_us=now_us + step * STEP_US,
            point="unscale",
            clipped="no",
            scale=65536.0,
        )
        frames.append([encode(record) for record in records])
    return frames


def _commit(store: Store, run_id: str, welcome: Welcome, frames: list[list[bytes]], now_us: int) -> None:
    digest, seq = welcome.digest, welcome.next
    for payloads in frames:
        for payload in payloads:
            digest = chain(digest, payload)
        raw_bytes, body = pack_body(payloads)
        batch = Batch(run_id, STREAM, welcome.epoch, seq, len(payloads), digest, raw_bytes, body)
        result = store.commit([batch], now_us=now_us)
        assert not result.refused, f"the store refused a frame: {result.refused}"
        seq += len(payloads)
    while store.compact(now_us=now_us + 600_000_000, budget_s=10.0):
        pass


BENCHES = [
    Bench(names=["compare.first_view_1m_ms", "compare.eight_runs_ms", "compare.floor_one_loss_chart_ms"], run=_measure)
]
