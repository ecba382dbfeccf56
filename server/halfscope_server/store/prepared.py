"""Statements executed for many rows at every commit, or many times for every page: compiled once, their values handed
to the driver as they are.

Must not be used for values that a column type converts (none of the tables has such a type: binary, text, numbers).
Invariant: the driver is given the same SQL and the same values as by SQLAlchemy's own `execute`; what is saved is a
pass over each row, which under a thousand streams costs as much as the database does, and putting a statement together,
which costs more than reading a few rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.dml import UpdateBase


class Prepared:
    """An INSERT, UPDATE or DELETE without values of its own: each row names all of its parameters.

    Args:
        statement: what is executed.
        columns: those an INSERT names; None: all of the table.
    """

    def __init__(self, statement: UpdateBase, columns: Sequence[str] | None = None) -> None:
        self._compiled = _ByDialect(statement, columns)

    def run(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Execute for some rows, at least one.

        Returns:
            How many rows were touched.
        """
        compiled = self._compiled.of(connection.dialect)
        done = connection.exec_driver_sql(
            compiled.sql, [compiled.values(row) for row in rows], execution_options={"preserve_rowcount": True}
        )
        return int(done.rowcount)


class Query:
    """A SELECT whose values are given by the names of its bound parameters; what it holds itself stays."""

    def __init__(self, statement: sa.Select[Any]) -> None:
        self._compiled = _ByDialect(statement)

    def rows(self, connection: sa.Connection, values: Mapping[str, Any]) -> sa.CursorResult[*tuple[Any, ...]]:
        """What `execute` would give for these values, every one of them named."""
        compiled = self._compiled.of(connection.dialect)
        return connection.exec_driver_sql(compiled.sql, compiled.values({**compiled.own, **values}))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    sql: str
    order: Sequence[str] | None
    """Of parameters where they go by place; None: by name."""
    own: Mapping[str, Any]
    """Values that the statement holds itself."""

    def values(self, named: Mapping[str, Any]) -> Any:
        """Values as the driver takes them."""
        return named if self.order is None else tuple([named[name] for name in self.order])


class _ByDialect:
    """A statement in the words of each database, written when it is first asked for."""

    def __init__(self, statement: UpdateBase | sa.Select[Any], columns: Sequence[str] | None = None) -> None:
        self._statement, self._columns = statement, columns
        self._found: dict[str, _Compiled] = {}

    def of(self, dialect: sa.Dialect) -> _Compiled:
        return self._found.get(dialect.name) or self._compile(dialect)

    def _compile(self, dialect: sa.Dialect) -> _Compiled:
        compiled = self._statement.compile(dialect=dialect, column_keys=self._columns)
        order: Sequence[str] | None = getattr(compiled, "positiontup", None)
        # What is to be given each time has no value yet: never NULL instead.
        asked = {bound.key for bound in compiled.bind_names if bound.required}
        found = self._found[dialect.name] = _Compiled(
            sql=str(compiled),
            order=order,
            own={name: value for name, value in compiled.params.items() if name not in asked},
        )
        return found
