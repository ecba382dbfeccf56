"""The gate in front of every route: host, origin, then who is asking. Denies by default.

Must not know what the routes do. Invariant: a request that matches any route of the app, or is a websocket, or is no
plain read, is answered only with a good bearer token or session cookie; the exceptions stand in `PUBLIC`, and the web
app's static files (which hold no data) are what matches no route. So a new route is closed until somebody adds it here,
where a test counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from halfscope_server.api.auth import Authenticator
from halfscope_server.api.hosts import HostPolicy, split_host
from halfscope_server.api.problems import respond
from halfscope_server.errors import Forbidden, ServerError, Unauthorized

PUBLIC = frozenset({("POST", "/api/v1/session"), ("GET", "/healthz"), ("HEAD", "/healthz")})
"""(method, path) that answer anybody: trading a code for a session, and the health check of proxies and containers."""

_READS = frozenset({"GET", "HEAD"})


def cookie_name(scope: Scope) -> str:
    """Name of the session cookie: browsers keep one jar for all ports of a name, so the port they see is part of it."""
    try:
        _, port = split_host(HTTPConnection(scope).headers.get("host", ""))
    except ValueError:
        port = None
    return f"halfscope_session_{port or 'default'}"


def session_cookie(scope: Scope) -> str | None:
    """The secret that this browser's cookie holds."""
    return HTTPConnection(scope).cookies.get(cookie_name(scope))


def bearer_token(connection: HTTPConnection) -> str | None:
    """The token of an `Authorization: Bearer` header."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def is_authentic(connection: HTTPConnection, authenticator: Authenticator) -> bool:
    """Whether the token, or else the cookie, of a request is good. A wrong token is not helped by a good cookie."""
    token = bearer_token(connection)
    if token is not None:
        return authenticator.is_token(token)
    # Browsers send Origin with every websocket and state change; a cookie without it comes from something that is no
    # browser page.
    if _changes_state(connection.scope) and "origin" not in connection.headers:
        return False
    secret = session_cookie(connection.scope)
    return secret is not None and authenticator.session_expiry(secret) is not None


def route_path(scope: Scope) -> str:
    """The path below the root path, as the router sees it."""
    path, root = scope["path"], scope.get("root_path", "")
    return path[len(root) :] or "/" if root and (path == root or path.startswith(root + "/")) else str(path)


class Guard:
    """ASGI middleware.

    Args:
        app: what is guarded.
        routes: every route besides the web app's static files.
        policy: judges Host and Origin.
        authenticator: knows the tokens and sessions.
    """

    def __init__(
        self, app: ASGIApp, *, routes: Sequence[BaseRoute], policy: HostPolicy, authenticator: Authenticator
    ) -> None:
        self._app = app
        self._routes = routes
        self._policy = policy
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            connection = HTTPConnection(scope)
            self._check_host(connection)
            self._check_origin(connection)
            if not self._is_public(scope) and not await run_in_threadpool(
                is_authentic, connection, self._authenticator
            ):
                raise Unauthorized(
                    "not signed in. In a browser open the link that `halfscope open` prints; an agent or script sends "
                    "`Authorization: Bearer TOKEN` (HALFSCOPE_TOKEN, or `halfscope login URL`)"
                )
        except ServerError as error:
            await refuse(error, scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_host(self, connection: HTTPConnection) -> None:
        hosts = connection.headers.getlist("host")
        if len(hosts) != 1 or not self._policy.allows_host(hosts[0]):
            seen = repr(hosts[0][:100]) if len(hosts) == 1 else f"{len(hosts)} Host headers"
            raise Forbidden(
                f"the request is for {seen}, which is not a name of this server; allow it with: "
                "halfscope serve --allow-host NAME"
            )

    def _check_origin(self, connection: HTTPConnection) -> None:
        if not _changes_state(connection.scope):
            return
        origins = connection.headers.getlist("origin")
        if origins and not (len(origins) == 1 and self._policy.allows_origin(origins[0], connection.headers["host"])):
            raise Forbidden(
                f"a page of {origins[0][:100]!r} may not do this here; behind a proxy that rewrites Host, allow its "
                "name with: halfscope serve --allow-host NAME"
            )

    def _is_public(self, scope: Scope) -> bool:
        if scope["type"] == "websocket":
            return False
        if (scope["method"], route_path(scope)) in PUBLIC:
            return True
        # The router's own matching decides, so that no spelling of a path is a route to the one and a file to the
        # other.
        matched = any(route.matches(dict(scope))[0] is not Match.NONE for route in self._routes)
        return scope["method"] in _READS and not matched


def _changes_state(scope: Scope) -> bool:
    return scope["type"] == "websocket" or scope["method"] not in _READS


async def refuse(error: ServerError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with a `Problem`; a websocket gets it in place of the handshake, or is closed where the server cannot."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        return
    request_id = scope.get("state", {}).get("request_id", "")
    await respond(error, request_id=request_id)(scope, receive, send)
