"""Statements executed for many rows at every commit: compiled once, their rows handed to the driver as they are.

Must not be used for values that a column type converts (none of the tables has such a type: binary, text, numbers).
Invariant: the driver is given the same SQL and the same values as by SQLAlchemy's own `execute`; what is saved is a
pass over each row, which under a thousand streams costs as much as the database does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.dml import UpdateBase


class Prepared:
    """An INSERT, UPDATE or DELETE without values of its own: each row names all of its parameters."""

    def __init__(self, statement: UpdateBase) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, Sequence[str] | None]] = {}

    def run(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Execute for some rows, at least one.

        Returns:
            How many rows were touched.
        """
        sql, order = self._compiled.get(connection.dialect.name) or self._compile(connection.dialect)
        given: Any = list(rows) if order is None else [tuple([row[name] for name in order]) for row in rows]
        done = connection.exec_driver_sql(sql, given, execution_options={"preserve_rowcount": True})
        return int(done.rowcount)

    def _compile(self, dialect: sa.Dialect) -> tuple[str, Sequence[str] | None]:
        compiled = self._statement.compile(dialect=dialect)
        positions: Sequence[str] | None = getattr(compiled, "positiontup", None)
        found = self._compiled[dialect.name] = (str(compiled), positions)
        return found
