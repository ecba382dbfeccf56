"""Sketches into tiles: the open slab of a stream is rewritten with what came since, and sealed when it is full.

Owns the `slab` and `tile` tables; called by the compactor, inside its transaction, for a stream whose row it holds.
Reads only the store. Invariant: after it, a frame is in one slab, unless parts of it came when its slab was sealed; the
slab with the highest number stays open, also when it is full: the next record may belong to its last frame.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from halfscope_server.store import schema
from halfscope_server.store.block import Axis
from halfscope_server.store.cells import Cells, Float64s, Int64s
from halfscope_server.store.dense import Dense, Run
from halfscope_server.store.packing import OPEN_LEVEL, SEALED_LEVEL
from halfscope_server.store.tiles import (
    BAND_LAYERS,
    SLAB_FRAMES,
    pack_frames,
    pack_tile,
    unpack_frames,
    unpack_histograms,
    unpack_moments,
)

slab = schema.slab
tile = schema.tile


def add(connection: sa.Connection, held: sa.Row[Any], kind: str, cells: Cells) -> None:
    """Put new cells of one kind into a stream's tiles.

    Args:
        connection: inside the compactor's transaction.
        held: the stream's row, locked.
        kind: of tensor.
        cells: everything of this kind that was in the segments which are being merged.
    """
    place = {"run_id": held.run_id, "kind": kind, "attempt": held.attempt, "stream": held.stream}
    where = [slab.c[name] == value for name, value in place.items()]
    opened = connection.execute(sa.select(slab).where(*where, slab.c.sealed.is_(False))).one_or_none()
    number = 0 if opened is None else opened.number
    held_frames = None if opened is None else unpack_frames(opened.axis, opened.scales)
    axis, scales = _axis(held_frames, cells)
    tiles = {} if opened is None else _taken(connection, place, number)
    slabs = _slab_rows(axis, scales, number)
    rows = []
    band_C = cells.lid_C // BAND_LAYERS
    for band in sorted({*tiles, *np.unique(band_C).tolist()}):
        new = cells.chosen(band_C == band)
        for one in slabs:
            part = slice((one["number"] - number) * SLAB_FRAMES, (one["number"] - number + 1) * SLAB_FRAMES)
            dense = _band(tiles.get(band), held_frames, new, axis.steps[part], scales[part])
            packed = pack_tile(dense, level=_level(one))
            if packed is not None:
                numbers = {"band": band, "number": one["number"]}
                rows.append(place | numbers | {"moments": packed[0], "histograms": packed[1]})
    connection.execute(sa.delete(slab).where(*where, slab.c.number == number))
    connection.execute(sa.insert(slab), [place | one for one in slabs])
    connection.execute(sa.insert(tile), rows)


def _axis(held: tuple[Axis, Float64s] | None, cells: Cells) -> tuple[Axis, Float64s]:
    """The open slab's frames and the new ones, each once, ascending; what came first says its time and scale."""
    steps, times, scales = [cells.step_R], [cells.time_us_R], [cells.scale_R]
    if held is not None:
        axis, held_scales = held
        steps, times, scales = [axis.steps, *steps], [axis.times_us, *times], [held_scales, *scales]
    unique, first = np.unique(np.concatenate(steps), return_index=True)
    return Axis(steps=unique, times_us=np.concatenate(times)[first]), np.concatenate(scales)[first]


def _taken(connection: sa.Connection, place: dict[str, Any], number: int) -> dict[int, Any]:
    """Take the open slab's tiles out of the store, by band; they are written back with what is added."""
    where = [*(tile.c[name] == value for name, value in place.items()), tile.c.number == number]
    bands = tile.c.band.in_(
        sa.select(schema.stream_layer.c.lid // BAND_LAYERS).where(
            schema.stream_layer.c.run_id == place["run_id"], schema.stream_layer.c.stream == place["stream"]
        )
    )
    found = connection.execute(sa.select(tile.c.band, tile.c.moments, tile.c.histograms).where(*where, bands)).all()
    connection.execute(sa.delete(tile).where(*where, bands))
    return {row.band: row for row in found}


def _slab_rows(axis: Axis, scales: Float64s, number: int) -> list[dict[str, Any]]:
    rows = []
    num_frames = len(axis.steps)
    for at in range(0, num_frames, SLAB_FRAMES):
        part = slice(at, at + SLAB_FRAMES)
        row: dict[str, Any] = {"number": number + at // SLAB_FRAMES, "sealed": at + SLAB_FRAMES < num_frames}
        steps = axis.steps[part]
        packed = pack_frames(Axis(steps=steps, times_us=axis.times_us[part]), scales[part], level=_level(row))
        row |= {"num_frames": len(steps), "first_step": int(steps[0]), "last_step": int(steps[-1])}
        rows.append(row | {"axis": packed[0], "scales": packed[1]})
    return rows


def _band(
    held: sa.Row[Any] | None, held_frames: tuple[Axis, Float64s] | None, cells: Cells, steps: Int64s, scales: Float64s
) -> Dense:
    """One band's layers over one slab's frames."""
    dense = Dense(BAND_LAYERS, scales)
    if held is not None and held_frames is not None:
        axis, held_scales = held_frames
        frames = Run.of(_frame_of(axis.steps, steps))
        found = unpack_moments(held.moments, held.histograms)
        dense.put_tile(frames, Run.of(found.slots_K.astype(np.int64)), found, held_scales, is_first=True)
        for at, slot in enumerate(found.slots_K.tolist()):
            dense.put_histograms(frames, slot, unpack_histograms(held.histograms, at, found))
    dense.put_cells(_frame_of(cells.step_C, steps), cells.lid_C % BAND_LAYERS, cells)
    return dense


def _frame_of(steps: Int64s, of: Int64s) -> Int64s:
    """The place of each step among ascending ones; -1: it is not among them."""
    at = np.minimum(np.searchsorted(of, steps), len(of) - 1)
    found: NDArray[np.int64] = np.where(of[at] == steps, at, -1)
    return found


def _level(row: dict[str, Any]) -> int:
    return SEALED_LEVEL if row["sealed"] else OPEN_LEVEL
