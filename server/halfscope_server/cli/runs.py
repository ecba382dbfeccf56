"""`halfscope runs` and `halfscope export`: from the running server, or straight from a database.

Must not import the app. Invariant: both ways give the same rows, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote

from halfscope_server.api.rows import ExportFormat, chosen_kinds, encode
from halfscope_server.cli import client
from halfscope_server.errors import NotFound
from halfscope_server.settings import Settings

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
        from halfscope_server.cli.direct import list_runs as read_runs

        return read_runs(settings)
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
        # Only this way needs the store's libraries, which take a second to load.
        from halfscope_server.cli.direct import rows_of

        with rows_of(settings, run_id, series=series or "*", kinds=chosen) as rows:
            for chunk in encode(rows, format, kind=chosen[0]):
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


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)
