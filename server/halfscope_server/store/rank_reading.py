"""What a table of ranks lacks, out of the database: all of a job after a restart, later what other servers took in.

Must not write. Invariant: what is given of a stream follows on what the table has of it without a gap, in the order in
which it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from halfscope.wire.messages import Points

from halfscope_server.store import schema
from halfscope_server.store.block import Axis, Block, SeriesColumn
from halfscope_server.store.engine import Database
from halfscope_server.store.packing import unpack_axis, unpack_values
from halfscope_server.store.rank_tables import WANTED, RankTables
from halfscope_server.store.tails import HotStream, Tails, records_of
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
        series_chunk.c.stream.in_(sa.bindparam("b_streams", expanding=True)),
    )
    .order_by(series_chunk.c.stream, series_chunk.c.first_seq)
)
_FIRST_STEP = sa.select(sa.func.min(chunk.c.first_step)).where(
    chunk.c.run_id == sa.bindparam("b_run"), chunk.c.attempt == sa.bindparam("b_attempt")
)
_SIDS = sa.select(stream_series.c.stream, stream_series.c.sid, stream_series.c.series_id).where(
    stream_series.c.run_id == sa.bindparam("b_run")
)


_ALL = tuple(WANTED)
_Row = sa.Row[*tuple[Any, ...]]
"""Of `_STREAMS`."""
STREAMS_AT_ONCE = 64
"""Bounds what is in memory beside the tables and the tails."""


class Values(NamedTuple):
    """Of one series of a stream, as they lie in a chunk or a tail."""

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
    values: list[Values]
    points: list[Points]
    sids: Mapping[int, int]


def complete(database: Database, tables: RankTables, tails: Tails, run_id: str, attempt: int) -> None:
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
        reader = _Reader(connection, tails, names)
        if not table.taken:
            table.first_step = reader.first_step(streams)
        lacking = [row for row in streams if table.taken.get(row.stream, -1) < row.next]
        for at in range(0, len(lacking), STREAMS_AT_ONCE):
            table.fill(reader.read(lacking[at : at + STREAMS_AT_ONCE], table.taken))
            if table.is_too_large or table.is_given_up:
                return


class _Reader:
    """Streams of one attempt in one snapshot."""

    def __init__(self, connection: sa.Connection, tails: Tails, names: Mapping[str, Any]) -> None:
        self._connection, self._tails, self._names = connection, tails, names
        self._sids: dict[str, dict[int, int]] = {}
        for name, sid, series_id in connection.execute(_SIDS, {"b_run": names["b_run"]}):
            self._sids.setdefault(name, {})[sid] = series_id

    def first_step(self, streams: Sequence[_Row]) -> int:
        """Of all of them; -1: they have none."""
        told = [self._connection.execute(_FIRST_STEP, self._names).scalar()]
        told += [int(tail.axis.steps[0]) for row in streams if (tail := self._tail(row, [])[0]).axis.steps.size]
        return min((step for step in told if step is not None), default=-1)

    def read(self, streams: Sequence[_Row], taken: Mapping[str, int]) -> list[Lacking]:
        """What these have beyond what was taken of them."""
        new = [row for row in streams if row.stream not in taken]
        values = self._chunks([row.stream for row in new])
        found = []
        for row in streams:
            of_stream, points, upto = values.get(row.stream, []), [], row.next
            if row.stream not in taken:
                tail, upto = self._tail(row, _ALL)  # also what it has declared since this snapshot
                of_stream += [_values(series_id, tail.axis, column) for series_id, column in tail.series.items()]
            else:
                names = self._names
                records = records_of(
                    self._connection, names["b_run"], names["b_attempt"], row.stream, since=taken[row.stream]
                )
                points = [record for record in records if isinstance(record, Points)]
            sids = self._sids.get(row.stream, {})
            found.append(
                Lacking(stream=row.stream, rank=row.rank, next=upto, values=of_stream, points=points, sids=sids)
            )
        return found

    def _tail(self, row: _Row, wanted: Sequence[int]) -> tuple[Block, int]:
        """Of the tails that every reader of the run shares: a restarted server decodes them once."""
        hot = HotStream(self._names["b_run"], row.stream, self._names["b_attempt"], row.next, row.compacted)
        return self._tails.block_to(self._connection, hot, wanted)

    def _chunks(self, streams: Sequence[str]) -> dict[str, list[Values]]:
        wanted = sorted({of for name in streams for of in self._sids.get(name, {}).values() if of in WANTED})
        found: dict[str, list[Values]] = {}
        axes: dict[bytes, Axis] = {}
        names = {**self._names, "b_series": wanted, "b_streams": streams}
        for name, series_id, packed, body in self._connection.execute(_CHUNKS, names):
            axis = axes.get(packed)
            if axis is None:
                axes.clear()  # those of one stream come together
                axis = axes[packed] = unpack_axis(packed)
            found.setdefault(name, []).append(_values(series_id, axis, unpack_values(body)))
        return found


def _values(series_id: int, axis: Axis, column: SeriesColumn) -> Values:
    steps, times_us = axis.steps, axis.times_us
    if column.rows is not None:
        steps, times_us = steps[column.rows], times_us[column.rows]
    return Values(series_id, steps.tobytes(), times_us.tobytes(), np.ascontiguousarray(column.values).tobytes())
