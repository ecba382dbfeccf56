"""What is new in the streams of a run behind a reader's cursors: out of a group commit's own records, or read back.

Must not write, nor know what becomes of it. Invariant: both ways give the same values of every series in the same
order, and each once, wherever the cursors were; what compaction did meanwhile is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sqlalchemy as sa
from halfscope.wire.messages import Points, Sketches

from halfscope_server.store import events, schema
from halfscope_server.store.block import Block, Collector
from halfscope_server.store.cells import COUNTS, NUM_SENT, of_records
from halfscope_server.store.cursors import StreamState
from halfscope_server.store.dense import Dense
from halfscope_server.store.packing import unpack_axis, unpack_values
from halfscope_server.store.records import Decoded
from halfscope_server.store.tails import records_of, sids_of
from halfscope_server.store.types import SERVER_STREAM, EventRow, FrameMoments, SeriesRow
from halfscope_server.store.update_types import Column, StreamCursor, Update, Wanted

GRADIENTS, CHANGES = "grad", "update"
"""Kinds of sketches."""
LOOKED_AT = (*COUNTS[:NUM_SENT], "flushed", "subnormal", "absmax")
"""What is brought of frames out of commits."""
CHUNKS_AT_ONCE = 4
"""Of one stream: 32,768 steps. Who is far behind reads several times."""

stream = schema.stream
segment = schema.segment
chunk = schema.chunk
series_chunk = schema.series_chunk
event = schema.event

Step = tuple[Update, StreamCursor]
"""An update and where its stream's cursor is behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What one stream brought in a group commit, as it was decoded: nothing is worked out while others wait."""

    state: StreamState
    """Of its fields only those are read that never change."""
    decoded: Sequence[Decoded]
    sids: Mapping[int, int]
    lids: Mapping[int, int]
    next: int
    ended: str
    ended_us: int | None
    now_us: int

    @property
    def first(self) -> int:
        """Seq of its first record."""
        return self.decoded[0].batch.first

    @property
    def num_bytes(self) -> int:
        return sum(decoded.batch.raw_bytes for decoded in self.decoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What `read` found."""

    steps: Sequence[Step]
    is_behind: bool
    """There is more: read again from the new cursors."""


def of_commits(
    brought: Sequence[Brought], cursor: StreamCursor, wanted: Wanted, series: Mapping[int, SeriesRow]
) -> Step:
    """One update out of group commits that follow one another, in one stream.

    Args:
        brought: at least one; the first one begins where the cursor is.
        cursor: of the stream.
        wanted: what is looked at.
        series: the run's series by id.
    """
    last = brought[-1]
    ids = frozenset[int]().union(*(decoded.series_ids for one in brought for decoded in one.decoded))
    chosen = _chosen(series, wanted, ids)
    collector = Collector(chosen)
    rows: list[dict[str, Any]] = []
    for one in brought:
        for decoded in one.decoded:
            for points in decoded.points:
                collector.add(points, last.sids)
            rows += _event_rows(one, decoded, wanted.events)
    columns = _columns(collector.block(list(chosen)), chosen) if collector.num_rows else []
    update = Update(
        run_id=last.state.run_id,
        stream=last.state.stream,
        attempt=last.state.attempt,
        rank=last.state.rank,
        next=last.next,
        columns=columns,
        events=sorted((events.of_row(row) for row in rows), key=_event_place),
        ended=last.ended,
        end_us=last.ended_us,
    )
    return update, _moved(cursor, update)


def sketched(brought: Sequence[Brought], step: Step, names: Mapping[int, str]) -> Step:
    """The step with what these commits sketched, of the layers that they sketched.

    Args:
        brought: as for `of_commits`.
        step: what that gave.
        names: of the run's layers by id.
    """
    for kind in (GRADIENTS, CHANGES):
        records = [
            record for one in brought for decoded in one.decoded for record in decoded.sketches if record.of == kind
        ]
        if records:
            step = _with(step, kind, _moments(records, step[0], brought[-1].lids), names)
    return step


def _with(step: Step, kind: str, moments: FrameMoments, names: Mapping[int, str]) -> Step:
    update, cursor = step
    told = [names.get(layer_id, "") for layer_id in moments.layer_ids]
    last = int(moments.step[-1])
    if kind == CHANGES:
        update = replace(update, changes=moments, changed_names=told)
        return update, replace(cursor, change_step=max(cursor.change_step, last))
    update = replace(update, frames=moments, layer_names=told)
    return update, replace(cursor, frame_step=max(cursor.frame_step, last))


def _moments(records: Sequence[Sketches], update: Update, ids: Mapping[int, int]) -> FrameMoments:
    cells = of_records(records)
    steps, first = np.unique(cells.step_R, return_index=True)
    lids, column_C = np.unique(cells.lid_C, return_inverse=True)
    dense = Dense(len(lids), cells.scale_R[first], LOOKED_AT)
    dense.put_cells(np.searchsorted(steps, cells.step_C), column_C, cells, bins=False)
    return FrameMoments(
        layer_ids=tuple(ids[lid] for lid in lids.tolist()),
        step=steps,
        time_us=cells.time_us_R[first],
        rank=np.full(len(steps), update.rank, np.int32),
        attempt=np.full(len(steps), update.attempt, np.int64),
        scale=dense.scale,
        present=dense.present,
        point=dense.point,
        maybe_clipped=dense.maybe_clipped,
        columns={name: dense.column(name) for name in LOOKED_AT},
    )


def _event_rows(one: Brought, decoded: Decoded, kinds: frozenset[str]) -> list[dict[str, Any]]:
    rows = [events.of_record(one.state, seq, record) for seq, record in decoded.events if record.kind in kinds]
    if "lost" in kinds:
        step = decoded.last_step or 0
        rows += [events.of_lost(one.state, seq, lost, step=step, now_us=one.now_us) for seq, lost in decoded.lost]
    if "run_ended" in kinds:
        rows += [events.of_end(one.state, seq, end) for seq, end in decoded.ends]
    return rows


def read(
    connection: sa.Connection,
    run_id: str,
    cursors: Mapping[str, StreamCursor],
    wanted: Wanted,
    series: Mapping[int, SeriesRow],
) -> Reading:
    """What lies behind the cursors of a run, in one snapshot; without frames.

    A stream with nothing new is there as well: it may have ended, or contact with it was regained.
    """
    found = connection.execute(
        sa.select(stream).where(stream.c.run_id == run_id).order_by(stream.c.attempt, stream.c.rank, stream.c.stream)
    ).all()
    steps: list[Step] = []
    is_behind = False
    newest = max((row.attempt for row in found), default=0)
    for row in found:
        cursor = cursors.get(row.stream, StreamCursor())
        if row.stream == SERVER_STREAM:
            found_events = _events(connection, row, cursor.next, row.next, wanted)
            update = _update(row, row.next, [], found_events, attempt=newest, ended="")
        else:
            columns, next_seq = _values(connection, row, cursor, wanted, series)
            found_events = _events(connection, row, cursor.next, next_seq, wanted)
            is_there = next_seq >= row.next
            is_behind |= not is_there
            update = _update(
                row, next_seq, columns, found_events, attempt=row.attempt, ended=row.ended if is_there else ""
            )
        steps.append((update, _moved(cursor, update)))
    # The server's word on streams (lost, regained, killed) comes behind what it speaks of.
    steps.sort(key=lambda step: step[0].stream == SERVER_STREAM)
    return Reading(steps=steps, is_behind=is_behind)


def with_frames(step: Step, wanted: Wanted, frames: Callable[..., FrameMoments], names: Mapping[int, str]) -> Step:
    """The step with what was newly sketched in its stream."""
    update, cursor = step
    for kind, is_wanted, taken in (
        (GRADIENTS, wanted.frames, cursor.frame_step),
        (CHANGES, wanted.changes, cursor.change_step),
    ):
        if is_wanted:
            found = frames(update.run_id, first_step=taken + 1, rank=update.rank, attempt=update.attempt, of=kind)
            step = _with(step, kind, found, names) if found.step.size else step
    return step


def _update(
    row: sa.Row[Any], next_seq: int, columns: list[Column], found: list[EventRow], *, attempt: int, ended: str
) -> Update:
    return Update(
        run_id=row.run_id,
        stream=row.stream,
        attempt=attempt,
        rank=row.rank,
        next=next_seq,
        columns=columns,
        events=found,
        ended=ended,
        end_us=row.ended_us if ended else None,
    )


def _values(
    connection: sa.Connection,
    row: sa.Row[Any],
    cursor: StreamCursor,
    wanted: Wanted,
    series: Mapping[int, SeriesRow],
) -> tuple[list[Column], int]:
    """Values behind the cursor, and the seq up to which they go."""
    if cursor.next >= row.next:
        return [], cursor.next
    chosen = _chosen(series, wanted, series.keys())
    if cursor.next < row.compacted:
        return _chunks(connection, row, cursor, chosen)
    collector = Collector(chosen)
    sids = sids_of(connection, row.run_id, row.stream)
    for record in records_of(connection, row.run_id, row.attempt, row.stream, since=cursor.next):
        if isinstance(record, Points):
            collector.add(record, sids)
    return (_columns(collector.block(list(chosen)), chosen) if collector.num_rows else []), row.next


def _chunks(
    connection: sa.Connection, row: sa.Row[Any], cursor: StreamCursor, chosen: Mapping[int, SeriesRow]
) -> tuple[list[Column], int]:
    """Values behind the cursor out of the next few chunks."""
    of_stream = [chunk.c.run_id == row.run_id, chunk.c.attempt == row.attempt, chunk.c.stream == row.stream]
    found = connection.execute(
        sa.select(chunk.c.first_seq, chunk.c.last_seq, chunk.c.axis)
        .where(*of_stream, chunk.c.last_seq >= cursor.next)
        .order_by(chunk.c.first_seq)
        .limit(CHUNKS_AT_ONCE + 1)
    ).all()
    is_last = len(found) <= CHUNKS_AT_ONCE
    found = found[:CHUNKS_AT_ONCE]
    next_seq = row.compacted if is_last else found[-1].last_seq + 1
    collector: dict[int, list[tuple[Any, Any, Any]]] = {}
    axes = {part.first_seq: unpack_axis(part.axis) for part in found}
    bodies = connection.execute(
        sa.select(series_chunk.c.series_id, series_chunk.c.first_seq, series_chunk.c.body)
        .where(
            series_chunk.c.run_id == row.run_id,
            series_chunk.c.series_id.in_(list(chosen)),
            series_chunk.c.attempt == row.attempt,
            series_chunk.c.stream == row.stream,
            series_chunk.c.first_seq.in_(list(axes)),
        )
        .order_by(series_chunk.c.series_id, series_chunk.c.first_seq)
    )
    for series_id, first_seq, body in bodies:
        axis, column = axes[first_seq], unpack_values(body)
        at = slice(None) if column.rows is None else column.rows
        steps = axis.steps[at]
        new = int(np.searchsorted(steps, _taken(cursor, series_id), "right"))
        collector.setdefault(series_id, []).append((steps[new:], axis.times_us[at][new:], column.values[new:]))
    columns = [_joined(chosen[series_id], parts) for series_id, parts in collector.items()]
    return [column for column in columns if column.step.size], next_seq


def _taken(cursor: StreamCursor, series_id: int) -> int:
    """The newest step of a series that was taken in; -1: all are new."""
    return cursor.steps.get(series_id, cursor.last_step)


def _joined(series: SeriesRow, parts: Sequence[tuple[Any, Any, Any]]) -> Column:
    step, time_us, value = (np.concatenate([part[at] for part in parts]) for at in range(3))
    if bool((step[1:] < step[:-1]).any()):  # values that came late lie in a later chunk
        order = np.argsort(step, kind="stable")
        step, time_us, value = step[order], time_us[order], value[order]
    return Column(series=series, step=step, time_us=time_us, value=value)


def _chosen(series: Mapping[int, SeriesRow], wanted: Wanted, ids: Any) -> dict[int, SeriesRow]:
    found = ((series_id, series.get(series_id)) for series_id in sorted(ids))
    return {series_id: row for series_id, row in found if row is not None and row.name in wanted.series}


def _columns(block: Block, chosen: Mapping[int, SeriesRow]) -> list[Column]:
    axis = block.axis
    columns = []
    for series_id, column in block.series.items():
        at = slice(None) if column.rows is None else column.rows
        columns.append(
            Column(series=chosen[series_id], step=axis.steps[at], time_us=axis.times_us[at], value=column.values)
        )
    return columns


def _events(
    connection: sa.Connection, row: sa.Row[Any], first_seq: int, end_seq: int, wanted: Wanted
) -> list[EventRow]:
    if first_seq >= end_seq or not wanted.events:
        return []
    found = connection.execute(
        sa.select(event).where(
            event.c.run_id == row.run_id,
            event.c.kind.in_(sorted(wanted.events)),
            event.c.stream == row.stream,
            event.c.seq >= first_seq,
            event.c.seq < end_seq,
        )
    )
    return sorted((events.of_row(one._asdict()) for one in found), key=_event_place)


def _event_place(one: EventRow) -> tuple[int, int]:
    return one.step, one.seq


def _moved(cursor: StreamCursor, update: Update) -> StreamCursor:
    """Where the cursor is behind an update."""
    if not update.columns:
        return cursor if cursor.next == update.next else replace(cursor, next=update.next)
    newest = {column.series.series_id: int(column.step[-1]) for column in update.columns}
    return replace(
        cursor,
        next=update.next,
        last_step=max(cursor.last_step, *newest.values()),
        steps={**cursor.steps, **{key: max(step, cursor.steps.get(key, -1)) for key, step in newest.items()}},
    )
