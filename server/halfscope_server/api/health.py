"""`/healthz` for proxies and containers, `/metrics` for Prometheus.

Must not import sqlalchemy. Invariant: healthy means a write would succeed now, and a scrape costs the same however many
runs there are: only the newest `MAX_RUNS` have gauges of their own.
"""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from halfscope_server.api.models import ServerHealth
from halfscope_server.api.services import ServicesNow
from halfscope_server.errors import Unavailable

router = APIRouter(tags=["health"])


@router.get("/healthz", responses={503: {"model": ServerHealth}})
@router.head("/healthz", include_in_schema=False)
def health(response: Response, services: ServicesNow) -> ServerHealth:
    """Whether the server can take in data right now."""
    try:
        # Forgetting a session nobody has takes the write lock and writes nothing.
        services.store.delete_session("healthz")
        database = "ok"
    except Unavailable as error:
        database = str(error)
    writer = "ok" if services.writer.is_alive else "stopped; restart the server, its log has the reason"
    ok = database == writer == "ok"
    if not ok:
        response.status_code = 503
    # Anybody may ask here: what ails a database (its address, its disk) is for those who are signed in, and for the
    # log.
    return ServerHealth(ok=ok, database=database if database == "ok" else "unavailable", writer=writer)


@router.get("/metrics", include_in_schema=False)
def metrics(services: ServicesNow) -> Response:
    """Counters and gauges in Prometheus' text format."""
    return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)
