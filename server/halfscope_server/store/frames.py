"""The read path of sketches: the sketched steps of a run, out of tiles and unsealed segments, in one snapshot.

Must not write. Invariant: what is read does not depend on what compaction did or how batches were cut; what one step
measured in several records is one frame.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from halfscope_server.store import layers, schema
from halfscope_server.store.cells import FLOATS, Cells, Float64s, Int64s
from halfscope_server.store.dense import SKETCHED, Dense, Run
from halfscope_server.store.engine import Database
from halfscope_server.store.prepared import Query
from halfscope_server.store.reading import streams_of
from halfscope_server.store.tails import Tails
from halfscope_server.store.tiles import BAND_LAYERS, unpack_frames, unpack_histograms, unpack_moments
from halfscope_server.store.types import FrameMoments, FrameSketches, StreamRow

slab = schema.slab
tile = schema.tile

_NONE = np.full(1, -1)
"""Columns of a stream that declared no layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSelection:
    """Which frames and layers are wanted. None: no bound; of layers: all, in the order of registration."""

    run_id: str
    kind: str
    layer_ids: tuple[int, ...] | None = None
    first_step: int | None = None
    last_step: int | None = None
    rank: int | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A stretch of one stream's frames: a slab, or the tail. A step stands in it once."""

    row: StreamRow
    number: int | None
    """Of the slab; None: the tail."""
    cells: Cells | None
    """Of the tail."""
    steps: Int64s
    times_us: Int64s
    scales: Float64s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """The frames that were found."""

    step: Int64s
    time_us: Int64s
    rank: NDArray[np.int32]
    attempt: NDArray[np.int64]
    scale: Float64s
    frame_of: list[Int64s]
    """For each part, the frame of each of its steps; -1: outside the wanted steps."""
    is_shared: list[bool]
    """For each part, whether another part has a step of the same frame: a record that came late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A part with the places of its frames."""

    part: _Part
    frames: Run
    is_shared: bool
    """Whether another part has a step of the same frame."""


def moments(database: Database, tails: Tails, wanted: FrameSelection, columns: Collection[str]) -> FrameMoments:
    """Without the histograms, of which nothing is read."""
    layer_ids, axis, dense = _read(database, tails, wanted, columns, histograms=False)
    return FrameMoments(**_common(layer_ids, axis, dense), columns={name: dense.column(name) for name in columns})


def sketches(database: Database, tails: Tails, wanted: FrameSelection) -> FrameSketches:
    """With the histograms."""
    layer_ids, axis, dense = _read(database, tails, wanted, SKETCHED, histograms=True)
    return FrameSketches(**_common(layer_ids, axis, dense), sketches=dense.sketch())


def count(database: Database, tails: Tails, run_id: str, kind: str) -> int:
    """How many frames there are, over all attempts and ranks."""
    with database.reading() as connection:
        parts = _parts(connection, tails, FrameSelection(run_id=run_id, kind=kind))
    return sum(
        len(np.unique(np.concatenate([part.steps for part in parts if part.row.stream == stream])))
        for stream in {part.row.stream for part in parts}
    )


def kinds(database: Database, tails: Tails, run_id: str) -> list[str]:
    """The kinds of tensors that were sketched."""
    with database.reading() as connection:
        found = set(connection.execute(sa.select(slab.c.kind).where(slab.c.run_id == run_id).distinct()).scalars())
        for _, hot in list(streams_of(connection, run_id)):
            if hot is not None:
                found.update(tails.kinds(connection, hot))
    return sorted(found)


def _read(
    database: Database, tails: Tails, wanted: FrameSelection, names: Collection[str], *, histograms: bool
) -> tuple[tuple[int, ...], _Axis, Dense]:
    with database.reading() as connection:
        layer_ids = layers.ids(connection, wanted.run_id) if wanted.layer_ids is None else wanted.layer_ids
        parts = _parts(connection, tails, wanted)
        axis = _axis(parts, wanted)
        dense = Dense(len(layer_ids), axis.scale, names)
        if not dense.num_frames or not dense.num_layers:
            return layer_ids, axis, dense
        column = {layer_id: at for at, layer_id in enumerate(layer_ids)}
        declared = layers.by_stream(connection, wanted.run_id)
        columns = {
            stream: _columns({lid: column[one] for lid, one in lids.items() if one in column})
            for stream, lids in declared.items()
        }
        placed = {
            (part.row.stream, part.number): _Placed(part=part, frames=Run.of(frame_of), is_shared=is_shared)
            for part, frame_of, is_shared in zip(parts, axis.frame_of, axis.is_shared, strict=True)
        }
        tiles = _Tiles(dense, columns, histograms=histograms)
        # What is alone in its places is unpacked as it is read, the rest in the order of arrival.
        later: dict[tuple[str, int | None], list[sa.Row[Any]]] = {}
        # The floats of tiles are behind their histograms.
        is_whole = histograms or not frozenset(FLOATS).isdisjoint(names)
        for row in _rows(connection, wanted, parts, columns, histograms=is_whole):
            found = placed.get((row.stream, row.number))
            if found is not None and tiles.is_alone(found):
                tiles.put(row, found)
            elif found is not None:
                later.setdefault((row.stream, row.number), []).append(row)
        for key, found in placed.items():
            if found.part.cells is not None:
                column_of = columns.get(found.part.row.stream, _NONE)
                _put_tail(dense, found.part.cells, found, column_of, histograms=histograms)
            for row in later.get(key, ()):
                tiles.put(row, found)
    return layer_ids, axis, dense


