"""The read path: points and rollups of a series out of chunks and unsealed segments, in one snapshot.

Must not write. Invariant: what is read does not depend on what compaction did or how frames were cut; the order of
points is (step, attempt, rank, stream, arrival).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from halfscope_server.store import plain, rollups, schema
from halfscope_server.store.block import Axis, SeriesColumn
from halfscope_server.store.engine import Database
from halfscope_server.store.packing import unpack_axis, unpack_buckets, unpack_values
from halfscope_server.store.prepared import Query
from halfscope_server.store.rollups import COARSE_WIDTH, FINE_WIDTH, Buckets
from halfscope_server.store.tails import HotStream, Tails
from halfscope_server.store.types import SERVER_STREAM, Extent, Points, Rollup, SeriesRow, StreamRow

stream = schema.stream
chunk = schema.chunk
series_chunk = schema.series_chunk


_Part = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""Steps, times and values of a piece of a series."""


StepValues = tuple[NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of a series is wanted. None: no bound."""

    run_id: str
    series_id: int
    first_step: int | None = None
    last_step: int | None = None
    rank: int | None = None
    attempt: int | None = None
    stretches: tuple[tuple[int, int], ...] = ()
    """(first, last) steps within those bounds, ascending and apart, of which alone points are wanted; none: all."""

    def given(self, *names: str) -> dict[str, int]:
        """Those of some bounds that there are."""
        return {name: bound for name in names if (bound := getattr(self, name)) is not None}


def points(database: Database, tails: Tails, wanted: Selection) -> Points:
    """Raw values."""
    parts: list[tuple[_Place, _Part]] = []
    with database.reading() as connection:
        streams = _places_of(connection, wanted)
        chunks = _chunks_by_stream(connection, wanted, (chunk.c.axis, series_chunk.c.body), with_axis=True)
        for row, hot in streams:
            own = [_expanded(unpack_axis(axis), unpack_values(body)) for axis, body in chunks.get(row.stream, [])]
            if hot is not None:
                own += _tail_part(connection, tails, hot, wanted)
            # Of many ranks' chunks mostly little is wanted: what is not is never put together and sorted.
            parts += [(row, _bounded(part, wanted)) for part in own]
    if not parts:
        return _no_points()
    counts = [len(part[0]) for _, part in parts]
    columns = (
        *(np.concatenate([part[at] for _, part in parts]) for at in range(3)),
        _repeated([row.rank for row, _ in parts], counts, np.int32),
        _repeated([row.attempt for row, _ in parts], counts, np.int64),
    )
    return _ordered(columns, wanted)


def points_by_rank(
    database: Database, tails: Tails, wanted: Selection, series_ids: Sequence[int]
) -> dict[int, dict[int, StepValues]]:
    """Steps and values of several series on each rank, by series and rank: each stream is looked at once."""
    found: dict[int, dict[int, list[_Part]]] = {series_id: {} for series_id in series_ids}
    axes: dict[bytes, Axis] = {}
    with database.reading() as connection:
        streams = _places_of(connection, wanted)
        chunks = {
            series_id: _chunks_by_stream(
                connection, replace(wanted, series_id=series_id), (chunk.c.axis, series_chunk.c.body), with_axis=True
            )
            for series_id in series_ids
        }
        for row, hot in streams:
            block = None if hot is None else tails.block(connection, hot, series_ids)
            for series_id, ranks in found.items():
                own: list[_Part] = []
                for packed, body in chunks[series_id].get(row.stream, []):
                    # Series of one stream mostly share their steps.
                    axis = axes[packed] if packed in axes else axes.setdefault(packed, unpack_axis(packed))
                    own.append(_expanded(axis, unpack_values(body)))
                column = None if block is None else block.series.get(series_id)
                if block is not None and column is not None:
                    own.append(_expanded(block.axis, column))
                if own:
                    ranks.setdefault(row.rank, []).extend(_bounded(part, wanted) for part in own)
            axes.clear()
    return {series_id: {rank: _of_rank(parts) for rank, parts in ranks.items()} for series_id, ranks in found.items()}


def _of_rank(parts: list[_Part]) -> StepValues:
    """Ascending by step; of a step that came twice the last counts."""
    steps, values = parts[0][0], parts[0][2]
    if len(parts) > 1:
        steps, values = np.concatenate([part[0] for part in parts]), np.concatenate([part[2] for part in parts])
    if bool((steps[1:] <= steps[:-1]).any()):
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        is_last = np.append(steps[1:] != steps[:-1], True)
        steps, values = steps[is_last], values[is_last]
    return steps, values


def extent(database: Database, tails: Tails, wanted: Selection) -> Extent | None:
    """First and last step, number and maximum of all points of some ranks and attempts, without unpacking chunks."""
    found = _pieces(database, tails, wanted)
    return _extent([piece for pieces in found.values() for piece in pieces])


def extents_by_rank(database: Database, tails: Tails, wanted: Selection) -> dict[int, Extent]:
    """The same of each rank that has any, ascending by rank."""
    found = _pieces(database, tails, wanted)
    extents = {rank: _extent(pieces) for rank, pieces in sorted(found.items())}
    return {rank: extent for rank, extent in extents.items() if extent is not None}


def _pieces(database: Database, tails: Tails, wanted: Selection) -> dict[int, list[tuple[Any, ...]]]:
    """First and last step, number of points and maximum of each piece, by rank."""
    columns = (
        series_chunk.c.first_step,
        series_chunk.c.last_step,
        series_chunk.c.num_points,
        series_chunk.c.maximum,
    )
    found: dict[int, list[tuple[Any, ...]]] = {}
    with database.reading() as connection:
        streams = _places_of(connection, wanted)
        chunks = _chunks_by_stream(connection, wanted, columns, with_axis=False)
        for row, hot in streams:
            pieces = found.setdefault(row.rank, [])
            pieces += chunks.get(row.stream, [])
            if hot is not None:
                for steps, _, values in _tail_part(connection, tails, hot, wanted):
                    finite = values[np.isfinite(values)]
                    if steps.size:
                        largest = float(finite.max()) if finite.size else None
                        pieces.append((int(steps.min()), int(steps.max()), int(steps.size), largest))
    return found


def _extent(pieces: list[tuple[Any, ...]]) -> Extent | None:
    """Of some pieces together; None: there is none."""
    if not pieces:
        return None
    maxima = [maximum for *_, maximum in pieces if maximum is not None]
    return Extent(
        first_step=min(first for first, *_ in pieces),
        last_step=max(last for _, last, *_ in pieces),
        num_points=sum(count for _, _, count, _ in pieces),
        maximum=max(maxima, default=None),
    )


def rollup(database: Database, tails: Tails, wanted: Selection, width: int) -> Rollup:
    """Summaries; buckets that only partly lie in the wanted range are given whole."""
    wanted = _whole_buckets(wanted, width)
    found = _summaries(database, tails, wanted, width)
    return _merged([part for parts in found.values() for part in parts], wanted, width)


def rollups_by_rank(database: Database, tails: Tails, wanted: Selection, width: int) -> dict[int, Rollup]:
    """The same of each rank that has any, ascending by rank."""
    wanted = _whole_buckets(wanted, width)
    found = {rank: parts for rank, parts in sorted(_summaries(database, tails, wanted, width).items()) if parts}
    # All ranks at once, each in a stretch of buckets of its own: a thousand small merges would cost four times as much.
    ratio = width // _level(width)
    last = max((int(part.bucket[-1]) for parts in found.values() for part in parts if part.bucket.size), default=0)
    own = last // ratio + 1
    shifted = [
        replace(part, bucket=part.bucket + at * own * ratio)
        for at, parts in enumerate(found.values())
        for part in parts
    ]
    merged = rollups.merge(shifted, from_width=_level(width), to_width=width)
    ends = np.searchsorted(merged.bucket, np.arange(1, len(found)) * own)
    whole = _cut(replace(merged, bucket=merged.bucket % own), wanted, width, ends)
    return {rank: one for rank, one in zip(found, whole, strict=True) if one.step.size}


def _summaries(database: Database, tails: Tails, wanted: Selection, width: int) -> dict[int, list[Buckets]]:
    """By rank, those of one in the order that decides among values of one step."""
    level = _level(width)
    packed = series_chunk.c.rollup_4096 if level == COARSE_WIDTH else series_chunk.c.rollup_64
    found: dict[int, list[Buckets]] = {}
    with database.reading() as connection:
        streams = _places_of(connection, wanted)
        chunks = _chunks_by_stream(connection, wanted, (series_chunk.c.first_seq, packed), with_axis=False)
        for row, hot in streams:
            parts = found.setdefault(row.rank, [])
            for is_kept, own in groupby(chunks.get(row.stream, []), lambda pair: pair[1] is not None):
                if is_kept:
                    parts.append(unpack_buckets([summary for _, summary in own]))
                else:
                    parts += [_summarised(_one_chunk(connection, wanted, row, seq), level) for seq, _ in own]
            if hot is not None:
                parts += [_summarised(part, level) for part in _tail_part(connection, tails, hot, wanted)]
    return found


def _merged(parts: list[Buckets], wanted: Selection, width: int) -> Rollup:
    merged = rollups.merge(parts, from_width=_level(width), to_width=width)
    return _cut(merged, wanted, width)[0]


def _cut(merged: Buckets, wanted: Selection, width: int, ends: NDArray[np.int64] | None = None) -> list[Rollup]:
    """The wanted buckets.

    Args:
        ends: where one rank's end and the next one's begin.
    """
    keep = np.ones(len(merged.bucket), bool)
    if wanted.first_step is not None:
        keep &= merged.bucket >= wanted.first_step // width
    if wanted.last_step is not None:
        keep &= merged.bucket <= wanted.last_step // width
    whole = rollups.as_rollup(merged if keep.all() else rollups.select(merged, keep), width)
    if ends is None:
        return [whole]
    edges = np.concatenate(([0], np.cumsum(keep)))[np.concatenate(([0], ends, [len(keep)]))].tolist()
    columns = {item.name: getattr(whole, item.name) for item in fields(Rollup) if item.name != "width"}
    return [
        Rollup(width=width, **{name: column[low:high] for name, column in columns.items()})
        for low, high in pairwise(edges)
    ]


def _level(width: int) -> int:
    return COARSE_WIDTH if width % COARSE_WIDTH == 0 else FINE_WIDTH


def streams_of(
    connection: sa.Connection, run_id: str, *, rank: int | None = None, attempt: int | None = None
) -> Iterator[tuple[StreamRow, HotStream | None]]:
    """The agents' streams of a run in the order that decides among points of one step, each with its tail if it has
    one."""
    bounds = {name: bound for name, bound in (("rank", rank), ("attempt", attempt)) if bound is not None}
    query = _streams_query(tuple(stream.c.keys()), tuple(bounds))
    for found in query.rows(connection, {"run_id": run_id, **bounds}).all():
        row = _stream(found)
        hot = HotStream(row.run_id, row.stream, row.attempt, row.next, found.compacted) if found.num_hot else None
        yield row, hot


class _Place(NamedTuple):
    """What reading a series needs of a stream."""

    run_id: str
    stream: str
    attempt: int
    next: int
    compacted: int
    rank: int
    num_hot: int


@lru_cache
def _streams_query(columns: tuple[str, ...], bounds: tuple[str, ...]) -> Query:
    """Streams of a run, but for the server's own.

    Args:
        bounds: columns of which a value is given.
    """
    statement = sa.select(*(stream.c[name] for name in columns)).where(
        stream.c.stream != SERVER_STREAM, *(stream.c[name] == sa.bindparam(name) for name in ("run_id", *bounds))
    )
    return Query(statement.order_by(stream.c.attempt, stream.c.rank, stream.c.stream))


def _places_of(connection: sa.Connection, wanted: Selection) -> list[tuple[_Place, HotStream | None]]:
    """`streams_of` with little else: a job has thousands, and every series asks."""
    bounds = wanted.given("rank", "attempt")
    rows = _streams_query(_Place._fields, tuple(bounds)).rows(connection, {"run_id": wanted.run_id, **bounds})
    places = [_Place(*row) for row in rows]
    return [(place, HotStream(*place[:5]) if place.num_hot else None) for place in places]


def series_of(connection: sa.Connection, run_id: str) -> dict[int, SeriesRow]:
    """The series of a run by id."""
    series = schema.series
    return {
        row.series_id: SeriesRow(
            run_id=row.run_id,
            series_id=row.series_id,
            name=row.name,
            labels=plain.unpack(row.labels),
            unit=row.unit,
            kind=row.kind,
            reduction=row.reduction,
        )
        for row in connection.execute(sa.select(series).where(series.c.run_id == run_id))
    }


def _chunks_by_stream(
    connection: sa.Connection, wanted: Selection, columns: tuple[sa.Column[Any], ...], *, with_axis: bool
) -> dict[str, list[tuple[Any, ...]]]:
    """The wanted columns of a series' chunks, by stream and ascending by seq."""
    bounds = wanted.given("attempt", "first_step", "last_step")
    query = _chunks_query(columns, tuple(bounds), len(wanted.stretches), with_axis=with_axis)
    edges = {f"edge_{at}": edge for at, edge in enumerate(edge for stretch in wanted.stretches for edge in stretch)}
    found: dict[str, list[tuple[Any, ...]]] = {}
    names = {"run_id": wanted.run_id, "series_id": wanted.series_id, **bounds, **edges}
    for row in query.rows(connection, names).all():
        found.setdefault(row[0], []).append(tuple(row[1:]))
    return found


@lru_cache
def _chunks_query(
    columns: tuple[sa.Column[Any], ...], bounds: tuple[str, ...], num_stretches: int, *, with_axis: bool
) -> Query:
    """A series' chunks.

    Args:
        bounds: those of a `Selection` that are given.
        num_stretches: any of so many they must touch; 0: none in particular.
    """
    within = {
        "attempt": series_chunk.c.attempt == sa.bindparam("attempt"),
        "first_step": series_chunk.c.last_step >= sa.bindparam("first_step"),
        "last_step": series_chunk.c.first_step <= sa.bindparam("last_step"),
    }
    statement = sa.select(series_chunk.c.stream, *columns).where(
        series_chunk.c.run_id == sa.bindparam("run_id"),
        series_chunk.c.series_id == sa.bindparam("series_id"),
        *(within[name] for name in bounds),
    )
    if with_axis:
        same = ("run_id", "attempt", "stream", "first_seq")
        statement = statement.join(chunk, sa.and_(*(chunk.c[name] == series_chunk.c[name] for name in same)))
    if num_stretches:
        touched = (
            sa.and_(
                series_chunk.c.last_step >= sa.bindparam(f"edge_{at}"),
                series_chunk.c.first_step <= sa.bindparam(f"edge_{at + 1}"),
            )
            for at in range(0, 2 * num_stretches, 2)
        )
        statement = statement.where(sa.or_(*touched))
    return Query(statement.order_by(series_chunk.c.attempt, series_chunk.c.stream, series_chunk.c.first_seq))


def _one_chunk(connection: sa.Connection, wanted: Selection, row: _Place, first_seq: int) -> _Part:
    """The points of one chunk that is too sparse to keep summaries of."""
    place = (wanted.run_id, row.attempt, row.stream, first_seq)
    axis = connection.execute(
        sa.select(chunk.c.axis).where(
            sa.tuple_(chunk.c.run_id, chunk.c.attempt, chunk.c.stream, chunk.c.first_seq)
            == sa.tuple_(*map(sa.literal, place))
        )
    ).scalar_one()
    body = connection.execute(
        sa.select(series_chunk.c.body).where(
            series_chunk.c.series_id == wanted.series_id,
            series_chunk.c.run_id == wanted.run_id,
            series_chunk.c.attempt == row.attempt,
            series_chunk.c.stream == row.stream,
            series_chunk.c.first_seq == first_seq,
        )
    ).scalar_one()
    return _expanded(unpack_axis(axis), unpack_values(body))


def _tail_part(connection: sa.Connection, tails: Tails, hot: HotStream, wanted: Selection) -> list[_Part]:
    block = tails.block(connection, hot, [wanted.series_id])
    column = block.series.get(wanted.series_id)
    return [] if column is None else [_expanded(block.axis, column)]


def _expanded(axis: Axis, column: SeriesColumn) -> _Part:
    if column.rows is None:
        return axis.steps, axis.times_us, column.values
    return axis.steps[column.rows], axis.times_us[column.rows], column.values


def _summarised(part: _Part, width: int) -> Buckets:
    return rollups.summarise(*part, width)


def _whole_buckets(wanted: Selection, width: int) -> Selection:
    first, last = wanted.first_step, wanted.last_step
    return Selection(
        run_id=wanted.run_id,
        series_id=wanted.series_id,
        first_step=None if first is None else first // width * width,
        last_step=None if last is None else last // width * width + width - 1,
        rank=wanted.rank,
        attempt=wanted.attempt,
    )


def _bounded(part: _Part, wanted: Selection) -> _Part:
    """The points between the wanted steps."""
    steps = part[0]
    keep = np.ones(steps.size, bool)
    if wanted.first_step is not None:
        keep &= steps >= wanted.first_step
    if wanted.last_step is not None:
        keep &= steps <= wanted.last_step
    return part if keep.all() else (steps[keep], part[1][keep], part[2][keep])


def _ordered(columns: tuple[NDArray[Any], ...], wanted: Selection) -> Points:
    steps = columns[0]
    # Chunks of one stream overlap only where values came late; streams do whenever there are several.
    if bool((steps[1:] < steps[:-1]).any()):
        order = np.argsort(steps, kind="stable")
        columns = tuple(column[order] for column in columns)
        steps = columns[0]
    start = 0 if wanted.first_step is None else int(np.searchsorted(steps, wanted.first_step, "left"))
    end = len(steps) if wanted.last_step is None else int(np.searchsorted(steps, wanted.last_step, "right"))
    columns = tuple(column[start:end] for column in columns)
    if wanted.stretches:
        steps = columns[0]
        inside = [slice(*np.searchsorted(steps, [first, last + 1]).tolist()) for first, last in wanted.stretches]
        columns = tuple(np.concatenate([column[part] for part in inside]) for column in columns)
    step, time_us, value, rank, attempt = columns
    return Points(step=step, time_us=time_us, value=value, rank=rank, attempt=attempt)


def _repeated(numbers: list[int], counts: list[int], dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
    if len(set(numbers)) == 1:
        return np.full(sum(counts), numbers[0], dtype)
    return np.repeat(np.array(numbers, dtype), counts)


def _no_points() -> Points:
    return Points(
        step=np.empty(0, np.int64),
        time_us=np.empty(0, np.int64),
        value=np.empty(0, np.float64),
        rank=np.empty(0, np.int32),
        attempt=np.empty(0, np.int64),
    )


def _stream(row: sa.Row[Any]) -> StreamRow:
    return StreamRow(
        run_id=row.run_id,
        stream=row.stream,
        rank=row.rank,
        attempt=row.attempt,
        world_size=row.world_size,
        host=row.host,
        pid=row.pid,
        started_us=row.started_us,
        forked_from=row.forked_from,
        epoch=row.epoch,
        next=row.next,
        digest=bytes(row.digest),
        seen_us=row.seen_us,
        ended=row.ended,
        local_rank=row.local_rank,
        mesh={name: (place[0], place[1]) for name, place in plain.unpack(row.mesh or plain.pack({})).items()},
    )
