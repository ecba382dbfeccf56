"""Underflow of every layer in every sketched step, as it could be told when that step was the newest.

Owns the memory of earlier frames that the measured number needs. Must not choose another number than
query/underflow: structural zeros are those of the same function, as of each frame (alerts/zeros.py). Invariant: a
frame's share depends on the frames up to it; of those the newest `MAX_FRAMES` are kept, and before them the newest with
room above FP16's floor of each layer, which is what zeros are measured against.

Suffixes: F frames kept, L layers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from halfscope.sketch import DEFAULT_SCALE, headroom
from halfscope.sketch.structural import HALF_WINDOW, ROOM_SHARE, SCALE_STEP_LOG2, above_those_with_room

from halfscope_server.alerts.metrics.base import Floats, Ints, Memory, Metric
from halfscope_server.alerts.metrics.frames import Bools, Cells, Frames, widened
from halfscope_server.alerts.zeros import lost_shares
from halfscope_server.query.states import precision_of
from halfscope_server.store.types import RunRow
from halfscope_server.store.update_types import Wanted

MAX_FRAMES = 128
SPARE_FRAMES = 32
"""Kept beyond that before there is a clearing-out."""
COUNTS = ("zeros", "n", "nonzero", "near")
FP16_LABELS = ("FP16-AMP", "FP16")
UNSETTLED_LABELS = ("mixed", "")
"""Where a loss scale says that some of it is FP16."""


def in_fp16(run: RunRow, has_scale: bool, memory: Memory) -> bool:
    """Whether what FP16 flushes is zero by the time it is seen; decided at a run's first frame."""
    if "fp16" not in memory:
        label = precision_of(run)
        memory["fp16"] = label in FP16_LABELS or (label in UNSETTLED_LABELS and has_scale)
    return bool(memory["fp16"])


class _Gradients(Frames):
    def _in_fp16(self, run: RunRow, has_scale: Bools) -> bool:
        return in_fp16(run, bool(has_scale[0].any()), self._memory)


class _Headroom(_Gradients):
    def _of_frames(self, run: RunRow, cells: Cells, places: Ints) -> Floats:
        has_scale = np.isfinite(cells["scale"])
        # Without a scaler the gradient of an FP16 run is as it is; of others it is what FP16 would see.
        scale = np.where(has_scale, cells["scale"], 1.0 if self._in_fp16(run, has_scale) else DEFAULT_SCALE)
        bits = headroom(cells["absmax"], cells["infinite"], scale)
        return self._spread(bits, cells["present"], places, np.nan)


