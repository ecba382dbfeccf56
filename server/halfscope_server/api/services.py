"""What the routes work with: one frozen bundle that app.py puts together, instead of a bag of attributes.

Must not import app or cli. Invariant: a route reaches nothing but these; so a test can compose a server out of the real
parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from halfscope_server.api.auth import Authenticator
from halfscope_server.api.metrics import Metrics
from halfscope_server.compare.comparison import Comparisons
from halfscope_server.query.view import Views
from halfscope_server.ranks.reports import Ranks
from halfscope_server.settings import Settings

if TYPE_CHECKING:
    # Only as types: describing the API (openapi.py) needs neither a database nor a hub.
    from halfscope_server.alerts.delivery import Delivery
    from halfscope_server.alerts.service import AlertService
    from halfscope_server.ingest.writer import Writer
    from halfscope_server.live import Hub
    from halfscope_server.ranks.service import RankService
    from halfscope_server.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of a running server."""

    settings: Settings
    store: Store
    views: Views
    """The newest picture of each run, shared by requests and the live hub."""
    comparisons: Comparisons
    """Likewise of runs beside each other."""
    ranks: Ranks
    """Likewise of what is said of a run's ranks."""
    judges: RankService
    hub: Hub
    writer: Writer
    alerts: AlertService
    delivery: Delivery
    authenticator: Authenticator
    metrics: Metrics
    web_directory: Path
    """The web app's files, as they are served."""


def get_services(connection: HTTPConnection) -> Services:
    """The bundle of the app that answers this request or websocket."""
    services = connection.app.state.services
    assert isinstance(services, Services)
    return services


ServicesNow = Annotated[Services, Depends(get_services)]
