"""Which zeros of a gradient are there for another reason than underflow: ReLU, padding, sparse embeddings, masks.

A run that computes in a format has lost exactly what is zero in it and would not be in a wider one. That cannot be
seen in one frame: it takes frames of the same layer in which nothing was lost. Must not import torch.
Invariant: what is said to be lost is a lower bound. A frame that had room above the floor lost nothing by its own
rounding, however its zeros vary from batch to batch; and where no frame had room, nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
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
        zeros: [F, L] (or [F]) ascending in time, as are the next three.
        n: all elements; 0 where the layer was not sketched.
        nonzero: finite elements other than zero.
        near_floor: nonzero elements below FP16's smallest normal number at the frame's scale: `subnormal + flushed`.
        scale: loss scale, [F], or where layers differ in it [F, L] ([F, 1]: they do not); NaN counts as 1.

    Returns:
        [F, L] as float64, at most `zeros`; NaN: unknown.
    """
    shape = np.shape(zeros)
    if not np.size(zeros):
        return np.zeros(shape)  # a run that has declared its layers and sketched none yet
    z, total, alive, floor = (np.reshape(a, (shape[0], -1)).T for a in (zeros, n, nonzero, near_floor))
    level = np.log2(np.nan_to_num(np.maximum(np.asarray(scale, np.float64), 2.0**-126), nan=1.0))
    flushed = (total > 0) & (z == total)
    silent_F = (flushed | (total == 0)).all(axis=0) & (flushed.sum(axis=0) > 1)
    result = np.empty(z.shape)
    for part, level_F in _parts(level.reshape(shape[0], -1), len(z)):
        result[part] = _of_layers(z[part], total[part], alive[part], floor[part], flushed[part], level_F, silent_F)
    return result.T.reshape(shape)


def _parts(level: Floats, num_layers: int) -> Iterator[tuple[slice | Ints, Floats]]:
    """A few layers of one scale at a time, with its logarithm over the frames."""
    if level.shape[1] == 1:
        for first in range(0, num_layers, LAYERS_AT_ONCE):
            yield slice(first, first + LAYERS_AT_ONCE), level[:, 0]
        return
    unique, which = np.unique(level, axis=1, return_inverse=True)
    for at in range(unique.shape[1]):
        layers = np.flatnonzero(which.reshape(-1) == at)
        for first in range(0, len(layers), LAYERS_AT_ONCE):
            yield layers[first : first + LAYERS_AT_ONCE], np.ascontiguousarray(unique[:, at])


def _of_layers(
    z: NDArray[Any],
    total: NDArray[Any],
    alive: NDArray[Any],
    floor: NDArray[Any],
    flushed: Bools,
    level_F: Floats,
    silent_F: Bools,
) -> Floats:
    """`structural_zeros` of some layers, [L, F]."""
    there = alive > 0
    result = np.where(there, z, np.nan)
    clean = (total > 0) & (alive + z == total)  # frames with NaN or Inf are no measure for others
    near = there & (floor >= ROOM_SHARE * alive)
    doubtful = flushed.any(axis=1) | near.any(axis=1)
    room = clean & there & ~near
    if level_F.size and np.ptp(level_F) >= SCALE_STEP_LOG2:
        doubtful |= room.any(axis=1)
    at = np.flatnonzero(doubtful)
    if at.size:
        z, total, there = z[at], total[at], there[at]
        with np.errstate(invalid="ignore", divide="ignore"):
            zero_share, near_share = z / total, floor[at] / alive[at]
        part = _Layers(zero_share, near_share, there, room[at], clean[at], flushed[at], level_F, silent_F)
        result[at] = np.where(total > 0, z - part.lost_share() * total, np.nan)
    return result


