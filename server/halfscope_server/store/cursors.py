"""Granting streams and moving their cursors: fencing, compare-and-set, and what the writer remembers of a stream.

Owns the `stream` row's cursor columns. Must not decode records. Invariant: a cursor moves only from the value the
writer decoded against, under the epoch it was granted, so a batch is applied by one connection of one replica or not
at all; cursors are touched in ascending (run_id, stream) order, because two replicas that touch them in any other
order deadlock.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import sqlalchemy as sa
from halfscope.wire.messages import FIRST_TIMED_ATTEMPT, GENESIS_DIGEST, Hello
from sqlalchemy.dialects import postgresql, sqlite

from halfscope_server.store import schema
from halfscope_server.store.plain import pack, text
from halfscope_server.store.prepared import Prepared
from halfscope_server.store.types import SERVER_STREAM

Key = tuple[str, str]
"""(run_id, stream)"""

stream = schema.stream

_CURSOR = (
    sa.select(stream)
    .where(stream.c.run_id == sa.bindparam("b_run"), stream.c.stream == sa.bindparam("b_stream"))
    .limit(1)
)
_SIDS = sa.select(schema.stream_series.c.sid, schema.stream_series.c.series_id).where(
    schema.stream_series.c.run_id == sa.bindparam("b_run"), schema.stream_series.c.stream == sa.bindparam("b_stream")
)
_LIDS = sa.select(schema.stream_layer.c.lid, schema.stream_layer.c.layer_id).where(
    schema.stream_layer.c.run_id == sa.bindparam("b_run"), schema.stream_layer.c.stream == sa.bindparam("b_stream")
)
_ADVANCE = (
    sa.update(stream)
    .where(
        stream.c.run_id == sa.bindparam("b_run"),
        stream.c.stream == sa.bindparam("b_stream"),
        stream.c.epoch == sa.bindparam("b_epoch"),
        stream.c.next == sa.bindparam("b_lo"),
    )
    .values(
        next=sa.bindparam("b_hi"),
        digest=sa.bindparam("b_digest"),
        seen_us=sa.bindparam("b_now"),
        started=sa.bindparam("b_started"),
        ended=sa.bindparam("b_ended"),
        ended_us=sa.bindparam("b_ended_us"),
        num_hot=stream.c.num_hot + sa.bindparam("b_hot"),
        hot_since_us=sa.func.coalesce(stream.c.hot_since_us, sa.bindparam("b_hot_since")),
    )
)

_ADVANCE_MANY = Prepared(_ADVANCE)
_READ = sa.select(stream.c.stream, stream.c.next, stream.c.epoch, stream.c.digest).where(
    stream.c.run_id == sa.bindparam("b_run"), stream.c.stream.in_(sa.bindparam("b_streams", expanding=True))
)
READ_AT_ONCE = 500
"""Streams that one query names."""


@dataclass(slots=True, kw_only=True)
class StreamState:
    """What the writer remembers of a stream between commits; the row in the database decides."""

    run_id: str
    stream: str
    epoch: int
    next: int
    digest: bytes
    attempt: int
    rank: int
    world_size: int
    forked_from: str
    started: bool
    ended: str
    ended_us: int | None
    sids: dict[int, int] = field(default_factory=dict)
    """sid -> series_id of what the stream has declared."""
    lids: dict[int, int] = field(default_factory=dict)
    """lid -> layer_id, likewise."""

    @property
    def key(self) -> Key:
        return self.run_id, self.stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """One move of one cursor."""

    state: StreamState
    next: int
    digest: bytes
    started: bool
    ended: str
    ended_us: int | None
    num_segments: int


def load(connection: sa.Connection, key: Key) -> StreamState | None:
    """A stream as the database has it, or None: nobody said hello for it, or its run was deleted."""
    names = {"b_run": key[0], "b_stream": key[1]}
    row = connection.execute(_CURSOR, names).one_or_none()
    if row is None:
        return None
    return StreamState(
        run_id=row.run_id,
        stream=row.stream,
        epoch=row.epoch,
        next=row.next,
        digest=bytes(row.digest),
        attempt=row.attempt,
        rank=row.rank,
        world_size=row.world_size,
        forked_from=row.forked_from,
        started=row.started,
        ended=row.ended,
        ended_us=row.ended_us,
        sids=sids(connection, key),
        lids={found.lid: found.layer_id for found in connection.execute(_LIDS, names)},
    )


def sids(connection: sa.Connection, key: Key) -> dict[int, int]:
    """sid -> series_id of what a stream has declared."""
    names = {"b_run": key[0], "b_stream": key[1]}
    return {found.sid: found.series_id for found in connection.execute(_SIDS, names)}


def advance(connection: sa.Connection, move: Advance, *, now_us: int) -> bool:
    """Move a cursor; False when it is no longer where the move starts, or was granted to somebody else."""
    return connection.execute(_ADVANCE, _names(move, now_us)).rowcount == 1


def advance_all(connection: sa.Connection, moves: Sequence[Advance], *, now_us: int) -> bool:
    """Move many cursors at once, in ascending (run_id, stream) order as given.

    Returns:
        False: not all of them could be moved and it is not known which; roll back, and use `advance`.
    """
    return _ADVANCE_MANY.run(connection, [_names(move, now_us) for move in moves]) == len(moves)


def _names(move: Advance, now_us: int) -> dict[str, object]:
    return {
        "b_run": move.state.run_id,
        "b_stream": move.state.stream,
        "b_epoch": move.state.epoch,
        "b_lo": move.state.next,
        "b_hi": move.next,
        "b_digest": move.digest,
        "b_now": now_us,
        "b_started": move.started,
        "b_ended": move.ended,
        "b_ended_us": move.ended_us,
        "b_hot": move.num_segments,
        "b_hot_since": now_us if move.num_segments else None,
    }


def read(connection: sa.Connection, keys: Collection[Key]) -> dict[Key, tuple[int, int, bytes]]:
    """(next, epoch, digest) of those of the streams that exist."""
    by_run: dict[str, set[str]] = {}
    for run_id, name in keys:
        by_run.setdefault(run_id, set()).add(name)
    found: dict[Key, tuple[int, int, bytes]] = {}
    for run_id, names in by_run.items():
        ordered = sorted(names)
        for at in range(0, len(ordered), READ_AT_ONCE):
            wanted = {"b_run": run_id, "b_streams": ordered[at : at + READ_AT_ONCE]}
            for name, next_seq, epoch, digest in connection.execute(_READ, wanted):
                found[run_id, name] = next_seq, epoch, bytes(digest)
    return found


def grant(connection: sa.Connection, hello: Hello, *, now_us: int) -> StreamState:
    """Give a stream to the connection that said hello: a new row, or the next epoch of the one there is.

    The caller holds `lock_run`, and has seen that the run was not deleted.
    """
    key = (hello.run_id, hello.stream)
    info = hello.info
    granted = connection.execute(
        sa.update(stream)
        .where(stream.c.run_id == hello.run_id, stream.c.stream == hello.stream)
        .values(epoch=stream.c.epoch + 1, seen_us=now_us)
    )
    if granted.rowcount == 0:
        connection.execute(
            sa.insert(stream).values(
                run_id=hello.run_id,
                stream=hello.stream,
                attempt=_free_attempt(connection, hello),
                rank=info.rank,
                world_size=info.world_size,
                host=text(info.host, 255),
                pid=info.pid,
                started_us=info.started_us,
                forked_from=text(info.forked_from, 64),
                local_rank=info.local_rank,
                mesh=pack(info.mesh) if info.mesh else None,
                epoch=1,
                next=hello.first_seq,
                digest=GENESIS_DIGEST,
                seen_us=now_us,
                started=False,
                ended="",
                compacted=hello.first_seq,
                num_hot=0,
            )
        )
    state = load(connection, key)
    assert state is not None
    return state


def _free_attempt(connection: sa.Connection, hello: Hello) -> int:
    """The attempt of a new stream: what its agent says, or the next that this rank has no stream in. Only one that is
    numbered by a time is moved: counted ones are shared on purpose, by the models that one process watches.

    A journal and its copies are of one attempt, whichever comes first.
    """
    info, at = hello.info, stream.c
    if info.attempt < FIRST_TIMED_ATTEMPT:
        return info.attempt
    streams = sa.select(at.attempt).where(at.run_id == hello.run_id, at.rank == info.rank)
    own = {hello.stream, info.forked_from} - {""}
    kin = connection.execute(streams.where(at.stream.in_(own) | at.forked_from.in_(own))).scalar()
    if kin is not None:
        return int(kin)
    taken = set(connection.execute(streams.where(at.attempt >= info.attempt)).scalars())
    return next(number for number in itertools.count(info.attempt) if number not in taken)


def server_seq(connection: sa.Connection, run_id: str, *, now_us: int) -> int:
    """The next seq of what the server itself writes into a run; its cursor moves, so that readers notice."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(stream).values(
        run_id=run_id,
        stream=SERVER_STREAM,
        attempt=0,
        rank=0,
        world_size=1,
        host="",
        pid=0,
        started_us=now_us,
        forked_from="",
        epoch=1,
        next=1,
        digest=GENESIS_DIGEST,
        seen_us=now_us,
        started=True,
        ended="server",
        compacted=0,
        num_hot=0,
    )
    taken = connection.execute(
        statement.on_conflict_do_update(
            index_elements=["run_id", "stream"], set_={"next": stream.c.next + 1, "seen_us": now_us}
        ).returning(stream.c.next)
    ).scalar_one()
    return int(taken) - 1


def lock_streams(connection: sa.Connection, run_ids: Sequence[str]) -> None:
    """Lock all cursors of some runs in the order in which group commits take them. SQLite locks whole databases."""
    if connection.dialect.name == "postgresql":
        connection.execute(
            sa.select(stream.c.run_id)
            .where(stream.c.run_id.in_(run_ids))
            .order_by(stream.c.run_id, stream.c.stream)
            .with_for_update()
        ).all()


def lock_run(connection: sa.Connection, run_id: str) -> None:
    """Keep a grant and a deletion of one run apart: a row that is not there yet cannot be locked."""
    if connection.dialect.name == "postgresql":
        number = int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=8).digest(), "big", signed=True)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))


def insert_missing(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, object]]) -> None:
    """Insert the rows whose key is not there yet; another replica may have been first."""
    if rows:
        _insert_missing(table, connection.dialect.name, tuple(rows[0])).run(connection, rows)


@lru_cache
def _insert_missing(table: sa.Table, dialect: str, columns: tuple[str, ...]) -> Prepared:
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return Prepared(insert(table).on_conflict_do_nothing(), columns)
