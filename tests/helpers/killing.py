"""Writers, senders and servers that are killed at random instants, and whether anything was lost by it.

Real processes, real sockets, real files; what was written is known from the writers' own notes
(tests/helpers/numbers_writer.py), what arrived from the database. Invariant: only processes that were started here are
killed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from halfscope.record.acks import read_acks
from halfscope.record.layout import StreamPlace
from halfscope_server.store.store import Store

from tests.helpers.numbers_writer import (
    EVENT_EVERY,
    MAX_STEPS,
    NOTES_BYTES,
    STREAM,
    digest_of_all,
    read_notes,
)
from tests.helpers.preloaded import Forked, Preloaded

ROOT = Path(__file__).parents[2]
MODULES = (
    "halfscope.record.recorder",
    "halfscope.send.cleanup",
    "halfscope.send.ship",
    "halfscope_server.ingest",
    "halfscope_server.store.store",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.websockets_sansio_impl",
)
PROMISED_US = 100_000
"""What was given so long before a kill is written."""
PATIENCE_S = 90.0


@dataclass(slots=True, kw_only=True)
class Writer:
    """One writer and what became of it."""

    run_id: str
    notes: Path
    process: Forked
    killed_us: int = 0


@dataclass(slots=True)
class Scene:
    """A journal directory with its sender, and servers on one database."""

    python: Preloaded
    folder: Path
    database_url: str
    ports: Sequence[int]
    url: str
    """Where the sender sends: a server, or what stands in front of them."""
    writers: list[Writer] = field(default_factory=list)
    servers: dict[int, Forked] = field(default_factory=dict)
    sender: Forked | None = None
    num_killed_senders: int = 0
    num_killed_servers: int = 0

    @property
    def journals(self) -> Path:
        return self.folder / "journals"

    def start(self, *arguments: str) -> Forked:
        with (self.folder / "log").open("ab") as log:
            return self.python.start(["-m", *arguments], stdout=log.fileno(), stderr=log.fileno(), cwd=ROOT)

    def start_server(self, port: int) -> None:
        self.servers[port] = self.start("tests.helpers.ingest_server", str(port), self.database_url)

    def start_sender(self) -> None:
        self.sender = self.start("halfscope.send", str(self.journals), "--server", self.url)

    def start_writer(self, num_steps: int = MAX_STEPS) -> Writer:
        run_id = f"{len(self.writers):016d}"
        notes = self.folder / f"{run_id}.notes"
        notes.write_bytes(bytes(NOTES_BYTES))
        arguments = (str(self.journals), run_id, str(notes), str(num_steps))
        writer = Writer(run_id=run_id, notes=notes, process=self.start("tests.helpers.numbers_writer", *arguments))
        self.writers.append(writer)
        wait_until(lambda: any(notes.read_bytes()[:8]), "a writer that does not begin")
        return writer

    def kill_writer(self, writer: Writer) -> None:
        writer.process.kill()
        writer.killed_us = time.time_ns() // 1000
        writer.process.wait(30)

    def kill_sender(self) -> None:
        assert self.sender is not None
        self.sender.kill()
        self.sender.wait(30)
        self.num_killed_senders += 1

    def kill_server(self, port: int) -> None:
        self.servers[port].kill()
        self.servers[port].wait(30)
        self.num_killed_servers += 1

    def wait_until_shipped(self) -> None:
        """Until each journal is acknowledged as a whole and its stream's end was told."""

        def is_shipped(writer: Writer) -> bool:
            place = StreamPlace(directory=self.journals, run_id=writer.run_id, stream=STREAM)
            return any(ack.ended for ack in read_acks(place.acks).servers.values())

        for writer in self.writers:
            wait_until(lambda writer=writer: is_shipped(writer), f"{writer.run_id} is not shipped")  # type: ignore[misc]

    def stop(self) -> None:
        for process in (self.sender, *self.servers.values(), *(writer.process for writer in self.writers)):
            if process is not None:
                process.kill()
                process.wait(30)
        self.sender = None
        self.servers.clear()


def kill_at_random(scene: Scene, seed: int, count: int) -> None:
    """So many times each: a writer, the sender and a server, in any order, while records are on their way."""
    chance = random.Random(seed)
    for port in scene.ports:
        scene.start_server(port)
    scene.start_sender()
    for _ in range(count):
        writer = scene.start_writer()

        def writer_dies(writer: Writer = writer) -> None:
            scene.kill_writer(writer)

        def sender_dies() -> None:
            scene.kill_sender()
            time.sleep(chance.uniform(0.0, 0.02))
            scene.start_sender()

        def server_dies() -> None:
            port = chance.choice(scene.ports)
            scene.kill_server(port)
            time.sleep(chance.uniform(0.0, 0.1))
            scene.start_server(port)

        deaths: list[Callable[[], None]] = [writer_dies, sender_dies, server_dies]
        chance.shuffle(deaths)
        for death in deaths:
            time.sleep(chance.uniform(0.02, 0.15))  # the moment of death, not a wait for something
            death()
    last = scene.start_writer(300)
    wait_until(lambda: last.process.poll() is not None, "a writer that does not end")
    last.killed_us = time.time_ns() // 1000
    scene.wait_until_shipped()


def losses(scene: Scene) -> list[tuple[int, int]]:
    """Of each writer: how old the oldest step that is missing was at the kill, and how long its machine had stalled.

    Raises:
        AssertionError: something is there twice, altered, or missing before something that is there.
    """
    store = Store.open(scene.database_url)
    try:
        return [_loss(store, writer) for writer in scene.writers]
    finally:
        store.close()


def _loss(store: Store, writer: Writer) -> tuple[int, int]:
    notes = read_notes(writer.notes, writer.killed_us)
    found: list[tuple[int, float]] = []
    for series in store.series(writer.run_id):  # one, or none where the writer died before anything was written
        points = store.points(writer.run_id, series.series_id)
        found += [(int(step), float(value)) for step, value in zip(points.step, points.value, strict=True)]
    # It may have died between giving a step and noting it.
    assert len(found) <= len(notes.digests) + 1, "a step that was noted by nobody"
    num_known = min(len(found), len(notes.digests))
    expected = notes.digests[num_known - 1] if num_known else bytes(16)
    assert digest_of_all(found[:num_known]) == expected, f"{writer.run_id} differs"
    events = [row.step for row in store.events(writer.run_id, kinds=["test"], limit=100_000)]
    assert events == list(range(0, len(events) * EVENT_EVERY, EVENT_EVERY)), "an event is missing, or there twice"
    assert abs(len(events) - len(found) / EVENT_EVERY) <= 1, "points and events were cut at different places"
    assert store.events(writer.run_id, kinds=["journal_forked"]) == []
    missing = notes.times_us[num_known:]
    return (writer.killed_us - missing[0] if missing else 0), notes.stalled_us


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)
