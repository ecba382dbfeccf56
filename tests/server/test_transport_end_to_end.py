"""From a recorder to the store through every process in between, with the server killed, stopped and cloned from
under it.

Real: the journal, the sender process, `halfscope serve` on SQLite in a process of its own. The oracle is the
journal's own reader: what the store holds must be what the journal holds, each point and event once.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import read_stream
from halfscope.record.recorder import Recorder
from halfscope.send import drain, ensure_sender, status, sync
from halfscope.wire.messages import Declare, End, Event, Points, Series, Start, StreamInfo
from halfscope_server.store.store import Store

from tests.helpers.preloaded import Forked, serving

RUN, STREAM = "01jabcdefghjkmnp", "ab12"
Point = tuple[str, int, int, bytes]
"""(series, step, time, bits of the value)"""


OUTAGE_S = float(os.environ.get("HALFSCOPE_TEST_OUTAGE_S", "5"))
"""How long a server is away from a training under load."""


class Server:
    """`halfscope serve` as a process; its home, port and database outlive it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.journals = home / "found"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._process: Forked | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.home / 'halfscope.db'}"

    def start(self) -> None:
        environ = {**os.environ, "HALFSCOPE_HOME": str(self.home), "HALFSCOPE_DIR": str(self.journals)}
        with (self.home / "server.log").open("ab") as log:
            command = ["-m", "halfscope", "serve", "--port", str(self.port), "--no-browser"]
            self._process = serving().start(command, env=environ, stdout=log.fileno(), stderr=log.fileno())
        deadline_s = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None, (self.home / "server.log").read_text()
            assert time.monotonic() < deadline_s, "the server does not start"
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=2) as response:
                return bool(response.status == 200)
        except OSError:
            return False


