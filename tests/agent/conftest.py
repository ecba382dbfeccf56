"""A small model of a server, in memory, and the same behind a websocket and HTTP: what the agent's side is tested
against.

The model is an independent reading of the protocol: it recomputes digests and refuses whatever does not continue a
stream.
"""

from __future__ import annotations

import hashlib
import math
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from halfscope.sketch import Sketch
from halfscope.wire.codec import decode_agent_frame, decode_record, encode, unpack_body
from halfscope.wire.messages import (
    Ack,
    AgentFrame,
    Batch,
    Bye,
    Gone,
    Hello,
    Live,
    Lost,
    Record,
    Refuse,
    ServerFrame,
    Welcome,
)
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

Key = tuple[str, str]


@dataclass
class StoredStream:
    """What the model keeps of one stream."""

    hello: Hello
    epoch: int = 0
    next: int = 0
    digest: bytes = bytes(16)
    payloads: list[tuple[int, bytes]] = field(default_factory=list)
    """(seq, record)"""
    ended: str = ""

    @property
    def records(self) -> list[tuple[int, Record]]:
        return [(seq, decode_record(payload)) for seq, payload in self.payloads]


class ServerModel:
    """Exactly once by compare-and-set on (epoch, next), as the wire promises it."""

    def __init__(self) -> None:
        self.streams: dict[Key, StoredStream] = {}
        self.deleted: set[str] = set()
        self.lock = threading.Lock()
        self.refuses: Callable[[bytes], bool] = lambda payload: False
        """Records that this server will not take."""
        self.num_batches = 0
        self.lives: list[tuple[int, Live]] = []
        """What is not stored, and how many batches had come before it."""

    def answer(self, frame: AgentFrame) -> list[ServerFrame]:
        with self.lock:
            if isinstance(frame, Hello):
                return [self._hello(frame)]
            if isinstance(frame, Batch):
                return [self._batch(frame)]
            if isinstance(frame, Bye):
                self.streams[frame.run_id, frame.stream].ended = frame.outcome
            if isinstance(frame, Live):
                self.lives.append((self.num_batches, frame))
            return []

    def _hello(self, hello: Hello) -> ServerFrame:
        if hello.run_id in self.deleted:
            return Gone(hello.run_id)
        key = hello.run_id, hello.stream
        stream = self.streams.setdefault(key, StoredStream(hello, next=hello.first_seq))
        stream.epoch += 1
        return Welcome(hello.run_id, hello.stream, stream.epoch, stream.next, stream.digest)

    def _batch(self, batch: Batch) -> ServerFrame:
        if batch.run_id in self.deleted:
            return Gone(batch.run_id)
        stream = self.streams[batch.run_id, batch.stream]
        names = {"run_id": batch.run_id, "stream": batch.stream}
        if batch.epoch != stream.epoch:
            return Refuse("fenced", "a newer connection writes this stream", **names)
        if batch.first != stream.next:
            return Refuse("bad_batch", f"begins at {batch.first}, expected {stream.next}", **names)
        payloads = [bytes(payload) for payload in unpack_body(batch.body, batch.raw_bytes)]
        digest = stream.digest
        for payload in payloads:
            digest = hashlib.blake2b(digest + payload, digest_size=16).digest()
        if len(payloads) != batch.count:
            (only,) = payloads
            lost = decode_record(only)
            assert isinstance(lost, Lost)
            assert (lost.first_seq, lost.last_seq) == (batch.first, batch.first + batch.count - 1)
        assert digest == batch.digest, "the digest is not the chain over what was sent"
        if any(self.refuses(payload) for payload in payloads):
            return Refuse("bad_batch", "a record that this server cannot read", **names)
        stream.payloads += [(batch.first + index, payload) for index, payload in enumerate(payloads)]
        stream.next, stream.digest = batch.first + batch.count, digest
        self.num_batches += 1
        return Ack(batch.run_id, batch.stream, stream.next, stream.epoch)