class _Underflow(_Gradients):
    """Suffixes: K frames that are kept, with those of a chunk as the last of them; C frames of a chunk."""

    def __init__(self, memory: Memory, only_measured: bool) -> None:
        super().__init__(memory)
        self._only_measured = only_measured
        self._kept: dict[str, Ints] = {name: memory.setdefault(name, np.zeros((0, 0), np.int64)) for name in COUNTS}
        self._scale: Floats = memory.setdefault("scale", np.zeros((0, 0)))

    def _of_frames(self, run: RunRow, cells: Cells, places: Ints) -> Floats | None:
        scale, present = cells["scale"], cells["present"]
        has_scale = np.isfinite(scale)
        nonzero = cells["n"].astype(np.int64) - cells["zeros"] - cells["nonfinite"]
        if not self._in_fp16(run, has_scale):
            if self._only_measured:
                return None
            known = present & (nonzero > 0)
            share = np.divide(cells["flushed"], nonzero, out=np.full(known.shape, np.nan), where=known)
            return self._spread(share, known, places, np.nan)
        # FP16 without a loss scale: how much lies near its floor cannot be told from these counts.
        present = present & has_scale
        near = cells["subnormal"].astype(np.int64) + cells["flushed"]
        rows = [
            self._spread(row.astype(np.int64), present, places, 0)
            for row in (cells["zeros"], cells["n"], nonzero, near)
        ]
        # Of layers that are not in it the scale matters to nobody: as one for all it is dealt with quicker.
        first = scale[np.arange(len(scale)), present.argmax(axis=1)]
        usual = np.where(present.any(axis=1), first, np.nan)[:, None]
        is_there = self._spread(present, present, places, False)
        return self._measured(rows, self._spread(scale, present, places, usual), is_there)

    def _measured(self, rows: Sequence[Ints], scale: Floats, present: Bools) -> Floats:
        """[F, L], with as many frames at once as there is room for before a clearing-out."""
        share = np.empty(scale.shape)
        first = 0
        while first < len(scale):
            if len(self._scale) >= MAX_FRAMES + SPARE_FRAMES:
                self._clear_out()
            end = first + MAX_FRAMES + SPARE_FRAMES - len(self._scale)
            self._keep([row[first:end] for row in rows], scale[first:end])
            share[first:end] = self._of_chunk(present[first:end])
            first = end
        return share

    def _keep(self, rows: Sequence[Ints], scale: Floats) -> None:
        width = scale.shape[1]
        for name, row in zip(COUNTS, rows, strict=True):
            self._kept[name] = np.concatenate((widened(self._kept[name], width, 0), row))
        usual = self._scale[:, :1] if self._scale.size else np.nan
        self._scale = np.concatenate((widened(self._scale, width, usual), scale))

    def _clear_out(self) -> None:
        """Forget the oldest frames that are no longer any layer's measure."""
        alive = self._kept["nonzero"]
        clean = alive + self._kept["zeros"] == self._kept["n"]
        room = clean & _room(self._kept["near"], alive)
        # How many frames with room each layer has from this one on.
        from_here = np.cumsum(room[::-1], axis=0)[::-1]
        needed = (room & (from_here <= HALF_WINDOW)).any(axis=1)
        spare = np.flatnonzero(~needed[: len(self._scale) - MAX_FRAMES // 2])
        keep = np.ones(len(self._scale), np.bool_)
        keep[spare[: len(self._scale) - MAX_FRAMES]] = False
        if keep.sum() > MAX_FRAMES:
            keep[: len(self._scale) - MAX_FRAMES] = False
        for name in COUNTS:
            self._kept[name] = self._kept[name][keep]
        self._scale = self._scale[keep]

    def _of_chunk(self, present_CL: Bools) -> Floats:
        """[C, L] of the newest frames, each as if nothing had come after it."""
        zeros, n, alive, near = (self._kept[name] for name in COUNTS)
        newest = slice(len(zeros) - len(present_CL), None)
        share = np.where(present_CL & (alive[newest] > 0), 0.0, np.nan)
        room = _room(near, alive) & (alive + zeros == n)
        # All others had room, and lost nothing: what is not finite is not lost, and says nothing about room.
        doubtful = present_CL & ~room[newest]
        level = self._level()
        if np.ptp(level, axis=0).max(initial=0.0) >= SCALE_STEP_LOG2:
            doubtful = present_CL  # zeros may come with the scale also where there is room
            simple = np.zeros(doubtful.shape, np.bool_)
        else:
            # A layer in which nothing was ever near the floor, nor all zero, lost nothing: NaN does not change that.
            had_doubts = (n > 0) & (zeros == n) | (alive > 0) & ~_room(near, alive)
            simple = doubtful & (alive > 0)[newest] & np.logical_or.accumulate(had_doubts, axis=0)[newest]
            # Nothing is known of one that never had a gradient.
            had_one = np.logical_or.accumulate(alive > 0, axis=0)[newest]
            doubtful &= simple | (had_one & (zeros == n)[newest])
        if simple.any():
            share[simple] = _beside_those_with_room(zeros, n, alive, near, room, simple)
        if (doubtful & ~simple).any():
            lost = lost_shares(
                zeros=zeros, n=n, nonzero=alive, near_floor=near, level=level, num_newest=len(present_CL)
            )
            by_all_rules = _share(zeros[newest], n[newest], zeros[newest] - lost * n[newest])
            share = np.where(doubtful & ~simple, by_all_rules, share)
        return share

    def _level(self) -> Floats:
        """log2 of the scale: [K, L], or where layers do not differ in it [K, 1]."""
        is_one = np.array_equal(self._scale, np.broadcast_to(self._scale[:, :1], self._scale.shape), equal_nan=True)
        scale = self._scale[:, :1] if is_one else self._scale
        return np.asarray(np.log2(np.nan_to_num(np.maximum(scale, 2.0**-126), nan=1.0)), np.float64)

    def save(self) -> None:
        """Into the memory: called when a state is asked for."""
        self._memory.update(self._kept, scale=self._scale)


def _beside_those_with_room(zeros: Ints, n: Ints, alive: Ints, near: Ints, room: Bools, simple: Bools) -> Floats:
    """Of frames that are compared with those before them alone, in the order of `simple`: [C, L] of the newest."""
    frame_X, layer_X = np.nonzero(simple)
    order = np.lexsort((frame_X, layer_X))
    at, layer_X = frame_X[order] + len(zeros) - len(simple), layer_X[order]
    zero_share = np.divide(zeros, n, out=np.zeros(zeros.shape), where=n > 0)
    near_X = near[at, layer_X] / alive[at, layer_X]
    lost_X, _ = above_those_with_room(zero_share.T, near_X, room.T, layer_X, at, ahead=False)
    result = np.empty(order.size)
    result[order] = _share(zeros[at, layer_X], n[at, layer_X], zeros[at, layer_X] - lost_X * n[at, layer_X])
    return result


def _share(zeros: Ints, n: Ints, structural: Floats) -> Floats:
    """Lost of those that could be; NaN: unknown."""
    lost, of = np.maximum(zeros - structural, 0.0), n - structural
    return np.where(np.isnan(structural), np.nan, np.where(of > 0, lost / np.maximum(of, 1.0), 0.0))


def _room(near: Ints, nonzero: Ints) -> Bools:
    """Hardly anything lies near FP16's floor."""
    there = nonzero > 0
    has_room: Bools = np.divide(near, nonzero, out=np.ones(near.shape), where=there) < ROOM_SHARE
    return has_room


METRICS = (
    Metric(
        id="underflow_share",
        title="underflow",
        text="Share of a layer's gradient that is lost to zero: measured on runs that compute in FP16, at least; on"
        " others what FP16 would flush.",
        make=functools.partial(_Underflow, only_measured=False),
        inputs=Wanted(series=frozenset({"opt.steps"}), frames=True),
        unit="share",
        per_layer=True,
        panel="underflow-worst",
    ),
    Metric(
        id="underflow_share.measured",
        title="underflow, measured",
        text="The same of runs that compute in FP16 alone: of others nothing is lost, whatever FP16 would do.",
        make=functools.partial(_Underflow, only_measured=True),
        inputs=Wanted(series=frozenset({"opt.steps"}), frames=True),
        unit="share",
        per_layer=True,
        panel="underflow-worst",
    ),
    Metric(
        id="headroom_bits",
        title="headroom",
        text="Doublings left before a layer's largest gradient overflows FP16, at the scale of the step; -1 where an"
        " element is infinite.",
        make=_Headroom,
        inputs=Wanted(series=frozenset({"opt.steps"}), frames=True),
        unit="bits",
        per_layer=True,
    ),
)
