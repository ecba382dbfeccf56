"""Which zeros of each of some frames are structural, as if nothing had come after that frame.

Owns the order of the work, not the rules: those are `halfscope.sketch.structural_zeros`, which would have to be asked
anew for every frame. Must not know stores or metrics. Invariant: of each frame the answer is that function's, given the
frames up to it.

Suffixes: L layers, K frames that are known, C the newest of them, which are asked about.
"""

from __future__ import annotations

import numpy as np
from halfscope.sketch.structural import (
    HALF_WINDOW,
    MIN_EACH,
    ROOM_SHARE,
    SCALE_STEP_LOG2,
    lost_beside,
    nearest,
)
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def lost_shares(*, zeros: Ints, n: Ints, nonzero: Ints, near_floor: Ints, level: Floats, num_newest: int) -> Floats:
    """What the newest frames have lost, [C, L], as a share of all elements; NaN: unknown.

    Args:
        zeros: [K, L] ascending in time, as are the next three; see `structural_zeros`.
        level: log2 of the loss scale, [K, L], or [K, 1] where layers do not differ in it.
    """
    z, total, alive, floor = zeros.T, n.T, nonzero.T, near_floor.T
    flushed = (total > 0) & (z == total)
    silent_K = (flushed | (total == 0)).all(axis=0) & (flushed.sum(axis=0) > 1)
    unique, which = np.unique(level, axis=1, return_inverse=True)
    lost = np.empty((len(z), num_newest))
    for number in range(unique.shape[1]):
        # One for all layers is one for as many as there are.
        part = np.flatnonzero(which.reshape(-1) == number) if level.shape[1] > 1 else np.arange(len(z))
        level_K = np.ascontiguousarray(unique[:, number])
        found = _Layers(z[part], total[part], alive[part], floor[part], flushed[part], level_K, silent_K)
        lost[part] = found.lost(zeros.shape[0] - num_newest)
    return lost.T


class _Layers:
    """Layers under one loss scale; all [L, K] but `level` and `silent`, [K]."""

    def __init__(
        self, z: Ints, total: Ints, alive: Ints, floor: Ints, flushed: Bools, level: Floats, silent: Bools
    ) -> None:
        self._there, self._flushed, self._level, self._silent = alive > 0, flushed, level, silent
        self._clean = (total > 0) & (alive + z == total)
        self._close = self._there & (floor >= ROOM_SHARE * alive)
        self._room = self._clean & self._there & ~self._close
        with np.errstate(invalid="ignore", divide="ignore"):
            self._share, self._near = z / total, floor / alive

    def lost(self, first: int) -> Floats:
        """[L, C] of the frames from `first` on."""
        newest = slice(first, None)
        # A layer in which nothing was ever near the floor, all zero, or at a much smaller scale, lost nothing.
        has_fallen = np.maximum.accumulate(self._level) - np.minimum.accumulate(self._level) >= SCALE_STEP_LOG2
        doubts = np.logical_or.accumulate(self._flushed | self._close, axis=1)
        doubts |= has_fallen & np.logical_or.accumulate(self._room, axis=1)
        asked = (self._flushed | (self._there & ~self._room & doubts))[:, newest]
        most, least, with_scale = _Measures(self._share, self._room, self._clean & self._there, self._level).of(
            first, asked, self._flushed
        )
        beside = lost_beside(self._share[:, newest], self._near[:, newest], most, least)
        lost = np.where(asked, beside, 0.0)
        lost = np.where(np.isnan(with_scale) | ~self._there[:, newest], lost, with_scale)
        if self._flushed[:, newest].any():
            lost = np.where(self._flushed[:, newest], self._lost_in_whole(first, most), lost)
        return np.where((self._there | self._flushed)[:, newest], lost, np.nan)

    def _lost_in_whole(self, first: int, most: Floats) -> Floats:
        others = np.where(self._there & self._clean, self._share, -np.inf)
        most = np.where(np.isinf(most), np.maximum.accumulate(others, axis=1)[:, first:], most)
        lost = np.where(np.isinf(most) | self._perhaps_without_loss()[:, first:], np.nan, 1.0 - most)
        return np.where(self._unused()[:, first:], 0.0, lost)

    def _perhaps_without_loss(self) -> Bools:
        """Frames without any gradient, at no smaller scale than the layer's last, which had room."""
        before = np.maximum.accumulate(np.where(self._there, np.arange(len(self._level)), -1), axis=1)
        had_room = (before >= 0) & np.take_along_axis(self._room, np.maximum(before, 0), axis=1)
        result: Bools = had_room & (self._level >= self._level[before] - 0.5) & self._silent
        return result

    def _unused(self) -> Bools:
        """All-zero frames, at no smaller scale than before, of layers that have been so and back twice already."""
        unused = np.zeros(self._flushed.shape, np.bool_)
        for layer in np.flatnonzero(self._flushed.any(axis=1)).tolist():
            seen = np.flatnonzero(self._flushed[layer] | self._there[layer])
            gone, room, level = self._flushed[layer, seen], self._room[layer, seen], self._level[seen]
            edges = np.flatnonzero(np.diff(gone, prepend=False, append=False))
            times = 0
            for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                if not start or not room[start - 1]:
                    continue
                if times >= 2:
                    lowest = np.minimum.accumulate(level[start:end])
                    unused[layer, seen[start:end][lowest >= level[start - 1] - 0.5]] = True
                times += bool(end < seen.size and room[end] and level[end] <= level[start] + 0.5)
        return unused


