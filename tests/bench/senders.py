"""`python -m tests.bench.senders PLAN`: agents in a process of their own, apart from the server they load.

Records are made by the recorder's own column code and framed by the agent's own session, over one websocket per agent,
as the sender process does. Prints `ready` when every agent is welcomed, begins at a line on standard input, and prints
one JSON object of results. Must not import torch. Invariant: a time that counts ends with the server's acknowledgement.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from halfscope.config import new_run_id
from halfscope.record.ring import to_points
from halfscope.send.outbox import BACKLOG_BATCH_BYTES
from halfscope.send.ship import FRAME_INTERVAL_S
from halfscope.wire.agent_session import Acked, AgentSession, Key, Welcomed
from halfscope.wire.codec import MAX_FRAME_BYTES, decode_server_frame, encode
from halfscope.wire.messages import PROTOCOL, Declare, End, Hello, Series, Start, StreamInfo
from websockets.asyncio.client import ClientConnection, connect

RECORD_ROWS = 400
"""Rows of one record under full load: a fast loop's 50 ms."""
JOURNAL_INTERVAL_S = 0.05
ACK_WAIT_S = 60.0

_FLOAT32 = struct.Struct("<f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the agents of one process do."""

    url: str
    token: str
    agents: int
    series: int
    steps: int
    """Per agent."""
    steps_per_s: float
    """0: as fast as the server takes them."""
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Times are of the machine's monotonic clock, so results of several processes can be laid together."""

    points: int
    first_sent_s: float
    last_ack_s: float
    ack_ms: list[float]
    """Of each batch: from its cut to its acknowledgement."""
    runs: list[str]


class Connection:
    """One websocket with any number of streams, and when each batch was acknowledged."""

    def __init__(self, url: str, token: str, hellos: Sequence[Hello]) -> None:
        self._url, self._token, self._hellos = url, token, hellos
        self.session = AgentSession()
        self.ack_ms: list[float] = []
        self.first_sent_s = 0.0
        self.last_ack_s = 0.0
        self._said = asyncio.Event()
        self._sent_s: dict[Key, dict[int, float]] = {(hello.run_id, hello.stream): {} for hello in hellos}

    async def greet(self) -> None:
        """Connects and greets; returns when every stream is welcomed."""
        self._socket: ClientConnection = await connect(
            self._url.replace("http", "ws", 1) + "/api/v1/agent",
            additional_headers={"Authorization": f"Bearer {self._token}"},
            subprotocols=[PROTOCOL],  # type: ignore[list-item]  # websockets' NewType of str
            compression=None,
            max_size=MAX_FRAME_BYTES,
            open_timeout=ACK_WAIT_S,
            proxy=None,
        )
        for hello in self._hellos:
            self.session.add(hello, time.monotonic())
        self.session.connected(time.monotonic())
        # Always: a websocket whose messages nobody takes answers no ping after a few of them.
        self._reader = asyncio.create_task(self._read())
        for frame in self.session.hellos(time.monotonic()):
            await self._socket.send(encode(frame))
        for key in self._sent_s:
            while self.session.room(key) == 0:
                await self._take_next()

    async def send(self, key: Key, payloads: Sequence[bytes]) -> None:
        """Sends records as one batch, as soon as the session lets it."""
        while self.session.room(key) <= 0:
            await self._take_next()
        now_s = time.monotonic()
        batch = self.session.batch(key, len(payloads), payloads, now_s)
        self._sent_s[key][batch.first + batch.count] = now_s
        await self._socket.send(encode(batch))

    async def drain(self) -> None:
        """Waits until everything is acknowledged."""
        while any(map(self.session.num_unacked, self._sent_s)):
            await self._take_next()

    async def end(self, step: int) -> None:
        """Says that this was no lost contact; not measured."""
        counted = len(self.ack_ms), self.last_ack_s
        for key in self._sent_s:
            await self.send(key, [encode(End(outcome="finished", step=step, time_us=time.time_ns() // 1000))])
        await self.drain()
        del self.ack_ms[counted[0] :]
        self.last_ack_s = counted[1]
        self._reader.cancel()
        await self._socket.close()

    async def _take_next(self) -> None:
        """Waits until the server has said something."""
        self._said.clear()
        said = asyncio.create_task(self._said.wait())
        await asyncio.wait({said, self._reader}, timeout=ACK_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        if self._reader.done():
            self._reader.result()
        if not said.done():
            raise RuntimeError(f"the server said nothing for {ACK_WAIT_S:g} s")

    async def _read(self) -> None:
        while True:
            self._take(await self._socket.recv())
            self._said.set()

    def _take(self, message: str | bytes) -> None:
        assert isinstance(message, bytes)
        now_s = time.monotonic()
        for event in self.session.receive(decode_server_frame(message), now_s):
            if isinstance(event, Welcomed):
                self.session.resume(event.key)
            elif isinstance(event, Acked):
                self.last_ack_s = now_s
                sent_s = self._sent_s[event.key]
                for end in [end for end in sent_s if end <= event.next]:
                    self.ack_ms.append((now_s - sent_s.pop(end)) * 1e3)
            else:
                raise RuntimeError(f"the server did not take a batch: {event}")


class Agent(Connection):
    """One stream over one connection."""

    def __init__(self, plan: Plan, index: int) -> None:
        self.plan = plan
        self.run_id = new_run_id()
        self._key = self.run_id, f"{plan.seed:08x}{index:08x}"
        super().__init__(plan.url, plan.token, [Hello(*self._key, info=StreamInfo(started_us=time.time_ns() // 1000))])
        self._random = random.Random(plan.seed * 1000 + index)
        self._heads = [
            encode(Start(time_us=time.time_ns() // 1000, project="bench", name=f"agent-{index}")),
            encode(Declare(series=[Series(sid=sid, name=f"bench.{sid}") for sid in range(plan.series)])),
        ]

    async def begin(self) -> None:
        """Greets and declares."""
        await self.greet()
        await self.send(self._key, self._heads)
        await self.drain()
        self.ack_ms.clear()

    async def run(self) -> None:
        """Sends everything, and ends when all of it is acknowledged."""
        self.first_sent_s = time.monotonic()
        await (self._paced() if self.plan.steps_per_s else self._unpaced())
        await self.drain()
        await self.end(self.plan.steps)

    def prepare(self) -> None:
        """Makes all records beforehand, so that what is measured is the server and not the making of noise."""
        self._frames = self._paced_frames() if self.plan.steps_per_s else self._backlog_frames()

    def _backlog_frames(self) -> list[list[bytes]]:
        """Frames as the sender cuts them when it is behind: by size."""
        frames: list[list[bytes]] = [[]]
        size = 0
        for first in range(0, self.plan.steps, RECORD_ROWS):
            record = self._record(first, min(RECORD_ROWS, self.plan.steps - first))
            if frames[-1] and size + len(record) > BACKLOG_BATCH_BYTES:
                frames.append([])
                size = 0
            frames[-1].append(record)
            size += len(record)
        return frames

    def _paced_frames(self) -> list[list[bytes]]:
        """Frames as the sender cuts them when it is not behind: every 500 ms what the journal wrote every 50 ms."""
        frames: list[list[bytes]] = []
        records_per_frame = round(FRAME_INTERVAL_S / JOURNAL_INTERVAL_S)
        step, num_writes = 0, 0
        while step < self.plan.steps:
            frames.append([])
            for _ in range(records_per_frame):
                num_writes += 1
                rows = min(self.plan.steps, int(num_writes * JOURNAL_INTERVAL_S * self.plan.steps_per_s)) - step
                if rows > 0:
                    frames[-1].append(self._record(step, rows))
                    step += rows
        return frames

    async def _unpaced(self) -> None:
        for frame in self._frames:
            await self.send(self._key, frame)

    async def _paced(self) -> None:
        # Agents do not beat in time.
        started_s = time.monotonic() + self._random.random() * FRAME_INTERVAL_S
        for beat, frame in enumerate(self._frames):
            await asyncio.sleep(max(0.0, started_s + beat * FRAME_INTERVAL_S - time.monotonic()))
            await self.send(self._key, frame)

    def _record(self, first: int, rows: int) -> bytes:
        now_us = time.time_ns() // 1000
        gauss = self._random.gauss
        return encode(
            to_points(
                (step, now_us + step, [(sid, float32(gauss(2.0, 0.1))) for sid in range(self.plan.series)])
                for step in range(first, first + rows)
            )
        )


def float32(value: float) -> float:
    """What a training hands over is float32 noise, not float64."""
    rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    return rounded


async def _main(plan: Plan) -> Result:
    agents = [Agent(plan, index) for index in range(plan.agents)]
    for agent in agents:
        agent.prepare()
    await asyncio.gather(*(agent.begin() for agent in agents))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await asyncio.gather(*(agent.run() for agent in agents))
    return Result(
        points=plan.agents * plan.steps * plan.series,
        first_sent_s=min(agent.first_sent_s for agent in agents),
        last_ack_s=max(agent.last_ack_s for agent in agents),
        ack_ms=[latency for agent in agents for latency in agent.ack_ms],
        runs=[agent.run_id for agent in agents],
    )


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(_main(Plan(**json.loads(sys.argv[1])))))), flush=True)