def _parts(connection: sa.Connection, tails: Tails, wanted: FrameSelection) -> list[_Part]:
    """In the order (attempt, rank, stream, arrival)."""
    streams = list(streams_of(connection, wanted.run_id, rank=wanted.rank, attempt=wanted.attempt))
    slabs = _slabs(connection, wanted)
    parts = []
    for row, hot in streams:
        for found in slabs.get(row.stream, ()):
            axis, scales = unpack_frames(found.axis, found.scales)
            parts.append(
                _Part(
                    row=row,
                    number=found.number,
                    cells=None,
                    steps=axis.steps,
                    times_us=axis.times_us,
                    scales=scales,
                )
            )
        cells = None if hot is None else tails.cells(connection, hot, wanted.kind)
        if cells is not None:
            steps, first = np.unique(cells.step_R, return_index=True)
            parts.append(
                _Part(
                    row=row,
                    number=None,
                    cells=cells,
                    steps=steps,
                    times_us=cells.time_us_R[first],
                    scales=cells.scale_R[first],
                )
            )
    return parts


def _slabs(connection: sa.Connection, wanted: FrameSelection) -> dict[str, list[sa.Row[Any]]]:
    bounds = _bounds(wanted, "attempt", "first_step", "last_step")
    found: dict[str, list[sa.Row[Any]]] = {}
    for row in _slabs_query(tuple(bounds)).rows(connection, {"run_id": wanted.run_id, "kind": wanted.kind, **bounds}):
        found.setdefault(row.stream, []).append(row)
    return found


@lru_cache
def _slabs_query(bounds: tuple[str, ...]) -> Query:
    statement = sa.select(slab.c.stream, slab.c.number, slab.c.axis, slab.c.scales).where(*_where(slab, bounds))
    return Query(_within(statement, bounds).order_by(slab.c.attempt, slab.c.stream, slab.c.number))


def _bounds(wanted: FrameSelection, *names: str) -> dict[str, int]:
    """Those that are given."""
    return {name: bound for name in names if (bound := getattr(wanted, name)) is not None}


def _where(table: sa.Table, bounds: Collection[str]) -> list[sa.ColumnElement[bool]]:
    names = ("run_id", "kind", *(["attempt"] if "attempt" in bounds else []))
    return [table.c[name] == sa.bindparam(name) for name in names]


def _within(statement: sa.Select[Any], bounds: Collection[str]) -> sa.Select[Any]:
    if "first_step" in bounds:
        statement = statement.where(slab.c.last_step >= sa.bindparam("first_step"))
    if "last_step" in bounds:
        statement = statement.where(slab.c.first_step <= sa.bindparam("last_step"))
    return statement


def _axis(parts: Sequence[_Part], wanted: FrameSelection) -> _Axis:
    """The frames of all parts, each once: what came first says its time, and its scale where a layer has no other."""
    if not parts:
        none, no_ranks = np.empty(0, np.int64), np.empty(0, np.int32)
        return _Axis(step=none, time_us=none, rank=no_ranks, attempt=none, scale=np.empty(0), frame_of=[], is_shared=[])
    lengths = [len(part.steps) for part in parts]
    step = np.concatenate([part.steps for part in parts])
    streams = {key: at for at, key in enumerate(dict.fromkeys(part.row.stream for part in parts))}
    stream = np.repeat([streams[part.row.stream] for part in parts], lengths)
    rank = np.repeat(np.array([part.row.rank for part in parts], np.int32), lengths)
    attempt = np.repeat(np.array([part.row.attempt for part in parts], np.int64), lengths)
    inside = np.ones(len(step), bool)
    if wanted.first_step is not None:
        inside &= step >= wanted.first_step
    if wanted.last_step is not None:
        inside &= step <= wanted.last_step
    kept = np.flatnonzero(inside)
    order = kept[np.lexsort((stream[kept], rank[kept], step[kept], attempt[kept]))]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (step[order][1:] != step[order][:-1]) | (stream[order][1:] != stream[order][:-1])
    frame = np.full(len(step), -1)
    frame[order] = np.cumsum(is_new) - 1
    first = order[is_new]
    shared = np.zeros(len(step), bool)
    shared[order] = np.bincount(frame[order], minlength=len(first))[frame[order]] > 1
    ends = np.cumsum(lengths)[:-1]
    return _Axis(
        step=step[first],
        time_us=np.concatenate([part.times_us for part in parts])[first],
        rank=rank[first],
        attempt=attempt[first],
        scale=np.concatenate([part.scales for part in parts])[first],
        frame_of=np.split(frame, ends),
        is_shared=[bool(part.any()) for part in np.split(shared, ends)],
    )


