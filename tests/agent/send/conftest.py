"""Journals for the sender's tests, and a home that is not the developer's own."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from halfscope.record.journal import JournalWriter
from halfscope.record.layout import StreamPlace
from halfscope.wire.codec import encode
from halfscope.wire.messages import Declare, End, Event, Series, Start, StreamInfo

START = Start(time_us=1, project="p", name="n", start_step=5)
SERIES = Series(sid=0, name="loss")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HALFSCOPE_HOME in a temporary directory; no server, no token."""
    path = tmp_path / "home"
    path.mkdir()
    for name in list(os.environ):
        if name.startswith("HALFSCOPE_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HALFSCOPE_HOME", str(path))
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journals"


class Journal:
    """A journal that a test writes by hand: events numbered from 0, behind Start and one declaration."""

    def __init__(self, directory: Path, run_id: str, stream: str, **options: Any) -> None:
        self.place = StreamPlace(directory=directory, run_id=run_id, stream=stream)
        self.num_events = 0
        heads = options.pop("heads", [encode(START), encode(Declare(series=[SERIES]))])
        info = options.pop("info", StreamInfo(rank=1, pid=os.getpid()))
        self.writer = JournalWriter(self.place, info, lambda: heads, **{"quota_bytes": 1 << 30, **options})
        self.writer.open()

    def write(self, num_events: int = 1, size: int = 10, mark: str = "x") -> None:
        """Events of so many characters each; of random ones, which do not compress, where mark is empty."""
        for _ in range(num_events):
            content = mark * size or secrets.token_hex(size // 2)
            event = Event(kind="test", step=self.num_events, time_us=0, attributes={"text": content})
            self.writer.append([encode(event)])
            self.num_events += 1

    def end(self) -> None:
        self.writer.append([encode(End(outcome="finished", step=self.num_events, time_us=9))])
        self.writer.close()


@pytest.fixture
def new_journal(directory: Path) -> Iterator[Callable[..., Journal]]:
    """Makes journals in `directory`."""
    journals: list[Journal] = []

    def make(run_id: str = "run1", stream: str = "ab", at: Path | None = None, **options: Any) -> Journal:
        journal = Journal(at or directory, run_id, stream, **options)
        journals.append(journal)
        return journal

    yield make
    for journal in journals:
        journal.writer.close()


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Waits for a condition, up to a deadline."""

    def wait(condition: Callable[[], object], timeout_s: float = 20.0, what: str = "") -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, f"not in {timeout_s} s: {what or condition}"
            time.sleep(0.005)

    return wait
