"""The outermost layer: request ids, response headers, size limits, and the last place where an error can be caught.

Must not know routes or credentials. Invariant: every response, refusals and crashes included, carries the request id
and the security headers; no body longer than its limit is read; an unexpected error is logged with its id, counted, and
shown without its contents.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from halfscope_server.api.guard import refuse, route_path
from halfscope_server.errors import ServerError, TooLarge

logger = logging.getLogger(__name__)

INGEST_PATH = "/api/v1/ingest"

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # plotly sets style attributes on heatmaps; no <style> element is needed or allowed.
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Boundary:
    """ASGI middleware.

    Args:
        app: everything else.
        root_path: path under which a proxy publishes the server, or empty.
        max_body_bytes: limit of ordinary bodies.
        max_ingest_body_bytes: limit of `POST /api/v1/ingest`.
        count_error: called once per unexpected error.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int,
        max_ingest_body_bytes: int,
        count_error: Callable[[], None],
        root_path: str = "",
    ) -> None:
        self._app = app
        self._root_path = root_path
        self._max_body_bytes = max_body_bytes
        self._max_ingest_body_bytes = max_ingest_body_bytes
        self._count_error = count_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        _set_root_path(scope, self._root_path)
        path = route_path(scope)
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                started = True
                _add_headers(message, path, request_id)
            started = started or message["type"] in ("websocket.accept", "websocket.close")
            await send(message)

        limit = self._max_ingest_body_bytes if path == INGEST_PATH else self._max_body_bytes
        try:
            _check_declared_length(scope, limit)
            await self._app(scope, _limited(receive, limit), send_with_headers)
        except TooLarge as error:
            await refuse(error, scope, receive, send_with_headers)
        except Exception as error:
            self._count_error()
            logger.exception("request %s: %s %s failed", request_id, scope.get("method", "websocket"), path)
            if not started:
                text = f"the server failed with {type(error).__name__}; its log has the details under {request_id}"
                await refuse(ServerError(text), scope, receive, send_with_headers)


def _add_headers(message: Message, path: str, request_id: str) -> None:
    headers = MutableHeaders(scope=message)
    headers["X-Request-ID"] = request_id
    for name, value in SECURITY_HEADERS.items():
        headers[name] = value
    if "cache-control" not in headers:
        headers["Cache-Control"] = _caching(path, message["status"])


def _set_root_path(scope: Scope, root_path: str) -> None:
    """Some proxies strip the path under which they publish us, some do not: from here on it is always there."""
    if root_path:
        scope["root_path"] = root_path
        if scope["path"] != root_path and not scope["path"].startswith(root_path + "/"):
            scope["path"] = root_path + scope["path"]


def _caching(path: str, status: int) -> str:
    if path.startswith("/assets/") and status == 200:
        return "public, max-age=31536000, immutable"  # Vite writes a hash into these names
    return "no-store" if path.startswith("/api/") or path in ("/metrics", "/healthz") else "no-cache"


def _check_declared_length(scope: Scope, limit: int) -> None:
    declared = Headers(scope=scope).get("content-length", "0")
    if not declared.isdecimal() or int(declared) > limit:
        raise TooLarge(f"the body is {declared[:20]} bytes long; at most {limit} are taken here")


def _limited(receive: Receive, limit: int) -> Receive:
    """The same messages, until the bodies together are longer than the limit: what was declared need not be what
    comes."""
    seen = 0

    async def receive_limited() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > limit:
                # An HTTPException, because the framework turns any other error while it reads a body into a 400.
                raise HTTPException(413, f"the body is longer than {limit} bytes, the most that is taken here")
        return message

    return receive_limited
