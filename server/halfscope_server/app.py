"""The server put together: store, ingest, live hub, routes, guard, web app. Composes only.

Must not hold logic of any part. Invariant: what `opened` opened is closed in reverse order, whatever happened in
between: the writer commits what it took in before the store goes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from halfscope_server import openapi
from halfscope_server.alerts.backtest import baseline_of
from halfscope_server.alerts.delivery import Delivery
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.service import AlertService
from halfscope_server.api import routers, web
from halfscope_server.api.auth import Authenticator
from halfscope_server.api.boundary import Boundary
from halfscope_server.api.guard import Guard, is_authentic
from halfscope_server.api.hosts import HostPolicy
from halfscope_server.api.metrics import Metrics
from halfscope_server.api.problems import install
from halfscope_server.api.services import Services
from halfscope_server.compare.comparison import Comparisons
from halfscope_server.ingest.router import make_router
from halfscope_server.ingest.writer import Writer
from halfscope_server.live import Hub
from halfscope_server.query.view import Views
from halfscope_server.ranks.reports import Ranks
from halfscope_server.ranks.service import RankService
from halfscope_server.settings import Settings
from halfscope_server.store.store import Store
from halfscope_server.store.types import Applied

GZIP_MIN_BYTES = 1000
GZIP_LEVEL = 4
"""Level 9 takes 20 times as long on base64 arrays and makes them no smaller."""


@contextmanager
def opened(settings: Settings) -> Iterator[Services]:
    """The parts of a server, running until the block is left.

    Raises:
        ValueError: a setting that cannot be used.
        Unavailable: the database cannot be opened.
    """
    with ExitStack() as stack:
        web_directory = stack.enter_context(web.prepared(settings.web_directory, settings.root_path))
        store = Store.open(settings.database)
        stack.callback(store.close)
        views = Views(store)
        comparisons = Comparisons(views)
        ranks = Ranks(store)
        hub = Hub(store, views, comparisons, ranks)
        reach = Reach.allowed(private=settings.alert_allow_private, networks=settings.alert_allow_networks)
        delivery = Delivery(store.alerts, reach)
        delivery.start()
        stack.callback(delivery.stop)
        alerts = AlertService(
            store,
            on_episodes=lambda _rows: hub.alerts_changed(),
            on_notices=delivery.poke,
            baseline=baseline_of(views),
            base_url=settings.public_url.rstrip("/"),
            stall_s=settings.stall_s,
        )
        alerts.start()
        stack.callback(alerts.stop)

        def tell_found(applied: list[Applied]) -> None:
            hub.notify(applied)
            alerts.notify(applied)

        judges = RankService(store, ranks, tell=tell_found)
        judges.start()
        stack.callback(judges.stop)

        def hear(run_ids: frozenset[str]) -> None:
            alerts.changed(run_ids)
            judges.changed(run_ids)
            for run_id in run_ids:
                hub.changed(run_id)

        def tell(applied: list[Applied]) -> None:
            tell_found(applied)
            judges.notify(applied)

        store.listen(hear)
        writer = Writer(store, tell, on_live=hub.live, lost_contact_s=settings.lost_contact_s)
        writer.start()
        stack.callback(writer.stop)
        authenticator = Authenticator(store, code_s=settings.sign_in_code_s, session_s=settings.session_s)
        services = Services(
            settings=settings,
            store=store,
            views=views,
            comparisons=comparisons,
            ranks=ranks,
            judges=judges,
            hub=hub,
            writer=writer,
            alerts=alerts,
            delivery=delivery,
            authenticator=authenticator,
            metrics=Metrics(),
            web_directory=web_directory,
        )
        services.metrics.watch(services)
        yield services


def create_app(services: Services) -> FastAPI:
    """The ASGI app over the parts of a server."""
    settings, authenticator = services.settings, services.authenticator

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await services.hub.close()

    app = routers.describe(lifespan)
    app.state.services = services
    app.openapi = lambda: openapi.document(app)  # type: ignore[method-assign]
    app.include_router(make_router(services.writer, lambda connection: is_authentic(connection, authenticator)))
    app.include_router(routers.unknown)
    app.frontend("/", directory=services.web_directory, fallback="index.html")
    install(app)
    # The last one added is the outermost.
    app.add_middleware(GZipMiddleware, minimum_size=GZIP_MIN_BYTES, compresslevel=GZIP_LEVEL)
    policy = HostPolicy(bound=settings.host, allow_hosts=settings.allow_hosts)
    app.add_middleware(Guard, routes=app.router.routes, policy=policy, authenticator=authenticator)
    app.add_middleware(
        Boundary,
        root_path=settings.root_path,
        max_body_bytes=settings.max_body_bytes,
        max_ingest_body_bytes=settings.max_ingest_body_bytes,
        count_error=services.metrics.errors.inc,
    )
    return app
