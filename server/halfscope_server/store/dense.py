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


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """A tile without its histograms: K layers over T frames, columns as narrow as they are kept."""

    slots_K: NDArray[np.uint8]
    """Place of each layer within the tile's band of layers."""
    flags_KT: NDArray[np.uint8]
    """0: not sketched in that frame."""
    counts_KT: tuple[NDArray[Any] | None, ...]
    """In the order of `COUNTS`; None: all 0."""
    floats_KT: tuple[NDArray[Any], ...]
    """In the order of `FLOATS`."""


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
    numbers: tuple[Int64s, ...] = field(init=False)
    floats: tuple[Float64s, ...] = field(init=False)
    _blocks: list[tuple[Int64s, int, Histograms]] = field(default_factory=list)
    """(frame of each row or -1, layer, histograms)"""
    _cells: list[tuple[Int64s, Int64s, Cells]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Layer after layer in memory, as tiles are: what is copied into them is copied in long pieces.
        shape = (self.num_layers, self.num_frames)
        self.flags = np.zeros(shape, np.uint8).T
        self.numbers = tuple(np.zeros(shape, np.int64).T for _ in COUNTS)
        # Only infinity has to be written: pages of zeros cost nothing until they are touched.
        self.floats = tuple((np.full(shape, value) if value else np.zeros(shape)).T for value in NO_FLOATS)

    def put_tile(self, frame_T: Int64s, layer_K: Int64s, moments: Moments, *, is_first: bool) -> None:
        """Put a tile's moments in.

        Args:
            frame_T: where each of its frames goes; -1: nowhere.
            layer_K: where each of its layers goes; -1: nowhere.
            moments: the tile.
            is_first: nothing was put into these places before, and no two of its frames or layers go to one place.
        """
        if not is_first:
            self._add_moments(frame_T, layer_K, moments)
            return
        frames, kept_T = _run(frame_T)
        layers, kept_K = _run(layer_K)
        place = (
            np.ix_(frames, layers)
            if not isinstance(frames, slice) and not isinstance(layers, slice)
            else (frames, layers)
        )
        targets: list[NDArray[Any]] = [self.flags, *self.numbers, *self.floats]
        blocks = (moments.flags_KT, *moments.counts_KT, *moments.floats_KT)
        for target, block in zip(targets, blocks, strict=True):
            if block is not None:
                target[place] = block[kept_K][:, kept_T].T

    def put_histograms(self, frame_T: Int64s, layer: int, histograms: Histograms) -> None:
        """Remember a layer's histograms of a tile; laid out when all are known."""
        if histograms.bins_TB.shape[1]:
            self._blocks.append((frame_T, layer, histograms))

    def put_cells(self, frame_C: Int64s, layer_C: Int64s, cells: Cells, *, bins: bool = True) -> None:
        """Put cells in; those of a negative frame or layer are left out."""
        keep = (frame_C >= 0) & (layer_C >= 0)
        if not keep.all():
            cells = cells.chosen(keep) if bins else _without_bins(cells, keep)
            frame_C, layer_C = frame_C[keep], layer_C[keep]
        self._add(frame_C, layer_C, cells.flags_C, tuple(cells.counts_C), tuple(cells.floats_C))
        if bins:
            self._cells.append((frame_C, layer_C, cells))

    def counts(self) -> tuple[int, Int64s]:
        """(exponent of the first bin, [F, L, B]) of all histograms, without empty bins at either end."""
        first, end = self._extent()
        counts = np.zeros((self.num_frames, self.num_layers, end - first), np.int64)
        for frame_T, layer, block in self._blocks:
            at = block.lowest - first
            rows, kept = _run(frame_T)
            bins = block.bins_TB[kept].astype(np.int64)
            counts[rows, layer, at : at + bins.shape[1]] += bins
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
        """`COUNTS` and `FLOATS` by name."""
        return dict(zip((*COUNTS, *FLOATS), (*self.numbers, *self.floats), strict=True))

    @property
    def present(self) -> NDArray[np.bool_]:
        return (self.flags & PRESENT) > 0

    @property
    def point(self) -> NDArray[np.uint8]:
        return self.flags & np.uint8(POINT_BITS)

    @property
    def maybe_clipped(self) -> NDArray[np.bool_]:
        return (self.flags & MAYBE_CLIPPED) > 0

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
        zeros = np.zeros(len(k), np.int64)
        self._add(
            frame_T[t],
            layer_K[k],
            moments.flags_KT[k, t],
            tuple(zeros if block is None else block[k, t].astype(np.int64) for block in moments.counts_KT),
            tuple(block[k, t].astype(np.float64) for block in moments.floats_KT),
        )

    def _add(
        self,
        frame_C: Int64s,
        layer_C: Int64s,
        flags_C: NDArray[np.uint8],
        counts_C: tuple[Int64s, ...],
        floats_C: tuple[Float64s, ...],
    ) -> None:
        """Cells into their places, in order; a place that is taken holds the sum."""
        for turn in _turns(frame_C * self.num_layers + layer_C):
            frame, layer = frame_C[turn], layer_C[turn]
            taken = self.flags[frame, layer] > 0
            free = ~taken
            if taken.any():
                self._merge((frame[taken], layer[taken]), turn[taken], counts_C, floats_C)
                turn, frame, layer = turn[free], frame[free], layer[free]
            self.flags[frame, layer] = flags_C[turn]
            for target, values in zip(self.numbers, counts_C, strict=True):
                target[frame, layer] = values[turn]
            for target_f, values_f in zip(self.floats, floats_C, strict=True):
                target_f[frame, layer] = values_f[turn]

    def _merge(
        self,
        place: tuple[Int64s, Int64s],
        turn: Int64s,
        counts_C: tuple[Int64s, ...],
        floats_C: tuple[Float64s, ...],
    ) -> None:
        for target, values in zip(self.numbers, counts_C, strict=True):
            target[place] += values[turn]
        with np.errstate(over="ignore", invalid="ignore"):
            for at, combine in enumerate((np.add, np.add, np.maximum, np.minimum)):
                target_f = self.floats[at]
                target_f[place] = combine(target_f[place], floats_C[at][turn])


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


def _run(indices: Int64s) -> tuple[slice | Int64s, slice | NDArray[np.bool_]]:
    """Where to put things, and which of them: slices where all go side by side, which is several times as fast."""
    if len(indices) and int(indices[0]) >= 0 and bool((indices[1:] - indices[:-1] == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1), slice(None)
    kept = indices >= 0
    return indices[kept], kept


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
