"""A writer on a real store, and agents' frames for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from halfscope.wire.messages import Batch, Column, Declare, Event, Points, Series, ServerFrame, Start
from halfscope_server.ingest import Writer
from halfscope_server.store.store import Store

from tests.helpers.stream import Stream


class Feed(Stream):
    """One stream's frames, as the server's first answer grants it."""

    def __init__(self, run_id: str = "0123456789abcdef", stream: str = "01") -> None:
        super().__init__(run_id, stream)
        self.epoch = 1

    def begin(self) -> Batch:
        return self.batch(Start(1, "digits", "a run"), Declare([Series(0, "loss")]))

    def step(self, step: int) -> Batch:
        """One point whose value is its step."""
        at = np.array([step], "<i8")
        return self.batch(Points(at.tobytes(), (1000 * at).tobytes(), [Column(0, at.astype("<f8").tobytes())]))

    def event(self, kind: str = "skip", step: int = 1) -> Batch:
        return self.batch(Event(kind, step, 1))


class Inbox:
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        self.frames: list[ServerFrame] = []
        self.calls: list[list[ServerFrame]] = []
        self.settled_frames = 0
        self.settled_bytes = 0
        self._changed = threading.Condition()

    def answer(self, frames: Sequence[ServerFrame], *, num_frames: int, num_bytes: int) -> None:
        with self._changed:
            self.calls.append(list(frames))
            self.frames += frames
            self.settled_frames += num_frames
            self.settled_bytes += num_bytes
            self._changed.notify_all()

    def wait_for(self, num_frames: int, timeout_s: float = 30.0) -> list[ServerFrame]:
        """Until so many frames that were submitted are settled."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.settled_frames >= num_frames, timeout_s), self.frames
            return list(self.frames)


@pytest.fixture
def make_feed() -> Callable[..., Feed]:
    return Feed


@pytest.fixture
def make_inbox() -> Callable[[], Inbox]:
    return Inbox


@pytest.fixture
def file_store(sqlite_url: str) -> Iterator[Store]:
    """A store on SQLite: what the writer does does not depend on the dialect."""
    opened = Store.open(sqlite_url)
    yield opened
    opened.close()


@pytest.fixture
def applied() -> list[Any]:
    """What the writer's listener was told."""
    return []


@pytest.fixture
def writer(file_store: Store, applied: list[Any]) -> Iterator[Writer]:
    """A running writer."""
    made = Writer(file_store, applied.extend)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Wait for a condition, and fail when it does not come."""

    def wait(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, "it did not happen in time"
            time.sleep(0.005)

    return wait
