"""The live websocket: `ClientMessage` in, `ServerMessage` out, both as JSON text.

Owns one connection's three tasks. Must not compute: the hub does, once for all viewers. Invariant: the next message is
taken from the hub only when the one before has gone out, so a slow viewer gets newer pictures instead of a queue of old
ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets

import anyio
import orjson
from fastapi import APIRouter, WebSocket, WebSocketDisconnect
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool

from halfscope_server.api.auth import Authenticator
from halfscope_server.api.guard import is_authentic
from halfscope_server.api.live_models import (
    ClientMessage,
    LiveError,
    Unwatch,
    WatchAlerts,
    WatchCompare,
    WatchRun,
    WatchRuns,
)
from halfscope_server.api.panels import part
from halfscope_server.api.services import ServicesNow
from halfscope_server.live import CompareRequest, Hub, Request, RunRequest, RunsRequest, Subscription

router = APIRouter()

MAX_MESSAGE_CHARS = 65_536
CLOSE_GOING_AWAY = 1001
CLOSE_TRY_AGAIN_LATER = 1013
CLOSE_SIGNED_OUT = 4401
"""After HTTP's 401: the page then goes to its sign-in page instead of trying again."""
SESSION_CHECK_S = 5.0
"""How long a page whose session ended elsewhere may go on seeing news."""

_client_message: TypeAdapter[WatchRuns | WatchRun | WatchCompare | WatchAlerts | Unwatch] = TypeAdapter(ClientMessage)


@router.websocket("/api/v1/live")
async def live(websocket: WebSocket, services: ServicesNow) -> None:
    """News of what this viewer watches, until it leaves."""
    await websocket.accept()
    hub: Hub = services.hub
    if hub.num_clients >= services.settings.max_live_clients:
        await websocket.close(CLOSE_TRY_AGAIN_LATER, "too many viewers; HALFSCOPE_MAX_LIVE_CLIENTS allows more")
        return
    connection = _Connection(websocket, hub.subscribe())
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.send)
            tasks.start_soon(connection.leave_with_session, services.authenticator)
            await connection.receive()
            tasks.cancel_scope.cancel()
    finally:
        connection.subscription.close()


class _Connection:
    """One viewer."""

    def __init__(self, websocket: WebSocket, subscription: Subscription) -> None:
        self.subscription = subscription
        self._websocket = websocket
        self._lock = asyncio.Lock()

    async def send(self) -> None:
        """Hands on what the hub has, for as long as the subscription lives."""
        # A viewer that has gone is noticed here or by receive, which then ends both.
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while messages := await self.subscription.next():
                for message in messages:
                    await self._put(orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY).decode())
            await self._websocket.close(CLOSE_GOING_AWAY, "the server is stopping")

    async def leave_with_session(self, authenticator: Authenticator) -> None:
        """Closes when whoever opened it may no longer look: the gate asks only once, at the opening."""
        while await run_in_threadpool(is_authentic, self._websocket, authenticator):
            await anyio.sleep(SESSION_CHECK_S)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._websocket.close(CLOSE_SIGNED_OUT, "signed out")

    async def receive(self) -> None:
        """Takes requests; one that cannot be understood is answered, and the one before stays."""
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            try:
                self._watch(message.get("text") or "")
            except ValueError as error:  # pydantic's ValidationError is one
                with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                    await self._put(_refusal(error).model_dump_json())

    def _watch(self, text: str) -> None:
        asked = _client_request(text)
        if isinstance(asked, WatchAlerts):
            self.subscription.watch_alerts()
        else:
            self.subscription.watch(asked)

    async def _put(self, text: str) -> None:
        async with self._lock:
            await self._websocket.send_text(text)


def _client_request(text: str) -> Request | WatchAlerts | None:
    if len(text) > MAX_MESSAGE_CHARS:
        raise ValueError(f"a message of {len(text)} characters; at most {MAX_MESSAGE_CHARS} are taken")
    match _client_message.validate_json(text):
        case WatchRuns():
            return RunsRequest()
        case WatchRun() as asked:
            return RunRequest(
                run=asked.run,
                panels=tuple(asked.panels),
                window=part(asked.window),
                strip_bins=asked.strip_bins,
                ranks=asked.ranks,
            )
        case WatchCompare() as asked:
            return CompareRequest(
                runs=tuple(asked.runs),
                panels=tuple(asked.panels),
                window=part(asked.window),
                options=asked.options.chosen(),
            )
        case WatchAlerts() as asked:
            return asked
        case Unwatch():
            return None


def _refusal(error: ValueError) -> LiveError:
    """What is wrong with a request, without what it held."""
    detail = str(error)
    if isinstance(error, ValidationError):
        detail = "; ".join(
            "{}: {}".format(".".join(map(str, item["loc"])) or "message", item["msg"]) for item in error.errors()
        )
    return LiveError(type="error", code="invalid", detail=detail, request_id=secrets.token_hex(8))
