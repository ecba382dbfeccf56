"""Shipping over real sockets: restarts, cuts in the middle of a frame, half-open connections, HTTP, refusals."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from halfscope.record import reader as reader_module
from halfscope.record import segment
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import read_stream
from halfscope.send import ship as ship_module
from halfscope.send import transport
from halfscope.send.endpoint import Endpoint
from halfscope.send.ship import Shipper
from halfscope.send.transport import HttpTransport, WebsocketTransport
from halfscope.wire.codec import encode
from halfscope.wire.messages import Column, Hello, Points, StreamInfo

NewJournal = Callable[..., Any]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnect at once: these tests are about what happens then, not about how long it waits."""
    monkeypatch.setattr(ship_module, "MAX_LOCAL_CONNECT_DELAY_S", 0.05)


@pytest.fixture
def new_shipper(directory: Path) -> Iterator[Callable[..., Shipper]]:
    shippers: list[Shipper] = []

    def make(url: str, *, token: str = "", follow: bool = False) -> Shipper:
        shipper = Shipper(
            directory, lambda: Endpoint(url=url, token=token), wants=lambda place, info: True, follow=follow
        )
        shippers.append(shipper)
        return shipper

    yield make
    for shipper in shippers:
        shipper.close()


def turn_until(shipper: Shipper, condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not in {timeout_s} s; {shipper.health}"
        shipper.turn(0.02)


def assert_arrived(model: Any, *places: StreamPlace) -> None:
    """Each journal is on the server, record by record, once."""
    for place in places:
        assert model.streams[place.run_id, place.stream].records == list(read_stream(place))


class Relay:
    """A TCP relay in front of a server that can cut connections after so many bytes, or swallow everything in
    silence."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut_after_bytes: int | None = None
        self.silent = False
        self.num_connections = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.num_connections += 1
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        num_bytes = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1000):
                if self.silent:
                    continue
                limit = self.cut_after_bytes
                if counted and limit is not None and num_bytes + len(data) > limit:
                    sink.sendall(data[: limit - num_bytes])
                    break
                num_bytes += len(data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in (self._listener, *self._sockets):
            end.close()


@pytest.fixture
def new_relay() -> Iterator[Callable[[int], Relay]]:
    relays: list[Relay] = []

    def make(port: int) -> Relay:
        relays.append(Relay(port))
        return relays[-1]

    yield make
    for relay in relays:
        relay.close()


def test_many_streams_share_one_connection(
    new_journal: NewJournal, new_shipper: Callable[..., Shipper], start_server: Callable[..., Any], model: Any
) -> None:
    """Each arrives whole and says farewell, or stays open where its writer lives."""
    journals = [new_journal(f"run{number % 3}", f"{number:02x}") for number in range(8)]
    for number, journal in enumerate(journals):
        journal.write(20 * number)
        if number % 2:
            journal.end()
    shipper = new_shipper(start_server().url, follow=True)
    turn_until(shipper, lambda: shipper.num_outboxes == 4 and len(model.streams) == 8)
    for journal in journals[::2]:
        journal.end()
    turn_until(shipper, lambda: shipper.is_idle)
    assert_arrived(model, *(journal.place for journal in journals))
    turn_until(shipper, lambda: all(stream.ended == "ended" for stream in model.streams.values()))
    assert shipper.health.num_connected == 1


def test_a_journal_is_followed_and_frames_are_cut_by_time_and_size(
    new_journal: NewJournal,
    new_shipper: Callable[..., Shipper],
    start_server: Callable[..., Any],
    model: Any,
) -> None:
    """A trickle becomes a batch every 0.2 s; a backlog becomes batches of up to 256 KiB."""
    journal = new_journal()
    journal.write(1000, size=1000)
    shipper = new_shipper(start_server().url, follow=True)
    turn_until(shipper, lambda: model.streams and model.streams["run1", "ab"].next == 1002)
    assert 4 <= model.num_batches <= 8
    before, began_s = model.num_batches, time.monotonic()
    for _ in range(50):
        journal.write(1)
        shipper.turn(0.01)
    turn_until(shipper, lambda: model.streams["run1", "ab"].next == 1052)
    assert model.num_batches - before <= 2 + (time.monotonic() - began_s) / ship_module.FRAME_INTERVAL_S
    journal.end()
    turn_until(shipper, lambda: shipper.is_idle)
    assert_arrived(model, journal.place)


def test_a_server_that_restarts_is_found_again(
    new_journal: NewJournal, new_shipper: Callable[..., Shipper], start_server: Callable[..., Any], model: Any
) -> None:
    """Stopped under load, with frames on their way, and started again on the same port."""
    journal = new_journal()
    server = start_server()
    shipper = new_shipper(server.url, follow=True)
    for round_number in range(3):
        journal.write(300, size=500)
        wanted = round_number + 1
        turn_until(shipper, lambda wanted=wanted: shipper.health.num_connected == wanted)
        for _ in range(round_number):
            shipper.turn(0.0)
        server.stop()
        journal.write(50)
        turn_until(shipper, lambda: shipper.health.state == "unreachable")
        server = start_server(port=server.port)
    journal.end()
    turn_until(shipper, lambda: shipper.is_idle)
    assert_arrived(model, journal.place)


def test_a_connection_cut_in_the_middle_of_a_frame_costs_nothing(
    new_journal: NewJournal,
    new_shipper: Callable[..., Shipper],
    start_server: Callable[..., Any],
    new_relay: Callable[[int], Relay],
    model: Any,
) -> None:
    """Cut after ever more bytes, in greetings and in batches; in the end everything is there once."""
    journal = new_journal()
    journal.write(20, size=700, mark="")
    journal.end()
    relay = new_relay(start_server().port)
    shipper = new_shipper(f"http://127.0.0.1:{relay.port}")
    for limit in (50, 300, 450, 520, 700, 1500, 2000):
        relay.cut_after_bytes = limit
        before = shipper.health.num_failures
        turn_until(shipper, lambda before=before: shipper.health.num_failures > before)
    relay.cut_after_bytes = None
    turn_until(shipper, lambda: shipper.is_idle)
    assert_arrived(model, journal.place)
    assert relay.num_connections > 7


def test_a_half_open_connection_is_left(
    new_journal: NewJournal,
    new_shipper: Callable[..., Shipper],
    start_server: Callable[..., Any],
    new_relay: Callable[[int], Relay],
    model: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing comes back, not even an error: unanswered pings end it, and a new connection brings the rest."""
    monkeypatch.setattr(transport, "PING_INTERVAL_S", 0.1)
    monkeypatch.setattr(transport, "PING_TIMEOUT_S", 0.1)
    monkeypatch.setattr(transport, "CLOSE_TIMEOUT_S", 0.1)
    journal = new_journal()
    journal.write(10)
    relay = new_relay(start_server().port)
    shipper = new_shipper(f"http://127.0.0.1:{relay.port}", follow=True)
    turn_until(shipper, lambda: model.streams and model.streams["run1", "ab"].next == 12)
    relay.silent = True
    journal.write(10)
    turn_until(shipper, lambda: shipper.health.num_failures > 0)
    relay.silent = False
    journal.end()
    turn_until(shipper, lambda: shipper.is_idle)
    assert_arrived(model, journal.place)


def test_a_slow_server_is_waited_for(
    new_journal: NewJournal, new_shipper: Callable[..., Shipper], start_server: Callable[..., Any], model: Any
) -> None:
    """No more than the window is sent ahead of its acknowledgements, and nothing is sent twice."""
    journal = new_journal()
    journal.write(3000, size=1000)
    journal.end()
    answer, waiting = model.answer, threading.Event()

    def slowly(frame: Any) -> Any:
        waiting.wait(0.05)
        return answer(frame)

    model.answer = slowly
    shipper = new_shipper(start_server().url)
    turn_until(shipper, lambda: shipper.is_idle)
    assert_arrived(model, journal.place)
    assert shipper.tally.num_records == 3003
    assert shipper.health.num_connected == 1


def test_where_websockets_are_refused_the_same_frames_go_by_post(
    new_journal: NewJournal, new_shipper: Callable[..., Shipper], start_server: Callable[..., Any], model: Any
) -> None:
    """Found out by itself; the result is the same."""
    journal = new_journal()
    journal.write(500, size=1000)
    server = start_server(websockets=False, token="secret")
    shipper = new_shipper(server.url, token="secret", follow=True)
    turn_until(shipper, lambda: model.streams and model.streams["run1", "ab"].next == 502)
    assert isinstance(shipper._transport, HttpTransport)
    journal.end()
    turn_until(shipper, lambda: shipper.is_idle)
    assert_arrived(model, journal.place)
    assert model.streams["run1", "ab"].ended == "ended"


@pytest.mark.parametrize("websockets", [True, False])
def test_a_wrong_token_is_told_and_a_right_one_is_found_later(
    new_journal: NewJournal,
    directory: Path,
    start_server: Callable[..., Any],
    model: Any,
    websockets: bool,
) -> None:
    """Without a restart of the sender: the token is looked up anew for each connection."""
    journal = new_journal()
    journal.end()
    server = start_server(websockets=websockets, token="right")
    tokens = ["wrong"]
    shipper = Shipper(
        directory, lambda: Endpoint(url=server.url, token=tokens[-1]), wants=lambda place, info: True, follow=False
    )
    turn_until(shipper, lambda: shipper.health.state == "unauthorized")
    assert server.url in shipper.health.message
    tokens.append("right")
    turn_until(shipper, lambda: shipper.is_idle)
    shipper.close()
    assert_arrived(model, journal.place)


def test_a_deleted_run_is_not_sent_again(
    new_journal: NewJournal, new_shipper: Callable[..., Shipper], start_server: Callable[..., Any], model: Any
) -> None:
    """Neither by this sender nor by the next; another run goes on."""
    journals = [new_journal("run1"), new_journal("run2")]
    server = start_server()
    shipper = new_shipper(server.url, follow=True)
    turn_until(shipper, lambda: len(model.streams) == 2 and all(s.next == 2 for s in model.streams.values()))
    model.deleted.add("run1")
    for journal in journals:
        journal.write(5)
    turn_until(shipper, lambda: len(shipper.tally.gone) == 1 and model.streams["run2", "ab"].next == 7)
    assert model.streams["run1", "ab"].next == 2
    shipper.close()
    second = new_shipper(server.url, follow=True)
    turn_until(second, lambda: second.num_outboxes == 1 and second.health.state == "connected")
    assert second.tally.gone == {journals[0].place}


def test_a_refused_record_does_not_hold_up_the_stream(
    new_journal: NewJournal, new_shipper: Callable[..., Shipper], start_server: Callable[..., Any], model: Any
) -> None:
    """It is found by halving, and a Lost takes its place."""
    journal = new_journal()
    journal.write(5)
    journal.write(1, mark="!")
    journal.write(5)
    journal.end()
    model.refuses = lambda payload: b"!!" in payload
    shipper = new_shipper(start_server().url)
    turn_until(shipper, lambda: shipper.is_idle)
    found, wanted = model.streams["run1", "ab"].records, list(read_stream(journal.place))
    assert [a for a, b in zip(found, wanted, strict=True) if a != b] == [found[7]]
    assert "refused by the server" in found[7][1].reason


def test_two_senders_of_one_copy_fence_each_other_and_both_come_to_an_end(
    new_journal: NewJournal, start_server: Callable[..., Any], model: Any, directory: Path, tmp_path: Path
) -> None:
    """The digest decides: the copies are the same, so there is one stream, and each record in it once."""
    journal = new_journal()
    journal.write(400, size=2000)
    journal.end()
    shutil.copytree(directory, tmp_path / "copy")
    url = start_server().url
    shippers = [
        Shipper(place, lambda: Endpoint(url=url), wants=lambda place, info: True, follow=True)
        for place in (directory, tmp_path / "copy")
    ]
    deadline_s = time.monotonic() + 30
    while not all(shipper.is_idle for shipper in shippers):
        assert time.monotonic() < deadline_s
        for shipper in shippers:
            shipper.turn(0.01)
    for shipper in shippers:
        shipper.close()
    assert list(model.streams) == [("run1", "ab")]
    assert_arrived(model, journal.place)


def test_a_stream_that_somebody_else_ships_is_left_alone(
    new_journal: NewJournal, new_shipper: Callable[..., Shipper], start_server: Callable[..., Any], model: Any
) -> None:
    """Until its ship lock is free."""
    journal = new_journal()
    journal.end()
    first, second = (new_shipper(start_server().url) for _ in range(2))
    first.look()
    second.look()
    assert (first.num_outboxes, second.num_outboxes) == (1, 0)
    assert second.is_idle
    assert second.tally.busy == {journal.place}
    turn_until(first, lambda: first.is_idle)
    assert_arrived(model, journal.place)


def test_a_journal_that_cannot_be_read_does_not_hold_up_the_others(
    new_journal: NewJournal,
    new_shipper: Callable[..., Shipper],
    start_server: Callable[..., Any],
    model: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk that fails under one; it is looked at again later, and comes then."""
    broken, sound = new_journal("run1"), new_journal("run2")
    now_s = [0.0]
    shipper = new_shipper(start_server().url, follow=True)
    shipper._clock_s = lambda: now_s[0] + time.monotonic()
    turn_until(shipper, lambda: len(model.streams) == 2 and all(s.next == 2 for s in model.streams.values()))
    opened = reader_module.os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(broken.place.path)):
            raise OSError(5, "Input/output error")
        return opened(descriptor, size, offset)

    monkeypatch.setattr(reader_module.os, "pread", failing)
    for journal in (broken, sound):
        journal.write(3)
        journal.end()
    turn_until(shipper, lambda: shipper.is_idle)
    assert model.streams["run2", "ab"].next == 6
    assert model.streams["run1", "ab"].next == 2
    monkeypatch.undo()
    now_s[0] = ship_module.LOOK_AGAIN_S
    turn_until(shipper, lambda: model.streams["run1", "ab"].next == 6)
    assert_arrived(model, broken.place, sound.place)


def test_an_address_that_is_none_is_told_and_may_be_mended(directory: Path, new_journal: NewJournal) -> None:
    """A bad HALFSCOPE_SERVER does not end the sender."""
    new_journal()

    def bad() -> Endpoint:
        raise ValueError("'x' is no server address")

    shipper = Shipper(directory, bad, wants=lambda place, info: True, follow=True)
    shipper.turn(0.0)
    assert shipper.health.state == "unreachable"
    assert "no server address" in shipper.health.message


def test_frames_of_a_later_kind_are_passed_over(
    start_server: Callable[..., Any], model: Any, wait_until: Callable[..., None]
) -> None:
    """A newer server may say more than this agent knows; rubbish ends the connection."""
    server = start_server()
    model.answer = lambda frame: []
    connection = WebsocketTransport(Endpoint(url=server.url), 5.0)
    connection.send([Hello("run1", "ab", StreamInfo())])
    wait_until(lambda: server._connections)
    (peer,) = server._connections
    peer.send(msgspec.msgpack.encode(["telepathy", 1, 2]))
    assert connection.receive(0.2) == []
    peer.send(msgspec.msgpack.encode(["welcome", 1, 2]))
    with pytest.raises(transport.TransportError, match=r"something else than halfscope\.v1"):
        connection.receive(5.0)
    connection.close()


def points(step: int, time_us: int, values: Sequence[float]) -> bytes:
    """The last of three rows is the step's; the second series has a value there alone."""
    steps, times = struct.pack("<3q", step - 2, step - 1, step), struct.pack("<3q", 1, 2, time_us)
    columns = [Column(0, struct.pack("<3d", 7.0, 8.0, values[0])), Column(1, struct.pack("<d", values[1]), b"\2\0\0\0")]
    return encode(Points(steps, times, columns))


def test_while_a_backlog_is_sent_the_newest_step_is_told(
    new_journal: NewJournal, new_shipper: Callable[..., Shipper], start_server: Callable[..., Any], model: Any
) -> None:
    """Of a training that goes on, before the backlog has come; not of one that ended an hour ago, nor of one that is
    current. A half written record behind it is no news."""
    now_us = time.time_ns() // 1000
    for run_id, age_us, num_records in (("new", 0, 60), ("old", 3_600_000_000, 60), ("short", 0, 1)):
        journal = new_journal(run_id)
        journal.write(num_records, size=60_000, mark="")
        journal.writer.append([points(500, now_us - age_us, [math.inf, -0.0])])
        with journal.place.segment(0).open("ab") as file:
            file.write(segment.pack(999, points(501, now_us, [1.0, 1.0]))[:-3])
    shipper = new_shipper(start_server().url, follow=True)
    turn_until(shipper, lambda: sum(stream.next for stream in model.streams.values()) == 3 * 3 + 60 + 60 + 1)
    assert {(live.run_id, live.stream, live.step, live.time_us) for _, live in model.lives} == {
        ("new", "ab", 500, now_us)
    }
    num_before, live = model.lives[0]
    assert num_before < model.num_batches
    assert struct.pack("<2d", live.values[0], live.values[1]) == struct.pack("<2d", math.inf, -0.0)