class _Measures:
    """What the newest frames are held against. Frames that lost with the scale are no measure for others; whether one
    has is known a little better with every frame that comes after it, so the newest are gone through one by one."""

    def __init__(self, share: Floats, room: Bools, usable: Bools, level: Floats) -> None:
        self._share, self._room, self._usable, self._level = share, room, usable, level
        own_K1 = np.round(level)[:, None]
        self._is_about = np.abs(level - own_K1) <= 1.0
        """[K, K]: which frames have about the scale of one."""
        self._is_high = level >= own_K1 + SCALE_STEP_LOG2

    def of(self, first: int, asked: Bools, flushed: Bools) -> tuple[Floats, Floats, Floats]:
        """(most, least, lost with the scale), [L, C] each: the most and the fewest zeros of the nearest with room (-inf
        and inf: there are none), and what was lost with the scale where that is proved, else NaN.

        Args:
            asked: [L, C] where the first two are wanted.
        """
        self._separated = np.zeros(self._share.shape, np.bool_)
        with_scale = np.full(asked.shape, np.nan)
        may = (self._is_high.sum(axis=1) >= MIN_EACH) & (self._is_about.sum(axis=1) >= MIN_EACH)
        if not may.any():
            layer_X, frame_X = np.nonzero(asked)
            most, least = np.full(asked.shape, -np.inf), np.full(asked.shape, np.inf)
            found = nearest(self._share, self._room, layer_X, frame_X + first, ahead=False)
            most[layer_X, frame_X], least[layer_X, frame_X], _ = found
            return most, least, with_scale
        self._about = _Windows(self._share, self._usable, self._room, self._level, self._is_about, may, first)
        self._high = _Windows(self._share, self._room, self._room, self._level, self._is_high, may, first)
        self._separate(np.flatnonzero(may[:first]))
        return self._one_by_one(first, asked, may, flushed, with_scale)

    def _one_by_one(
        self, first: int, asked: Bools, may: Bools, flushed: Bools, with_scale: Floats
    ) -> tuple[Floats, Floats, Floats]:
        most, least = np.full(asked.shape, -np.inf), np.full(asked.shape, np.inf)
        newest_most, newest_least = np.full(len(asked), -np.inf), np.full(len(asked), np.inf)
        stale = np.ones(len(asked), np.bool_)
        for at in range(first, self._share.shape[1]):
            touched = np.zeros(at + 1, np.bool_)
            touched[at] = may[at]
            self._about.take(at, touched)
            self._high.take(at, touched)
            frames = np.flatnonzero(touched)
            if frames.size:
                stale |= self._separate(frames)
            if may[at]:
                proved = self._separated[:, at] & ~flushed[:, at]
                lost = np.maximum(self._share[:, at] - self._high.most[:, at], 0.0)
                with_scale[:, at - first] = np.where(proved, lost, np.nan)
            wanted = asked[:, at - first]
            layers = np.flatnonzero(wanted & stale)
            if layers.size:
                mask = self._room[layers, :at] & ~self._separated[layers, :at]
                place = np.arange(layers.size), np.full(layers.size, at)
                newest_most[layers], newest_least[layers], _ = nearest(
                    self._share[layers, :at], mask, *place, ahead=False
                )
                stale[layers] = False
            most[wanted, at - first], least[wanted, at - first] = newest_most[wanted], newest_least[wanted]
            stale |= self._room[:, at] & ~self._separated[:, at]
        return most, least, with_scale

    def _separate(self, frames: Ints) -> Bools:
        """Tell anew which of these frames lost with the scale; [L] where that has changed."""
        about, high = self._about, self._high
        most, most_high = about.most[:, frames], high.most[:, frames]
        with np.errstate(invalid="ignore"):
            varies = np.maximum(most_high - high.least[:, frames], most - about.least[:, frames])
            apart = about.least[:, frames] - most_high > varies
        apart &= (high.num[:, frames] >= MIN_EACH) & (about.num[:, frames] >= MIN_EACH)
        changed: Bools = (apart != self._separated[:, frames]).any(axis=1)
        self._separated[:, frames] = apart
        return changed


