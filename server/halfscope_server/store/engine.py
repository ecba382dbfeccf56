"""Connections to the database: one that writes, a pool that only reads, and migrations at opening.

Owns everything that differs between SQLite and PostgreSQL in how a connection is made. Must not import the other store
modules but the schema. Invariant: at most one writing transaction is open in this process, and on SQLite at most one
process writes a file at all (a lock beside it), because SQLite before 3.51.3 can corrupt a WAL that two connections
write or checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, StaticPool

from halfscope_server.errors import Unavailable
from halfscope_server.store.schema import REVISION

if os.name == "posix":
    import fcntl

MIGRATION_LOCK = 0x68616C66
"""PostgreSQL advisory lock held while migrating, so that replicas started together migrate once."""
CHECKPOINT_PAGES = 4000
"""WAL pages (16 MB) between checkpoints: each checkpoint syncs the database file, and the default of 1,000 costs a
fifth of the commits."""
JOURNAL_LIMIT_BYTES = 64 * 1024 * 1024
"""To which the WAL is cut back after a long read has kept it from being reset."""
BUSY_TIMEOUT_S = 10
"""How long a statement waits for a lock of another process."""
NUM_READERS = 8
"""Reading connections kept open; as many again are opened under load."""


class Database:
    """One database: `writing()` and `reading()` are the only ways to a connection.

    Args:
        url: `sqlite:////absolute/path.db` or `postgresql://user:password@host/name`.
        read_only: never write, not even a migration; for commands that look at the database of a running server.

    Raises:
        ValueError: the URL is none of these.
        Unavailable: the database is held by another server, cannot be reached, or was made by a newer halfscope.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.url = _normalised(url)
        self.dialect: Literal["sqlite", "postgresql"] = (
            "sqlite" if self.url.get_backend_name() == "sqlite" else "postgresql"
        )
        self._read_only = read_only
        self._lock = threading.Lock()
        self._lock_file: IO[bytes] | None = None
        self._writer: sa.Engine | None = None
        try:
            if self.dialect == "sqlite":
                self._open_sqlite(Path(str(self.url.database)))
            else:
                self._open_postgresql()
            self._migrate()
        except ModuleNotFoundError as error:
            raise Unavailable(
                f"PostgreSQL needs {error.name}; install it: pip install 'halfscope[postgres]'"
            ) from error
        except sa.exc.OperationalError as error:
            self.close()
            raise Unavailable(
                f"the database {self.url!r} cannot be opened: {error.orig}; "
                "check that it is there and that this user may use it"
            ) from error
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """The writing connection inside a transaction: committed at the end, rolled back on any exception."""
        if self._writer is None:
            raise Unavailable("this store was opened to read only")
        with self._lock, self._writer.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A reading connection inside one snapshot."""
        with self._reader.connect() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def apart(self) -> Iterator[sa.Connection]:
        """A connection to PostgreSQL outside the pools, for LISTEN and NOTIFY. What it commits does not wait for the
        disk."""
        options = {"options": "-c synchronous_commit=off", "connect_timeout": BUSY_TIMEOUT_S}
        engine = sa.create_engine(self.url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=options)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()

    def close(self) -> None:
        """Close all connections, the writing one last: on SQLite it then checkpoints and removes the WAL."""
        if hasattr(self, "_reader"):
            self._reader.dispose()
        if self._writer is not None:
            with self._lock:
                self._writer.dispose()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _open_sqlite(self, path: Path) -> None:
        if not self._read_only:
            self._take_file(path)
            self._writer = _sqlite_engine(self.url, writes=True)
        elif not path.exists():
            raise Unavailable(f"there is no database {path}; start `halfscope serve` once, or check the path")
        self._reader = _sqlite_engine(self.url, writes=False)

    def _take_file(self, path: Path) -> None:
        """Make the file readable by its owner alone, and hold its lock until `close`."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._lock_file = open(  # noqa: SIM115  (held until close)
                os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600), "rb+"
            )
        except OSError as error:
            raise Unavailable(
                f"the database {path} cannot be written: {error}; check the folder's owner and the disk"
            ) from error
        if os.name == "posix":
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                self._lock_file.close()
                self._lock_file = None
                raise Unavailable(
                    f"the database {path} is in use by another halfscope server; stop that one, "
                    "or serve from PostgreSQL (--database-url), which takes any number of servers"
                ) from error

    def _open_postgresql(self) -> None:
        options: dict[str, Any] = {
            "pool_pre_ping": True,
            "connect_args": {"options": "-c synchronous_commit=on", "connect_timeout": BUSY_TIMEOUT_S},
        }
        if not self._read_only:
            self._writer = sa.create_engine(self.url, pool_size=1, max_overflow=0, **options)
        reader = sa.create_engine(self.url, pool_size=NUM_READERS, max_overflow=NUM_READERS, **options)
        self._reader = reader.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def _migrate(self) -> None:
        if self._read_only:
            with self.reading() as connection:
                if _revision(connection) != REVISION:
                    raise Unavailable(
                        "the database is of another halfscope version; start this version's `halfscope serve` once"
                    )
            return
        with self.writing() as connection:
            if self.dialect == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
            if _revision(connection) == REVISION:
                return
            from halfscope_server.store.migrations import upgrade

            upgrade(connection)


def _normalised(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError as error:
        raise ValueError(
            "the database URL cannot be read; expected sqlite:////absolute/path.db or postgresql://host/name"
        ) from error
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed.set(drivername="sqlite")
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    raise ValueError(
        f"the database URL names {backend} {parsed.database or ''}; expected sqlite:////absolute/path.db or postgresql://host/name"
    )


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _sqlite_engine(url: sa.URL, *, writes: bool) -> sa.Engine:
    # isolation_level None leaves BEGIN to us: the driver would begin before INSERT only, and a SELECT would see no
    # fixed snapshot.
    options: dict[str, Any] = {
        "connect_args": {"check_same_thread": False, "isolation_level": None, "timeout": BUSY_TIMEOUT_S}
    }
    if writes:
        engine = sa.create_engine(url, poolclass=StaticPool, **options)
    else:
        engine = sa.create_engine(url, pool_size=NUM_READERS, max_overflow=NUM_READERS, **options)

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: object) -> None:
        # mmap_size 0: a truncated file under a memory map kills the process instead of raising.
        connection.execute("PRAGMA mmap_size=0")
        if writes:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit={JOURNAL_LIMIT_BYTES}")
        else:
            connection.execute("PRAGMA wal_autocheckpoint=0")
            connection.execute("PRAGMA query_only=ON")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
