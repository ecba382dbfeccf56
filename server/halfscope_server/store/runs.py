"""Run rows: created by a Start record, kept up to date by what its streams bring, and the state they add up to.

Owns the `run` table. Must not touch points. Invariant: a run's state is a pure function of how the streams of its
newest attempt ended and of whether there is a step; no clock is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from halfscope.wire.messages import End, Start

from halfscope_server.store import cursors, events, plain, schema
from halfscope_server.store.cursors import StreamState
from halfscope_server.store.prepared import Query
from halfscope_server.store.records import Decoded
from halfscope_server.store.types import SERVER_STREAM, RunRow, RunState

MAX_NAME_CHARS = 200
MAX_TAGS = 32
MAX_TAG_CHARS = 64
MAX_MESSAGE_CHARS = 16 * 1024

run = schema.run

_OUTCOMES: tuple[tuple[str, RunState], ...] = (
    ("exception", "failed"),
    ("killed", "killed"),
    ("lost_contact", "lost"),
    ("superseded", "superseded"),
    ("finished", "finished"),
)
"""How a stream can end and what the run is then; the first that applies to any rank wins."""

_at = schema.stream.c
_OTHERS = (
    sa.select(_at.stream)
    .where(_at.run_id == sa.bindparam("b_run"), _at.stream != sa.bindparam("b_stream"), _at.stream != SERVER_STREAM)
    .order_by(_at.attempt, _at.rank, _at.stream)
)
# Asked for each rank of a job that starts.
_EARLIER = Query(_OTHERS.where(_at.attempt < sa.bindparam("b_attempt")).limit(1))
_LATER = Query(_OTHERS.where(_at.attempt > sa.bindparam("b_attempt")).limit(1))

_STEP = sa.bindparam("b_step", type_=sa.BigInteger())
"""Newest step, or -1 where a group brought none."""
_TOUCH = (
    sa.update(run)
    .where(run.c.run_id == sa.bindparam("b_run"))
    .values(
        updated_us=sa.bindparam("b_now"),
        last_step=sa.case((_STEP < 0, run.c.last_step), (run.c.last_step >= _STEP, run.c.last_step), else_=_STEP),
        state=sa.case((sa.and_(run.c.state == "waiting", _STEP >= 0), "live"), else_=run.c.state),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What one stream brings to its run in one group commit."""

    state: StreamState
    """As it was before."""
    decoded: Sequence[Decoded]
    ended: str
    """How the stream stands after it."""

    @property
    def last_step(self) -> int:
        """-1: no step in it."""
        return max((d.last_step for d in self.decoded if d.last_step is not None), default=-1)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing in it that concerns the run row but its last step."""
        return (
            self.state.started and self.ended == self.state.ended and not any(d.facts or d.ends for d in self.decoded)
        )


def apply(connection: sa.Connection, by_run: Mapping[str, Sequence[Brought]], *, now_us: int) -> list[dict[str, Any]]:
    """Bring run rows up to date.

    Returns:
        Event rows that follow from it: streams that joined or forked, contact regained.
    """
    run_ids = sorted(by_run)
    if not run_ids:
        return []
    touches: list[dict[str, Any]] = [
        {"b_run": run_id, "b_now": now_us, "b_step": max((b.last_step for b in by_run[run_id]), default=-1)}
        for run_id in run_ids
    ]
    if connection.execute(_TOUCH, touches).rowcount < len(touches):
        missing = [_placeholder(touch["b_run"], touch["b_step"], now_us) for touch in touches]
        cursors.insert_missing(connection, run, missing)
    rows: list[dict[str, Any]] = []
    for run_id in run_ids:
        if not all(b.is_plain for b in by_run[run_id]):
            rows += _apply_one(connection, run_id, by_run[run_id], now_us=now_us)
    return rows


def _apply_one(
    connection: sa.Connection, run_id: str, brought: Sequence[Brought], *, now_us: int
) -> list[dict[str, Any]]:
    held = connection.execute(sa.select(run).where(run.c.run_id == run_id)).one()
    values: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    facts = plain.unpack(held.facts)
    for one in brought:
        for decoded in one.decoded:
            for seq, start in decoded.starts[:1] if not one.state.started else []:
                if one.state.forked_from:
                    rows.append(_of_start(one.state, seq, "forked", start))
                elif held.started or "started" in values:
                    values |= _joined(connection, one.state, seq, start, held, values, rows, now_us)
                values |= _started(one.state, start, held, values)
            for record in decoded.facts:
                facts |= plain.mapping(record.facts, "facts")
            for _, end in decoded.ends:
                values |= _error(end)
        if one.state.ended == "lost_contact" and one.ended == "":
            rows.append(regained(connection, one.state, step=held.last_step, now_us=now_us))
    values["facts"] = plain.pack(plain.mapping(facts, "facts"))
    connection.execute(sa.update(run).where(run.c.run_id == run_id).values(values))
    refresh_state(connection, run_id)
    return rows


def refresh_state(connection: sa.Connection, run_id: str) -> None:
    """Work out a run's state anew after one of its streams began, ended or came back."""
    stream = schema.stream
    streams = connection.execute(
        sa.select(stream.c.attempt, stream.c.ended, stream.c.ended_us, stream.c.world_size).where(
            stream.c.run_id == run_id, stream.c.stream != SERVER_STREAM
        )
    ).all()
    newest = max((row.attempt for row in streams), default=0)
    current = [row for row in streams if row.attempt == newest]
    last_step = connection.execute(sa.select(run.c.last_step).where(run.c.run_id == run_id)).scalar()
    state, outcome = state_of([row.ended for row in current], has_step=last_step is not None)
    ended_us = max((row.ended_us for row in current if row.ended_us is not None), default=None)
    connection.execute(
        sa.update(run)
        .where(run.c.run_id == run_id)
        .values(
            state=state,
            outcome=outcome,
            ended_us=ended_us if outcome else None,
            num_attempts=max(1, len({row.attempt for row in streams})),
            world_size=max((row.world_size for row in current), default=1),
        )
    )


