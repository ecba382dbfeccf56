"""Sketches as arrays of frames and layers, filled from tiles and from cells: what readers get and what tiles hold.

Must not import the tables or do I/O. Invariant: what is put into one place twice adds up, as sketches do; what is put
there once comes out bit for bit, NaN payloads and signed zeros included. Suffixes: F frames, L layers, B bins; a tile's
own arrays are [K, T], layer after layer.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Run:
    """Where a row of things goes: a slice where all go side by side, into which copying is several times as fast."""

    place: Int64s
    """Of each; -1: nowhere."""
    target: slice | Int64s
    """Where those go that go anywhere."""
    kept: slice | NDArray[np.bool_]
    """Which these are."""

    @classmethod
    def of(cls, place: Int64s) -> Run:
        """From the place of each, or -1."""
        if len(place) and int(place[0]) >= 0 and bool((place[1:] - place[:-1] == 1).all()):
            return cls(place, slice(int(place[0]), int(place[-1]) + 1), slice(None))
        kept = place >= 0
        return cls(place, place[kept], kept)


Group = tuple[list[int], NDArray[Any]]
"""Columns of one type, by position: [G, K, T]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """A tile without its histograms: K layers over T frames, columns as narrow as they are kept."""

    slots_K: NDArray[np.uint8]
    """Place of each layer within the tile's band of layers."""
    flags_KT: NDArray[np.uint8]
    """0: not sketched in that frame."""
    counts: tuple[Group, ...]
    """Of `COUNTS`; those in none are all 0."""
    floats: tuple[Group, ...]
    """Of `FLOATS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histograms:
    """One layer of a tile over the frames it was sketched in."""

    lowest: int
    bins_TB: NDArray[Any]
    """Unsigned; rows are all frames of the tile."""


@dataclass(slots=True)
class Dense:
    """F frames by L layers, empty at first; histograms are gathered and laid out by `counts`."""

    num_frames: int
    num_layers: int
    flags: NDArray[np.uint8] = field(init=False)
    numbers: Int64s = field(init=False)
    """[8, L, F], see `COUNTS`. Layer after layer, as tiles are: what is copied is copied in long pieces."""
    floats: Float64s = field(init=False)
    """[4, L, F], see `FLOATS`."""
    _blocks: list[tuple[Run, int, Histograms]] = field(default_factory=list)
    """(frames of its rows, layer, histograms)"""
    _cells: list[tuple[Int64s, Int64s, Cells]] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = (self.num_layers, self.num_frames)
        self.flags = np.zeros(shape, np.uint8)
        self.numbers = np.zeros((len(COUNTS), *shape), np.int64)
        self.floats = np.zeros((len(FLOATS), *shape))
        # Only what is not 0 has to be written: pages of zeros cost nothing until they are touched.
        for at, value in enumerate(NO_FLOATS):
            if value:
                self.floats[at] = value

    def put_tile(self, frames: Run, layers: Run, moments: Moments, *, is_first: bool) -> None:
        """Put a tile's moments in.

        Args:
            frames: where each of its frames goes.
            layers: where each of its layers goes.
            moments: the tile.
            is_first: nothing was put into these places before, and no two of its frames or layers go to one place.
        """
        if not is_first:
            self._add_moments(frames.place, layers.place, moments)
            return
        for target, groups in ((self.numbers, moments.counts), (self.floats, moments.floats)):
            for columns, block in groups:
                _assign(target, columns, layers, frames, block)
        _assign(self.flags[None], [0], layers, frames, moments.flags_KT[None])

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
        self._add(frame_C, layer_C, cells.flags_C, cells.counts_C, cells.floats_C)
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
        columns = self.columns
        sent = {name: columns[name] for name in (*COUNTS[:NUM_SENT], *FLOATS)}
        return Sketch(**sent, lowest=lowest, counts=counts)

    @property
    def columns(self) -> dict[str, Any]:
        """`COUNTS` and `FLOATS` by name, [F, L]."""
        return {name: column.T for name, column in zip((*COUNTS, *FLOATS), (*self.numbers, *self.floats), strict=True)}

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

    def _add_moments(self, frame_T: Int64s, layer_K: Int64s, moments: Moments) -> None:
        """A tile's moments cell by cell, where some of their places may be taken."""
        inside = (moments.flags_KT > 0) & (layer_K >= 0)[:, None] & (frame_T >= 0)[None, :]
        k, t = np.nonzero(inside)
        counts_C = np.zeros((len(COUNTS), len(k)), np.int64)
        floats_C = np.zeros((len(FLOATS), len(k)))
        for columns, block in moments.counts:
            counts_C[columns] = block[:, k, t]
        for columns, block in moments.floats:
            floats_C[columns] = block[:, k, t]
        self._add(frame_T[t], layer_K[k], moments.flags_KT[k, t], counts_C, floats_C)

    def _add(
        self, frame_C: Int64s, layer_C: Int64s, flags_C: NDArray[np.uint8], counts_C: Int64s, floats_C: Float64s
    ) -> None:
        """Cells into their places, in order; a place that is taken holds the sum."""
        for turn in _turns(frame_C * self.num_layers + layer_C):
            taken = self.flags[layer_C[turn], frame_C[turn]] > 0
            old, new = turn[taken], turn[~taken]
            place = (layer_C[old], frame_C[old])
            self.numbers[:, *place] += counts_C[:, old]
            with np.errstate(over="ignore", invalid="ignore"):
                for at, combine in enumerate((np.add, np.add, np.maximum, np.minimum)):
                    self.floats[at][place] = combine(self.floats[at][place], floats_C[at, old])
            place = (layer_C[new], frame_C[new])
            self.flags[place] = flags_C[new]
            self.numbers[:, *place] = counts_C[:, new]
            self.floats[:, *place] = floats_C[:, new]


def _assign(target: NDArray[Any], columns: list[int], layers: Run, frames: Run, block: NDArray[Any]) -> None:
    """target[columns, layers, frames] = block, whose parts that go nowhere are left out."""
    chosen = block[:, layers.kept][:, :, frames.kept]
    if isinstance(layers.target, slice) and isinstance(frames.target, slice):
        target[columns, layers.target, frames.target] = chosen
        return
    for column, values in zip(columns, chosen, strict=True):
        part = target[column]
        if isinstance(layers.target, slice) or isinstance(frames.target, slice):
            part[layers.target, frames.target] = values
        else:
            part[np.ix_(layers.target, frames.target)] = values


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
        flags_C=cells.flags_C[keep],
        counts_C=cells.counts_C[:, keep],
        floats_C=cells.floats_C[:, keep],
        lowest_C=none,
        num_bins_C=none,
        bins_B=cells.bins_B[:0],
    )