def _columns(column_of: dict[int, int]) -> Int64s:
    """lid -> column as an array; -1: not wanted."""
    columns = np.full(max(column_of, default=0) // BAND_LAYERS * BAND_LAYERS + BAND_LAYERS, -1)
    columns[list(column_of)] = list(column_of.values())
    return columns


def _column(column_of: Int64s, lids: Int64s) -> Int64s:
    """The column of each of some layers of a stream; -1: not wanted."""
    inside = lids < len(column_of)
    columns: Int64s = np.where(inside, column_of[np.where(inside, lids, 0)], -1)
    return columns


def _rows(
    connection: sa.Connection,
    wanted: FrameSelection,
    parts: Sequence[_Part],
    columns: dict[str, Int64s],
    *,
    histograms: bool,
) -> Iterator[sa.Row[Any]]:
    """The tiles that hold wanted layers, one after another: together they may be as large as all that is made of
    them."""
    names = {part.row.stream for part in parts if part.number is not None}
    bands = {
        int(band) for stream in names & columns.keys() for band in np.flatnonzero(columns[stream] >= 0) // BAND_LAYERS
    }
    if not bands:
        return
    bounds = _bounds(wanted, "attempt", "first_step", "last_step")
    streams = sorted(names) if wanted.rank is not None else []
    query = _tiles_query(tuple(bounds), len(bands), len(streams), histograms=histograms)
    given = {f"band_{at}": band for at, band in enumerate(sorted(bands))}
    named = {f"stream_{at}": stream for at, stream in enumerate(streams)}
    yield from query.rows(connection, {"run_id": wanted.run_id, "kind": wanted.kind, **bounds, **given, **named})


@lru_cache
def _tiles_query(bounds: tuple[str, ...], num_bands: int, num_streams: int, *, histograms: bool) -> Query:
    """Tiles of some bands.

    Args:
        num_streams: of how many streams; 0: of all.
    """
    chosen = [tile.c.stream, tile.c.number, tile.c.band, tile.c.moments]
    statement = sa.select(*chosen, *([tile.c.histograms] if histograms else [])).where(*_where(tile, bounds))
    statement = statement.where(tile.c.band.in_([sa.bindparam(f"band_{at}") for at in range(num_bands)]))
    if num_streams:
        statement = statement.where(tile.c.stream.in_([sa.bindparam(f"stream_{at}") for at in range(num_streams)]))
    if {"first_step", "last_step"} & {*bounds}:
        same = [tile.c[name] == slab.c[name] for name in ("run_id", "kind", "attempt", "stream", "number")]
        statement = _within(statement.join(slab, sa.and_(*same)), bounds)
    return Query(statement)


class _Tiles:
    """Puts tiles to where their frames and layers go."""

    def __init__(self, dense: Dense, columns: dict[str, Int64s], *, histograms: bool) -> None:
        self._dense, self._columns, self._histograms = dense, columns, histograms
        self._is_plain = {stream: _is_plain(column_of) for stream, column_of in columns.items()}
        # Tiles of one band mostly hold the same layers: where these go is worked out once.
        self._runs: dict[tuple[str, int, bytes], Run] = {}

    def is_alone(self, placed: _Placed) -> bool:
        """Whether nothing else goes to the places of its tiles."""
        return not placed.is_shared and self._is_plain.get(placed.part.row.stream, True)

    def put(self, row: sa.Row[Any], placed: _Placed) -> None:
        found = unpack_moments(row.moments, row.histograms if "histograms" in row._fields else None)
        key = (row.stream, row.band, found.slots_K.tobytes())
        layers_of = self._runs.get(key)
        if layers_of is None:
            lids = row.band * BAND_LAYERS + found.slots_K.astype(np.int64)
            layers_of = self._runs[key] = Run.of(_column(self._columns.get(row.stream, _NONE), lids))
        is_first = self.is_alone(placed)
        self._dense.put_tile(placed.frames, layers_of, found, placed.part.scales, is_first=is_first)
        if not self._histograms:
            return
        for at in np.flatnonzero(layers_of.place >= 0).tolist():
            histograms = unpack_histograms(row.histograms, at, found)
            self._dense.put_histograms(placed.frames, int(layers_of.place[at]), histograms)


def _is_plain(column_of: Int64s) -> bool:
    """Whether no two numbers of a stream stand for one layer."""
    wanted = column_of[column_of >= 0]
    return len(np.unique(wanted)) == len(wanted)


def _put_tail(dense: Dense, cells: Cells, placed: _Placed, column_of: Int64s, *, histograms: bool) -> None:
    frame_C = placed.frames.place[np.searchsorted(placed.part.steps, cells.step_C)]
    dense.put_cells(frame_C, _column(column_of, cells.lid_C), cells, bins=histograms)


def _common(layer_ids: tuple[int, ...], axis: _Axis, dense: Dense) -> dict[str, Any]:
    return {
        "layer_ids": layer_ids,
        "step": axis.step,
        "time_us": axis.time_us,
        "rank": axis.rank,
        "attempt": axis.attempt,
        "scale": dense.scale,
        "present": dense.present,
        "point": dense.point,
        "maybe_clipped": dense.maybe_clipped,
    }