class _Layers:
    """The rules over layers where there is something to decide. All [L, F] but `level_F`; suffix X: frames of layers
    that are looked at one by one, since what most frames have lost is plain."""

    def __init__(
        self,
        zero_share: Floats,
        near: Floats,
        there: Bools,
        room: Bools,
        clean: Bools,
        flushed: Bools,
        level_F: Floats,
        silent_F: Bools,
    ) -> None:
        """
        Args:
            near: share of the nonzero elements near the floor.
            there: frames with a nonzero element.
            silent_F: frames in which no layer of the model has a gradient.
        """
        self._zero_share, self._near, self._there = zero_share, near, there
        self._room, self._clean, self._flushed = room, clean, flushed
        self._level_F, self._silent_F = level_F, silent_F

    def lost_share(self) -> Floats:
        """Of all elements; NaN: unknown."""
        lost = np.where(self._there, 0.0, np.nan)
        separated = self._lost_with_scale(lost)
        layer_X, frame_X = np.nonzero(self._flushed | (self._there & ~self._room & ~separated))
        room, near_X = self._room & ~separated, self._near[layer_X, frame_X]
        lost_X, most_X = above_those_with_room(self._zero_share, near_X, room, layer_X, frame_X)
        whole_X = self._flushed[layer_X, frame_X]
        if whole_X.any():
            lost_X[whole_X] = self._lost_in_whole(layer_X[whole_X], frame_X[whole_X], most_X[whole_X])
        lost[layer_X, frame_X] = lost_X
        return lost

    def _lost_in_whole(self, layer_X: Ints, frame_X: Ints, most_X: Floats) -> Floats:
        others = np.where(self._there & self._clean, self._zero_share, -np.inf).max(axis=1, initial=-np.inf)
        most_X = np.where(np.isinf(most_X), others[layer_X], most_X)
        lost_X = np.where(np.isinf(most_X), np.nan, 1.0 - most_X)
        lost_X[self._perhaps_without_loss()[layer_X, frame_X]] = np.nan
        return np.where(self._unused()[layer_X, frame_X], 0.0, lost_X)

    def _perhaps_without_loss(self) -> Bools:
        """Frames without any gradient, at no smaller scale than the layer's last, which had room."""
        if not self._silent_F.any():
            return np.zeros(self._flushed.shape, bool)
        before = np.maximum.accumulate(np.where(self._there, np.arange(len(self._level_F)), -1), axis=1)
        had_room = (before >= 0) & np.take_along_axis(self._room, np.maximum(before, 0), axis=1)
        result: Bools = had_room & (self._level_F >= self._level_F[before] - 0.5) & self._silent_F
        return result

    def _unused(self) -> Bools:
        """All-zero frames of layers that have been all zero and back, with room, at least twice; and those before a
        layer's first gradient, where that has room."""
        unused = np.zeros(self._flushed.shape, bool)
        for layer in np.flatnonzero(self._flushed.any(axis=1)):
            there = np.flatnonzero(self._flushed[layer] | self._there[layer])
            gone, room, level = self._flushed[layer, there], self._room[layer, there], self._level_F[there]
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
                unused[layer, np.concatenate(early)] = True
        return unused

    def _lost_with_scale(self, lost: Floats) -> Bools:
        """Rule 2: what is lost by it, written into `lost`, and where it applies."""
        separated = np.zeros(lost.shape, bool)
        level_F = np.round(self._level_F)
        usable = self._clean & self._there
        for level in np.unique(level_F):
            about_F = np.abs(self._level_F - level) <= 1.0
            high_F = self._level_F >= level + SCALE_STEP_LOG2
            if high_F.sum() < MIN_EACH or about_F.sum() < MIN_EACH:
                continue
            high, about = self._room & high_F, usable & about_F
            # A layer none of whose frames has more zeros than all of those at the larger scale is done with quickly.
            few = np.where(high, self._zero_share, np.inf).min(axis=1)
            at = np.flatnonzero(np.where(about, self._zero_share, -np.inf).max(axis=1) > few)
            if at.size:
                self._separate(at, high[at], about[at], level_F == level, lost, separated)
        return separated

    def _separate(self, at: Ints, high: Bools, about: Bools, here_F: Bools, lost: Floats, separated: Bools) -> None:
        """Frames of some layers at one scale whose zeros are apart from those at a larger one."""
        layer_X, frame_X = np.nonzero(~self._flushed[at] & here_F)
        shares = self._zero_share[at]
        most_high, least_high, num_high = nearest(shares, high, layer_X, frame_X)
        most, least, num = nearest(shares, about, layer_X, frame_X)
        with np.errstate(invalid="ignore"):
            apart = least - most_high > np.maximum(most_high - least_high, most - least)
        apart &= (num_high >= MIN_EACH) & (num >= MIN_EACH) & self._there[at][layer_X, frame_X]
        place = (at[layer_X[apart]], frame_X[apart])
        lost[place] = np.maximum(self._zero_share[place] - most_high[apart], 0.0)
        separated[place] = True


