"""Segments into chunks and tiles: the open ones of a stream are rewritten with what came since, and sealed when full.

Owns the `chunk` and `series_chunk` tables; `tiling` has those of sketches. Reads only the store, never the writer's
memory. Invariant: one stream is compacted in one transaction that moves `compacted` by compare-and-set, so a process
killed at any point leaves every point and sketch in exactly one place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from halfscope.wire.messages import Points

from halfscope_server.store import rollups, schema, tiling
from halfscope_server.store.block import Block, Collector, SeriesColumn
from halfscope_server.store.cursors import Key
from halfscope_server.store.engine import Database
from halfscope_server.store.packing import (
    OPEN_LEVEL,
    SEALED_LEVEL,
    pack_axis,
    pack_buckets,
    pack_values,
    unpack_axis,
    unpack_values,
)
from halfscope_server.store.records import measured_of
from halfscope_server.store.rollups import COARSE_WIDTH, FINE_WIDTH
from halfscope_server.store.tails import SketchCollector, sids_of

MAX_SEGMENTS = 256
"""Segments of one stream after which they are merged: a read decodes no more than about that many."""
MAX_RAW_BYTES = 16 * 1024 * 1024
"""Of segments merged at once, before compression: bounds memory, and how long acknowledgements wait for a merge."""
MAX_AGE_US = 60_000_000
"""Age at which even a few segments are merged."""
SEAL_STEPS = 8192
"""Steps at which a chunk is full."""
SEAL_ROWS = 4 * SEAL_STEPS
"""Rows at which it is full whatever its steps: a stream may write many times into one step."""
POINTS_PER_BUCKET = 4
"""A summary of fewer points per bucket would be larger than the points; it is made when read."""

stream = schema.stream
segment = schema.segment
chunk = schema.chunk
series_chunk = schema.series_chunk

_DELETE_SEGMENTS = sa.delete(segment).where(
    segment.c.run_id == sa.bindparam("b_run"),
    segment.c.attempt == sa.bindparam("b_attempt"),
    segment.c.stream == sa.bindparam("b_stream"),
    segment.c.first_seq < sa.bindparam("b_upto"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finished:
    """A chunk to be written: seqs first..last of the stream."""

    first_seq: int
    last_seq: int
    is_sealed: bool
    block: Block


def compact(database: Database, *, now_us: int, budget_s: float, clock_s: Callable[[], float] = time.monotonic) -> int:
    """Merge the streams that are due, the fullest first, until the budget is used up.

    Returns:
        How many merges were made; 0 means that nothing is due.
    """
    deadline_s = clock_s() + budget_s
    num_merged = 0
    while True:
        with database.writing() as connection:
            due = _due(connection, now_us)
        for key in due:
            with database.writing() as connection:
                num_merged += _compact_stream(connection, key)
            if clock_s() >= deadline_s:
                return num_merged
        if not due:
            return num_merged


def _due(connection: sa.Connection, now_us: int) -> list[Key]:
    rows = connection.execute(
        sa.select(stream.c.run_id, stream.c.stream)
        .where(
            stream.c.hot_since_us.is_not(None),
            sa.or_(stream.c.num_hot >= MAX_SEGMENTS, stream.c.hot_since_us <= now_us - MAX_AGE_US),
        )
        .order_by(stream.c.num_hot.desc())
        .limit(64)
    )
    return [(row[0], row[1]) for row in rows]


def _compact_stream(connection: sa.Connection, key: Key) -> bool:
    held = connection.execute(
        sa.select(stream).where(stream.c.run_id == key[0], stream.c.stream == key[1]).with_for_update()
    ).one_or_none()
    if held is None or not held.num_hot:
        return False
    segments = _oldest(connection, held)
    sketches = SketchCollector()
    _write_chunks(connection, held, _merged(connection, held, segments, sketches))
    for kind in sketches.kinds:
        cells = sketches.cells(kind)
        assert cells is not None, "a kind is of at least one record"
        tiling.add(connection, held, kind, cells)
    upto = segments[-1].last_seq + 1
    _finish(connection, held, upto=upto, num_segments=len(segments))
    return True


def _oldest(connection: sa.Connection, held: sa.Row[Any]) -> Sequence[sa.Row[*tuple[Any, ...]]]:
    """The segments to merge: at least one, then no more than may be merged at once."""
    behind = (
        segment.c.run_id == held.run_id,
        segment.c.attempt == held.attempt,
        segment.c.stream == held.stream,
        segment.c.first_seq >= held.compacted,
    )
    sizes = sa.select(segment.c.first_seq, segment.c.raw_bytes).where(*behind).order_by(segment.c.first_seq)
    last, total_bytes = -1, 0
    for first_seq, raw_bytes in connection.execute(sizes.limit(MAX_SEGMENTS)).all():
        total_bytes += raw_bytes
        if total_bytes > MAX_RAW_BYTES and last >= 0:
            break
        last = first_seq
    columns = (segment.c.first_seq, segment.c.last_seq, segment.c.raw_bytes, segment.c.body)
    return connection.execute(
        sa.select(*columns).where(*behind, segment.c.first_seq <= last).order_by(segment.c.first_seq)
    ).all()


def _merged(
    connection: sa.Connection,
    held: sa.Row[Any],
    segments: Sequence[sa.Row[*tuple[Any, ...]]],
    sketches: SketchCollector,
) -> list[_Finished]:
    """The open chunk and the segments' points, cut into full chunks and a last one that stays open.

    Sketches that lie between the points are put aside for the tiles.
    """
    sids = sids_of(connection, held.run_id, held.stream)
    first_seq, collector = _open_chunk(connection, held)
    if first_seq is None:
        first_seq = segments[0].first_seq
    finished = []
    full_at_rows = SEAL_STEPS
    for row in segments:
        for record in measured_of(row.body, row.raw_bytes):
            if isinstance(record, Points):
                collector.add(record, sids)
            else:
                sketches.add(record)
        if collector.num_rows < full_at_rows:
            continue
        missing = SEAL_STEPS - collector.num_steps()
        if missing > 0 and collector.num_rows < SEAL_ROWS:
            full_at_rows = collector.num_rows + missing
            continue
        finished.append(_Finished(first_seq=first_seq, last_seq=row.last_seq, is_sealed=True, block=collector.block()))
        first_seq, collector, full_at_rows = row.last_seq + 1, Collector(), SEAL_STEPS
    if collector.num_rows:
        finished.append(
            _Finished(first_seq=first_seq, last_seq=segments[-1].last_seq, is_sealed=False, block=collector.block())
        )
    return finished


def _open_chunk(connection: sa.Connection, held: sa.Row[Any]) -> tuple[int | None, Collector]:
    """Take the stream's open chunk out of the store; it is written back with what is added."""
    collector = Collector()
    place = (chunk.c.run_id == held.run_id, chunk.c.attempt == held.attempt, chunk.c.stream == held.stream)
    found = connection.execute(sa.select(chunk).where(*place, chunk.c.sealed.is_(False))).one_or_none()
    if found is None:
        return None, collector
    at = (
        series_chunk.c.run_id == held.run_id,
        series_chunk.c.attempt == held.attempt,
        series_chunk.c.stream == held.stream,
        series_chunk.c.first_seq == found.first_seq,
        series_chunk.c.series_id.in_(
            sa.select(schema.stream_series.c.series_id).where(
                schema.stream_series.c.run_id == held.run_id, schema.stream_series.c.stream == held.stream
            )
        ),
    )
    bodies = connection.execute(sa.select(series_chunk.c.series_id, series_chunk.c.body).where(*at)).all()
    collector.add_block(
        Block(axis=unpack_axis(found.axis), series={row.series_id: unpack_values(row.body) for row in bodies})
    )
    connection.execute(sa.delete(series_chunk).where(*at))
    connection.execute(sa.delete(chunk).where(*place, chunk.c.first_seq == found.first_seq))
    return found.first_seq, collector


