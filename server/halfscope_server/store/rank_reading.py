"""What a table of ranks lacks, out of the database: all of a job after a restart, later what other servers took in.

Must not write. Invariant: what is given of a stream follows on what the table has of it without a gap, in the order in
which it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import sqlalchemy as sa
from halfscope.wire.messages import Points

from halfscope_server.store import schema
from halfscope_server.store.block import Axis
from halfscope_server.store.engine import Database
from halfscope_server.store.packing import unpack_axis, unpack_values
from halfscope_server.store.rank_tables import WANTED, RankTables
from halfscope_server.store.tails import records_of
from halfscope_server.store.types import SERVER_STREAM

stream, chunk, series_chunk, stream_series = (
    schema.stream, schema.chunk, schema.series_chunk, schema.stream_series
)  # fmt: skip

_STREAMS = (
    sa.select(stream.c.stream, stream.c.rank, stream.c.world_size, stream.c.next, stream.c.compacted)
    .where(
        stream.c.run_id == sa.bindparam("b_run"),
        stream.c.attempt == sa.bindparam("b_attempt"),
        stream.c.stream != SERVER_STREAM,
    )
    .order_by(stream.c.rank, stream.c.stream)
)
_IS_OF_CHUNK = sa.and_(
    *(chunk.c[name] == series_chunk.c[name] for name in ("run_id", "attempt", "stream", "first_seq"))
)
_CHUNKS = (
    sa.select(series_chunk.c.stream, series_chunk.c.series_id, chunk.c.axis, series_chunk.c.body)
    .join(chunk, _IS_OF_CHUNK)
    .where(
        series_chunk.c.run_id == sa.bindparam("b_run"),
        series_chunk.c.attempt == sa.bindparam("b_attempt"),
        series_chunk.c.series_id.in_(sa.bindparam("b_series", expanding=True)),
    )
    .order_by(series_chunk.c.stream, series_chunk.c.first_seq)
)
_SIDS = sa.select(stream_series.c.stream, stream_series.c.sid, stream_series.c.series_id).where(
    stream_series.c.run_id == sa.bindparam("b_run")
)


class Values(NamedTuple):
    """Of one series of a stream, as they lie in a chunk."""

    series_id: int
    steps: bytes
    times_us: bytes
    values: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """What a table lacks of a stream."""

    stream: str
    rank: int
    next: int
    """First seq behind it."""
    chunks: list[Values]
    points: list[Points]
    sids: Mapping[int, int]


def complete(database: Database, tables: RankTables, run_id: str, attempt: int) -> None:
    """Bring the table of an attempt up to what is stored, where it may have one. Under the lock of the tables."""
    names = {"b_run": run_id, "b_attempt": attempt}
    tables.expect(run_id, attempt)  # whatever is committed from here on is handed over as well
    with database.reading() as connection:
        streams = connection.execute(_STREAMS, names).all()
        world_size = max((row.world_size for row in streams), default=1)
        if world_size < 2:
            return
        table = tables.begun(run_id, attempt, world_size)
        if table is not None and any(table.taken.get(row.stream, 0) < row.compacted for row in streams):
            table = tables.begun(run_id, attempt, world_size, anew=True)
        if table is None:
            return
        sids: dict[str, dict[int, int]] = {}
        for name, sid, series_id in connection.execute(_SIDS, {"b_run": run_id}):
            sids.setdefault(name, {})[sid] = series_id
        chunks = {} if table.taken else _chunks(connection, names, sids)
        lacking = []
        for row in streams:
            since = table.taken.get(row.stream, row.compacted)
            records = records_of(connection, run_id, attempt, row.stream, since=since) if since < row.next else ()
            points = [record for record in records if isinstance(record, Points)]
            if since < row.next or row.stream not in table.taken:
                lacking.append(
                    Lacking(
                        stream=row.stream, rank=row.rank, next=row.next, chunks=chunks.get(row.stream, []),
                        points=points, sids=sids.get(row.stream, {}),
                    )
                )  # fmt: skip
        table.fill(lacking)


def _chunks(
    connection: sa.Connection, names: Mapping[str, object], sids: Mapping[str, Mapping[int, int]]
) -> dict[str, list[Values]]:
    wanted = sorted({series_id for known in sids.values() for series_id in known.values() if series_id in WANTED})
    found: dict[str, list[Values]] = {}
    axes: dict[bytes, Axis] = {}
    for name, series_id, packed, body in connection.execute(_CHUNKS, {**names, "b_series": wanted}):
        axis = axes.get(packed)
        if axis is None:
            axes.clear()  # those of one stream come together
            axis = axes[packed] = unpack_axis(packed)
        column = unpack_values(body)
        steps, times_us = axis.steps, axis.times_us
        if column.rows is not None:
            steps, times_us = steps[column.rows], times_us[column.rows]
        values = Values(series_id, steps.tobytes(), times_us.tobytes(), np.ascontiguousarray(column.values).tobytes())
        found.setdefault(name, []).append(values)
    return found