@pytest.fixture
def new_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """Homes with a server each; the first one's home is also the agents', so that they find its token."""
    for name in list(os.environ):
        if name.startswith("HALFSCOPE_"):
            monkeypatch.delenv(name)
    servers: list[Server] = []

    def make(name: str = "home") -> Server:
        home = tmp_path / name
        home.mkdir()
        # One token for all: the agents of this test look in one home only.
        (home / "token").write_text("a token of more than twenty characters\n")
        (home / "token").chmod(0o600)
        if not servers:
            monkeypatch.setenv("HALFSCOPE_HOME", str(home))
        servers.append(Server(home))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def journals(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Journal directories, whose senders are ended with the test."""
    made: list[Path] = []

    def make(name: str = "journals") -> Path:
        made.append(tmp_path / name)
        return made[-1]

    yield make
    for directory in made:
        pid = status(directory).pid
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


class Training:
    """Records the same numbers each time, at a pace, in a thread; NaN, infinities and events among them."""

    def __init__(self, directory: Path, *, num_steps: int, steps_per_s: float) -> None:
        self.place = StreamPlace(directory=directory, run_id=RUN, stream=STREAM)
        self.recorder = Recorder.open(
            directory=directory,
            run_id=RUN,
            stream=STREAM,
            info=StreamInfo(pid=os.getpid(), started_us=1),
            start=Start(time_us=1, project="p", name="n"),
            segment_bytes=200_000,
        )
        self._num_steps = num_steps
        self._interval_s = 1 / steps_per_s
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._thread.join(60)
        self.recorder.close(End(outcome="finished", step=self._num_steps - 1, time_us=self._num_steps))

    def _run(self) -> None:
        recorder = self.recorder
        loss, scale = recorder.declare("loss"), recorder.declare("amp.scale", kind="state")
        late = recorder.declare("grad.norm", labels={"optimizer": "Adam"})
        began_s = time.monotonic()
        for step in range(self._num_steps):
            value = math.nan if step % 97 == 13 else math.inf if step % 97 == 14 else 1 / (step + 1)
            recorder.row(step, step * 1000, [(loss, value), (scale, 2.0 ** (step % 16))])
            if step >= 3:
                recorder.row(step - 3, (step - 3) * 1000, [(late, float(step))])
            if step % 50 == 0:
                recorder.event("skip", step, time_us=step, attributes={"class": "single"}, urgent=True)
            ahead_s = began_s + step * self._interval_s - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)


def points_of_journal(place: StreamPlace) -> list[Point]:
    """Every point of a journal, by the wire's definition."""
    series: dict[int, Series] = {}
    found: list[Point] = []
    for _, record in read_stream(place):
        if isinstance(record, Declare):
            series.update((one.sid, one) for one in record.series)
        if not isinstance(record, Points):
            continue
        num_rows = len(record.steps) // 8
        steps = struct.unpack(f"<{num_rows}q", record.steps)
        times_us = struct.unpack(f"<{num_rows}q", record.times_us)
        for column in record.columns:
            count = len(column.values) // 8
            rows = struct.unpack(f"<{count}I", column.rows) if column.rows else range(num_rows)
            for at, row in enumerate(rows):
                bits = column.values[8 * at : 8 * at + 8]
                found.append((series[column.sid].name, steps[row], times_us[row], bits))
    return sorted(found)


def points_of_store(store: Store) -> list[Point]:
    found: list[Point] = []
    for series in store.series(RUN):
        points = store.points(RUN, series.series_id)
        for step, time_us, value in zip(points.step, points.time_us, points.value, strict=True):
            found.append((series.name, int(step), int(time_us), struct.pack("<d", value)))
    return sorted(found)


def events_of_journal(place: StreamPlace) -> list[tuple[int, str, int]]:
    return [(seq, record.kind, record.step) for seq, record in read_stream(place) if isinstance(record, Event)]


def events_of_store(store: Store, kind: str) -> list[tuple[int, str, int]]:
    return sorted((row.seq, row.kind, row.step) for row in store.events(RUN, kinds=[kind], limit=100_000))


def assert_equal(server: Server, place: StreamPlace) -> None:
    """The store holds what the journal holds. Asked of the database itself, the server being gone."""
    store = Store.open(server.database_url)
    try:
        wanted = points_of_journal(place)
        found = points_of_store(store)
        assert len(found) == len(wanted)
        assert found == wanted
        assert events_of_store(store, "skip") == events_of_journal(place)
        run = store.get_run(RUN)
        assert run is not None
        assert run.state == "finished"
    finally:
        store.close()


@pytest.mark.slow
def test_a_server_killed_under_load_loses_and_doubles_nothing(
    new_server: Callable[..., Server], journals: Callable[..., Path]
) -> None:
    """Killed twice while batches are on their way, and started again each time."""
    server = new_server()
    server.start()
    training = Training(journals(), num_steps=3000, steps_per_s=500)
    ensure_sender(directory=training.place.directory, server=server.url)
    training.start()
    for pause_s in (0.7, 0.4):
        time.sleep(pause_s)  # the moment of death, not a wait for something
        server.stop(signal.SIGKILL)
        server.start()
    training.finish()
    assert drain_patiently(training.place)
    server.stop()
    assert_equal(server, training.place)


@pytest.mark.slow
@pytest.mark.timeout(180 + 5 * OUTAGE_S)
def test_a_server_stopped_for_a_while_ends_with_the_data_of_one_that_never_stopped(
    new_server: Callable[..., Server], journals: Callable[..., Path]
) -> None:
    """The same training twice, side by side; one server is away in the middle of it (`make soak`: for a minute)."""
    num_steps = int(400 * (OUTAGE_S + 2.5))
    steady, stopped = new_server("steady"), new_server("stopped")
    trainings = []
    for server in (steady, stopped):
        server.start()
        training = Training(journals(f"journals-{server.port}"), num_steps=num_steps, steps_per_s=400)
        ensure_sender(directory=training.place.directory, server=server.url)
        trainings.append(training)
    for training in trainings:
        training.start()
    time.sleep(1.0)
    stopped.stop()
    time.sleep(OUTAGE_S)  # under load, unreachable
    stopped.start()
    for training in trainings:
        training.finish()
        assert drain_patiently(training.place)
    stores = []
    for server in (steady, stopped):
        server.stop()
        stores.append(Store.open(server.database_url))
    try:
        assert points_of_store(stores[0]) == points_of_store(stores[1])
        events = [[row[1:] for row in events_of_store(store, "skip")] for store in stores]
        assert events[0] == events[1]
        assert len(events[0]) == num_steps // 50
    finally:
        for store in stores:
            store.close()
    assert_equal(stopped, trainings[1].place)


@pytest.mark.slow
def test_a_copied_journal_reaches_the_server_as_a_second_stream(
    new_server: Callable[..., Server], journals: Callable[..., Path]
) -> None:
    """Both copies go on; every point of either is there, and an event tells of the fork."""
    server = new_server()
    server.start()
    directory, copy = journals("original"), journals("copy")
    record_events(directory, 0, 20)
    sync(directory, server.url)
    shutil.copytree(directory, copy)
    for at, first in ((directory, 100), (copy, 200)):
        record_events(at, first, 20)
    for at in (directory, copy, directory):
        result = sync(at, server.url)
        assert result.num_shipped == result.num_streams == 1
    server.stop()
    store = Store.open(server.database_url)
    try:
        wanted = [*range(20), *range(100, 120), *range(200, 220)]
        assert sorted(row.step for row in store.events(RUN, kinds=["test"])) == wanted
        points = [store.points(RUN, series.series_id) for series in store.series(RUN)]
        assert sorted(int(step) for one in points for step in one.step) == wanted
        (told,) = store.events(RUN, kinds=["journal_forked"])
        assert told.attributes["forked_from"] == STREAM
        forked = [row.forked_from for row in store.streams(RUN)]
        assert sorted(forked) == ["", STREAM]
    finally:
        store.close()


@pytest.mark.slow
def test_a_server_started_later_picks_journals_up(new_server: Callable[..., Server]) -> None:
    """Recorded while no server ran and no sender was left: nobody has to ask for it."""
    server = new_server()
    record_events(server.journals, 0, 50, outcome="finished")
    server.start()
    place = StreamPlace(directory=server.journals, run_id=RUN, stream=STREAM)
    assert drain_patiently(place)
    server.stop()
    store = Store.open(server.database_url)
    try:
        assert [row.step for row in store.events(RUN, kinds=["test"], limit=100)] == list(range(50))
    finally:
        store.close()


def record_events(directory: Path, first: int, count: int, outcome: str = "") -> None:
    recorder = Recorder.open(
        directory=directory,
        run_id=RUN,
        stream=STREAM,
        info=StreamInfo(pid=os.getpid()),
        start=Start(time_us=1, project="p", name="n"),
    )
    loss = recorder.declare("loss")
    for step in range(first, first + count):
        recorder.row(step, step, [(loss, float(step))])
        recorder.event("test", step)
    recorder.close(End(outcome=outcome, step=first + count, time_us=1) if outcome else None)


def drain_patiently(place: StreamPlace) -> bool:
    """As `finish` does, but through an outage: there a training would not wait."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        if drain(place.run_id, place.stream, 5.0, directory=place.directory):
            return True
        time.sleep(0.05)
    return False
