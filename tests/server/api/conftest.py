"""A server put together from its real parts, over a database in a temporary folder, and a run to look at."""

from __future__ import annotations

import math
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import routing
from halfscope.wire.messages import (
    Ack,
    AgentFrame,
    Column,
    Declare,
    End,
    Event,
    Facts,
    Points,
    Record,
    Series,
    ServerFrame,
    Start,
    StreamInfo,
)
from halfscope_server import app as application
from halfscope_server.api.routers import ROUTERS
from halfscope_server.api.services import Services
from halfscope_server.settings import Settings
from halfscope_server.store.store import Store
from starlette.testclient import TestClient

from tests.helpers.stream import Stream, from_body, to_body

TOKEN = "a-token-for-the-tests-of-this-server"
BASE = "http://127.0.0.1:65504"
RUN = "01hwtestrun00000"
START_US = 1_767_323_045_000_000
NUM_STEPS = 200
HOSTILE = "<img src=x onerror=alert(1)>"


NOW_US = START_US + NUM_STEPS * 100_000


INFO = StreamInfo(host="box", pid=1, started_us=START_US)


def record_run(store: Store, run_id: str, records: Sequence[Record], *, stream: str = "00aa00aa00aa00aa") -> None:
    """Commits records as an agent's journal would bring them."""
    sender = Stream(run_id, stream, INFO)
    sender.welcomed(store.grant(sender.hello(), now_us=NOW_US))
    assert not store.commit([sender.batch(*records)], now_us=NOW_US).refused


def send_run(client: TestClient, run_id: str, records: Sequence[Record], *, stream: str = "00aa00aa00aa00aa") -> None:
    """Sends records over `POST /api/v1/ingest`, as an agent does where websockets are blocked."""

    def exchange(frame: AgentFrame) -> list[ServerFrame]:
        response = client.post("/api/v1/ingest", content=to_body(frame))
        assert response.status_code == 200, response.text
        return from_body(response.content)

    sender = Stream(run_id, stream, INFO)
    sender.welcomed(*exchange(sender.hello()))
    batch = sender.batch(*records)
    (ack,) = exchange(batch)
    assert isinstance(ack, Ack)
    assert ack.next == batch.first + batch.count


def sample_records(*, name: str = "fp16-cnn", project: str = "digits", ended: bool = True) -> list[Record]:
    """200 steps: the scale halves at step 100 with a skip, the loss is NaN at step 100, infinite at 101; names with
    markup in them."""
    steps = list(range(NUM_STEPS))
    loss = [2.0 / (1 + step) for step in steps]
    loss[100], loss[101] = math.nan, math.inf
    scale = [65536.0 if step <= 100 else 32768.0 for step in steps]
    columns = [loss, scale, [0.1] * NUM_STEPS, [float(step) for step in steps]]
    records: list[Record] = [
        Start(START_US, project, name, {"lr": 0.1}, ["demo", "tiny"], {"torch": "2.13"}, 0, "0.1.0"),
        Declare(
            [
                Series(0, "loss"),
                Series(1, "amp.scale", "1", "state"),
                Series(2, "time.step_s", "s"),
                Series(3, f"val/{HOSTILE}"),
            ]
        ),
        Facts(START_US, {"precision": "FP16-AMP", "demo": True}),
        Points(
            struct.pack(f"<{NUM_STEPS}q", *steps),
            struct.pack(f"<{NUM_STEPS}q", *(START_US + step * 100_000 for step in steps)),
            [Column(sid, struct.pack(f"<{NUM_STEPS}d", *column)) for sid, column in enumerate(columns)],
        ),
        Event(
            "skip",
            100,
            START_US + 10_000_000,
            "info",
            [],
            {
                "class": "single",
                "scale": 65536.0,
                "scale_next": 32768.0,
                "nonfinite": [HOSTILE],
                "num_nonfinite": 1,
                "num_finite": 3,
            },
        ),
        Event("scale_backoff", 100, START_US + 10_000_000, "info", [], {"scale": 65536.0, "scale_next": 32768.0}),
    ]
    return [*records, End("finished", NUM_STEPS - 1, START_US + NUM_STEPS * 100_000)] if ended else records


def _prepare_routes_once() -> None:
    """FastAPI prepares each route anew for each app, by three hundred validators that take a fifth of a second: most of
    what a test here would cost. Which they are hangs on the routes alone, and those all apps have in common."""
    prepare = routing._IncludedRouter._build_effective_context
    common = {id(route) for router in ROUTERS for route in router.routes}
    prepared: dict[int, Any] = {}

    def prepare_once(self: Any, route: Any) -> Any:
        if id(route) not in common:
            return prepare(self, route)
        if id(route) not in prepared:
            prepared[id(route)] = prepare(self, route)
        return prepared[id(route)]

    routing._IncludedRouter._build_effective_context = prepare_once  # type: ignore[method-assign]


_prepare_routes_once()


@contextmanager
def serving(settings: Settings) -> Iterator[tuple[Services, TestClient]]:
    """A running app, and a client that has the token."""
    with application.opened(settings) as services:
        services.authenticator.admit_token(TOKEN, name="tests")
        app = application.create_app(services)
        with TestClient(app, base_url=BASE, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            yield services, client


@pytest.fixture
def token() -> str:
    """A bearer token that the server knows."""
    return TOKEN


@pytest.fixture(scope="session")
def opened() -> Callable[[Settings], AbstractContextManager[tuple[Services, TestClient]]]:
    """Opens a server with settings of the test's own."""
    return serving


@pytest.fixture(scope="session")
def record() -> Callable[..., None]:
    """`record_run`, and with it any records."""
    return record_run


@pytest.fixture(scope="session")
def send() -> Callable[..., None]:
    """`send_run`."""
    return send_run


@pytest.fixture(scope="session")
def make_records() -> Callable[..., list[Record]]:
    """`sample_records`."""
    return sample_records


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with all tables, to copy: migrating costs more than most tests here."""
    database = tmp_path_factory.mktemp("migrated") / "halfscope.db"
    Store.open(f"sqlite:///{database}").close()
    return database


@pytest.fixture
def settings(tmp_path: Path, migrated: Path) -> Settings:
    """Of a server with a home of its own."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(migrated, home / "halfscope.db")
    return Settings(home=home)


@pytest.fixture
def running(settings: Settings) -> Iterator[tuple[Services, TestClient]]:
    """An empty server."""
    with serving(settings) as parts:
        yield parts


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server with one recorded run, shared by the tests of a module that change nothing."""
    with serving(Settings(home=tmp_path_factory.mktemp("home"))) as (services, client):
        record_run(services.store, RUN, sample_records())
        yield client


@pytest.fixture
def services(running: tuple[Services, TestClient]) -> Services:
    return running[0]


@pytest.fixture
def client(running: tuple[Services, TestClient]) -> TestClient:
    return running[1]


@pytest.fixture
def stranger(client: TestClient) -> TestClient:
    """A client without credentials, of the same server."""
    return TestClient(client.app, base_url=BASE)


@pytest.fixture
def run_id(services: Services) -> str:
    """A recorded run."""
    record_run(services.store, RUN, sample_records())
    return RUN
