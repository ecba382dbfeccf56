"""Streams that ended without their own word: the sender's Bye, and contact lost and regained.

Owns the only decision in the store that depends on the clock. Invariant: the wall clock
decides once: it writes `lost_contact` into the run's events, and whoever replays the run reads that instead of a
clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from halfscope.wire.messages import Bye, Points

from halfscope_server.store import cursors, events, runs, schema
from halfscope_server.store.cursors import Key, StreamState
from halfscope_server.store.records import measured_of
from halfscope_server.store.types import SERVER_STREAM

FRESH_US = 5_000_000
"""A stream that sent something within so long needs no other sign of life."""
KEYS_PER_QUERY = 500

stream = schema.stream


def bye(connection: sa.Connection, said: Bye, *, now_us: int) -> StreamState | None:
    """Note that a trainer's process is gone without an End record.

    Returns:
        The stream as it is now, or None where there is nothing to note: it ended by its own word, or is not known.
    """
    if said.outcome != "killed":
        return None
    ended = connection.execute(
        sa.update(stream)
        .where(
            stream.c.run_id == said.run_id,
            stream.c.stream == said.stream,
            stream.c.ended.in_(("", "lost_contact")),
        )
        .values(ended="killed", ended_us=said.time_us or now_us, seen_us=now_us)
    )
    if ended.rowcount == 0:
        return None
    state = cursors.load(connection, (said.run_id, said.stream))
    assert state is not None
    _write(connection, [state], "run_ended", severity="critical", outcome="killed", now_us=now_us)
    return state


def mark_lost(connection: sa.Connection, *, silent_since_us: int, now_us: int) -> list[StreamState]:
    """End the open streams that were last heard of before a moment."""
    silent = connection.execute(
        sa.select(stream.c.run_id, stream.c.stream)
        .where(stream.c.ended == "", stream.c.seen_us < silent_since_us)
        .order_by(stream.c.run_id, stream.c.stream)
    ).all()
    lost = []
    for run_id, name in silent:
        # Once more under the row's lock: another replica may have heard of it, or have decided, meanwhile.
        ended = connection.execute(
            sa.update(stream)
            .where(
                stream.c.run_id == run_id,
                stream.c.stream == name,
                stream.c.ended == "",
                stream.c.seen_us < silent_since_us,
            )
            .values(ended="lost_contact", ended_us=stream.c.seen_us)
        )
        state = cursors.load(connection, (run_id, name)) if ended.rowcount else None
        if state is not None:
            lost.append(state)
    _write(connection, lost, "lost_contact", severity="warning", outcome="lost_contact", now_us=now_us)
    return lost


def touch(connection: sa.Connection, keys: Collection[Key], *, now_us: int) -> list[StreamState]:
    """Note that streams are still there though they have nothing new; those that were lost are live again.

    Returns:
        Those that were lost.
    """
    back = []
    for key in _stale(connection, keys, now_us):
        seen = connection.execute(
            sa.update(stream)
            .where(stream.c.run_id == key[0], stream.c.stream == key[1], stream.c.ended == "")
            .values(seen_us=now_us)
        )
        if seen.rowcount == 0 and (state := regain(connection, key, now_us=now_us)) is not None:
            back.append(state)
    for state in back:
        note_regained(connection, state, now_us=now_us)
    return back


def _stale(connection: sa.Connection, keys: Collection[Key], now_us: int) -> list[Key]:
    """Those that are open or lost and were not heard of just now, in the order in which cursors are locked."""
    wanted = sorted(keys)
    found: list[Key] = []
    for at in range(0, len(wanted), KEYS_PER_QUERY):
        some = wanted[at : at + KEYS_PER_QUERY]
        rows = connection.execute(
            sa.select(stream.c.run_id, stream.c.stream).where(
                stream.c.run_id.in_({key[0] for key in some}),
                stream.c.ended.in_(("", "lost_contact")),
                stream.c.seen_us <= now_us - FRESH_US,
            )
        )
        found += {(row[0], row[1]) for row in rows} & set(some)
    return sorted(found)


def regain(connection: sa.Connection, key: Key, *, now_us: int) -> StreamState | None:
    """Take a lost contact back, if there was one."""
    taken = connection.execute(
        sa.update(stream)
        .where(stream.c.run_id == key[0], stream.c.stream == key[1], stream.c.ended == "lost_contact")
        .values(ended="", ended_us=None, seen_us=now_us)
    )
    return cursors.load(connection, key) if taken.rowcount else None


def note_regained(connection: sa.Connection, state: StreamState, *, now_us: int) -> None:
    """Write the event and work out the run's state anew."""
    step = _last_step(connection, state.run_id)
    events.insert(connection, [runs.regained(connection, state, step=step, now_us=now_us)])
    runs.refresh_state(connection, state.run_id)


def note(
    connection: sa.Connection,
    run_id: str,
    kind: str,
    *,
    severity: str,
    attributes: Mapping[str, Any],
    now_us: int,
) -> bool:
    """Write what the clock has decided about a run as a whole; False: the run is not there."""
    newest = (
        sa.select(stream.c.run_id, stream.c.stream)
        .where(stream.c.run_id == run_id, stream.c.stream != SERVER_STREAM)
        .order_by(stream.c.attempt.desc(), stream.c.rank, stream.c.stream)
        .limit(1)
    )
    found = connection.execute(newest).one_or_none()
    state = None if found is None else cursors.load(connection, (found.run_id, found.stream))
    if state is None:
        return False
    row = events.of_server(
        state,
        cursors.server_seq(connection, run_id, now_us=now_us),
        kind,
        step=_last_step(connection, run_id) or 0,
        now_us=now_us,
        severity=severity,
        attributes=attributes,
    )
    events.insert(connection, [row])
    return True


def _write(
    connection: sa.Connection, states: Sequence[StreamState], kind: str, *, severity: str, outcome: str, now_us: int
) -> None:
    for state in states:
        seq = cursors.server_seq(connection, state.run_id, now_us=now_us)
        row = events.of_server(
            state,
            seq,
            kind,
            step=_newest_step(connection, state) or 0,
            now_us=now_us,
            severity=severity,
            attributes={"outcome": outcome},
        )
        events.insert(connection, [row])
    for run_id in sorted({state.run_id for state in states}):
        runs.refresh_state(connection, run_id)


def _newest_step(connection: sa.Connection, state: StreamState) -> int | None:
    """Of this stream: of several ranks one may be gone long before the others stop."""
    of_stream = (state.run_id, state.attempt, state.stream)
    segment, chunk = schema.segment.c, schema.chunk.c
    newest_first = (
        sa.select(segment.raw_bytes, segment.body)
        .where(sa.tuple_(segment.run_id, segment.attempt, segment.stream) == of_stream)
        .order_by(segment.first_seq.desc())
    )
    for raw_bytes, body in connection.execute(newest_first):
        points = [record for record in measured_of(body, raw_bytes) if isinstance(record, Points)]
        if points:
            return max(max(memoryview(record.steps).cast("q")) for record in points)
    merged = sa.select(sa.func.max(chunk.last_step)).where(
        sa.tuple_(chunk.run_id, chunk.attempt, chunk.stream) == of_stream
    )
    step = connection.execute(merged).scalar()
    return _last_step(connection, state.run_id) if step is None else int(step)


def _last_step(connection: sa.Connection, run_id: str) -> int | None:
    step = connection.execute(sa.select(schema.run.c.last_step).where(schema.run.c.run_id == run_id)).scalar()
    return None if step is None else int(step)
