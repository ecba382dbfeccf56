"""How far the ranks of runs are judged, and what was found: written together, each finding once.

Owns the `rank_state` table. Must not judge. Invariant: of several servers that judge a run the first to save a version
wins; and an event that is there already (attempt, kind, step, key) is not written again, whoever finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from halfscope_server.store import cursors, events, managing, plain, schema
from halfscope_server.store.cursors import StreamState
from halfscope_server.store.types import SERVER_STREAM

rank_state = schema.rank_state
stream = schema.stream
event = schema.event
run = schema.run

KEY = "key"
"""Attribute of an event that tells apart those of one kind at one step."""
Connecting = Callable[[], AbstractContextManager[sa.Connection]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """What was saved of one run."""

    version: int
    body: bytes
    is_done: bool
    """Every stream has ended and everything was judged."""
    updated_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvent:
    """An event to be written by the server."""

    attempt: int
    step: int
    kind: str
    severity: str
    key: str
    rank: int
    """Whose stream it is about; one that is not there: any."""
    attributes: Mapping[str, Any]


class RankStore:
    """Methods for any thread. They raise `Unavailable` like those of the store."""

    def __init__(self, writing: Connecting, reading: Connecting, tell: Callable[..., None]) -> None:
        self._writing, self._reading, self._tell = writing, reading, tell

    def load(self, run_id: str) -> RankState | None:
        """What was saved of a run, or None."""
        with self._reading() as connection:
            row = connection.execute(sa.select(rank_state).where(rank_state.c.run_id == run_id)).one_or_none()
        if row is None:
            return None
        return RankState(version=row.version, body=row.body, is_done=row.is_done, updated_us=row.updated_us)

    def unjudged(self) -> set[str]:
        """Runs of more than one process of which not everything was judged."""
        is_left = sa.or_(
            rank_state.c.run_id.is_(None), rank_state.c.is_done.is_(False), run.c.updated_us > rank_state.c.updated_us
        )
        with self._reading() as connection:
            found = connection.execute(
                sa.select(run.c.run_id)
                .outerjoin(rank_state, rank_state.c.run_id == run.c.run_id)
                .where(run.c.world_size > 1, is_left)
            )
            return set(found.scalars())

    def save(
        self,
        run_id: str,
        expected_version: int,
        body: bytes,
        found: Sequence[RankEvent],
        *,
        is_done: bool,
        now_us: int,
    ) -> int | None:
        """Keep how far a run is judged, and write what was found on the way, in one transaction.

        Args:
            expected_version: what is there now; 0: nothing.

        Returns:
            The number of events that were written; None: another server was quicker, or the run is gone, and nothing
            was.
        """
        values = {"version": expected_version + 1, "body": body, "is_done": is_done, "updated_us": now_us}
        with self._writing() as connection:
            cursors.lock_run(connection, run_id)
            if managing.deleted(connection, run_id) is not None:
                return None
            if expected_version:
                of_it = (rank_state.c.run_id == run_id, rank_state.c.version == expected_version)
                if connection.execute(sa.update(rank_state).where(*of_it).values(values)).rowcount == 0:
                    return None
            else:
                held = connection.execute(sa.select(rank_state.c.version).where(rank_state.c.run_id == run_id)).scalar()
                if held is not None:
                    return None
                connection.execute(sa.insert(rank_state).values(run_id=run_id, **values))
            num_written = sum(_write(connection, run_id, one, now_us) for one in found)
        if num_written:
            self._tell(run_id)
        return num_written


def _write(connection: sa.Connection, run_id: str, found: RankEvent, now_us: int) -> bool:
    """Write an event unless it is there."""
    of_it = (
        event.c.run_id == run_id,
        event.c.attempt == found.attempt,
        event.c.step == found.step,
        event.c.stream == SERVER_STREAM,
        event.c.kind == found.kind,
    )
    for row in connection.execute(sa.select(event.c.body).where(*of_it)):
        if plain.unpack(row.body)["attributes"].get(KEY, "") == found.key:
            return False
    state = _stream_of(connection, run_id, found.attempt, found.rank)
    if state is None:
        return False
    values = events.of_server(
        state,
        cursors.server_seq(connection, run_id, now_us=now_us),
        found.kind,
        step=found.step,
        now_us=now_us,
        severity=found.severity,
        attributes={**found.attributes, **({KEY: found.key} if found.key else {})},
    )
    events.insert(connection, [values])
    return True


def _stream_of(connection: sa.Connection, run_id: str, attempt: int, rank: int) -> StreamState | None:
    """The stream of a rank in an attempt, else that of its lowest rank."""
    chosen = connection.execute(
        sa.select(stream.c.stream)
        .where(stream.c.run_id == run_id, stream.c.attempt == attempt, stream.c.stream != SERVER_STREAM)
        .order_by(sa.case((stream.c.rank == rank, 0), else_=1), stream.c.rank, stream.c.stream)
        .limit(1)
    ).scalar()
    return None if chosen is None else cursors.load(connection, (run_id, chosen))
