"""Which zeros of a gradient are there for another reason than underflow: ReLU, padding, sparse embeddings, masks.

A run that computes in a format has lost exactly what is zero in it and would not be in a wider one. That cannot be
seen in one frame: it takes frames of the same layer in which nothing was lost. Must not import torch.
Invariant: what is said to be lost is a lower bound. A frame that had room above the floor lost nothing by its own
rounding, however its zeros vary from batch to batch; and where no frame had room, nothing is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ROOM_SHARE = 0.001
"""Fewer of the nonzero elements near the floor than this: nothing below it is missing."""
HALF_WINDOW = 8
"""Frames with room that are looked at on each side: near in time, because units die and learn as a training goes on."""
TAIL_SHARE = 0.5
"""While fewer of the nonzero elements than this lie in the eleven bins above the floor, fewer lie in all bins below it:
that is so for every distribution with one hump."""
SCALE_STEP_LOG2 = 4.0
"""Zeros that come with a loss scale lower by so many bits come from it."""
MIN_EACH = 4
"""Frames on either side of a change of scale, before it proves anything."""
LAYERS_AT_ONCE = 32
"""So that what is worked out for them stays in a processor's cache: twice as fast as all at once."""


def structural_zeros(
    *, zeros: ArrayLike, n: ArrayLike, nonzero: ArrayLike, near_floor: ArrayLike, scale: ArrayLike
) -> Floats:
    """How many of a frame's zeros are structural, for every frame and layer of a run that computes in FP16.

    The rules, the first that applies:

    1. A layer that is all zero, though other frames of it are not: the largest number of zeros that another frame has
       (of those with room, where there are any), so everything else is lost. Unless it has been so before, and came
       back with room at no larger scale: then it was not used (a branch, an expert), and nothing is lost. Nor is
       anything before a layer's first gradient, where that has room at no larger scale: what it is multiplied by
       began at zero (adapters, residual branches). And where all layers are, at no smaller scale than one with room
       just before, nothing is known: the loss itself may be 0 (hinge losses).
    2. A frame whose zeros came with a smaller loss scale: at least four frames of about this scale all have more than
       each of at least four with room and 16 times the scale, by more than either group varies in itself. What was
       lost upstream, in activation gradients, shows like this even where the frame itself has room.
    3. A frame with room (`ROOM_SHARE`): all of its zeros.
    4. Any other: the most that any of the 16 nearest frames with room has, or all of its zeros where they are above
       that by no more than those frames vary among themselves; but at least so many that what is lost does not exceed
       what lies near the floor, while that is less than half (`TAIL_SHARE`).

    Args:
        zeros: [F, L] (or [F]) ascending in time, as are all but `scale`.
        n: all elements; 0 where the layer was not sketched.
        nonzero: finite elements other than zero.
        near_floor: nonzero elements below FP16's smallest normal number at the frame's scale: `subnormal + flushed`.
        scale: [F] loss scale; NaN counts as 1.

    Returns:
        [F, L] as float64, at most `zeros`; NaN: unknown.
    """
    shape = np.shape(zeros)
    z, total, alive, floor = (np.reshape(a, (shape[0], -1)) for a in (zeros, n, nonzero, near_floor))
    level_F = np.log2(np.nan_to_num(np.maximum(np.asarray(scale, np.float64), 2.0**-126), nan=1.0))
    flushed = (total > 0) & (z == total)
    silent_F = (flushed | (total == 0)).all(axis=1) & (flushed.sum(axis=1) > 1)
    result = np.empty((z.shape[1], shape[0]))
    for first in range(0, z.shape[1], LAYERS_AT_ONCE):
        part = slice(first, first + LAYERS_AT_ONCE)
        zeros_FL, n_FL, alive_FL, floor_FL = (np.asarray(a[:, part], np.float64) for a in (z, total, alive, floor))
        result[part] = _of_layers(zeros_FL, n_FL, alive_FL, floor_FL, level_F, silent_F).T
    return result.T.reshape(shape)


