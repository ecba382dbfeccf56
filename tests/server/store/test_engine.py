"""Opening databases: who may write, what is set up, which revision is found."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from halfscope.wire.messages import Layer, Layers
from halfscope_server.errors import Unavailable
from halfscope_server.store import schema
from halfscope_server.store.engine import Database
from halfscope_server.store.migrations import configuration
from halfscope_server.store.store import Store


def test_migrations_make_exactly_the_tables_of_the_schema(store_url: str) -> None:
    """Autogenerate finds nothing to change after the migrations, on both dialects."""
    database = Database(store_url)
    with database.writing() as connection:
        found = compare_metadata(MigrationContext.configure(connection), schema.metadata)
    database.close()
    assert found == []


def test_the_revision_in_the_code_is_the_newest_migration() -> None:
    """Otherwise an up-to-date database would be migrated again at each start, or an old one not at all."""
    assert ScriptDirectory.from_config(configuration()).get_heads() == [schema.REVISION]


def test_the_first_migration_can_be_taken_back(store_url: str) -> None:
    """Downgrading leaves no table but Alembic's own."""
    from alembic import command

    database = Database(store_url)
    with database.writing() as connection:
        config = configuration()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        left = sa.inspect(connection).get_table_names()
    database.close()
    assert left == ["alembic_version"]


def test_a_database_of_the_first_revision_is_brought_up_to_date(
    store_url: str, make_sender: Callable[..., Any], make_points: Callable[..., Any]
) -> None:
    """What it holds stays, merged and not, and it takes layers from then on."""
    from alembic import command

    store = Store.open(store_url)
    sender = make_sender()
    sender.greet(store)
    store.commit([sender.begin("loss"), sender.batch(make_points([1, 2], {0: [0.5, 0.25]}))], now_us=1)
    store.compact(now_us=10**15, budget_s=60)
    store.commit([sender.batch(make_points([3], {0: [0.125]}))], now_us=1)
    store.close()
    database = Database(store_url)
    with database.writing() as connection:
        config = configuration()
        config.attributes["connection"] = connection
        command.downgrade(config, "r0001")
        assert "tile" not in sa.inspect(connection).get_table_names()
    database.close()
    store = Store.open(store_url)
    (series,) = store.series(sender.run_id)
    assert store.points(sender.run_id, series.series_id).value.tolist() == [0.5, 0.25, 0.125]
    assert not store.commit([sender.batch(Layers([Layer(0, "head.weight")]))], now_us=2).refused
    assert [row.name for row in store.layers(sender.run_id)] == ["head.weight"]
    store.close()


def test_a_database_of_a_newer_version_is_refused(store_url: str) -> None:
    """A revision that this code does not know must not be written to."""
    database = Database(store_url)
    with database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'r9999'"))
    database.close()
    with pytest.raises(Unavailable, match=r"newer halfscope.*upgrade"):
        Store.open(store_url)


def test_a_second_server_on_one_sqlite_file_is_refused(sqlite_url: str) -> None:
    """Two writers of one WAL can corrupt it, so the file has a lock; closing gives it back."""
    first = Store.open(sqlite_url)
    with pytest.raises(Unavailable, match="in use by another halfscope server"):
        Store.open(sqlite_url)
    first.close()
    Store.open(sqlite_url).close()


def test_a_reader_may_open_what_a_server_holds_and_cannot_write(sqlite_url: str) -> None:
    """Commands look at the database while a server runs."""
    server = Store.open(sqlite_url)
    reader = Store.open(sqlite_url, read_only=True)
    assert reader.list_runs() == []
    with pytest.raises(Unavailable, match="opened to read only"):
        reader.rename_run("r", "other")
    reader.close()
    server.close()


def test_a_reader_of_no_database_is_told_what_to_do(tmp_path: Path) -> None:
    """Reading makes no file."""
    with pytest.raises(Unavailable, match="start `halfscope serve` once"):
        Store.open(f"sqlite:///{tmp_path}/none.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Measurements and session hashes are nobody else's business."""
    path = tmp_path / "folder" / "new.db"
    Store.open(f"sqlite:///{path}").close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_sqlite_writes_durably_and_reads_cannot_write(sqlite_url: str) -> None:
    """synchronous FULL, WAL, no memory map; a reading connection refuses to write."""
    database = Database(sqlite_url)
    with database.writing() as connection:
        read = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("synchronous", "mmap_size")}
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    assert read == {"synchronous": 2, "mmap_size": 0}
    with database.reading() as connection, pytest.raises(sa.exc.OperationalError, match="readonly"):
        connection.execute(sa.delete(schema.run))
    database.close()


def test_postgresql_commits_synchronously_and_reads_one_snapshot(postgres_url: str) -> None:
    """A read sees nothing that was committed after it began, and cannot write."""
    database = Database(postgres_url)
    token = {"token_hash": "h", "name": "n", "created_us": 1}
    with database.reading() as reader:
        assert reader.execute(sa.select(sa.func.count()).select_from(schema.token)).scalar_one() == 0
        with database.writing() as writer:
            assert writer.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
            writer.execute(sa.insert(schema.token).values(token))
        assert reader.execute(sa.select(sa.func.count()).select_from(schema.token)).scalar_one() == 0
        with pytest.raises(sa.exc.InternalError, match="read-only"):
            reader.execute(sa.delete(schema.token))
    database.close()


def test_an_exception_undoes_a_write(store_url: str) -> None:
    """`writing` commits at its end only."""
    database = Database(store_url)
    row = {"token_hash": "h", "name": "n", "created_us": 1}
    with pytest.raises(sa.exc.IntegrityError), database.writing() as connection:
        connection.execute(sa.insert(schema.token), [row | {"token_hash": "g"}, row, row])
    with database.reading() as connection:
        assert connection.execute(sa.select(schema.token)).all() == []
    database.close()


def test_one_writing_transaction_at_a_time(sqlite_url: str) -> None:
    """Routes that rename a run wait for the group commit that is going on."""
    database = Database(sqlite_url)
    order: list[str] = []

    def second() -> None:
        with database.writing():
            order.append("second")

    with database.writing():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join()
    database.close()
    assert order == ["first", "second"]


@pytest.mark.parametrize(
    "url", ["", "mysql://host/name", "sqlite://", "sqlite:///:memory:", "not a url"], ids=lambda url: url or "empty"
)
def test_other_urls_are_refused_with_what_is_expected(url: str) -> None:
    """The message shows the two forms that work."""
    with pytest.raises(ValueError, match=r"expected sqlite:////absolute/path\.db or postgresql://host/name"):
        Store.open(url)


def test_an_unreachable_server_is_told_without_its_password() -> None:
    """The URL in the message is masked."""
    with pytest.raises(Unavailable, match="cannot be opened") as caught:
        Store.open("postgresql://someone:secret@127.0.0.1:1/none")
    assert "secret" not in str(caught.value)


def test_postgresql_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is an extra."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable, match=r"pip install 'halfscope\[postgres\]'"):
        Store.open("postgresql://someone@127.0.0.1:1/none")
