"""Event rows: made of agents' records and of what the server itself sees, and read back.

Owns the `event` table. Must not touch cursors. Invariant: one record makes at most one event, under its own seq, so an
event is unique by (run, stream, seq) and never doubled by a resend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from halfscope.wire.messages import End, Event, Lost

from halfscope_server.store import plain, schema
from halfscope_server.store.cursors import StreamState
from halfscope_server.store.prepared import Query
from halfscope_server.store.types import CAUGHT, SERVER_STREAM, SKIP_CLASSES, EventMarks, EventRow

MAX_WHERE = 1024
"""Names kept of an event's `where`."""

event = schema.event
_INSERT = sa.insert(event)
_COLUMNS = tuple(field.name for field in fields(EventRow) if field.name in event.c)


def of_record(state: StreamState, seq: int, record: Event) -> dict[str, Any]:
    """The row of an agent's event."""
    return _row(
        state,
        seq=seq,
        kind=record.kind,
        step=record.step,
        time_us=record.time_us,
        severity=record.severity,
        where=record.where,
        attributes=record.attributes,
        skip_class=_class_of(record),
    )


def _class_of(record: Event) -> int:
    if record.kind == "loss_nonfinite":
        return CAUGHT if record.attributes.get("caught") is True else 0
    skip_class = record.attributes.get("class", "") if record.kind == "skip" else ""
    return SKIP_CLASSES.index(skip_class) if skip_class in SKIP_CLASSES else 0


def of_lost(state: StreamState, seq: int, record: Lost, *, step: int, now_us: int) -> dict[str, Any]:
    """The row that shows a gap in what was delivered, at the time it came to be known where the agent gave none."""
    return _row(
        state,
        seq=seq,
        kind="lost",
        step=step,
        time_us=record.time_us or now_us,
        severity="warning",
        attributes={
            "first_seq": record.first_seq,
            "last_seq": record.last_seq,
            "reason": plain.text(record.reason, 512),
            "counts": record.counts,
        },
    )


def of_end(state: StreamState, seq: int, record: End) -> dict[str, Any]:
    """The row that says how a stream ended by its own word."""
    return _row(
        state,
        seq=seq,
        kind="run_ended",
        step=record.step,
        time_us=record.time_us,
        severity="critical" if record.outcome == "exception" else "info",
        attributes={
            "outcome": plain.text(record.outcome, 32),
            "error_type": plain.text(record.error_type, 512),
            "message": plain.text(record.message, 4096),
        },
    )


def of_server(
    state: StreamState, seq: int, kind: str, *, step: int, now_us: int, severity: str, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """The row of something that the server saw about a stream: its seq is the server's own, under its own stream."""
    row = _row(
        state,
        seq=seq,
        kind=kind,
        step=step,
        time_us=now_us,
        severity=severity,
        attributes={"stream": state.stream, **attributes},
    )
    row["stream"] = SERVER_STREAM
    return row


def of_start(state: StreamState, seq: int, kind: str, *, step: int, time_us: int) -> dict[str, Any]:
    """The row that says that a further stream joined the run, or that its journal is a copy that went its own way."""
    return _row(
        state,
        seq=seq,
        kind=kind,
        step=step,
        time_us=time_us,
        severity="warning" if kind == "forked" else "info",
        attributes={"rank": state.rank, "attempt": state.attempt, "forked_from": state.forked_from},
    )


def of_row(row: Mapping[str, Any]) -> EventRow:
    """An event of a row's columns."""
    body = plain.unpack(row["body"])
    columns = {name: row[name] for name in _COLUMNS}
    return EventRow(**columns, where=body["where"], attributes=body["attributes"])


def insert(connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Store new events."""
    if rows:
        connection.execute(_INSERT, rows)


def select(
    connection: sa.Connection,
    run_id: str,
    *,
    kinds: Sequence[str] | None,
    first_step: int | None,
    last_step: int | None,
    rank: int | None,
    after: tuple[int, int, str, int] | None,
    limit: int,
    newest_first: bool,
) -> list[EventRow]:
    """A page of events in the order (attempt, step, stream, seq), or the reverse."""
    order = (event.c.attempt, event.c.step, event.c.stream, event.c.seq)
    statement = sa.select(event).where(event.c.run_id == run_id, *_within(first_step, last_step, rank))
    if kinds is not None:
        statement = statement.where(event.c.kind.in_(kinds))
    if after is not None:
        place = sa.tuple_(*order)
        bound = sa.tuple_(*(sa.literal(value) for value in after))
        statement = statement.where(place < bound if newest_first else place > bound)
    statement = statement.order_by(*(column.desc() for column in order) if newest_first else order).limit(limit)
    return [of_row(row._asdict()) for row in connection.execute(statement)]


def count(
    connection: sa.Connection, run_id: str, *, first_step: int | None, last_step: int | None, rank: int | None
) -> dict[str, int]:
    """Events by kind."""
    statement = (
        sa.select(event.c.kind, sa.func.count())
        .where(event.c.run_id == run_id, *_within(first_step, last_step, rank))
        .group_by(event.c.kind)
        .order_by(event.c.kind)
    )
    return {row[0]: row[1] for row in connection.execute(statement)}


def marks(connection: sa.Connection, run_id: str, kinds: Sequence[str]) -> EventMarks:
    """Where events of these kinds lie; read from the covering index alone."""
    number = {kind: at for at, kind in enumerate(kinds)}
    named = {f"kind_{at}": kind for at, kind in enumerate(kinds)}
    found = _marks_query(len(kinds)).rows(connection, {"run_id": run_id, **named}).all() if named else []
    table = np.array([(number[row[0]], row[1], row[2], row[3], row[4]) for row in found], np.int64).reshape(-1, 5)
    table = table[np.lexsort((table[:, 4], table[:, 0], table[:, 2], table[:, 1]))]
    return EventMarks(
        kinds=tuple(kinds),
        step=table[:, 2].copy(),
        kind=table[:, 0].astype(np.int16),
        skip_class=table[:, 3].astype(np.int8),
        attempt=table[:, 1].astype(np.int64),
        rank=table[:, 4].astype(np.int32),
    )


@lru_cache
def _marks_query(num_kinds: int) -> Query:
    named: list[sa.ColumnElement[str]] = [sa.bindparam(f"kind_{at}") for at in range(num_kinds)]
    columns = (event.c.kind, event.c.attempt, event.c.step, event.c.skip_class, event.c.rank)
    return Query(sa.select(*columns).where(event.c.run_id == sa.bindparam("run_id"), event.c.kind.in_(named)))


def _row(
    state: StreamState,
    *,
    seq: int,
    kind: str,
    step: int,
    time_us: int,
    severity: str,
    where: Sequence[str] = (),
    attributes: Mapping[str, Any],
    skip_class: int = 0,
) -> dict[str, Any]:
    body = {
        "where": plain.texts(where, max_items=MAX_WHERE, max_chars=512),
        "attributes": plain.mapping(attributes, "attributes"),
    }
    return {
        "run_id": state.run_id,
        "attempt": state.attempt,
        "step": step,
        "stream": state.stream,
        "seq": seq,
        "rank": state.rank,
        "kind": kind,
        "skip_class": skip_class,
        "severity": severity,
        "time_us": time_us,
        "body": plain.pack(body),
    }


def _within(first_step: int | None, last_step: int | None, rank: int | None) -> list[sa.ColumnElement[bool]]:
    bounds = []
    if rank is not None:
        bounds.append(event.c.rank == rank)
    if first_step is not None:
        bounds.append(event.c.step >= first_step)
    if last_step is not None:
        bounds.append(event.c.step <= last_step)
    return bounds
