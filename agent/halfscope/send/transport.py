"""Frames over a websocket, or over `POST /api/v1/ingest` where websockets are blocked.

Owns sockets and TLS; knows nothing of streams. Must not import torch or numpy. Invariant: whatever goes wrong below
comes out as a `TransportError`, after which the transport is only good for closing.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import struct
import time
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any, Protocol
from urllib.error import HTTPError, URLError

import msgspec
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus, InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from halfscope.send.endpoint import Endpoint
from halfscope.wire.codec import MAX_FRAME_BYTES, decode_server_frame, encode
from halfscope.wire.errors import WireError
from halfscope.wire.messages import PROTOCOL, AgentFrame, ServerFrame

OPEN_TIMEOUT_S = 10.0
PING_INTERVAL_S = 10.0
PING_TIMEOUT_S = 20.0
"""A half-open connection is noticed after at most interval and timeout together."""
CLOSE_TIMEOUT_S = 2.0
POST_TIMEOUT_S = 60.0
MAX_POST_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 8 * 1024 * 1024

_KNOWN_KINDS = frozenset({"welcome", "ack", "gone", "refuse", "command"})
_LENGTH = struct.Struct("<I")


class TransportError(Exception):
    """The connection cannot be made, or is lost."""


class UnauthorizedError(TransportError):
    """The server does not take the token."""


class UpgradeRefusedError(TransportError):
    """Something answers, but no websocket: a proxy, an old gateway, a server without this endpoint."""


class Transport(Protocol):
    """A connection to one server."""

    def send(self, frames: Sequence[AgentFrame]) -> None: ...

    def receive(self, timeout_s: float) -> list[ServerFrame]:
        """Frames that are there, waiting for the first up to a timeout."""
        ...

    def close(self) -> None: ...


def open_transport(endpoint: Endpoint, *, timeout_s: float = OPEN_TIMEOUT_S) -> Transport:
    """A websocket to a server, or HTTP where it does not come about.

    Raises:
        UnauthorizedError: the token is missing or wrong.
        TransportError: nobody answers.
    """
    try:
        return WebsocketTransport(endpoint, timeout_s)
    except (UpgradeRefusedError, UnauthorizedError):
        # Also 401 and 403: a proxy that wants no websockets says the same as a server that wants another token.
        http = HttpTransport(endpoint)
        http.send([])  # finds out whether anybody takes frames there
        return http


class WebsocketTransport:
    """One frame per binary message; the library's thread answers and sends pings."""

    def __init__(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._stack = contextlib.ExitStack()
        self._connection = _enter(self._stack, endpoint, timeout_s)

    def send(self, frames: Sequence[AgentFrame]) -> None:
        try:
            for frame in frames:
                self._connection.send(encode(frame))
        except (WebSocketException, OSError) as error:
            raise TransportError(_reason(error)) from error

    def receive(self, timeout_s: float) -> list[ServerFrame]:
        frames: list[ServerFrame] = []
        while True:
            try:
                message = self._connection.recv(timeout=0 if frames else timeout_s)
            except TimeoutError:
                return frames
            except (WebSocketException, OSError) as error:
                if frames:
                    return frames  # the next call tells
                raise TransportError(_reason(error)) from error
            if isinstance(message, bytes):
                frames += _decoded(message)

    def close(self) -> None:
        self._stack.close()


class HttpTransport:
    """The same frames, length-prefixed in requests and answers; nothing is kept open in between."""

    def __init__(self, endpoint: Endpoint) -> None:
        handlers: list[urllib.request.BaseHandler] = [
            urllib.request.HTTPSHandler(context=tls_context()),
            _NoRedirects(),
        ]
        if endpoint.is_local:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)
        self._endpoint = endpoint
        self._received: list[ServerFrame] = []

    def send(self, frames: Sequence[AgentFrame]) -> None:
        body = bytearray()
        for frame in frames:
            data = encode(frame)
            if body and len(body) + len(data) > MAX_POST_BYTES:
                self._received += self._post(bytes(body))
                body.clear()
            body += _LENGTH.pack(len(data)) + data
        self._received += self._post(bytes(body))

    def receive(self, timeout_s: float) -> list[ServerFrame]:
        if not self._received and timeout_s > 0:
            time.sleep(timeout_s)
        received, self._received = self._received, []
        return received

    def close(self) -> None:
        self._received = []

    def _post(self, body: bytes) -> list[ServerFrame]:
        request = urllib.request.Request(
            self._endpoint.ingest_url, data=body, method="POST", headers={"Content-Type": "application/octet-stream"}
        )
        for name, value in _authorization(self._endpoint).items():
            request.add_unredirected_header(name, value)
        try:
            with self._opener.open(request, timeout=POST_TIMEOUT_S) as response:
                answer = response.read(MAX_ANSWER_BYTES + 1)
        except HTTPError as error:
            with error:
                if error.code in (401, 403):
                    raise UnauthorizedError(f"{self._endpoint.url} answered {error.code} to the token") from error
                raise TransportError(f"{self._endpoint.ingest_url} answered {error.code} {error.reason}") from error
        except (URLError, HTTPException, OSError) as error:
            raise TransportError(_reason(error)) from error
        if len(answer) > MAX_ANSWER_BYTES:
            raise TransportError(f"an answer of more than {MAX_ANSWER_BYTES} bytes from {self._endpoint.ingest_url}")
        return _split(answer)


