"""Underflow of every layer in every sketched step, as it could be told when that step was the newest.

Owns the memory of earlier frames that the measured number needs. Must not choose another number than query/underflow:
both take structural zeros from the same function. Invariant: a frame's share depends on the frames up to it; of those
the newest `MAX_FRAMES` are kept, and before them the newest with room above FP16's floor of each layer, which is what
zeros are measured against.

Suffixes: F frames kept, L layers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from halfscope.sketch import DEFAULT_SCALE, headroom, structural_zeros
from halfscope.sketch.structural import HALF_WINDOW, ROOM_SHARE, SCALE_STEP_LOG2
from numpy.typing import NDArray

from halfscope_server.alerts.block import Block
from halfscope_server.alerts.metrics.base import Floats, Found, Ints, LayerSamples, Memory, Metric
from halfscope_server.query.states import precision_of
from halfscope_server.store.types import RunRow
from halfscope_server.store.update_types import Wanted

Cells = Mapping[str, NDArray[Any]]
"""Of one frame, [L] each; see `block.Sketched`."""

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


class _Layers:
    """The layers of a run in the order in which they came, and where those of a frame are among them."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.names: list[str] = memory.setdefault("names", [])
        self._place = {name: at for at, name in enumerate(self.names)}
        self._last: tuple[Sequence[str], Ints] | None = None

    def places(self, names: Sequence[str]) -> Ints:
        """Columns of a frame's layers; those that are new are added."""
        if self._last is None or self._last[0] is not names:
            for name in names:
                if name not in self._place:
                    self._place[name] = len(self.names)
                    self.names.append(name)
            self._last = names, np.array([self._place[name] for name in names], np.int64)
        return self._last[1]


class _Frames:
    """Something told of each frame for itself."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._layers = _Layers(memory)

    def feed(self, block: Block) -> Found:
        steps, times, rows = [], [], []
        for frames in block.frames:
            places = self._layers.places(frames.names)
            for at in range(frames.step.size):
                told = self._of_frame(block.run, {name: cell[at] for name, cell in frames.cells.items()}, places)
                if told is not None:
                    steps.append(int(frames.step[at]))
                    times.append(int(frames.time_us[at]))
                    rows.append(told)
        if not rows:
            return {}
        value = np.full((len(rows), len(self._layers.names)), np.nan)
        for at, row in enumerate(rows):
            value[at, : row.size] = row
        return LayerSamples(
            names=self._layers.names, step=np.array(steps, np.int64), time_us=np.array(times, np.int64), value=value
        )

    def _of_frame(self, run: RunRow, cells: Cells, places: Ints) -> Floats | None:
        raise NotImplementedError

    def _spread(self, value: NDArray[Any], present: NDArray[np.bool_], places: Ints, fill: float) -> NDArray[Any]:
        """Of a frame's layers, to the places of all layers."""
        result = np.full(len(self._layers.names), fill, value.dtype)
        result[places[present]] = value[present]
        return result

    def restart(self) -> None:
        pass


class _Headroom(_Frames):
    def _of_frame(self, run: RunRow, cells: Cells, places: Ints) -> Floats:
        scale = cells["scale"]
        has_scale = np.isfinite(scale)
        measured = in_fp16(run, bool(has_scale.any()), self._memory)
        # Without a scaler the gradient of an FP16 run is as it is; of others it is what FP16 would see.
        scale = np.where(has_scale, scale, 1.0 if measured else DEFAULT_SCALE)
        bits = headroom(cells["absmax"], cells["infinite"], scale)
        return self._spread(np.asarray(bits, np.float64), cells["present"], places, np.nan)


