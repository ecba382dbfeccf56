"""Two servers on one PostgreSQL: who watches at one sees at once what an agent sends to the other."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from halfscope.wire.messages import Ack, AgentFrame, Column, Declare, Points, Series, ServerFrame, Start
from halfscope_server import app
from halfscope_server.ingest.writer import Writer
from halfscope_server.live import Hub, RunRequest, Subscription
from halfscope_server.settings import Settings

from tests.helpers.listening import WAIT_S, wait_for_listeners
from tests.helpers.stream import Stream

NO_POLL_S = 600.0


class Answers:
    """A sender that waits for what it is told."""

    def __init__(self) -> None:
        self.frames: list[ServerFrame] = []
        self._settled = threading.Semaphore(0)

    def answer(self, frames: Sequence[ServerFrame], *, num_frames: int, num_bytes: int) -> None:
        self.frames += frames
        self._settled.release(num_frames)

    def ask(self, writer: Writer, frame: AgentFrame) -> ServerFrame:
        """Submit a frame and take its answer."""
        assert writer.submit(frame, 100, self)
        assert self._settled.acquire(timeout=WAIT_S)
        return self.frames[-1]


def test_a_viewer_sees_what_another_server_took_in(tmp_path: Path, postgres_url: str) -> None:
    """By the hint alone: its own look at the database would come ten minutes later."""
    settings = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        settings.append(Settings(home=tmp_path / name, database_url=postgres_url))
    with app.opened(settings[0]) as one, app.opened(settings[1]) as two:
        wait_for_listeners(postgres_url, 2)
        sender, answers = Stream("run1"), Answers()
        sender.welcomed(answers.ask(one.writer, sender.hello()))
        begun = answers.ask(one.writer, sender.batch(Start(1, "digits", "a run"), Declare([Series(0, "loss")])))
        assert begun == Ack(*sender.key, 2, sender.epoch)
        two.hub._poll_s = NO_POLL_S
        asyncio.run(_watch(two.hub, lambda: answers.ask(one.writer, sender.batch(_loss_at(7)))))


async def _watch(hub: Hub, send: Callable[[], object]) -> None:
    """Take the present state, have a step sent to the other server, and see it."""
    subscription = hub.subscribe()
    try:
        subscription.watch(RunRequest(run="run1"))
        assert await _last_steps(subscription) == [None]
        await asyncio.to_thread(send)
        assert await _last_steps(subscription) == [7]
    finally:
        subscription.close()
        await hub.close()


async def _last_steps(subscription: Subscription) -> list[int | None]:
    """Of the summaries that come next."""
    messages = await asyncio.wait_for(subscription.next(), WAIT_S)
    return [message["summary"]["last_step"] for message in messages if message["type"] == "run"]


def _loss_at(step: int) -> Points:
    return Points(struct.pack("<q", step), struct.pack("<q", 10**6 * step), [Column(0, struct.pack("<d", 0.5))])
