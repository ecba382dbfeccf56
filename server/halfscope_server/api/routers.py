"""All routers of the API in one list, so that the app and the OpenAPI document cannot differ.

Must not import app. Invariant: a route that is not in here (and is no health or metrics route of app.py) is not served.
"""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from halfscope._version import __version__
from halfscope_server.api import events, export, panels, runs, server_info, session

ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    server_info.router,
    runs.router,
    panels.router,
    events.router,
    export.router,
)


def operation_id(route: APIRoute) -> str:
    """The function's name: what the generated client calls the operation."""
    return route.name


def describe() -> FastAPI:
    """An app that only describes: title, version and routes, without any service behind them."""
    app = FastAPI(
        title="halfscope",
        version=__version__,
        description="Numerical health of mixed-precision training: runs, panels, events, and the live websocket `/api/v1/live`.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    for router in ROUTERS:
        app.include_router(router)
    return app
