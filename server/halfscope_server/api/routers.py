"""All routers of the API in one list, so that the app and the OpenAPI document cannot differ.

Must not import app. Invariant: a route that is not in here (and is no health or metrics route of app.py) is not served.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from halfscope._version import __version__

from halfscope_server.api import (
    alerts,
    channels,
    compare,
    events,
    export,
    health,
    layers,
    live,
    panels,
    ranks,
    rules,
    runs,
    server_info,
    session,
    tokens,
)
from halfscope_server.errors import NotFound

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    server_info.router,
    runs.router,
    layers.router,
    panels.router,
    compare.router,
    ranks.router,
    events.router,
    export.router,
    alerts.router,
    rules.router,
    channels.router,
    health.router,
    live.router,
    tokens.router,
)

unknown = APIRouter()
"""Goes in last: what is below /api and no route is an error in our shape, not the web app's start page."""


@unknown.api_route(
    "/api/{rest:path}", methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], include_in_schema=False
)
def unknown_path(request: Request) -> None:
    """There is nothing here."""
    raise NotFound(
        f"{request.method} {request.url.path}: there is no such route; the OpenAPI document lists those there are"
    )


def operation_id(route: APIRoute) -> str:
    """The function's name: what the generated client calls the operation."""
    return route.name


def describe(lifespan: Lifespan | None = None) -> FastAPI:
    """An app that only describes: title, version and routes, without any service behind them."""
    app = FastAPI(
        title="halfscope",
        version=__version__,
        description="Numerical health of mixed-precision training: runs, panels, events, and the live websocket "
        "`/api/v1/live`, whose messages are `ClientMessage` and `ServerMessage`.",
        lifespan=lifespan,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    for router in ROUTERS:
        app.include_router(router)
    return app