def state_of(ended: Sequence[str], *, has_step: bool) -> tuple[RunState, str]:
    """(state, outcome) of a run, from how the streams of its newest attempt ended.

    One open stream keeps the run open: a rank that failed is an event, and its peers mostly follow within seconds.
    """
    if not ended or "" in ended:
        return ("live" if has_step else "waiting"), ""
    for outcome, state in _OUTCOMES:
        if outcome in ended:
            return state, outcome
    return "finished", ended[0]


def regained(connection: sa.Connection, state: StreamState, *, step: int | None, now_us: int) -> dict[str, Any]:
    """The event that takes a lost contact back."""
    seq = cursors.server_seq(connection, state.run_id, now_us=now_us)
    return events.of_server(
        state, seq, "contact_regained", step=step or 0, now_us=now_us, severity="info", attributes={}
    )


def select(connection: sa.Connection, run_id: str | None = None) -> list[RunRow]:
    """All runs, newest first, or the one asked for."""
    statement = sa.select(run).order_by(run.c.created_us.desc(), run.c.run_id.desc())
    if run_id is not None:
        statement = statement.where(run.c.run_id == run_id)
    return [_run(row) for row in connection.execute(statement)]


def select_named(connection: sa.Connection, project: str, name: str) -> list[RunRow]:
    """The runs of a name in a project, newest first."""
    statement = sa.select(run).where(run.c.project == project, run.c.name == name)
    newest_first = statement.order_by(run.c.created_us.desc(), run.c.run_id.desc())
    return [_run(row) for row in connection.execute(newest_first)]


def _placeholder(run_id: str, step: int, now_us: int) -> dict[str, Any]:
    nothing = plain.pack({})
    return {
        "run_id": run_id,
        "project": "",
        "name": run_id,
        "state": "waiting" if step < 0 else "live",
        "started": False,
        "config_attempt": 0,
        "start_step": 0,
        "created_us": now_us,
        "updated_us": now_us,
        "outcome": "",
        "error_type": "",
        "error_message": "",
        "last_step": None if step < 0 else step,
        "num_attempts": 1,
        "world_size": 1,
        "tags": plain.pack([]),
        "config": nothing,
        "environment": nothing,
        "facts": nothing,
    }


