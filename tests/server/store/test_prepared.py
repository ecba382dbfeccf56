"""The same SQL and values as by SQLAlchemy's own way, on both databases."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from halfscope_server.store import schema
from halfscope_server.store.prepared import Prepared, Query
from halfscope_server.store.store import Store

SEGMENTS = [
    {
        "run_id": "a",
        "attempt": 0,
        "stream": "01",
        "first_seq": 2**40 + at,
        "last_seq": 2**40 + at,
        "received_us": 2**55,
        "raw_bytes": at,
        "body": bytes([0, at, 255]),
    }
    for at in range(3)
]


def test_rows_are_inserted_and_counted_as_by_execute(store: Store) -> None:
    """Big numbers and bytes with NUL arrive as they are."""
    table = schema.segment
    with store._database.writing() as connection:
        assert Prepared(sa.insert(table)).run(connection, SEGMENTS) == len(SEGMENTS)
        held = [dict(row._mapping) for row in connection.execute(sa.select(table).order_by(table.c.first_seq))]
        assert held == SEGMENTS
        connection.execute(sa.delete(table))
        connection.execute(sa.insert(table), SEGMENTS)
        again = [dict(row._mapping) for row in connection.execute(sa.select(table).order_by(table.c.first_seq))]
        assert again == held


def test_an_update_says_how_many_rows_it_met(store: Store) -> None:
    """Upon that rests whether a group commit counts."""
    table = schema.segment
    update = Prepared(
        sa.update(table)
        .where(table.c.first_seq == sa.bindparam("b_seq"))
        .values(raw_bytes=table.c.raw_bytes + sa.bindparam("b_more"), body=sa.bindparam("b_body"))
    )
    with store._database.writing() as connection:
        Prepared(sa.insert(table)).run(connection, SEGMENTS)
        rows = [{"b_seq": 2**40 + at, "b_more": 10, "b_body": b"x"} for at in (0, 2, 7)]
        assert update.run(connection, rows) == 2
        assert update.run(connection, rows[:1]) == 1
        found = connection.execute(sa.select(table.c.raw_bytes).order_by(table.c.first_seq)).scalars().all()
        assert found == [20, 1, 12]


def test_a_query_gives_the_rows_of_execute(store: Store) -> None:
    """By values named each time, beside those it holds itself; a value that is not named is no NULL."""
    table = schema.segment
    chosen = sa.select(table.c.first_seq, table.c.body).where(
        table.c.run_id == "a", table.c.first_seq >= sa.bindparam("from"), table.c.stream.in_([sa.bindparam("one")])
    )
    query = Query(chosen.order_by(table.c.first_seq))
    with store._database.writing() as connection:
        Prepared(sa.insert(table)).run(connection, SEGMENTS)
        for first in (2**40 + 1, 2**40 + 2):
            rows = query.rows(connection, {"from": first, "one": "01"}).all()
            expected = [(segment["first_seq"], segment["body"]) for segment in SEGMENTS]
            assert [(row.first_seq, row.body) for row in rows] == [each for each in expected if each[0] >= first]
        assert query.rows(connection, {"from": 0, "one": "02"}).all() == []
        with pytest.raises((KeyError, sa.exc.ProgrammingError), match="one"):
            query.rows(connection, {"from": 0})
