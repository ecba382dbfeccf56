"""Comparisons that people saved: a name, runs and options, as `Store.comparisons`.

Must not know how runs are compared. Invariant: a saved comparison outlives its runs, so that its address can still say
which of them is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa

from halfscope_server.store import plain, schema
from halfscope_server.store.types import ComparisonRow

comparison = schema.comparison
ident = comparison.c.comparison_id

Connecting = Callable[[], AbstractContextManager[sa.Connection]]


class ComparisonStore:
    """Methods for any thread. They raise `Unavailable` like those of the store.

    Args:
        writing: opens a transaction that writes.
        reading: opens a snapshot.
    """

    def __init__(self, writing: Connecting, reading: Connecting) -> None:
        self._writing, self._reading = writing, reading

    def all(self) -> list[ComparisonRow]:
        """All of them, the last changed first."""
        with self._reading() as connection:
            newest_first = (comparison.c.updated_us.desc(), ident)
            return [_row(row) for row in connection.execute(sa.select(comparison).order_by(*newest_first))]

    def get(self, comparison_id: str) -> ComparisonRow | None:
        """One of them; None: there is none, or it was deleted."""
        with self._reading() as connection:
            row = connection.execute(sa.select(comparison).where(ident == comparison_id)).one_or_none()
        return None if row is None else _row(row)

    def add(self, row: ComparisonRow) -> None:
        """Keep a new one."""
        values = {"comparison_id": row.comparison_id, "created_us": row.created_us, **_values(row)}
        with self._writing() as connection:
            connection.execute(sa.insert(comparison).values(values))

    def change(self, row: ComparisonRow) -> bool:
        """Replace its name, runs and options; False: there is none (any more)."""
        with self._writing() as connection:
            return (
                connection.execute(
                    sa.update(comparison).where(ident == row.comparison_id).values(_values(row))
                ).rowcount
                > 0
            )

    def delete(self, comparison_id: str) -> bool:
        """Forget one; False: there is none."""
        with self._writing() as connection:
            return connection.execute(sa.delete(comparison).where(ident == comparison_id)).rowcount > 0


def _values(row: ComparisonRow) -> dict[str, Any]:
    return {
        "name": plain.text(row.name, 200),
        "runs": plain.pack(list(row.runs)),
        "options": plain.pack(dict(row.options)),
        "updated_us": row.updated_us,
    }


def _row(row: sa.Row[Any]) -> ComparisonRow:
    return ComparisonRow(
        comparison_id=row.comparison_id,
        name=row.name,
        runs=tuple(plain.unpack(row.runs)),
        options=plain.unpack(row.options),
        created_us=row.created_us,
        updated_us=row.updated_us,
    )
