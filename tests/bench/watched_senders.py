"""`python -m tests.bench.watched_senders PLAN`: trainings of many layers whose pages somebody looks at.

Frames are cut as the sender cuts them, of steps that are complete by then, with the sketches of all layers every other
second; over one websocket per training. Prints `ready`, begins at a line on standard input, and prints one JSON object
of results. Must not import torch. Invariant: a step carries the time at which it would have been complete.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np
from halfscope.record.ring import to_points
from halfscope.send.ship import FRAME_INTERVAL_S
from halfscope.sketch import Sketch
from halfscope.sketch.packing import pack
from halfscope.wire.codec import encode
from halfscope.wire.messages import Declare, Hello, Layer, Layers, Record, Series, Sketches, Start, StreamInfo

from tests.bench.senders import Connection, Result, float32

NUM_PREPARED = 8
"""Steps' sketches that are made beforehand and sent again and again."""
NUM_BINS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPlan:
    """What the trainings of one process do."""

    url: str
    token: str
    runs: list[str]
    series: int
    layers: int
    steps_per_s: float
    sketch_s: float
    """Time from one sketch of all layers to the next."""
    seconds: float


class Training(Connection):
    """One run of one rank."""

    def __init__(self, plan: WatchedPlan, run_id: str) -> None:
        self.plan = plan
        self._key = run_id, "00000000000000aa"
        super().__init__(plan.url, plan.token, [Hello(*self._key, info=StreamInfo(started_us=time.time_ns() // 1000))])
        self._noise = random.Random(run_id)
        self._sketches = itertools.cycle(_prepared(plan.layers))
        self.began_us = 0

    async def begin(self) -> None:
        """Greets and declares."""
        await self.greet()
        names = ["loss", "opt.steps", *(f"bench.{at}" for at in range(2, self.plan.series))]
        heads: list[Record] = [
            Start(time_us=time.time_ns() // 1000, project="bench", name=self._key[0]),
            Declare([Series(sid, name) for sid, name in enumerate(names)]),
            Layers([Layer(lid, f"layer.{lid}.weight", [256, 256], "float32") for lid in range(self.plan.layers)]),
        ]
        await self.send(self._key, [encode(head) for head in heads])
        await self.drain()
        self.ack_ms.clear()

    async def run(self) -> None:
        """Trains for its time; ends when all of it is acknowledged."""
        plan = self.plan
        await asyncio.sleep(self._noise.random() * FRAME_INTERVAL_S)  # trainings do not beat in time
        self.first_sent_s = time.monotonic()
        self.began_us = time.time_ns() // 1000
        done, sketched_s = 0, 0.0
        for beat in range(1, round(plan.seconds / FRAME_INTERVAL_S) + 1):
            now_s = beat * FRAME_INTERVAL_S
            await asyncio.sleep(max(0.0, self.first_sent_s + now_s - time.monotonic()))
            steps = range(done, int(now_s * plan.steps_per_s))
            payloads = [encode(to_points(map(self._row, steps)))] if steps else []
            done = max(done, steps.stop)
            if done and now_s >= sketched_s:
                sketched_s += plan.sketch_s
                payloads += [self._at(record, done - 1) for record in next(self._sketches)]
            if payloads:
                await self.send(self._key, payloads)
        await self.drain()
        await self.end(done)

    def time_us(self, step: int) -> int:
        """When a step was complete."""
        return self.began_us + round((step + 1) / self.plan.steps_per_s * 1e6)

    def _row(self, step: int) -> tuple[int, int, list[tuple[int, float]]]:
        gauss = self._noise.gauss
        values = [(sid, float32(gauss(2.0, 0.1))) for sid in range(self.plan.series) if sid != 1]
        return step, self.time_us(step), [*values, (1, step + 1.0)]

    def _at(self, record: Sketches, step: int) -> bytes:
        return encode(msgspec.structs.replace(record, step=step, time_us=self.time_us(step)))


def _prepared(num_layers: int) -> list[list[Sketches]]:
    return [
        list(pack(sketch, np.arange(num_layers), step=0, time_us=0, point="unscale", clipped="no", scale=65536.0))
        for sketch in itertools.islice(moving_sketches(num_layers), NUM_PREPARED)
    ]


def moving_sketches(num_layers: int) -> Iterator[Sketch]:
    """Gradients of 65,536 elements a layer, log-normal, slowly moving; counts with their natural noise."""
    rng = np.random.default_rng(9)
    centre = rng.uniform(18.0, 28.0, num_layers)
    exponents = np.arange(NUM_BINS)
    while True:
        centre = centre + rng.normal(0.0, 0.1, num_layers)
        share_of_bin = np.exp(-0.5 * ((exponents - centre[:, None]) / 2.0) ** 2)
        counts = rng.poisson(65_536 * share_of_bin / share_of_bin.sum(axis=1, keepdims=True))
        zeros = rng.poisson(20.0, num_layers)
        none = np.zeros(num_layers, np.int64)
        yield Sketch(
            n=counts.sum(axis=1) + zeros,
            zeros=zeros,
            nan=none,
            pos_inf=none,
            neg_inf=none,
            sum=rng.normal(0.0, 1e-3, num_layers),
            sumsq=np.abs(rng.normal(1e-4, 1e-5, num_layers)),
            absmax=rng.lognormal(-5.0, 0.3, num_layers).astype(np.float32).astype(np.float64),
            absmin_nonzero=rng.lognormal(-30.0, 0.3, num_layers).astype(np.float32).astype(np.float64),
            lowest=-45,
            counts=counts,
        )


async def _main(plan: WatchedPlan) -> dict[str, Any]:
    trainings = [Training(plan, run_id) for run_id in plan.runs]
    await asyncio.gather(*(training.begin() for training in trainings))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    before_s = time.process_time()
    await asyncio.gather(*(training.run() for training in trainings))
    spent_s = time.process_time() - before_s
    result = Result(
        points=0,
        first_sent_s=min(training.first_sent_s for training in trainings),
        last_ack_s=max(training.last_ack_s for training in trainings),
        ack_ms=[latency for training in trainings for latency in training.ack_ms],
        runs=plan.runs,
    )
    return {**asdict(result), "began_us": [training.began_us for training in trainings], "processor_s": spent_s}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(WatchedPlan(**json.loads(sys.argv[1]))))), flush=True)