def above_those_with_room(
    zero_share: Floats, near_X: Floats, room: Bools, layer_X: Ints, frame_X: Ints, *, ahead: bool = True
) -> tuple[Floats, Floats]:
    """Rule 4: what frames have lost beside the nearest with room, as a share of all elements (NaN: there are none), and
    the most zeros that any of those has (-inf: there are none).

    Args:
        zero_share: [L, F], as is the mask of frames with room.
        near_X: share of the nonzero elements near the floor.
        layer_X: for which frames, ascending by layer and frame.
        ahead: False: as if nothing had come after each of these frames.
    """
    most_X, least_X, _ = nearest(zero_share, room, layer_X, frame_X, ahead=ahead)
    return lost_beside(zero_share[layer_X, frame_X], near_X, most_X, least_X), most_X


def lost_beside(share: Floats, near: Floats, most: Floats, least: Floats) -> Floats:
    """What frames have lost, as a share of all elements, beside others that have so many zeros at most and at least
    (-inf and inf: there are none, and it is NaN).

    Args:
        share: of zeros.
        near: share of the nonzero elements near the floor.
    """
    with np.errstate(invalid="ignore"):
        above = share - most
        # Zeros that vary from batch to batch prove something only where they leave the range they vary in.
        excess = np.where(np.isinf(most), np.nan, np.where(above > most - least, above, 0.0))
        limit = np.where(near < TAIL_SHARE, near * (1 - share), np.inf)
        return np.minimum(excess, limit)


def nearest(
    values: Floats, mask: Bools, layer_X: Ints, frame_X: Ints, *, ahead: bool = True
) -> tuple[Floats, Floats, Ints]:
    """Of the nearest masked frames of a layer, `HALF_WINDOW` before a frame and (`ahead`) as many from it on: their
    largest and smallest value, and how many they are; -inf, inf and 0 where there are none.

    Args:
        values: [L, F], as is the mask.
        layer_X: for which frames, ascending by layer and frame.
    """
    num_layers, num_frames = mask.shape
    masked = np.flatnonzero(mask)
    layer = masked // num_frames
    # Layers one after another, with so many empty places before each that no window reaches into two.
    packed = np.full(masked.size + HALF_WINDOW * (num_layers + 1), -np.inf)
    place = np.arange(masked.size) + HALF_WINDOW * (layer + 1)
    packed[place] = values.reshape(-1)[masked]
    least = np.full(packed.shape, np.inf)
    least[place] = packed[place]
    width = 1
    while width < (2 if ahead else 1) * HALF_WINDOW:  # windows of 2, 4, 8, 16
        packed = np.maximum(packed[:-width], packed[width:])
        least = np.minimum(least[:-width], least[width:])
        width *= 2
    rank_X = np.searchsorted(masked, layer_X * num_frames + frame_X)
    at_X = rank_X + HALF_WINDOW * layer_X
    counts = np.bincount(layer, minlength=num_layers)
    before_X = rank_X - (np.cumsum(counts) - counts)[layer_X]
    num_X = np.minimum(before_X, HALF_WINDOW)
    if ahead:
        num_X += np.minimum(counts[layer_X] - before_X, HALF_WINDOW)
    return packed[at_X], least[at_X], num_X
