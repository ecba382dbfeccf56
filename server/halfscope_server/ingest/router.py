"""Where agents connect: the websocket `/api/v1/agent`, and `POST /api/v1/ingest` where websockets are blocked.

Owns the movement of bytes between sockets and the writer. Must not decode records or touch the store. Invariant:
memory is bounded: a connection is read from only while less than its window waits for a commit and the writer's queue
has room.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import struct
from collections.abc import Callable, Iterable, Sequence

from fastapi import APIRouter, Request, Response, WebSocket
from halfscope.wire.codec import MAX_FRAME_BYTES
from halfscope.wire.errors import SequenceError
from halfscope.wire.messages import PROTOCOL, ServerFrame
from halfscope.wire.server_session import Key, ServerSession
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from halfscope_server.errors import InvalidRequest, TooLarge, Unauthorized, Unavailable
from halfscope_server.ingest.writer import Writer

WS_MAX_SIZE_BYTES = MAX_FRAME_BYTES
"""For uvicorn's `ws_max_size`; its default of 16 MiB times a queue of 32 lets one connection hold 512 MiB."""
WS_MAX_QUEUE = 4
"""For uvicorn's `ws_max_queue`."""
MAX_POST_BYTES = 32 * 1024 * 1024
POST_TIMEOUT_S = 45.0
"""How long a POST waits for its commits; agents give up after 60 s."""
CLOSE_PROTOCOL_ERROR = 1002
CLOSE_GOING_AWAY = 1001

Authenticate = Callable[[HTTPConnection], bool]

_LENGTH = struct.Struct("<I")


class _Mailbox:
    """Between one connection's task and the writer's thread: frames there, answers back."""

    def __init__(self, writer: Writer) -> None:
        self.session = ServerSession()
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._held: set[Key] = set()
        self._num_waiting = 0
        self._news = asyncio.Event()
        self._settled = asyncio.Event()

    def answer(self, frames: Sequence[ServerFrame], *, num_frames: int, num_bytes: int) -> None:
        """Called by the writer's thread."""
        self._in_loop(self._deliver, frames, num_frames, num_bytes)

    async def take(self, data: bytes) -> bool:
        """Take in one frame, waiting for room where there is none.

        Returns:
            False: the writer is stopping.

        Raises:
            SequenceError: no frame; the connection must be closed.
        """
        frame = self.session.receive(data)
        if frame is None:
            self._news.set()
            return True
        while not self._writer.submit(frame, len(data), self):
            if self._writer.is_stopping:
                return False
            room = asyncio.Event()
            self._writer.when_room(functools.partial(self._in_loop, room.set))
            await room.wait()
        self._num_waiting += 1
        while not self.session.has_room:
            await self._next_settled()
        return True

    async def news(self) -> list[bytes]:
        """Wait for frames to send."""
        await self._news.wait()
        self._news.clear()
        return self.session.data_to_send()

    async def all_settled(self) -> None:
        """Wait until everything taken in has been answered."""
        while self._num_waiting > 0:
            await self._next_settled()

    def close(self) -> None:
        """The connection is over: its streams no longer count as present."""
        for key in self._held:
            self._writer.release(key)
        self._held = set()
        self._is_open = False

    async def _next_settled(self) -> None:
        self._settled.clear()
        await self._settled.wait()

    def _in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there any more
            self._loop.call_soon_threadsafe(call, *arguments)

    def _deliver(self, frames: Sequence[ServerFrame], num_frames: int, num_bytes: int) -> None:
        self._num_waiting -= num_frames
        self.session.answer(frames, num_bytes=num_bytes)
        self._hold_granted()
        self._news.set()
        self._settled.set()

    def _hold_granted(self) -> None:
        granted = set(self.session.granted) if self._is_open else set()
        for key in granted - self._held:
            self._writer.hold(key)
        for key in self._held - granted:
            self._writer.release(key)
        self._held = granted


