"""Sketches as arrays of frames and layers, filled from tiles and from cells: what readers get and what tiles hold.

Must not import the tables or do I/O. Invariant: what is put into one place twice adds up, as sketches do; what is put
there once comes out bit for bit, NaN payloads and signed zeros included. Suffixes: F frames, L layers, B bins; a tile's
own arrays are [K, T], layer after layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from halfscope.sketch import Sketch
from numpy.typing import NDArray

from halfscope_server.store.cells import (
    COUNTS,
    FLOATS,
    MAYBE_CLIPPED,
    NO_FLOATS,
    NUM_SENT,
    POINT_BITS,
    PRESENT,
    Cells,
    Float64s,
    Int64s,
    within,
)
from halfscope_server.store.packing import unshuffled

_EMPTY = dict(zip(FLOATS, NO_FLOATS, strict=True))
_COMBINE: dict[str, np.ufunc] = {"absmax": np.maximum, "absmin_nonzero": np.minimum}
"""All others add up."""
SKETCHED = (*COUNTS[:NUM_SENT], *FLOATS)
"""Columns that a `Sketch` is made of, besides its bins."""
NARROW_LIMIT = 1 << 31
"""Counts below it are kept in 32 bits."""
TILES_AT_ONCE = 16
"""Of one band, one after another, unpacked together: a tile is small, and as many calls for each would take most of the
time. So many fit into a processor's cache."""


@dataclass(frozen=True, slots=True)
class Run:
    """Where a row of things goes: slices where all go side by side, into which copying is several times as fast."""

    place: Int64s
    """Of each; -1: nowhere."""
    target: slice | Int64s
    """Where those go that go anywhere."""
    kept: slice | Int64s
    """Which these are."""

    @classmethod
    def of(cls, place: Int64s) -> Run:
        """From the place of each, or -1."""
        kept = np.flatnonzero(place >= 0)
        target = place[kept]
        first, last = (kept[[0, -1]], target[[0, -1]]) if len(kept) else (np.array([0, -1]),) * 2
        if last[1] - last[0] == first[1] - first[0] == len(kept) - 1 and bool((np.diff(target) == 1).all()):
            return cls(place, slice(int(last[0]), int(last[1]) + 1), slice(int(first[0]), int(first[1]) + 1))
        return cls(place, target, kept)

    @property
    def is_side_by_side(self) -> bool:
        return isinstance(self.target, slice)

    @property
    def is_whole(self) -> bool:
        """Whether all go somewhere, side by side."""
        return isinstance(self.kept, slice) and self.kept.stop - self.kept.start == len(self.place)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column of a tile lies: columns of one width are shuffled together."""

    start: int
    """Of the columns of its width."""
    width: int
    """Bytes a number."""
    num_columns: int
    column: int
    """Which of them it is."""

    def planes(self, data: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """[N, W, K, T]: byte w of every number, of N tiles of one shape (K, T) and one layout.

        Args:
            data: [N, bytes] of the tiles.
        """
        size = self.width * self.num_columns * shape[0] * shape[1]
        whole = data[:, self.start : self.start + size].reshape(len(data), self.width, self.num_columns, *shape)
        planes: NDArray[np.uint8] = whole[:, :, self.column]
        return planes


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a tile as bytes."""

    data: NDArray[np.uint8]
    places: Mapping[str, Place]
    """Where each lies; those that are not there are all 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """A tile without its histograms: K layers over T frames, columns as they are kept."""

    slots_K: NDArray[np.uint8]
    """Place of each layer within the tile's band of layers."""
    flags_KT: NDArray[np.uint8]
    """0: not sketched in that frame."""
    counts: Columns
    floats: Columns | None
    """None: not wanted."""
    scales_KT: Float64s | None
    """None: every layer's is that of the frame."""

    def of(self, name: str) -> Columns:
        """Where a column lies that is wanted."""
        columns = self.floats if name in _EMPTY else self.counts
        assert columns is not None, "floats were not unpacked"
        return columns

    def column(self, name: str) -> NDArray[Any]:
        """[K, T] numbers, as narrow as they are kept."""
        columns, shape = self.of(name), self.flags_KT.shape
        place = columns.places.get(name)
        if place is None:
            return np.zeros(shape, "u1")
        planes = place.planes(columns.data[None], shape)[0]
        return unshuffled(planes.tobytes(), f"<{'f' if name in _EMPTY else 'u'}{place.width}").reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histograms:
    """Of one layer over the frames of a tile."""

    lowest: int
    bins_TB: NDArray[Any]
    """Unsigned; rows are all frames of the tile."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A tile that is alone in its places."""

    layers: Run
    frames: Run
    moments: Moments


