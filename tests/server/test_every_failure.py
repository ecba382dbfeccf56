"""Each single connect, send, read, write and commit between a journal and the database fails once, one after the
other: everything is there in the end, once."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from halfscope.record.acks import read_acks
from halfscope.record.journal import JournalWriter
from halfscope.record.layout import StreamPlace
from halfscope.send import ship as ship_module
from halfscope.send.endpoint import Endpoint
from halfscope.send.ship import Shipper
from halfscope.send.transport import TransportError
from halfscope.wire.codec import encode
from halfscope.wire.messages import Column, Declare, End, Event, Points, Series, Start, StreamInfo
from halfscope_server.errors import Unavailable
from halfscope_server.ingest import writer as writer_module
from halfscope_server.ingest.writer import Writer
from halfscope_server.store.store import Store

from tests.helpers.failing import Fault, every_failure, in_folder
from tests.helpers.network import Connection

RUN, STREAM = "0123456789abcdef", "ab12"
NUM_STEPS = 6
INFO = StreamInfo(pid=os.getpid(), started_us=1)
HEADS = [encode(Start(time_us=1, project="p", name="n")), encode(Declare(series=[Series(sid=0, name="loss")]))]
IO_ERROR = OSError(errno.EIO, "Input/output error")
LOST = TransportError("the connection is lost")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "GROUP_GAP_S", 0.0005)
    monkeypatch.setattr(ship_module, "SCAN_INTERVAL_S", 0.0)
    monkeypatch.setattr(ship_module, "MAX_UNACKED_BATCHES", 2)


@pytest.fixture
def place(tmp_path: Path) -> StreamPlace:
    """A journal of several segments, whose writer has ended."""
    place = StreamPlace(directory=tmp_path / "journals", run_id=RUN, stream=STREAM)
    writer = JournalWriter(place, INFO, lambda: HEADS, quota_bytes=1 << 30, segment_bytes=24_000)
    writer.open()
    for step in range(NUM_STEPS):
        at = struct.pack("<q", step)
        # Random text does not compress: a database has no room for all of it left by chance.
        event = Event(kind="test", step=step, time_us=step, attributes={"text": secrets.token_hex(5000)})
        row = Points(steps=at, times_us=at, columns=[Column(sid=0, values=struct.pack("<d", step))])
        writer.append([encode(row), encode(event)])
    writer.append([encode(End(outcome="finished", step=NUM_STEPS - 1, time_us=9))])
    writer.close()
    return place


class Shipping:
    """A sender of the journal and a server, until everything is acknowledged; either starts anew when it has to."""

    def __init__(self, place: StreamPlace, store: Store) -> None:
        self.writer = Writer(store, lambda _applied: None)
        self.connection: Connection | None = None
        self.now_s = 0.0
        self.shipper = Shipper(
            place.directory,
            lambda: Endpoint(url="https://server.test"),
            wants=lambda _place, _info: True,
            follow=True,
            connect=lambda _endpoint: self.connect(),
            clock_s=lambda: self.now_s,
        )

    def connect(self) -> Connection:
        self.connection = Connection(lambda: self.writer)
        return self.connection

    def run(self, num_turns: int = 200) -> None:
        self.writer.start()
        try:
            for _ in range(num_turns):
                self.now_s += 61.0
                self.shipper.turn(0.0)
                if self.connection is not None:
                    self.connection.serve(10)
                    self.connection.deliver(10)
                self.shipper.turn(0.0)
                if self.shipper.is_idle and self.shipper.tally.shipped:
                    return
            raise AssertionError(f"not shipped: {self.shipper.health}")
        finally:
            self.shipper.close()
            self.writer.stop()


def assert_there(store: Store) -> None:
    """Each point and each event once, the stream ended, nothing said to be lost."""
    (series,) = store.series(RUN)
    assert store.points(RUN, series.series_id).value.tolist() == list(range(NUM_STEPS))
    assert [row.step for row in store.events(RUN, kinds=["test"], limit=1000)] == list(range(NUM_STEPS))
    assert store.events(RUN, kinds=["lost", "journal_forked"]) == []
    run = store.get_run(RUN)
    assert run is not None
    assert run.state == "finished"


@contextlib.contextmanager
def new_store(template: Path, folder: Path) -> Iterator[Store]:
    folder.mkdir()
    (folder / "halfscope.db").write_bytes(template.read_bytes())
    store = Store.open(f"sqlite:///{folder / 'halfscope.db'}")
    yield store
    store.close()


BREAKING: dict[str, Callable[[Fault, Shipping, Path], AbstractContextManager[None]]] = {
    "connect": lambda fault, shipping, _: fault.in_calls(shipping, "connect", error=LOST),
    "send": lambda fault, *_: fault.in_calls(Connection, "send", error=LOST),
    "send, arrived": lambda fault, *_: fault.in_calls(Connection, "send", error=LOST, is_after=True),
    "receive": lambda fault, *_: fault.in_calls(Connection, "receive", error=LOST),
    "journal read": lambda fault, _, folder: fault.in_calls(os, "pread", of=in_folder(folder), error=IO_ERROR),
    "open": lambda fault, _, folder: fault.in_calls(os, "open", of=in_folder(folder), error=IO_ERROR),
    "write": lambda fault, _, folder: fault.in_calls(os, "write", of=in_folder(folder), error=IO_ERROR),
    "replace": lambda fault, _, folder: fault.in_calls(os, "replace", of=in_folder(folder), error=IO_ERROR),
}


@pytest.mark.parametrize("what", BREAKING)
def test_a_call_of_the_sender_that_fails_costs_nothing(
    tmp_path: Path, sqlite_template: Path, place: StreamPlace, what: str
) -> None:
    """Connecting, sending, reading the journal, noting what was acknowledged."""
    for fault in every_failure():
        place.acks.unlink(missing_ok=True)
        with new_store(sqlite_template, tmp_path / f"{what} {fault.number}") as store:
            shipping = Shipping(place, store)
            with BREAKING[what](fault, shipping, place.directory):
                shipping.run()
            assert_there(store)
        if not fault.happened:
            assert fault.number > 1
            return


@pytest.mark.parametrize("what", ["execute", "before COMMIT", "after COMMIT"])
def test_a_statement_or_commit_that_fails_costs_nothing(
    tmp_path: Path, sqlite_template: Path, place: StreamPlace, what: str
) -> None:
    """Of those that write; nothing is acknowledged that is not there, and nothing there twice."""
    error = sqlite3.OperationalError("disk I/O error")
    for fault in every_failure():
        place.acks.unlink(missing_ok=True)
        with new_store(sqlite_template, tmp_path / f"{what} {fault.number}") as store, contextlib.ExitStack() as stack:
            dialect: Any = writing_dialect(store)
            if what == "execute":
                # Both kinds count as one row of calls.
                stack.enter_context(fault.in_calls(dialect, "do_execute", error=error))
                stack.enter_context(fault.in_calls(dialect, "do_executemany", error=error))
            else:
                is_after = what == "after COMMIT"
                stack.enter_context(fault.in_calls(dialect, "do_commit", error=error, is_after=is_after))
            Shipping(place, store).run()
            stack.close()
            assert_there(store)
        if not fault.happened:
            assert fault.number > 1
            return


def writing_dialect(store: Store) -> sa.engine.Dialect:
    engine = store._database._writer
    assert engine is not None
    return engine.dialect


def test_a_full_disk_on_the_server_acknowledges_nothing_and_harms_nothing(
    tmp_path: Path, sqlite_template: Path, place: StreamPlace
) -> None:
    """SQLite's own limit of pages: senders are told to wait, the file stays whole, and all arrives when there is
    room."""
    with new_store(sqlite_template, tmp_path / "store") as store:
        database: Any = store._database
        with database.writing() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 1}")
        with pytest.raises(Unavailable):
            fill(store)
        shipping = Shipping(place, store)
        with pytest.raises(AssertionError, match="not shipped"):
            shipping.run(num_turns=10)
        assert shipping.shipper.health.state == "refused"
        assert read_acks(place.acks).journal_next == 0
        with database.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
        with database.writing() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1000000")
        Shipping(place, store).run()
        assert_there(store)


def fill(store: Store) -> None:
    """Until it takes no more."""
    for number in itertools.count():
        store.put_token(f"{number:064d}", name="x" * 200, created_us=1)
