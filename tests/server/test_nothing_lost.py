"""Journal, sender, session and store together, against a model of what must become of every record.

Real are the journal's files, the outbox and shipper, both sessions, the writer's thread and the database; the network
between them lies in the test's hand (tests/helpers/network.py). The oracle is tests/helpers/loss_model.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from halfscope.record.acks import read_acks
from halfscope.record.journal import JournalWriter
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import read_stream
from halfscope.send import outbox as outbox_module
from halfscope.send import ship as ship_module
from halfscope.send.endpoint import Endpoint
from halfscope.send.ship import Shipper
from halfscope.send.transport import Transport, TransportError
from halfscope.wire.codec import encode
from halfscope.wire.messages import Column, Declare, Event, Hello, Points, Series, Start, StreamInfo
from halfscope_server.ingest import writer as writer_module
from halfscope_server.ingest.writer import Writer
from halfscope_server.store.store import Store
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.helpers.loss_model import LossModel
from tests.helpers.network import Connection

RUN, STREAM = "0123456789abcdef", "ab12"
KIND = "numbered"
HEADS = [
    encode(Start(time_us=1, project="p", name="n")),
    encode(Declare(series=[Series(sid=0, name="loss")])),
]
INFO = StreamInfo(pid=os.getpid(), started_us=1)
SEGMENT_BYTES = 400
QUOTA_BYTES = 4 * SEGMENT_BYTES
MAX_COPIES = 3
SERVER = "https://server.test"
FAR_FUTURE_US = 10**16
NUM_EXAMPLES = int(os.environ.get("HALFSCOPE_TEST_MODEL_EXAMPLES", "0"))
"""More of them, and others each time (`make soak`); 0: a few, the same in every run."""


def event(number: int) -> bytes:
    return encode(Event(kind=KIND, step=number, time_us=1, attributes={"text": "x" * (number * 37 % 90)}))


def points(number: int) -> bytes:
    at = struct.pack("<q", number)
    return encode(Points(steps=at, times_us=at, columns=[Column(sid=0, values=struct.pack("<d", number))]))


class Machine:
    """One journal directory: its writer, its sender, the connection between that and a server."""

    def __init__(self, directory: Path) -> None:
        self.place = StreamPlace(directory=directory, run_id=RUN, stream=STREAM)
        self.writer: JournalWriter | None = None
        self.shipper: Shipper | None = None
        self.connection: Connection | None = None


class WholeWay(RuleBasedStateMachine):
    """Numbered records on their way from up to three copies of one journal to the servers of one database."""

    templates: dict[str, Any]
    """How a database of its own is made: set by the fixture below."""
    num_servers = 1

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.templates["folder"]))
        self.database = self.folder / "halfscope.db"
        self.stack = contextlib.ExitStack()
        self.url = self._make_database()
        self.model = LossModel()
        self.numbers, self.turns = itertools.count(), itertools.count()
        self.now_s = 0.0
        self.is_listening = True
        self.snapshots: list[Path] = []
        self.machines: dict[str, Machine] = {}
        self.servers: list[tuple[Store, Writer]] = []
        self._start_servers()
        self._add_machine("first")
        self.model.begin("first")

    # ---- writers ----------------------------------------------------------------------------

    @rule(at=st.integers(0, 9), kinds=st.lists(st.booleans(), min_size=1, max_size=6))
    def write(self, at: int, kinds: list[bool]) -> None:
        """Several records in one append; promised only if it returns."""
        name, machine = self._chosen(at)
        numbers = [next(self.numbers) for _ in kinds]
        records = [event(n) if is_event else points(n) for n, is_event in zip(numbers, kinds, strict=True)]
        assert machine.writer is not None
        machine.writer.append(records)
        first = machine.writer.next_seq - len(records)
        for seq, number, is_event in zip(itertools.count(first), numbers, kinds, strict=False):
            self.model.write(name, seq, number, droppable=not is_event)

    @rule(at=st.integers(0, 9), torn=st.integers(0, 40))
    def kill_writer(self, at: int, torn: int) -> None:
        """In the middle of a write: a part of a record stands at the end. Another process takes the stream up."""
        _, machine = self._chosen(at)
        assert machine.writer is not None
        machine.writer.close()
        with machine.place.segment(machine.place.segments()[-1]).open("ab") as file:
            file.write((b"\xc1HSR" + bytes(100))[:torn])
        self._open_writer(machine)

    @precondition(lambda self: len(self.machines) < MAX_COPIES)
    @rule(at=st.integers(0, 9))
    def copy(self, at: int) -> None:
        """A backup that is gone on with, a cloned machine: both write."""
        name, machine = self._chosen(at)
        new = f"copy {len(self.machines)}"
        shutil.copytree(machine.place.directory, self.folder / new)
        self._note_acks()
        self.model.copy(name, new)
        self._add_machine(new)

    # ---- senders and the network ------------------------------------------------------------

    @rule(at=st.integers(0, 9), pause_s=st.sampled_from([0.0, 0.3, 2.0, 70.0]))
    def turn(self, at: int, pause_s: float) -> None:
        self.now_s += pause_s
        _, machine = self._chosen(at)
        assert machine.shipper is not None
        machine.shipper.turn(0.0)

    @rule(at=st.integers(0, 9), count=st.integers(1, 9), twice=st.booleans())
    def serve(self, at: int, count: int, twice: bool) -> None:
        if (connection := self._chosen(at)[1].connection) is not None:
            connection.serve(count, twice=twice)

    @rule(at=st.integers(0, 9), count=st.integers(1, 9), twice=st.booleans())
    def deliver(self, at: int, count: int, twice: bool) -> None:
        if (connection := self._chosen(at)[1].connection) is not None:
            connection.deliver(count, twice=twice)

    @rule(at=st.integers(0, 9), turns=st.integers(1, 3))
    def overtake(self, at: int, turns: int) -> None:
        if (connection := self._chosen(at)[1].connection) is not None:
            connection.to_server.rotate(turns)
            connection.to_agent.rotate(turns)

    @rule(at=st.integers(0, 9))
    def cut(self, at: int) -> None:
        if (connection := self._chosen(at)[1].connection) is not None:
            connection.cut()

    @rule(at=st.integers(0, 9))
    def kill_sender(self, at: int) -> None:
        """Without having noted what was acknowledged since it last did."""
        _, machine = self._chosen(at)
        assert machine.shipper is not None
        with mock.patch.object(outbox_module, "write_ack", side_effect=OSError):
            machine.shipper.close()
        self._start_shipper(machine)

    @rule(at=st.integers(0, 9))
    def run_smoothly(self, at: int) -> None:
        _, machine = self._chosen(at)
        self._run(machine, 4)

    @rule()
    def stop_or_start_listening(self) -> None:
        self.is_listening = not self.is_listening

    # ---- servers ----------------------------------------------------------------------------

    @rule()
    def restart_servers(self) -> None:
        """What was only in their memory is gone."""
        self._stop_servers()
        self._start_servers()

    @rule(at=st.integers(0, 9))
    def another_sender_greets(self, at: int) -> None:
        """It gets a higher epoch, and sends nothing."""
        store = self.servers[at % len(self.servers)][0]
        streams = store.streams(RUN)
        if streams:
            found = streams[at % len(streams)]
            other = Connection(lambda: self.servers[at % len(self.servers)][1])
            other.send([Hello(run_id=RUN, stream=found.stream, info=INFO)])
            other.serve(1)

    @rule(at=st.integers(0, 9))
    def compact(self, at: int) -> None:
        self.servers[at % len(self.servers)][0].compact(now_us=FAR_FUTURE_US, budget_s=1.0)

    @precondition(lambda self: self.num_servers == 1)
    @rule()
    def back_up(self) -> None:
        self._stop_servers()
        self.snapshots.append(self.folder / f"backup {len(self.snapshots)}.db")
        shutil.copyfile(self.database, self.snapshots[-1])
        self._start_servers()

    @precondition(lambda self: self.snapshots)
    @rule(at=st.integers(0, 9))
    def restore(self, at: int) -> None:
        """The database is an older one of itself from now on."""
        self._stop_servers()
        self._note_acks()
        self.model.go_back()
        shutil.copyfile(self.snapshots[at % len(self.snapshots)], self.database)
        self._start_servers()

    # ---- the end ----------------------------------------------------------------------------

    def teardown(self) -> None:
        """Left alone with a working network, everything arrives, and nothing twice."""
        try:
            self.is_listening = True
            for machine in self.machines.values():
                assert machine.writer is not None
                machine.writer.close()
            for _ in range(60):
                for machine in self.machines.values():
                    self._run(machine, 2)
                shippers = [machine.shipper for machine in self.machines.values()]
                if all(shipper is not None and shipper.is_idle for shipper in shippers):
                    break
            else:
                raise AssertionError([str(shipper.health) for shipper in shippers if shipper is not None])
            self._check()
        finally:
            for machine in self.machines.values():
                if machine.writer is not None:
                    machine.writer.close()
                if machine.shipper is not None:
                    machine.shipper.close()
            self._stop_servers()
            self.stack.close()
            shutil.rmtree(self.folder)

    def _check(self) -> None:
        store = self.servers[0][0]
        stored: dict[str, list[int]] = {row.stream: [] for row in store.streams(RUN)}
        for row in store.events(RUN, kinds=[KIND], limit=10**6):
            stored[row.stream].append(row.step)
        for series in store.series(RUN):
            # Points of several streams are one series: they tell their number, not who brought them.
            stored["points"] = [int(step) for step in store.points(RUN, series.series_id).step]
        lost = [row.attributes for row in store.events(RUN, kinds=["lost"], limit=10**6)]
        num_told = sum(one["last_seq"] - one["first_seq"] + 1 for one in lost)
        faults = self.model.faults(stored, {name: held(m.place) for name, m in self.machines.items()}, num_told)
        assert not faults, (faults, lost)

    # ---- ways and means ---------------------------------------------------------------------

    def _chosen(self, at: int) -> tuple[str, Machine]:
        name = list(self.machines)[at % len(self.machines)]
        return name, self.machines[name]

    def _add_machine(self, name: str) -> None:
        machine = self.machines[name] = Machine(self.folder / name)
        self._open_writer(machine)
        self._start_shipper(machine)

    def _open_writer(self, machine: Machine) -> None:
        machine.writer = JournalWriter(
            machine.place, INFO, lambda: HEADS, quota_bytes=QUOTA_BYTES, segment_bytes=SEGMENT_BYTES
        )
        machine.writer.open()

    def _start_shipper(self, machine: Machine) -> None:
        def connect(_endpoint: Endpoint) -> Transport:
            if not self.is_listening:
                raise TransportError("nobody listens")
            at = next(self.turns) % len(self.servers)
            machine.connection = Connection(lambda: self.servers[at][1])
            return machine.connection

        machine.shipper = Shipper(
            machine.place.directory,
            lambda: Endpoint(url=SERVER),
            wants=lambda _place, _info: True,
            follow=True,
            connect=connect,
            clock_s=lambda: self.now_s,
        )

    def _run(self, machine: Machine, num_turns: int) -> None:
        assert machine.shipper is not None
        for _ in range(num_turns):
            self.now_s += 31.0  # beyond every back-off of a connection
            machine.shipper.turn(0.0)
            if machine.connection is not None:
                machine.connection.serve(100)
                machine.connection.deliver(100)
            machine.shipper.turn(0.0)

    def _note_acks(self) -> None:
        for name, machine in self.machines.items():
            self.model.acknowledge(name, read_acks(machine.place.acks).journal_next)

    def _make_database(self) -> str:
        shutil.copyfile(self.templates["sqlite"], self.database)
        return f"sqlite:///{self.database}"

    def _start_servers(self) -> None:
        for _ in range(self.num_servers):
            store = Store.open(self.url)
            writer = Writer(store, lambda _applied: None)
            writer.start()
            self.servers.append((store, writer))

    def _stop_servers(self) -> None:
        """What is under way to them is lost with their connections."""
        for machine in self.machines.values():
            if machine.connection is not None:
                machine.connection.cut()
        for store, writer in self.servers:
            writer.stop()
            store.close()
        self.servers.clear()


class TwoServers(WholeWay):
    """The same before two servers on one PostgreSQL: each connection is made to the other one."""

    num_servers = 2

    def _make_database(self) -> str:
        url: str = self.stack.enter_context(self.templates["postgres"].copy())
        return url


def held(place: StreamPlace) -> set[int]:
    """The numbers that a journal still holds."""
    found: set[int] = set()
    for _, record in read_stream(place):
        if isinstance(record, Event) and record.kind == KIND:
            found.add(record.step)
        elif isinstance(record, Points):
            found.update(struct.unpack(f"<{len(record.steps) // 8}q", record.steps))
    return found


@pytest.fixture(autouse=True)
def _templates(
    sqlite_template: Path, postgres_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A state machine is no test function: it cannot ask for a fixture itself."""
    monkeypatch.setattr(writer_module, "GROUP_GAP_S", 0.0005)  # the test says what arrives together
    monkeypatch.setattr(ship_module, "SCAN_INTERVAL_S", 0.0)
    WholeWay.templates = {"sqlite": sqlite_template, "postgres": postgres_server, "folder": tmp_path}
    yield
    del WholeWay.templates


CHOSEN = settings(max_examples=NUM_EXAMPLES or 7, stateful_step_count=40, deadline=None, derandomize=not NUM_EXAMPLES)
TestWholeWay = WholeWay.TestCase
TestWholeWay.settings = CHOSEN
TestTwoServers = TwoServers.TestCase
TestTwoServers.settings = settings(CHOSEN, max_examples=NUM_EXAMPLES // 4 or 2)