def _of_layers(z: Floats, total: Floats, alive: Floats, floor: Floats, level_F: Floats, silent_F: Bools) -> Floats:
    """`structural_zeros` of some layers, [F, L]."""
    result = np.where(alive > 0, z, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        near = np.where(alive > 0, floor / alive, np.nan)
        zero_share = np.where(total > 0, z / total, np.nan)
    clean = (total > 0) & (alive + z == total)  # frames with NaN or Inf are no measure for others
    room = clean & (near < ROOM_SHARE)
    flushed = (total > 0) & (z == total)
    doubtful = flushed.any(axis=0) | (near >= ROOM_SHARE).any(axis=0)
    if level_F.size and np.ptp(level_F) >= SCALE_STEP_LOG2:
        doubtful |= room.any(axis=0)
    at = np.flatnonzero(doubtful)
    if at.size:
        part = _Layers(
            zero_share[:, at], near[:, at], alive[:, at], room[:, at], clean[:, at], flushed[:, at], level_F, silent_F
        )
        lost = part.lost_share()
        result[:, at] = np.where(total[:, at] > 0, z[:, at] - lost * total[:, at], np.nan)
    return result


class _Layers:
    """The rules over layers where there is something to decide. All [F, L] but `level_F`."""

    def __init__(
        self,
        zero_share: Floats,
        near: Floats,
        alive: Floats,
        room: Bools,
        clean: Bools,
        flushed: Bools,
        level_F: Floats,
        silent_F: Bools,
    ) -> None:
        """
        Args:
            silent_F: frames in which no layer of the model has a gradient.
        """
        self._zero_share, self._near, self._alive = zero_share, near, alive
        self._room, self._clean, self._flushed = room, clean, flushed
        self._level_F, self._silent_F = level_F, silent_F

    def lost_share(self) -> Floats:
        """Of all elements; NaN: unknown."""
        from_scale = self._excess_with_scale()
        separated = ~np.isnan(from_scale)
        with_room = self._room & ~separated
        most, least = nearest(self._zero_share, with_room), nearest(self._zero_share, with_room, largest=False)
        with np.errstate(invalid="ignore"):
            above = self._zero_share - most
            # Zeros that vary from batch to batch prove something only where they leave the range they vary in.
            excess = np.where(np.isinf(most), np.nan, np.where(above > most - least, above, 0.0))
            nonzero_share = np.where(self._alive > 0, (1 - self._zero_share), 0.0)
            limit = np.where(self._near < TAIL_SHARE, self._near * nonzero_share, np.inf)
            lost = np.where(self._room, 0.0, np.minimum(excess, limit))
        lost = np.where(separated, from_scale, lost)
        lost = np.where(self._alive > 0, lost, np.nan)
        return np.where(self._flushed, self._lost_in_whole(most), lost)

    def _lost_in_whole(self, most: Floats) -> Floats:
        others = np.where((self._alive > 0) & self._clean, self._zero_share, -np.inf).max(axis=0, initial=-np.inf)
        most = np.where(np.isinf(most), others, most)
        lost = np.where(np.isinf(most), np.nan, 1.0 - most)
        lost[self._perhaps_without_loss()] = np.nan
        return np.where(self._unused(), 0.0, lost)

    def _perhaps_without_loss(self) -> Bools:
        """Frames without any gradient, at no smaller scale than the layer's last, which had room."""
        if not self._silent_F.any():
            return np.zeros(self._flushed.shape, bool)
        at = np.where(self._alive > 0, np.arange(len(self._level_F))[:, None], -1)
        before = np.maximum.accumulate(at, axis=0)
        had_room = (before >= 0) & np.take_along_axis(self._room, np.maximum(before, 0), axis=0)
        result: Bools = had_room & (self._level_F[:, None] >= self._level_F[before] - 0.5) & self._silent_F[:, None]
        return result

    def _unused(self) -> Bools:
        """All-zero frames of layers that have been all zero and back, with room, at least twice; and those before a
        layer's first gradient, where that has room."""
        unused = np.zeros(self._flushed.shape, bool)
        for layer in np.flatnonzero(self._flushed.any(axis=0)):
            there = np.flatnonzero(self._flushed[:, layer] | (self._alive[:, layer] > 0))
            gone, room, level = self._flushed[there, layer], self._room[there, layer], self._level_F[there]
            edges = np.flatnonzero(np.diff(gone, prepend=False, append=False))
            early, between, late = [], [], []
            for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                had_room = start > 0 and room[start - 1]
                if end == len(there):
                    if had_room and level[start:].min() >= level[start - 1] - 0.5:
                        late.append(there[start:])
                elif room[end] and level[end] <= level[start] + 0.5:
                    if not start:
                        early.append(there[:end])
                    elif had_room:
                        between.append(there[start:end])
            if len(between) >= 2:
                early += between + late
            if early:
                unused[np.concatenate(early), layer] = True
        return unused

    def _excess_with_scale(self) -> Floats:
        """Rule 2; NaN where it does not apply."""
        found = np.full(self._zero_share.shape, np.nan)
        level_F = np.round(self._level_F)
        usable = self._clean & (self._alive > 0)
        for level in np.unique(level_F):
            here_F, about_F = level_F == level, np.abs(self._level_F - level) <= 1.0
            high_F = self._level_F >= level + SCALE_STEP_LOG2
            if high_F.sum() < MIN_EACH or about_F.sum() < MIN_EACH:
                continue
            high, about = self._room & high_F[:, None], usable & about_F[:, None]
            # A layer none of whose frames has more zeros than all of those at the larger scale is done with quickly.
            few = np.where(high, self._zero_share, np.inf).min(axis=0)
            at = np.flatnonzero(np.where(about, self._zero_share, -np.inf).max(axis=0) > few)
            if at.size:
                excess = _excess_over(self._zero_share[:, at], high[:, at], about[:, at])
                found[np.ix_(here_F, at)] = excess[here_F]
        return np.where(self._flushed, np.nan, found)


def _excess_over(zero_share: Floats, high: Bools, about: Bools) -> Floats:
    """Zeros beyond those of frames at a higher scale, where the two groups are apart; NaN elsewhere."""
    most_high, most = nearest(zero_share, high), nearest(zero_share, about)
    least_high, least = nearest(zero_share, high, largest=False), nearest(zero_share, about, largest=False)
    enough = (num_nearest(high) >= MIN_EACH) & (num_nearest(about) >= MIN_EACH)
    with np.errstate(invalid="ignore"):
        apart = enough & (least - most_high > np.maximum(most_high - least_high, most - least))
        return np.where(apart, np.maximum(zero_share - most_high, 0.0), np.nan)


def nearest(values: Floats, mask: Bools, *, largest: bool = True) -> Floats:
    """Per frame the largest (or smallest) value of the nearest masked frames, `HALF_WINDOW` before it and as many from
    it on; -inf (inf) where there are none."""
    num_frames = values.shape[0]
    none, further = (-np.inf, np.maximum) if largest else (np.inf, np.minimum)
    place = np.cumsum(mask, axis=0, dtype=np.int32)
    packed = np.full((num_frames + 2 * HALF_WINDOW, values.shape[1]), none)
    row, column = np.nonzero(mask)
    packed[place[row, column] - 1 + HALF_WINDOW, column] = values[row, column]
    width = 1
    while width < 2 * HALF_WINDOW:  # windows of 2, 4, 8, 16
        packed = further(packed[: len(packed) - width], packed[width:])
        width *= 2
    found: Floats = np.take_along_axis(packed, place - mask, axis=0)
    return found


def num_nearest(mask: Bools) -> NDArray[np.int64]:
    """How many frames `nearest` looks at."""
    before: NDArray[np.int64] = np.cumsum(mask, axis=0, dtype=np.int64) - mask
    count: NDArray[np.int64] = np.minimum(before, HALF_WINDOW) + np.minimum(mask.sum(axis=0) - before, HALF_WINDOW)
    return count
