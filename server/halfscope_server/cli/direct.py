"""Runs and rows straight from a database, also while a server runs on it.

Must not import the app. Invariant: nothing is written, not even a migration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from halfscope_server.errors import NotFound
from halfscope_server.query import Views, export_rows
from halfscope_server.query.states import precision_of
from halfscope_server.settings import Settings
from halfscope_server.store.store import Store


def list_runs(settings: Settings) -> list[Mapping[str, Any]]:
    """The runs as `halfscope runs` lists them, live ones first, then the newest."""
    with _reading(settings) as store:
        rows = store.list_runs()
    rows.sort(key=lambda row: (row.state not in ("live", "waiting"), -row.created_us, row.run_id))
    return [
        {
            "id": row.run_id,
            "name": row.name,
            "project": row.project,
            "state": row.state,
            "precision": precision_of(row),
            "attempts": row.num_attempts,
            "last_step": row.last_step,
        }
        for row in rows
    ]


@contextmanager
def rows_of(
    settings: Settings, run_id: str, *, series: str, kinds: Collection[str]
) -> Iterator[Iterator[Mapping[str, Any]]]:
    """The rows of a run, read as they are taken."""
    with _reading(settings) as store:
        view = Views(store).get(run_id)
        if view is None:
            raise NotFound(f"the run {run_id} was deleted just now")
        yield export_rows(view, series=series, kinds=kinds)


@contextmanager
def _reading(settings: Settings) -> Iterator[Store]:
    store = Store.open(settings.database, read_only=True)
    try:
        yield store
    finally:
        store.close()