@dataclass(slots=True)
class Dense:
    """L layers over the frames of an axis, empty at first; histograms are gathered and laid out by `counts`."""

    num_layers: int
    scale_F: Float64s
    """Loss scale of each frame: that of the record that came first."""
    _flags: NDArray[np.uint8] = field(init=False)
    """[L, F]. Layer after layer, as tiles are: what is copied is copied in long pieces."""
    own_scales: Float64s | None = field(default=None, init=False)
    """[L, F]; None while every layer's is that of its frame."""
    names: Iterable[str] = (*COUNTS, *FLOATS)
    """Columns that are wanted; `n` is always kept, since it says how wide the others must be."""
    _columns: dict[str, NDArray[Any]] = field(init=False)
    """[L, F]"""
    _written: set[str] = field(default_factory=set, init=False)
    """Those that may hold something else than what they began with."""
    _waiting: list[_Block] = field(default_factory=list, init=False)
    _blocks: list[tuple[Run, int, Histograms]] = field(default_factory=list, init=False)
    """(frames of its rows, layer, histograms)"""
    _cells: list[tuple[Int64s, Int64s, Cells]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        shape = (self.num_layers, self.num_frames)
        self._flags = np.zeros(shape, np.uint8)
        # Only what is not 0 has to be written: pages of zeros cost nothing until they are touched.
        names = dict.fromkeys(("n", *self.names))
        self._columns = {name: np.zeros(shape, np.float64 if name in _EMPTY else np.int32) for name in names}
        if "absmin_nonzero" in names:
            self._columns["absmin_nonzero"][:] = _EMPTY["absmin_nonzero"]

    @property
    def num_frames(self) -> int:
        return len(self.scale_F)

    def put_tile(self, frames: Run, layers: Run, moments: Moments, scale_T: Float64s, *, is_first: bool) -> None:
        """Put a tile's moments in.

        Args:
            frames: where each of its frames goes.
            layers: where each of its layers goes.
            moments: the tile.
            scale_T: loss scale of each of its frames.
            is_first: nothing was put into these places before, and no two of its frames or layers go to one place.
        """
        if not is_first:
            self._scatter_tile(frames.place, layers.place, moments, scale_T)
            return
        if moments.scales_KT is not None:
            _assign(self._writable_scales(), layers, frames, _chosen(moments.scales_KT, layers, frames))
        # They come where nothing else does, so that it does not matter when.
        block = _Block(layers, frames, moments)
        if self._waiting and (len(self._waiting) == TILES_AT_ONCE or not _goes_on(self._waiting[-1], block)):
            self._unpack()
        self._waiting.append(block)

    def put_histograms(self, frames: Run, layer: int, histograms: Histograms) -> None:
        """Remember a layer's histograms of a tile; laid out when all are known."""
        if histograms.bins_TB.shape[1]:
            self._blocks.append((frames, layer, histograms))

    def put_cells(self, frame_C: Int64s, layer_C: Int64s, cells: Cells, *, bins: bool = True) -> None:
        """Put cells in; those of a negative frame or layer are left out."""
        keep = (frame_C >= 0) & (layer_C >= 0)
        if not keep.all():
            cells = cells.chosen(keep) if bins else _without_bins(cells, keep)
            frame_C, layer_C = frame_C[keep], layer_C[keep]
        self._scatter(frame_C, layer_C, cells.flags_C, cells.scale_C, cells.column)
        if bins:
            self._cells.append((frame_C, layer_C, cells))

    def counts(self) -> tuple[int, Int64s]:
        """(exponent of the first bin, [F, L, B]) of all histograms, without empty bins at either end."""
        first, end = self._extent()
        counts = np.zeros((self.num_frames, self.num_layers, end - first), np.int64)
        for frames, layer, block in self._blocks:
            at = block.lowest - first
            bins = block.bins_TB[frames.kept].astype(np.int64)
            counts[frames.target, layer, at : at + bins.shape[1]] += bins
        flat = counts.reshape(-1)
        for frame_C, layer_C, cells in self._cells:
            base = (frame_C * self.num_layers + layer_C) * (end - first) + cells.lowest_C - first
            place = np.repeat(base, cells.num_bins_C) + within(cells.num_bins_C)
            np.add.at(flat, place, cells.bins_B.astype(np.int64))
        used = np.flatnonzero(counts.reshape(-1, end - first).any(axis=0)) if counts.size else np.empty(0, np.int64)
        if not used.size:
            return 0, counts[..., :0]
        return first + int(used[0]), counts[..., int(used[0]) : int(used[-1]) + 1]

    def sketch(self) -> Sketch:
        """All of it as a stack of shape [F, L]."""
        lowest, counts = self.counts()
        sent: dict[str, Any] = {name: self.column(name) for name in FLOATS}
        sent |= {name: self.column(name).astype(np.int64) for name in COUNTS[:NUM_SENT]}
        return Sketch(**sent, lowest=lowest, counts=counts)

    def column(self, name: str) -> NDArray[Any]:
        """[F, L] of `COUNTS` or `FLOATS`. Counts are int32 where the elements of every layer are few enough, and int64
        elsewhere: no count of a layer is larger than that of its elements. A column of zeros, which most are of those
        that count what is not finite, takes no memory: it cannot be written to."""
        self._unpack()
        column = self._columns[name]
        if name in self._written or name in _EMPTY or not column.size:
            return column.T
        zeros: NDArray[Any] = np.broadcast_to(column[:1, :1], column.T.shape)
        return zeros

    @property
    def scale(self) -> Float64s:
        """[F, 1] where it is the same for all layers of each frame, else [F, L]; where a layer is not, the frame's."""
        if self.own_scales is not None:
            same = (self.own_scales == self.own_scales[:1]) | (
                np.isnan(self.own_scales) & np.isnan(self.own_scales[:1])
            )
            return self.own_scales[:1].T if same.all() else self.own_scales.T
        return self.scale_F[:, None]

    @property
    def flags(self) -> NDArray[np.uint8]:
        """[L, F]; 0 where a layer was not sketched."""
        self._unpack()
        return self._flags

    @property
    def present(self) -> NDArray[np.bool_]:
        return (self.flags.T & PRESENT) > 0

    @property
    def point(self) -> NDArray[np.uint8]:
        return self.flags.T & np.uint8(POINT_BITS)

    @property
    def maybe_clipped(self) -> NDArray[np.bool_]:
        return (self.flags.T & MAYBE_CLIPPED) > 0

    def _extent(self) -> tuple[int, int]:
        """Exponents of the first bin and behind the last."""
        lows = [block.lowest for _, _, block in self._blocks]
        ends = [block.lowest + block.bins_TB.shape[1] for _, _, block in self._blocks]
        for _, _, cells in self._cells:
            has_bins = cells.num_bins_C > 0
            if has_bins.any():
                lows.append(int(cells.lowest_C[has_bins].min()))
                ends.append(int((cells.lowest_C + cells.num_bins_C)[has_bins].max()))
        return (min(lows), max(ends)) if lows else (0, 0)

    def _scatter_tile(self, frame_T: Int64s, layer_K: Int64s, moments: Moments, scale_T: Float64s) -> None:
        """A tile's moments cell by cell, where some of their places may be taken."""
        inside = (moments.flags_KT > 0) & (layer_K >= 0)[:, None] & (frame_T >= 0)[None, :]
        k, t = np.nonzero(inside)
        scale_C = scale_T[t] if moments.scales_KT is None else moments.scales_KT[k, t]
        self._scatter(
            frame_T[t], layer_K[k], moments.flags_KT[k, t], scale_C, lambda name: moments.column(name)[k, t]
        )  # fmt: skip

    def _scatter(
        self,
        frame_C: Int64s,
        layer_C: Int64s,
        flags_C: NDArray[np.uint8],
        scale_C: Float64s,
        column: Callable[[str], NDArray[Any]],
    ) -> None:
        """Cells into their places, in order; a place that is taken holds the sum, as it was read first."""
        self._unpack()  # what was put there first is there
        for turn in _turns(frame_C * self.num_layers + layer_C):
            taken = self._flags[layer_C[turn], frame_C[turn]] > 0
            old, new = turn[taken], turn[~taken]
            place = (layer_C[new], frame_C[new])
            self._flags[place] = flags_C[new]
            frames_scale, scale = self.scale_F[frame_C[new]], scale_C[new]
            if not np.array_equal(frames_scale, scale, equal_nan=True):
                self._writable_scales()[place] = scale
            self._add(layer_C, frame_C, old, new, column)

    def _writable_scales(self) -> Float64s:
        if self.own_scales is None:
            self.own_scales = np.broadcast_to(self.scale_F, self._flags.shape).copy()
        return self.own_scales

    def _add(
        self, layer_C: Int64s, frame_C: Int64s, old: Int64s, new: Int64s, column: Callable[[str], NDArray[Any]]
    ) -> None:
        """Cells into places that are taken, and into those that are not."""
        num_elements = column("n").astype(np.int64)
        num_elements[old] += self._columns["n"][layer_C[old], frame_C[old]]
        self._make_room(num_elements)
        for name, target in self._columns.items():
            values = column(name)
            if name not in self._written and not values.any():
                continue
            self._written.add(name)
            target[layer_C[new], frame_C[new]] = values[new]
            place = (layer_C[old], frame_C[old])
            with np.errstate(over="ignore", invalid="ignore"):
                target[place] = _COMBINE.get(name, np.add)(target[place], values[old])

    def _make_room(self, num_elements: NDArray[Any]) -> None:
        """For layers of so many elements."""
        if self._columns["n"].itemsize == 4 and int(num_elements.max(initial=0)) >= NARROW_LIMIT:
            self._columns = {
                name: column if name in _EMPTY else column.astype(np.int64) for name, column in self._columns.items()
            }

    def _unpack(self) -> None:
        """The tiles that wait, all at once."""
        blocks, self._waiting = self._waiting, []
        if not blocks:
            return
        first, last, num_tiles = blocks[0], blocks[-1], len(blocks)
        shape, frames = first.moments.flags_KT.shape, first.frames
        if num_tiles > 1:
            frames = Run.of(np.arange(_first(first.frames), _first(last.frames) + shape[1]))
        flags = np.concatenate([block.moments.flags_KT for block in blocks], axis=1)
        _assign(self._flags, first.layers, frames, _chosen(flags, first.layers, frames))
        for is_float in (False, True):
            names = [name for name in self._columns if (name in _EMPTY) == is_float]
            places = first.moments.of(names[0]).places if names else {}
            there = [name for name in names if name in places]
            if not there:
                continue
            stacked = np.stack([block.moments.of(there[0]).data for block in blocks])
            self._written.update(there)
            for name in there:
                planes = places[name].planes(stacked, shape)[..., first.layers.kept, :]
                values = _numbers(planes, "f" if is_float else "u")
                if name == "n":
                    self._make_room(values)
                _assign(self._columns[name], first.layers, frames, values[:, frames.kept])


def _numbers(planes: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    """[N, W, K, T] bytes of numbers, of N tiles, as [K, N x T] numbers."""
    num_tiles, width, num_layers, num_frames = planes.shape
    # As they lie: an inner loop over all numbers of a tile. Then layer after layer.
    shuffled = np.empty((num_tiles, num_layers, num_frames, width), "u1")
    for byte in range(width):
        shuffled[..., byte] = planes[:, byte]
    numbers = shuffled.view(f"<{kind}{width}")[..., 0]
    values: NDArray[Any] = numbers.transpose(1, 0, 2).reshape(num_layers, num_tiles * num_frames)
    return values


def _first(frames: Run) -> int:
    """Where a tile's frames begin that go side by side."""
    return int(frames.place[0])


def _goes_on(before: _Block, block: _Block) -> bool:
    """Whether a tile lies like the one before it, behind which it goes."""
    same = before.moments.counts.places is block.moments.counts.places and before.layers is block.layers
    if not same or not (before.frames.is_whole and block.frames.is_whole):
        return False
    return _first(block.frames) == _first(before.frames) + len(before.frames.place)


def _chosen(values_KT: NDArray[Any], layers: Run, frames: Run) -> NDArray[Any]:
    """Of those that go anywhere."""
    chosen: NDArray[Any] = values_KT[layers.kept][:, frames.kept]
    return chosen


def _assign(target: NDArray[Any], layers: Run, frames: Run, values: NDArray[Any]) -> None:
    """target[layers, frames] = values of those that go anywhere."""
    if layers.is_side_by_side or frames.is_side_by_side:
        target[layers.target, frames.target] = values
    else:
        target[np.ix_(layers.target, frames.target)] = values  # type: ignore[arg-type]  # neither is a slice


def _turns(place_C: Int64s) -> list[Int64s]:
    """Positions of cells such that no place comes twice within one turn; mostly a single turn."""
    order = np.argsort(place_C, kind="stable")
    sorted_places = place_C[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = sorted_places[1:] != sorted_places[:-1]
    if is_new.all():
        return [np.arange(len(place_C))] if len(place_C) else []
    starts = np.flatnonzero(is_new)
    lengths = np.diff(np.append(starts, len(order)))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = within(lengths)
    return [np.flatnonzero(occurrence == turn) for turn in range(int(lengths.max()))]


def _without_bins(cells: Cells, keep: NDArray[np.bool_]) -> Cells:
    none = np.zeros(int(keep.sum()), np.int64)
    return Cells(
        step_R=cells.step_R,
        time_us_R=cells.time_us_R,
        scale_R=cells.scale_R,
        step_C=cells.step_C[keep],
        lid_C=cells.lid_C[keep],
        scale_C=cells.scale_C[keep],
        flags_C=cells.flags_C[keep],
        counts_C=cells.counts_C[:, keep],
        floats_C=cells.floats_C[:, keep],
        lowest_C=none,
        num_bins_C=none,
        bins_B=cells.bins_B[:0],
    )