def make_router(writer: Writer, authenticate: Authenticate, *, max_post_bytes: int = MAX_POST_BYTES) -> APIRouter:
    """The two routes.

    Args:
        writer: started before the first request.
        authenticate: whether a request or websocket may send; asked, in a thread, before anything is read.
        max_post_bytes: largest body of a POST.
    """
    router = APIRouter()

    @router.websocket("/api/v1/agent")
    async def agent(websocket: WebSocket) -> None:
        if not await _is_allowed(authenticate, websocket):
            await websocket.close()  # before accept: the client sees 403
            return
        is_offered = PROTOCOL in websocket.scope.get("subprotocols", [])
        await websocket.accept(subprotocol=PROTOCOL if is_offered else None)
        await _serve(websocket, _Mailbox(writer))

    @router.post("/api/v1/ingest", include_in_schema=False)
    async def ingest(request: Request) -> Response:
        if not await _is_allowed(authenticate, request):
            raise Unauthorized("no token, or one nobody gave out; set HALFSCOPE_TOKEN, or run: halfscope login URL")
        frames = split_frames(await _body(request, max_post_bytes))
        answers = await _exchange(_Mailbox(writer), frames)
        return Response(join_frames(answers), media_type="application/octet-stream")

    return router


def split_frames(body: bytes) -> list[bytes]:
    """The frames of a POST, each behind its length (u32, little-endian).

    Raises:
        InvalidRequest: the lengths do not fill the body exactly.
    """
    frames = []
    at = 0
    while at < len(body):
        size = _LENGTH.unpack_from(body, at)[0] if at + _LENGTH.size <= len(body) else -1
        at += _LENGTH.size
        if size < 0 or at + size > len(body):
            raise InvalidRequest("the body ends inside a frame; expected frames, each behind its length as uint32")
        frames.append(body[at : at + size])
        at += size
    return frames


def join_frames(frames: Iterable[bytes]) -> bytes:
    """Frames as the body of an answer; the reverse of `split_frames`."""
    return b"".join(part for frame in frames for part in (_LENGTH.pack(len(frame)), frame))


async def _is_allowed(authenticate: Authenticate, connection: HTTPConnection) -> bool:
    return await run_in_threadpool(authenticate, connection)


async def _serve(websocket: WebSocket, mailbox: _Mailbox) -> None:
    """One agent's websocket, until either side closes it."""
    sending = asyncio.create_task(_send(websocket, mailbox))
    code = None
    try:
        code = await _receive(websocket, mailbox)
    finally:
        mailbox.close()
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
    if code is not None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            for data in mailbox.session.data_to_send():
                await websocket.send_bytes(data)
            await websocket.close(code)


async def _receive(websocket: WebSocket, mailbox: _Mailbox) -> int | None:
    """Read frames until the agent goes (None), or has to be sent away (the close code)."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        data = message.get("bytes")
        try:
            if data is None:
                return CLOSE_PROTOCOL_ERROR
            if not await mailbox.take(data):
                return CLOSE_GOING_AWAY
        except SequenceError:
            return CLOSE_PROTOCOL_ERROR


async def _send(websocket: WebSocket, mailbox: _Mailbox) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the agent went; `_receive` sees it too
        while True:
            for data in await mailbox.news():
                await websocket.send_bytes(data)


async def _exchange(mailbox: _Mailbox, frames: Iterable[bytes]) -> list[bytes]:
    """Take in the frames of one POST and gather what is answered to them."""
    try:
        async with asyncio.timeout(POST_TIMEOUT_S):
            for frame in frames:
                if not await mailbox.take(frame):
                    raise Unavailable("the server is stopping; send again")
            await mailbox.all_settled()
    except SequenceError:
        pass  # the refusal is among the answers
    except TimeoutError:
        pass  # what is not acknowledged now is sent again
    finally:
        mailbox.close()
    return mailbox.session.data_to_send()


async def _body(request: Request, max_bytes: int) -> bytes:
    """A request's body, never more of it than allowed."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise TooLarge(f"a body of more than {max_bytes} bytes; send fewer frames at once")
    return bytes(body)
