"""The two routes, with real sockets: a uvicorn on a free port, websockets and HTTP as agents use them."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from halfscope.wire.codec import MAX_FRAME_BYTES, decode_server_frame, encode
from halfscope.wire.messages import PROTOCOL, Ack, Bye, Refuse, ServerFrame, Welcome
from halfscope_server.errors import InvalidRequest, ServerError
from halfscope_server.ingest import WS_MAX_QUEUE, WS_MAX_SIZE_BYTES, Writer, make_router
from halfscope_server.ingest.router import join_frames, split_frames
from halfscope_server.store.records import series_id
from halfscope_server.store.store import Store
from starlette.requests import HTTPConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

Make = Callable[..., Any]
LOSS = series_id("loss", {})
TOKEN = {"Authorization": "Bearer good"}


def authenticate(connection: HTTPConnection) -> bool:
    return connection.headers.get("authorization") == "Bearer good"


@contextlib.contextmanager
def serving(app: FastAPI) -> Iterator[int]:
    """A uvicorn as the command line starts it, on a free port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        log_level="error",
        ws="websockets-sansio",
        ws_max_size=WS_MAX_SIZE_BYTES,
        ws_max_queue=WS_MAX_QUEUE,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    deadline_s = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    yield int(listener.getsockname()[1])
    server.should_exit = True
    thread.join()


@pytest.fixture
def port(writer: Writer) -> Iterator[int]:
    app = FastAPI()
    app.include_router(make_router(writer, authenticate, max_post_bytes=100_000))

    @app.exception_handler(ServerError)
    async def problem(_request: Request, error: ServerError) -> Response:
        return Response(str(error), status_code=error.status)

    with serving(app) as found:
        yield found


@contextlib.contextmanager
def agent(port: int) -> Iterator[ClientConnection]:
    with connect(
        f"ws://127.0.0.1:{port}/api/v1/agent",
        subprotocols=[Subprotocol(PROTOCOL)],
        additional_headers=TOKEN,
        compression=None,
        max_size=None,
    ) as connection:
        yield connection


def read(connection: ClientConnection) -> ServerFrame:
    data = connection.recv(timeout=30)
    assert isinstance(data, bytes)
    return decode_server_frame(data)


def read_until_ack(connection: ClientConnection, seq: int) -> None:
    while True:
        frame = read(connection)
        assert isinstance(frame, Ack | Welcome), frame
        if isinstance(frame, Ack) and frame.next >= seq:
            assert frame.next == seq
            return


def post(port: int, body: bytes, headers: dict[str, str] = TOKEN) -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        client.request("POST", "/api/v1/ingest", body, headers)
        response = client.getresponse()
        return response.status, response.read()
    finally:
        client.close()


def test_a_stream_over_a_websocket(port: int, make_feed: Make, file_store: Store) -> None:
    """Greeting, welcome, batches, acks; the data is there when it is acknowledged."""
    feed = make_feed()
    with agent(port) as connection:
        assert connection.subprotocol == PROTOCOL
        connection.send(encode(feed.hello()))
        assert read(connection) == Welcome(*feed.key, 1, 0, bytes(16))
        connection.send(encode(feed.begin()))
        for step in range(20):
            connection.send(encode(feed.step(step)))
        read_until_ack(connection, 22)
        assert file_store.points(feed.run_id, LOSS).value.tolist() == list(range(20))


def test_a_newer_connection_takes_a_stream_over(port: int, make_feed: Make, file_store: Store) -> None:
    """The older one is fenced at its next batch; what both sent is there once."""
    old, new = make_feed(), make_feed()
    with agent(port) as first, agent(port) as second:
        first.send(encode(old.hello()))
        read(first)
        first.send(encode(old.begin()))
        read_until_ack(first, 2)
        second.send(encode(new.hello()))
        welcome = read(second)
        assert isinstance(welcome, Welcome)
        assert (welcome.epoch, welcome.next, welcome.digest) == (2, 2, old.digest)
        new.epoch, new.next, new.digest = 2, 2, old.digest
        first.send(encode(old.step(1)))
        said = read(first)
        assert isinstance(said, Refuse)
        assert said.code == "fenced"
        second.send(encode(new.step(1)))
        read_until_ack(second, 3)
    assert file_store.points(old.run_id, LOSS).value.tolist() == [1.0]


def test_many_streams_share_a_connection(port: int, make_feed: Make, file_store: Store) -> None:
    """A node's sender ships those of all of its ranks."""
    feeds = [make_feed(stream=f"{at:02x}") for at in range(8)]
    with agent(port) as connection:
        for feed in feeds:
            connection.send(encode(feed.hello()))
        assert {frame.stream for frame in (read(connection) for _ in feeds) if isinstance(frame, Welcome)} == {
            feed.stream for feed in feeds
        }
        for feed in feeds:
            connection.send(encode(feed.begin()))
            connection.send(encode(feed.step(int(feed.stream, 16))))
        left = {feed.stream for feed in feeds}
        while left:
            frame = read(connection)
            assert isinstance(frame, Ack)
            if frame.next == 3:
                left.discard(frame.stream)
    assert file_store.points(feeds[0].run_id, LOSS).value.tolist() == list(range(8))


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer bad"}], ids=["no token", "wrong token"])
def test_strangers_are_turned_away(port: int, headers: dict[str, str]) -> None:
    """Before a websocket is opened, and before a body is read."""
    with (
        pytest.raises(InvalidStatus, match="403"),
        connect(f"ws://127.0.0.1:{port}/api/v1/agent", additional_headers=headers),
    ):
        pass
    status, body = post(port, b"", headers)
    assert status == 401
    assert b"halfscope login" in body