class _Windows:
    """Of each frame the extremes among the frames near it that count, [L, K], while more come after it."""

    def __init__(
        self,
        share: Floats,
        counts: Bools,
        room: Bools,
        level: Floats,
        belongs: Bools,
        may: Bools,
        first: int,
    ) -> None:
        """
        Args:
            counts: [L, K] the frames whose zeros are looked at.
            room: [L, K] what is known of others matters only while they are the newest.
            belongs: [K, K] which frames are looked at for one.
            may: [K] the frames that are asked about.
            first: those before it are there already.
        """
        self._share, self._counts, self._room, self._belongs = share, counts, room, belongs
        self.most, self.least = np.full(share.shape, -np.inf), np.full(share.shape, np.inf)
        self.num, self._ahead = np.zeros(share.shape, np.int64), np.zeros(share.shape, np.int64)
        rounded = np.round(level)
        for own in np.unique(rounded[may]):
            frames = np.flatnonzero(rounded == own)
            mask = counts & belongs[frames[0]]
            for there, ahead in ((frames[frames < first], True), (frames[frames >= first], False)):
                if there.size:
                    end = first if ahead else share.shape[1]
                    self._begin(mask[:, :end], there, ahead)
        self._is_open = may & room.any(axis=0)
        self._is_open[first:] = may[first:]

    def _begin(self, mask: Bools, frames: Ints, ahead: bool) -> None:
        layer_X = np.repeat(np.arange(len(mask)), frames.size)
        found = nearest(self._share[:, : mask.shape[1]], mask, layer_X, np.tile(frames, len(mask)), ahead=ahead)
        for whole, part in zip((self.most, self.least, self.num), found, strict=True):
            whole[:, frames] = part.reshape(len(mask), -1)
        if ahead:
            before: Ints = np.cumsum(mask, axis=1) - mask
            self._ahead[:, frames] = np.minimum(mask.sum(axis=1)[:, None] - before[:, frames], HALF_WINDOW)

    def take(self, at: int, touched: Bools) -> None:
        """A frame came: mark those, itself included, whose windows may have changed by it."""
        frames = np.flatnonzero(self._belongs[: at + 1, at] & self._is_open[: at + 1])
        counted = self._counts[:, at]
        if not frames.size or not counted.any():
            return
        touched[frames] = True
        ahead = self._ahead[:, frames]
        takes = counted[:, None] & (ahead < HALF_WINDOW)
        share = self._share[:, at, None]
        self.most[:, frames] = np.maximum(self.most[:, frames], np.where(takes, share, -np.inf))
        self.least[:, frames] = np.minimum(self.least[:, frames], np.where(takes, share, np.inf))
        self.num[:, frames] += takes
        self._ahead[:, frames] = ahead = ahead + takes
        self._is_open[frames] = (self._room[:, frames] & (ahead < HALF_WINDOW)).any(axis=0)