def _write_chunks(connection: sa.Connection, held: sa.Row[Any], finished: list[_Finished]) -> None:
    place = {"run_id": held.run_id, "attempt": held.attempt, "stream": held.stream}
    chunks, columns = [], []
    for one in finished:
        axis = one.block.axis
        level = SEALED_LEVEL if one.is_sealed else OPEN_LEVEL
        chunks.append(
            place
            | {
                "first_seq": one.first_seq,
                "last_seq": one.last_seq,
                "sealed": one.is_sealed,
                "num_rows": len(axis.steps),
                "first_step": int(axis.steps[0]),
                "last_step": int(axis.steps[-1]),
                "axis": pack_axis(axis, level=level),
            }
        )
        columns += [
            place | {"first_seq": one.first_seq, "series_id": series_id} | _column_row(one.block, column, level)
            for series_id, column in one.block.series.items()
        ]
    if chunks:
        connection.execute(sa.insert(chunk), chunks)
    if columns:
        connection.execute(sa.insert(series_chunk), columns)


def _column_row(block: Block, column: SeriesColumn, level: int) -> dict[str, Any]:
    rows = slice(None) if column.rows is None else column.rows
    steps, times_us, values = block.axis.steps[rows], block.axis.times_us[rows], column.values
    fine = rollups.summarise(steps, times_us, values, FINE_WIDTH)
    coarse = rollups.merge([fine], from_width=FINE_WIDTH, to_width=COARSE_WIDTH)
    has_finite = bool((fine.last_step >= 0).any())
    is_finite = fine.last_step >= 0
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(fine.total.sum())
    return {
        "first_step": int(steps[0]),
        "last_step": int(steps[-1]),
        "num_points": len(values),
        "num_nan": int(fine.num_nan.sum()),
        "num_pos_inf": int(fine.num_pos_inf.sum()),
        "num_neg_inf": int(fine.num_neg_inf.sum()),
        "minimum": float(fine.minimum[is_finite].min()) if has_finite else None,
        "maximum": float(fine.maximum[is_finite].max()) if has_finite else None,
        "total": total if has_finite and total == total else None,
        "rollup_4096": _summary(coarse, COARSE_WIDTH, len(values), level),
        "rollup_64": _summary(fine, FINE_WIDTH, len(values), level),
        "body": pack_values(column, level=level),
    }


