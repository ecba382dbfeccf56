"""What people do to runs, and credentials: rename, tag, delete; tokens and sessions by their hashes.

Must not touch points except to delete them. Invariant: a deleted run leaves its name and the time behind and nothing
else, and whoever sends for it afterwards is told that it is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from halfscope_server.store import cursors, plain, schema
from halfscope_server.store.types import TokenRow

run = schema.run
deleted_run = schema.deleted_run
token = schema.token
session = schema.session

_TABLES_OF_A_RUN = (
    schema.stream,
    schema.run,
    schema.series,
    schema.stream_series,
    schema.layer,
    schema.stream_layer,
    schema.bucket_slice,
    schema.rank_state,
    schema.segment,
    schema.chunk,
    schema.series_chunk,
    schema.slab,
    schema.tile,
    schema.event,
    schema.alert_state,
    schema.episode,
    schema.notice,
    schema.silence,
)
"""In the order in which group commits take them."""


def rename(connection: sa.Connection, run_id: str, name: str) -> bool:
    """Give a run another name; False: no such run."""
    return _changed(connection, sa.update(run).where(run.c.run_id == run_id).values(name=plain.text(name, 200)))


def set_tags(connection: sa.Connection, run_id: str, tags: Sequence[str]) -> bool:
    """Replace a run's tags; False: no such run."""
    packed = plain.pack(plain.texts(tags, max_items=32, max_chars=64))
    return _changed(connection, sa.update(run).where(run.c.run_id == run_id).values(tags=packed))


def delete(connection: sa.Connection, run_id: str, *, now_us: int) -> bool:
    """Delete a run and all of its data; False: no such run."""
    cursors.lock_run(connection, run_id)
    cursors.lock_streams(connection, [run_id])
    name = connection.execute(sa.select(run.c.name).where(run.c.run_id == run_id)).scalar()
    if name is None:
        return False
    connection.execute(sa.insert(deleted_run).values(run_id=run_id, name=name, deleted_us=now_us))
    for table in _TABLES_OF_A_RUN:
        connection.execute(sa.delete(table).where(table.c.run_id == run_id))
    return True


def deleted(connection: sa.Connection, run_id: str) -> tuple[str, int] | None:
    """(name, when) of a run that was deleted."""
    row = connection.execute(
        sa.select(deleted_run.c.name, deleted_run.c.deleted_us).where(deleted_run.c.run_id == run_id)
    ).one_or_none()
    return None if row is None else (row.name, row.deleted_us)


def put_token(connection: sa.Connection, token_hash: str, *, name: str, created_us: int) -> None:
    """Keep a token by its hash; one that is kept already stays as it is."""
    row = {"token_hash": token_hash, "name": plain.text(name, 200), "created_us": created_us}
    cursors.insert_missing(connection, token, [row])


def tokens(connection: sa.Connection) -> list[TokenRow]:
    """All tokens, oldest first."""
    rows = connection.execute(sa.select(token).order_by(token.c.created_us, token.c.token_hash))
    return [TokenRow(token_hash=row.token_hash, name=row.name, created_us=row.created_us) for row in rows]


def find_token(connection: sa.Connection, token_hash: str) -> str | None:
    """The name a token was given out under, or None: never given out, or revoked."""
    return connection.execute(sa.select(token.c.name).where(token.c.token_hash == token_hash)).scalar()


def revoke_token(connection: sa.Connection, token_hash: str) -> bool:
    """Forget a token; False: it was not known."""
    return _changed(connection, sa.delete(token).where(token.c.token_hash == token_hash))


def put_session(connection: sa.Connection, session_hash: str, *, created_us: int, expires_us: int) -> None:
    """Keep a browser session by its hash, and drop those that are over."""
    connection.execute(sa.delete(session).where(session.c.expires_us <= created_us))
    row = {"session_hash": session_hash, "created_us": created_us, "expires_us": expires_us}
    cursors.insert_missing(connection, session, [row])


def find_session(connection: sa.Connection, session_hash: str) -> int | None:
    """When a session ends (microseconds since the epoch), or None: not known."""
    return connection.execute(sa.select(session.c.expires_us).where(session.c.session_hash == session_hash)).scalar()


def delete_session(connection: sa.Connection, session_hash: str) -> bool:
    """Forget a session; False: it was not known. Of two who forget it at once, one is told True."""
    return _changed(connection, sa.delete(session).where(session.c.session_hash == session_hash))


def _changed(connection: sa.Connection, statement: sa.Update | sa.Delete) -> bool:
    return connection.execute(statement).rowcount > 0