class _Underflow(_Frames):
    def __init__(self, memory: Memory, only_measured: bool) -> None:
        super().__init__(memory)
        self._only_measured = only_measured
        self._kept: dict[str, NDArray[np.int64]] = {
            name: memory.setdefault(name, np.zeros((0, 0), np.int64)) for name in COUNTS
        }
        self._scale: Floats = memory.setdefault("scale", np.zeros((0, 0)))

    def _of_frame(self, run: RunRow, cells: Cells, places: Ints) -> Floats | None:
        scale, present = cells["scale"], cells["present"]
        has_scale = np.isfinite(scale)
        nonzero = cells["n"].astype(np.int64) - cells["zeros"] - cells["nonfinite"]
        if not in_fp16(run, bool(has_scale.any()), self._memory):
            if self._only_measured:
                return None
            known = present & (nonzero > 0)
            share = np.divide(cells["flushed"], nonzero, out=np.full(known.shape, np.nan), where=known)
            return self._spread(share, known, places, np.nan)
        # FP16 without a loss scale: how much lies near its floor cannot be told from these counts.
        present = present & has_scale
        near = cells["subnormal"].astype(np.int64) + cells["flushed"]
        rows = (cells["zeros"], cells["n"], nonzero, near)
        spread = [self._spread(row.astype(np.int64), present, places, 0) for row in rows]
        # Of layers that are not in it the scale matters to nobody: as one for all it is dealt with quicker.
        usual = float(scale[present][0]) if present.any() else np.nan
        self._keep(spread, self._spread(scale, present, places, usual))
        return self._measured(self._spread(present, present, places, False))

    def _keep(self, rows: Sequence[NDArray[np.int64]], scale: Floats) -> None:
        for name, row in zip(COUNTS, rows, strict=True):
            kept = self._kept[name]
            if kept.shape[1] < row.size:
                kept = np.pad(kept, ((0, 0), (0, row.size - kept.shape[1])))
            self._kept[name] = np.concatenate((kept, row[None]))
        if self._scale.shape[1] < scale.size:
            missing = scale.size - self._scale.shape[1]
            usual = self._scale[:, :1] if self._scale.size else np.empty((0, 1))
            self._scale = np.concatenate((self._scale, np.repeat(usual, missing, axis=1)), axis=1)
        self._scale = np.concatenate((self._scale, scale[None]))
        if len(self._scale) > MAX_FRAMES + SPARE_FRAMES:
            self._clear_out()

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

    def _measured(self, present: NDArray[np.bool_]) -> Floats:
        """[L] of the newest frame."""
        zeros, n, nonzero, near = (self._kept[name] for name in COUNTS)
        share = np.where(present & (nonzero[-1] > 0), 0.0, np.nan)
        at = np.flatnonzero(present & self._doubtful(zeros[-1], n[-1], nonzero[-1], near[-1]))
        if not at.size:
            return share
        # All layers, also those that are not asked about: whether the whole model was silent is one of the rules.
        is_one = np.array_equal(self._scale, np.broadcast_to(self._scale[:, :1], self._scale.shape), equal_nan=True)
        scale = self._scale[:, 0] if is_one else self._scale
        full = structural_zeros(zeros=zeros, n=n, nonzero=nonzero, near_floor=near, scale=scale)[-1]
        lost, of = np.maximum(zeros[-1] - full, 0.0), n[-1] - full
        share[at] = np.where(np.isnan(full[at]), np.nan, np.where(of[at] > 0, lost[at] / np.maximum(of[at], 1.0), 0.0))
        return share

    def _doubtful(self, zeros: Ints, n: Ints, nonzero: Ints, near: Ints) -> NDArray[np.bool_]:
        """Layers of which there is something to work out: all others had room, and lost nothing."""
        level = np.log2(np.nan_to_num(np.maximum(self._scale, 2.0**-126), nan=1.0))
        moved: NDArray[np.bool_] = np.ptp(level, axis=0) >= SCALE_STEP_LOG2
        # What is not finite is not lost, and says nothing about room.
        lost_nothing: NDArray[np.bool_] = _room(near, nonzero) & (nonzero + zeros == n)
        return moved | ~lost_nothing

    def save(self) -> None:
        """Into the memory: called when a state is asked for."""
        self._memory.update(self._kept, scale=self._scale)


def _room(near: Ints, nonzero: Ints) -> NDArray[np.bool_]:
    """Hardly anything lies near FP16's floor."""
    there = nonzero > 0
    has_room: NDArray[np.bool_] = np.divide(near, nonzero, out=np.ones(near.shape), where=there) < ROOM_SHARE
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
