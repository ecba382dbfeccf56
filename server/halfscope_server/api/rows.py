"""Exported rows as bytes: JSONL and CSV.

Must not import the store or fastapi: the command line uses it too. Invariant: rows come with non-finite numbers already
named, because JSON would turn them into null; a chunk always ends at the end of a row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

import orjson

CHUNK_ROWS = 2000
"""Rows encoded at once: some 300 kB, far below what a slow reader could make us hold."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "points": ("series", "labels", "rank", "attempt", "step", "time", "value"),
    "events": ("event", "rank", "attempt", "step", "time", "severity", "where", "attributes"),
    "sketches": (
        *("of", "layer", "rank", "attempt", "step", "scale", "point", "clipped", "n", "zeros", "nan", "pos_inf"),
        *("neg_inf", "sum", "sumsq", "absmax", "absmin_nonzero", "exponents"),
    ),
}
"""Columns of a CSV, by kind of rows."""

KINDS = tuple(COLUMNS)

ExportFormat = Literal["jsonl", "csv"]
MEDIA_TYPES: Mapping[str, str] = {"jsonl": "application/jsonl", "csv": "text/csv"}


def chosen_kinds(asked: Collection[str], *, series: str, format: ExportFormat) -> tuple[str, ...]:
    """Which kinds of rows an export holds: those asked for, else all; points alone for a series glob or a CSV.

    Raises:
        ValueError: a CSV of several kinds.
    """
    if asked:
        kinds = tuple(kind for kind in KINDS if kind in asked)
    else:
        kinds = ("points",) if series or format == "csv" else KINDS
    if format == "csv" and len(kinds) > 1:
        raise ValueError(
            f"a CSV holds one kind of rows, {' and '.join(kinds)} were asked for; ask for one, or for jsonl"
        )
    return kinds


def encode(rows: Iterable[Mapping[str, Any]], format: ExportFormat, *, kind: str = "points") -> Iterator[bytes]:
    """The rows as chunks of bytes.

    Args:
        rows: as `query.export_rows` gives them.
        kind: which columns a CSV has; JSONL rows say themselves what they are.
    """
    return _jsonl(rows) if format == "jsonl" else _csv(rows, COLUMNS[kind])


def _jsonl(rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    for chunk in _chunks(rows):
        yield b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in chunk)


def _csv(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> Iterator[bytes]:
    yield (",".join(columns) + "\r\n").encode()
    for chunk in _chunks(rows):
        text = io.StringIO()
        csv.writer(text).writerows([[_cell(row.get(column)) for column in columns] for row in chunk])
        yield text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Text and numbers as they are, labels and attributes as JSON."""
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    # A spreadsheet runs a cell that begins like a formula; names come from the training.
    if isinstance(value, str) and value[:1] in "=+-@\t\r" and value != "-Infinity":
        return "'" + value
    return value


def _chunks(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    chunk: list[Mapping[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK_ROWS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