def _summary(buckets: rollups.Buckets, width: int, num_points: int, level: int) -> bytes | None:
    if len(buckets.bucket) * POINTS_PER_BUCKET > num_points:
        return None
    return pack_buckets(buckets, width=width, level=level)


def _finish(connection: sa.Connection, held: sa.Row[Any], *, upto: int, num_segments: int) -> None:
    """Drop the segments that are in chunks now, and move `compacted` behind them."""
    place = {"b_run": held.run_id, "b_attempt": held.attempt, "b_stream": held.stream}
    deleted = connection.execute(_DELETE_SEGMENTS, place | {"b_upto": upto})
    # The row is locked since it was read, so these cannot have changed; if they did, nothing of this may be committed.
    assert deleted.rowcount == num_segments, f"{deleted.rowcount} segments deleted where {num_segments} were merged"
    oldest_us = connection.execute(
        sa.select(segment.c.received_us)
        .where(
            segment.c.run_id == held.run_id,
            segment.c.attempt == held.attempt,
            segment.c.stream == held.stream,
            segment.c.first_seq >= upto,
        )
        .order_by(segment.c.first_seq)
        .limit(1)
    ).scalar()
    moved = connection.execute(
        sa.update(stream)
        .where(stream.c.run_id == held.run_id, stream.c.stream == held.stream, stream.c.compacted == held.compacted)
        .values(compacted=upto, num_hot=stream.c.num_hot - num_segments, hot_since_us=oldest_us)
    )
    assert moved.rowcount == 1, "the stream was compacted by somebody else at the same time"