def _started(state: StreamState, start: Start, held: sa.Row[Any], values: dict[str, Any]) -> dict[str, Any]:
    """What a stream's first Start record says about the run.

    The first one gives the run its name. A later attempt brings its own configuration; that of its rank 0 is shown.
    """
    configuration = {
        "config_attempt": state.attempt,
        "config": plain.pack(plain.mapping(start.config, "config")),
        "environment": plain.pack(plain.mapping(start.environment, "environment")),
    }
    if not held.started and "started" not in values:
        return configuration | {
            "started": True,
            "project": plain.text(start.project, MAX_NAME_CHARS),
            "name": plain.text(start.name, MAX_NAME_CHARS) or state.run_id,
            "tags": plain.pack(plain.texts(start.tags, max_items=MAX_TAGS, max_chars=MAX_TAG_CHARS)),
            "created_us": start.time_us,
            "start_step": start.start_step,
        }
    if state.attempt > values.get("config_attempt", held.config_attempt):
        return configuration | {"error_type": "", "error_message": ""}
    if state.rank == 0 and state.attempt == values.get("config_attempt", held.config_attempt):
        return configuration
    return {}


def _joined(
    connection: sa.Connection,
    state: StreamState,
    seq: int,
    start: Start,
    held: sa.Row[Any],
    values: Mapping[str, Any],
    rows: list[dict[str, Any]],
    now_us: int,
) -> dict[str, Any]:
    """Add to the event rows what a further stream's first Start record tells, and give what it changes of the run."""
    names = {"b_run": state.run_id, "b_stream": state.stream, "b_attempt": state.attempt}
    if state.attempt and _EARLIER.rows(connection, names).scalar() is not None:
        rows.append(_of_start(state, seq, "restarted", start))
        return {}
    later = _LATER.rows(connection, names).scalar()
    following = None if later is None else cursors.load(connection, (state.run_id, later))
    if following is None or _is_told(connection, following, rows):
        rows.append(_of_start(state, seq, "joined", start))
        return {}
    # An earlier start that comes later, from a machine that was away: what was taken for the first was a restart.
    step, time_us = (values.get(name, getattr(held, name)) for name in ("start_step", "created_us"))
    number = cursors.server_seq(connection, state.run_id, now_us=now_us)
    told = {"rank": following.rank, "attempt": following.attempt, "forked_from": ""}
    rows.append(
        events.of_server(following, number, "restarted", step=step, now_us=time_us, severity="info", attributes=told)
    )
    return {"created_us": start.time_us, "start_step": start.start_step}


def _is_told(connection: sa.Connection, state: StreamState, rows: Sequence[dict[str, Any]]) -> bool:
    """Whether there is an event of the beginning of a stream's attempt."""
    at = schema.event.c
    told = sa.select(at.seq).where(
        at.run_id == state.run_id, at.kind == "restarted", at.attempt == state.attempt
    )  # fmt: skip
    return (
        any((row["kind"], row["attempt"]) == ("restarted", state.attempt) for row in rows)
        or connection.execute(told.limit(1)).scalar() is not None
    )


def _of_start(state: StreamState, seq: int, kind: str, start: Start) -> dict[str, Any]:
    return events.of_start(state, seq, kind, step=start.start_step, time_us=start.time_us)


def _error(end: End) -> dict[str, Any]:
    if end.outcome != "exception":
        return {}
    return {
        "error_type": plain.text(end.error_type, MAX_NAME_CHARS),
        "error_message": plain.text(end.message, MAX_MESSAGE_CHARS),
    }


def _run(row: sa.Row[Any]) -> RunRow:
    return RunRow(
        run_id=row.run_id,
        project=row.project,
        name=row.name,
        state=row.state,
        tags=plain.unpack(row.tags),
        config=plain.unpack(row.config),
        environment=plain.unpack(row.environment),
        facts=plain.unpack(row.facts),
        created_us=row.created_us,
        updated_us=row.updated_us,
        ended_us=row.ended_us,
        outcome=row.outcome,
        error_type=row.error_type,
        error_message=row.error_message,
        last_step=row.last_step,
        num_attempts=row.num_attempts,
        world_size=row.world_size,
    )