def tls_context(environ: Mapping[str, str] | None = None) -> ssl.SSLContext:
    """Certificate authorities as the environment has them.

    SSL_CERT_FILE and SSL_CERT_DIR are read by OpenSSL itself; REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE are what tools use.
    """
    environ = os.environ if environ is None else environ
    context = ssl.create_default_context()
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        path = environ.get(variable, "")
        if path and os.path.exists(path):
            context.load_verify_locations(**{"capath" if os.path.isdir(path) else "cafile": path})
    return context


def _enter(stack: contextlib.ExitStack, endpoint: Endpoint, timeout_s: float) -> ClientConnection:
    try:
        connection = connect(
            endpoint.websocket_url,
            subprotocols=[Subprotocol(PROTOCOL)],
            additional_headers=_authorization(endpoint),
            # Bodies are compressed already.
            compression=None,
            create_connection=_Connection,
            ssl=tls_context() if endpoint.websocket_url.startswith("wss:") else None,
            # A proxy of the environment is never for this machine itself.
            proxy=None if endpoint.is_local else True,
            open_timeout=timeout_s,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            max_size=MAX_FRAME_BYTES,
        )
        # Before version 17 of the library the first line connects, since then this one.
        return stack.enter_context(connection)
    except InvalidStatus as error:
        status = error.response.status_code
        if status in (401, 403):
            raise UnauthorizedError(f"{endpoint.url} answered {status} to the token") from error
        raise UpgradeRefusedError(f"{endpoint.websocket_url} answered {status}") from error
    except (InvalidHandshake, InvalidMessage) as error:
        raise UpgradeRefusedError(_reason(error)) from error
    except (WebSocketException, InvalidURI, ImportError, OSError) as error:
        # ImportError: a SOCKS proxy, for which the library wants a package that we do not bring.
        raise TransportError(_reason(error)) from error


class _Connection(ClientConnection):
    """Takes a redirect for a refusal: the library would follow it to another host, and show the token there."""

    def handshake(self, *arguments: Any, **named: Any) -> None:
        try:
            super().handshake(*arguments, **named)
        except InvalidStatus as error:
            if 300 <= error.response.status_code < 400:
                raise UpgradeRefusedError(f"a redirect ({error.response.status_code})") from error
            raise


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry measurements, and perhaps the token, to somebody the user did not name."""

    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


def _authorization(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}


def _split(data: bytes) -> list[ServerFrame]:
    frames: list[ServerFrame] = []
    at = 0
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise TransportError("the answer ends inside a length")
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + size > len(data):
            raise TransportError("the answer ends inside a frame")
        frames += _decoded(data[at : at + size])
        at += size
    return frames


def _decoded(data: bytes) -> list[ServerFrame]:
    try:
        return [decode_server_frame(data)]
    except WireError as error:
        if _is_of_later_kind(data):
            return []
        raise TransportError(f"the server sent something else than {PROTOCOL}: {error}") from error


def _is_of_later_kind(data: bytes) -> bool:
    """Whether a frame is one that a later version of the protocol has and we may pass over."""
    try:
        frame = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return False
    return isinstance(frame, list) and bool(frame) and isinstance(frame[0], str) and frame[0] not in _KNOWN_KINDS


def _reason(error: BaseException) -> str:
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    return str(error) or type(error).__name__
