"""`python -m tests.bench.rank_senders PLAN`: the senders of some nodes of one job, each with the streams of its ranks.

What a rank sends is what the agent records of one under DistributedDataParallel (docs/ranks.md): nine numbers a step,
times of its buckets, slices of their gradients at sketched steps; rank 0 also the shared numbers and the sketches. Must
not import torch. Invariant: as of `tests.bench.senders`: a time that counts ends with the server's acknowledgement.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from halfscope.record.ring import to_points
from halfscope.send.ship import FRAME_INTERVAL_S
from halfscope.wire.codec import encode
from halfscope.wire.messages import Declare, Event, Hello, Layer, Layers, Series, Slices, Start, StreamInfo

from tests.bench.senders import Connection, Result, float32
from tests.helpers.sketches import Cell, sketches

NUM_BUCKETS = 8
NUM_LAYERS = 96
SLICE_ELEMENTS = 32
OWN = (
    "loss", "time.step_s", "rank.busy_s", "comm.wait_s", "grad.norm_local", "grad.nonfinite_local",
    "throughput.samples_per_s", "memory.device_allocated_bytes", "halfscope.cost_share",
)  # fmt: skip
SHARED = ("amp.scale", "amp.scale_next", "amp.skipped", "amp.growth_tracker", "opt.steps", "lr", "grad.norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """What the senders of one process do."""

    url: str
    token: str
    run_id: str
    first_node: int
    nodes: int
    ranks_per_node: int
    world_size: int
    steps: int
    steps_per_s: float
    """0: as fast as the server takes them."""
    sketch_every: int


class Rank:
    """One stream: its declarations and what it has to send, step by step."""

    def __init__(self, plan: RankPlan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.random = random.Random(rank)
        self.noise = np.random.default_rng(rank)
        self.key = plan.run_id, f"{rank:016x}"
        self.cells = {lid: Cell.of(self.noise.normal(0, 1e-3, 256)) for lid in range(NUM_LAYERS)} if rank == 0 else {}
        self.layers = [Layer(lid, f"block.{lid // 8}.part.{lid % 8}.weight", [64, 64]) for lid in range(NUM_LAYERS)]
        names = [*OWN, *SHARED] if rank == 0 else list(OWN)
        self.series = [Series(sid, name, reduction="mean") for sid, name in enumerate(names)]
        self.series += [
            Series(len(names) + at, "comm.time_s", "s", reduction="max", labels={"bucket": str(at)})
            for at in range(NUM_BUCKETS)
        ]

    @property
    def hello(self) -> Hello:
        per_node = self.plan.ranks_per_node
        info = StreamInfo(
            rank=self.rank,
            world_size=self.plan.world_size,
            host=f"node{self.rank // per_node}",
            pid=1000 + self.rank,
            started_us=time.time_ns() // 1000,
            local_rank=self.rank % per_node,
            mesh={"data": [self.rank, self.plan.world_size]},
        )
        return Hello(*self.key, info=info)

    @property
    def heads(self) -> list[bytes]:
        start = Start(time_us=time.time_ns() // 1000, project="bench", name="ranks", start_step=0)
        return [encode(start), encode(Declare(self.series)), encode(Layers(self.layers))]

    def frames(self, steps_per_frame: int) -> Iterator[list[bytes]]:
        """What goes out together."""
        for first in range(0, self.plan.steps, steps_per_frame):
            steps = range(first, min(first + steps_per_frame, self.plan.steps))
            yield [self._points(steps), *(each for step in steps for each in self._extras(step))]

    def num_points(self) -> int:
        """Numbers of series that it sends in all."""
        return self.plan.steps * len(self.series)

    def _points(self, steps: range) -> bytes:
        now_us, gauss = time.time_ns() // 1000, self.random.gauss
        return encode(
            to_points(
                (step, now_us + step, [(each.sid, float32(gauss(2.0, 0.1))) for each in self.series]) for step in steps
            )
        )

    def _extras(self, step: int) -> Iterator[bytes]:
        now_us = time.time_ns() // 1000
        if step % 200 == 199 and self.rank % 97 == 0:
            yield encode(Event("rank_origin", step, now_us, "warning", [self.layers[3].name], {"rank": self.rank}))
        if step % self.plan.sketch_every:
            return
        if self.rank == 0:
            yield encode(sketches(step, self.cells))
        per_bucket = NUM_LAYERS // NUM_BUCKETS
        for bucket in range(NUM_BUCKETS):
            size = per_bucket * SLICE_ELEMENTS
            yield encode(
                Slices(
                    step=step,
                    time_us=now_us,
                    bucket=bucket,
                    lids=struct.pack(f"<{per_bucket}I", *range(bucket * per_bucket, (bucket + 1) * per_bucket)),
                    counts=struct.pack(f"<{per_bucket}I", *[SLICE_ELEMENTS] * per_bucket),
                    local=self.noise.normal(0, 1, size).astype("<f4").tobytes(),
                    reduced=self.noise.normal(0, 1, size).astype("<f4").tobytes(),
                    divisor=float(self.plan.world_size),
                )
            )


class Node(Connection):
    """The sender of one node."""

    def __init__(self, plan: RankPlan, node: int) -> None:
        self.plan = plan
        first = node * plan.ranks_per_node
        self.ranks = [Rank(plan, rank) for rank in range(first, first + plan.ranks_per_node)]
        super().__init__(plan.url, plan.token, [rank.hello for rank in self.ranks])
        self._random = random.Random(node)
        # A slow loop's step fills a frame by itself.
        self._per_frame = max(1, round(plan.steps_per_s * FRAME_INTERVAL_S)) if plan.steps_per_s else 64
        self._frames = [[(rank.key, frame) for frame in rank.frames(self._per_frame)] for rank in self.ranks]

    async def begin(self) -> None:
        """Greets and declares."""
        await self.greet()
        for rank in self.ranks:
            await self.send(rank.key, rank.heads)
        await self.drain()
        self.ack_ms.clear()

    async def run(self) -> None:
        """Sends everything, and ends when all of it is acknowledged."""
        interval_s = self._per_frame / self.plan.steps_per_s if self.plan.steps_per_s else 0.0
        self.first_sent_s = time.monotonic()
        started_s = self.first_sent_s + self._random.random() * FRAME_INTERVAL_S
        for beat, together in enumerate(zip(*self._frames, strict=True)):
            if interval_s:
                await asyncio.sleep(max(0.0, started_s + beat * interval_s - time.monotonic()))
            for key, frame in together:
                await self.send(key, frame)
        await self.drain()


async def _main(plan: RankPlan) -> Result:
    nodes = [Node(plan, plan.first_node + at) for at in range(plan.nodes)]
    # Not all at once: a server takes greetings one after the other.
    for at in range(0, len(nodes), 8):
        await asyncio.gather(*(node.begin() for node in nodes[at : at + 8]))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await asyncio.gather(*(node.run() for node in nodes))
    result = Result(
        points=sum(rank.num_points() for node in nodes for rank in node.ranks),
        first_sent_s=min(node.first_sent_s for node in nodes),
        last_ack_s=max(node.last_ack_s for node in nodes),
        ack_ms=[latency for node in nodes for latency in node.ack_ms],
        runs=[plan.run_id],
    )
    await asyncio.gather(*(node.end(plan.steps) for node in nodes))
    return result


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(_main(RankPlan(**json.loads(sys.argv[1])))))), flush=True)