@pytest.mark.parametrize("data", [b"garbage", "text"], ids=["garbage", "text"])
def test_what_is_no_frame_closes_the_connection(port: int, data: bytes | str) -> None:
    """With the reason as its last frame where the client speaks binary at all."""
    with agent(port) as connection:
        connection.send(data)
        if isinstance(data, bytes):
            said = read(connection)
            assert isinstance(said, Refuse)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1002


def test_a_frame_above_the_limit_closes_the_connection(port: int, make_feed: Make) -> None:
    """The server does not buffer it; a client that is still sending may see a reset instead of the reason."""
    with agent(port) as connection:
        with contextlib.suppress(ConnectionClosed):
            connection.send(bytes(MAX_FRAME_BYTES + 1))
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=30)
    assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
    with agent(port) as connection:
        connection.send(encode(make_feed().hello()))
        assert isinstance(read(connection), Welcome)


def test_a_sender_that_does_not_wait_is_slowed_down(
    port: int, writer: Writer, make_feed: Make, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a window of a few frames, hundreds sent at once are read as they are committed, and all arrive."""
    monkeypatch.setattr("halfscope.wire.server_session.WINDOW_BYTES", 1000)
    monkeypatch.setattr("halfscope_server.ingest.writer.QUEUE_BYTES", 2000)
    feed = make_feed()
    deepest = 0
    with agent(port) as connection:
        connection.send(encode(feed.hello()))
        read(connection)
        connection.send(encode(feed.begin()))
        for step in range(300):
            connection.send(encode(feed.step(step)))
            deepest = max(deepest, writer.metrics().queue_bytes)
        read_until_ack(connection, 302)
    assert deepest < 3000
    assert file_store.points(feed.run_id, LOSS).value.tolist() == list(range(300))


def test_an_open_connection_holds_its_streams(port: int, writer: Writer, make_feed: Make, wait_until: Make) -> None:
    """As long as it is open; then it lets them go."""
    feed = make_feed()
    with agent(port) as connection:
        connection.send(encode(feed.hello()))
        read(connection)
        wait_until(lambda: writer._held == {feed.key: 1})
    wait_until(lambda: not writer._held)


def test_a_stopping_writer_closes_connections(port: int, writer: Writer, make_feed: Make) -> None:
    """Going away: the agent comes back later, and an HTTP one is told the same."""
    feed = make_feed()
    with agent(port) as connection:
        connection.send(encode(feed.hello()))
        read(connection)
        writer.stop()
        connection.send(encode(feed.begin()))
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
    assert post(port, join_frames([encode(feed.hello())]))[0] == 503


def test_a_stream_over_http(port: int, writer: Writer, make_feed: Make, file_store: Store) -> None:
    """Each request is answered when its frames are committed; nothing is held in between."""
    feed = make_feed()
    status, body = post(port, join_frames([encode(feed.hello())]))
    assert (status, [decode_server_frame(frame) for frame in split_frames(body)]) == (
        200,
        [Welcome(*feed.key, 1, 0, bytes(16))],
    )
    frames = [feed.begin(), feed.step(1), feed.step(2), Bye(*feed.key, "ended")]
    status, body = post(port, join_frames(encode(frame) for frame in frames))
    assert (status, [decode_server_frame(frame) for frame in split_frames(body)]) == (200, [Ack(*feed.key, 4, 1)])
    assert file_store.points(feed.run_id, LOSS).value.tolist() == [1.0, 2.0]
    assert not writer._held


def test_an_empty_post_is_answered_with_nothing(port: int) -> None:
    """An agent finds out by it whether anybody takes frames here."""
    assert post(port, b"") == (200, b"")


@pytest.mark.parametrize("body", [b"\x05", b"\x05\x00\x00\x00abcd", b"\xff\xff\xff\xff"])
def test_a_body_that_ends_inside_a_frame_is_refused(port: int, body: bytes) -> None:
    """Nothing of it is taken."""
    status, text = post(port, body)
    assert status == 422
    assert b"ends inside a frame" in text


def test_a_frame_in_a_post_that_is_none_is_refused_with_the_rest_unread(
    port: int, make_feed: Make, file_store: Store
) -> None:
    """What came before it was taken and is answered."""
    feed = make_feed()
    frames = [encode(feed.hello()), b"garbage", encode(feed.begin())]
    status, body = post(port, join_frames(frames))
    said = [decode_server_frame(frame) for frame in split_frames(body)]
    assert status == 200
    assert any(isinstance(frame, Refuse) for frame in said)
    assert file_store.list_runs() == []


def test_a_body_above_the_limit_is_refused(port: int) -> None:
    """While it is read, not after."""
    assert post(port, bytes(100_001))[0] == 413


def test_frames_of_a_body_are_split_as_they_were_joined() -> None:
    """Empty ones included."""
    frames = [b"", b"a", b"bc" * 1000]
    assert split_frames(join_frames(frames)) == frames
    with pytest.raises(InvalidRequest):
        split_frames(join_frames(frames)[:-1])
