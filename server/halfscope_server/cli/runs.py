"""`halfscope runs` and `halfscope export`: from the running server, or straight from a database.

Must not import the app. Invariant: both ways give the same rows, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import quote

from halfscope_server.api.rows import ExportFormat, chosen_kinds, encode
from halfscope_server.cli import client
from halfscope_server.errors import NotFound
from halfscope_server.query.export import export_rows
from halfscope_server.query.states import precision_of
from halfscope_server.query.view import Views
from halfscope_server.settings import Settings
from halfscope_server.store.store import Store
from halfscope_server.store.types import RunRow

COLUMNS = ("id", "name", "project", "state", "precision", "attempts", "last_step")
"""What `runs` tells of each run, in this order."""

Listed = Mapping[str, Any]


def list_runs(settings: Settings, *, server: str = "", direct: bool = False) -> list[Listed]:
    """The runs, live ones first, then the newest.

    Args:
        server: address to ask instead of the one found.
        direct: read the database of the settings, without any server.
    """
    if direct:
        with _reading(settings) as store:
            rows = sorted(
                store.list_runs(), key=lambda row: (row.state not in ("live", "waiting"), -row.created_us, row.run_id)
            )
            return [_listed(row) for row in rows]
    found = client.get_json(client.find(settings, server), "/api/v1/runs?strip_bins=10")
    return [{column: run[column] for column in COLUMNS} for run in found["runs"]]


def as_json(runs: Sequence[Listed]) -> str:
    """A JSON list."""
    return json.dumps(list(runs), indent=2, ensure_ascii=False)


def as_table(runs: Sequence[Listed]) -> str:
    """A table for people."""
    if not runs:
        return "No runs yet. Three lines record one: halfscope.watch(model, optimizer, scaler); see `halfscope open`."
    head = [column.replace("_", " ") for column in COLUMNS]
    lines = [head, *([_cell(run[column]) for column in COLUMNS] for run in runs)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def export(
    settings: Settings,
    run: str,
    *,
    kinds: Sequence[str],
    series: str,
    format: ExportFormat,
    server: str = "",
    direct: bool = False,
    out: IO[bytes],
) -> None:
    """Writes a run's rows.

    Args:
        run: an id, the beginning of one, or a name that one run has.
        kinds, series, format: as in the API.

    Raises:
        ValueError: arguments that do not go together.
        NotFound: no run, or several, answer to `run`.
    """
    chosen = chosen_kinds(kinds, series=series, format=format)
    run_id = identify(run, list_runs(settings, server=server, direct=direct))
    if direct:
        with _reading(settings) as store:
            view = Views(store).get(run_id)
            if view is None:
                raise NotFound(f"the run {run_id} was deleted just now")
            for chunk in encode(export_rows(view, series=series or "*", kinds=chosen), format, kind=chosen[0]):
                out.write(chunk)
    else:
        query = {"kind": list(chosen), "series": series, "format": format}
        with client.request(
            client.find(settings, server), f"/api/v1/runs/{quote(run_id)}/export", query=query
        ) as response:
            while chunk := response.read(1 << 16):
                out.write(chunk)
    out.flush()


def identify(run: str, runs: Sequence[Listed]) -> str:
    """The id that is meant.

    Raises:
        NotFound: none, or more than one.
    """
    exact = [each["id"] for each in runs if each["id"] == run]
    found = (
        exact
        or [each["id"] for each in runs if each["name"] == run]
        or [each["id"] for each in runs if each["id"].startswith(run)]
    )
    if len(found) == 1:
        return str(found[0])
    if found:
        raise NotFound(f"{len(found)} runs are called {run!r}: {', '.join(found[:5])}; give one of these ids")
    raise NotFound(f"there is no run {run!r}; `halfscope runs` lists those that are")


@contextmanager
def _reading(settings: Settings) -> Iterator[Store]:
    store = Store.open(settings.database, read_only=True)
    try:
        yield store
    finally:
        store.close()


def _listed(row: RunRow) -> Listed:
    return {
        "id": row.run_id,
        "name": row.name,
        "project": row.project,
        "state": row.state,
        "precision": precision_of(row),
        "attempts": row.num_attempts,
        "last_step": row.last_step,
    }


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)