class NetworkServer:
    """A `ServerModel` on a port of 127.0.0.1, by websocket; with `websockets=False` by HTTP alone."""

    def __init__(self, model: ServerModel, *, port: int = 0, token: str = "", websockets: bool = True) -> None:
        self.model = model
        self._token = token
        self._connections: set[ServerConnection] = set()
        self._server = (
            serve(
                self._talk,
                "127.0.0.1",
                port,
                subprotocols=[Subprotocol("halfscope.v1")],
                process_request=self._check,
                max_size=1 << 23,
                compression=None,
            )
            if websockets
            else ThreadingHTTPServer(("127.0.0.1", port), self._http_handler())
        )
        self.port = int(self._server.socket.getsockname()[1])
        poll = () if websockets else (0.02,)
        self._thread = threading.Thread(target=self._server.serve_forever, args=poll, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break every connection as a crash would: no close handshake."""
        for connection in list(self._connections):
            _reset(connection.socket)

    def stop(self) -> None:
        self.cut()
        self._server.shutdown()
        if isinstance(self._server, ThreadingHTTPServer):
            self._server.server_close()
        self._thread.join(5)

    def _check(self, _connection: ServerConnection, request: Request) -> Response | None:
        if self._token and request.headers.get("Authorization") != f"Bearer {self._token}":
            return Response(401, "Unauthorized", Headers())
        return None

    def _talk(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        try:
            for message in connection:
                assert isinstance(message, bytes)
                for frame in self.model.answer(decode_agent_frame(message)):
                    connection.send(encode(frame))
        except (ConnectionClosed, OSError):
            pass
        finally:
            self._connections.discard(connection)

    def _http_handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if server._token and self.headers.get("Authorization") != f"Bearer {server._token}":
                    self.send_response(401)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answers = [encode(answer) for frame in _split(body) for answer in server.model.answer(frame)]
                data = b"".join(struct.pack("<I", len(answer)) + answer for answer in answers)
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                self.send_response(426)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                pass

        return Handler


def _split(body: bytes) -> Iterator[AgentFrame]:
    at = 0
    while at < len(body):
        (size,) = struct.unpack_from("<I", body, at)
        yield decode_agent_frame(body[at + 4 : at + 4 + size])
        at += 4 + size


def _reset(connection: socket.socket) -> None:
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


@pytest.fixture
def model() -> ServerModel:
    """A server in memory."""
    return ServerModel()


@pytest.fixture
def start_server(model: ServerModel) -> Iterator[Callable[..., NetworkServer]]:
    """Puts the model on a port; stopped in the end."""
    servers: list[NetworkServer] = []

    def start(**arguments: object) -> NetworkServer:
        server = NetworkServer(model, **arguments)  # type: ignore[arg-type]
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


@dataclass
class PlainSketch:
    """What a sketch of some values must hold: element by element with `math.frexp`, in Python's own float64."""

    n: int = 0
    zeros: int = 0
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0
    finite: list[float] = field(default_factory=list)
    bins: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Iterable[float]) -> PlainSketch:
        found = cls()
        for value in values:
            found.n += 1
            if math.isnan(value):
                found.nan += 1
            elif math.isinf(value):
                found.pos_inf += value > 0
                found.neg_inf += value < 0
            else:
                found.finite.append(value)
                if value == 0:
                    found.zeros += 1
                else:
                    exponent = math.frexp(value)[1] - 1
                    found.bins[exponent] = found.bins.get(exponent, 0) + 1
        return found


def _assert_is_sketch_of(sketch: Sketch, values: Iterable[float], *, rel: float = 1e-12) -> None:
    expected = PlainSketch.of(values)
    assert sketch.shape == ()
    for name in ("n", "zeros", "nan", "pos_inf", "neg_inf"):
        assert getattr(sketch, name) == getattr(expected, name), name
        assert getattr(sketch, name).dtype == np.int64
    assert sketch.counts.dtype == np.int64
    bins = {sketch.lowest + int(at): int(sketch.counts[at]) for at in np.flatnonzero(sketch.counts)}
    assert bins == expected.bins
    magnitudes = [abs(value) for value in expected.finite if value]
    assert sketch.absmax == max(magnitudes, default=0.0)
    assert sketch.absmin_nonzero == min(magnitudes, default=math.inf)
    for found, parts in ((sketch.sum, expected.finite), (sketch.sumsq, [value * value for value in expected.finite])):
        if max(map(abs, parts), default=0.0) < 1e300 / len(parts or "1"):
            total = math.fsum(parts)
            assert abs(float(found) - total) <= rel * math.fsum(map(abs, parts)), (found, total)


@pytest.fixture(scope="session")
def assert_is_sketch_of() -> Callable[..., None]:
    """Compares a sketch with an independent one of the same values: counts, bins and extremes exactly, sums as closely
    as float64 adds up (`rel`)."""
    return _assert_is_sketch_of
