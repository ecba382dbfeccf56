"""The server's side of a connection: what it passes on, what it refuses, in which order it answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from halfscope.wire import server_session
from halfscope.wire.codec import MAX_FRAME_BYTES, decode_server_frame, encode
from halfscope.wire.errors import SequenceError
from halfscope.wire.messages import (
    Ack,
    AgentFrame,
    Batch,
    Bye,
    Command,
    Gone,
    Hello,
    Live,
    Refuse,
    ServerFrame,
    StreamInfo,
    Welcome,
)
from halfscope.wire.server_session import ServerSession
from hypothesis import given
from hypothesis import strategies as st

KEY = ("0123456789abcdef", "00ff")
BATCH = Batch(*KEY, 1, 0, 1, bytes(16), 3, b"abc")
FRAMES: list[AgentFrame] = [Hello(*KEY, StreamInfo()), BATCH, Live(*KEY, 1, 1, {0: 1.0}), Bye(*KEY, "ended")]


def sent(session: ServerSession) -> list[ServerFrame]:
    return [decode_server_frame(data) for data in session.data_to_send()]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_good_frames_are_passed_on(frame: AgentFrame) -> None:
    """Nothing is answered before the writer has spoken."""
    session = ServerSession()
    assert session.receive(encode(frame)) == frame
    assert sent(session) == []


@pytest.mark.parametrize(
    "data",
    [b"", b"garbage", encode(Ack(*KEY, 1)), encode(FRAMES[0])[:-1], b"\x91" * 100_000],
    ids=["nothing", "garbage", "a server's frame", "cut", "nested"],
)
def test_what_is_no_frame_ends_the_connection(data: bytes) -> None:
    """With a last word that says what was seen."""
    session = ServerSession()
    with pytest.raises(SequenceError):
        session.receive(data)
    (said,) = sent(session)
    assert isinstance(said, Refuse)
    assert (said.code, said.stream) == ("bad_batch", "")


def test_a_frame_above_the_limit_ends_the_connection() -> None:
    """Before it is decoded."""
    session = ServerSession()
    with pytest.raises(SequenceError):
        session.receive(bytes(MAX_FRAME_BYTES + 1))
    (said,) = sent(session)
    assert isinstance(said, Refuse)
    assert said.code == "too_large"


@given(data=st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    """Whatever comes in is a frame, a refusal, or the end of the connection."""
    session = ServerSession()
    try:
        frame = session.receive(data)
    except SequenceError:
        frame = None
    assert frame is not None or isinstance(sent(session)[0], Refuse)


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
@pytest.mark.parametrize(
    "bad", [{"run_id": "../etc"}, {"run_id": ""}, {"run_id": "A"}, {"stream": "xyz"}, {"stream": "a" * 65}]
)
def test_names_that_are_no_names_are_refused(frame: AgentFrame, bad: dict[str, str]) -> None:
    """The frame is not passed on and the connection goes on."""
    session = ServerSession()
    assert session.receive(encode(msgspec.structs.replace(frame, **bad))) is None
    (said,) = sent(session)
    assert isinstance(said, Refuse)
    assert said.code == "bad_batch"
    assert session.receive(encode(frame)) == frame


def test_versions_must_meet() -> None:
    """An agent that speaks a later version too is welcome; one that speaks only that is told which there are."""
    session = ServerSession()
    hello = Hello(*KEY, StreamInfo(), versions=[1, 2])
    assert session.receive(encode(hello)) == hello
    assert session.receive(encode(msgspec.structs.replace(hello, versions=[2, 3]))) is None
    (said,) = sent(session)
    assert isinstance(said, Refuse)
    assert (said.code, said.run_id, said.stream) == ("version", *KEY)
    assert "[2, 3]" in said.message


@pytest.mark.parametrize(
    "info",
    [
        {"rank": -1},
        {"rank": 2**40},
        {"world_size": 0},
        {"attempt": -1},
        {"attempt": 2**60},
        {"pid": -1},
        {"started_us": -1},
        {"host": "x" * 256},
        {"host": "a\x00b"},
        {"forked_from": "\x00"},
    ],
    ids=str,
)
def test_a_greeting_with_impossible_facts_is_refused(info: dict[str, Any]) -> None:
    """They would not fit the database."""
    session = ServerSession()
    assert session.receive(encode(Hello(*KEY, StreamInfo(**info)))) is None
    assert [said.code for said in sent(session) if isinstance(said, Refuse)] == ["bad_batch"]


def test_streams_of_a_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a greeting is put off, not forgotten."""
    monkeypatch.setattr(server_session, "MAX_STREAMS", 1)
    session = ServerSession()
    session.answer([Welcome(*KEY, 1, 0, bytes(16))])
    assert session.receive(encode(Hello("other", "01", StreamInfo()))) is None
    last = sent(session)[-1]
    assert isinstance(last, Refuse)
    assert (last.code, last.retry_after_s > 0) == ("busy", True)


def test_of_several_acks_of_a_stream_only_the_newest_is_sent() -> None:
    """In its place behind what was said before."""
    session = ServerSession()
    welcome, refuse = Welcome(*KEY, 1, 0, bytes(16)), Refuse("bad_batch", "", *KEY)
    session.answer([welcome, Ack(*KEY, 1), Ack("other", "01", 9)])
    session.answer([Ack(*KEY, 2), refuse])
    session.answer([Ack(*KEY, 3)])
    assert sent(session) == [welcome, Ack("other", "01", 9), refuse, Ack(*KEY, 3)]
    assert sent(session) == []


def test_granted_streams_are_known_until_lost() -> None:
    """Fenced or deleted, they are no longer this connection's."""
    session = ServerSession()
    keys = [(f"run{at}", "01") for at in range(4)]
    session.answer([Welcome(*key, at + 1, 0, bytes(16)) for at, key in enumerate(keys)])
    assert session.granted == {key: at + 1 for at, key in enumerate(keys)}
    session.answer(
        [Gone(*keys[0]), Refuse("fenced", "", *keys[1]), Refuse("busy", "", *keys[2]), Command("run3", "c", "stop")]
    )
    assert set(session.granted) == {keys[2], keys[3]}


def test_reading_stops_while_a_window_waits_for_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """So one connection cannot fill the memory."""
    data = encode(BATCH)
    monkeypatch.setattr(server_session, "WINDOW_BYTES", 2 * len(data))
    session = ServerSession()
    session.receive(data)
    assert session.has_room
    session.receive(data)
    assert not session.has_room
    session.answer([Ack(*KEY, 1)], num_bytes=len(data))
    assert session.has_room
