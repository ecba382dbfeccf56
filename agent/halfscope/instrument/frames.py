"""Frames of sketches: what was taken in an attempt, written with its step, its scale and where it was read.

Sets no hooks. Invariant: a frame is written once, when its attempt is told, and never without the scale that its step
used where there was one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from halfscope.instrument.attempt import Attempt, GradientReading, OptimizerAttempt, host
from halfscope.instrument.losses import Losses
from halfscope.instrument.records import Records
from halfscope.instrument.sketching import LayerNumbers, SketchTaker, TakenSketch
from halfscope.sketch import Sketch, stack

MAX_LAYERS_TOLD = 64
MAX_FLUSHES = 2
"""A layer that was all zero and came back so often is one that is not always used (a branch, an expert): no news."""


class FrameWriter:
    """Writes the frames of one run."""

    def __init__(self, recorder: Records, taker: SketchTaker) -> None:
        self._recorder, self._taker = recorder, taker
        self._flushes = _Flushes(taker.layers)
        self._losses = Losses(taker.layers.is_narrow)

    def write(self, attempt: Attempt) -> None:
        """Writes what was taken in an attempt whose values are on the host."""
        began_ns = time.perf_counter_ns()
        self._write(attempt)
        self._taker.interval.spend(time.perf_counter_ns() - began_ns)

    def _write(self, attempt: Attempt) -> None:
        written: set[int] = set()
        changed: set[int] = set()
        for part in attempt.optimizers:
            reading = part.reading
            if reading is None or reading.sketch is None:
                self._taker.soon |= part.skipped
                continue
            scale = _scale(attempt, part)
            taken = _taken(reading.sketch, written)
            if taken is not None:
                self._record(attempt, reading, scale, *taken, of="grad")
                flushed = self._flushes.see(*taken)
                if flushed:
                    self._tell_flushed(attempt, flushed, scale)
            # Of a fused optimizer only the device knew whether there would be a step.
            update = _taken(reading.update, changed) if reading.update is not None and part.num_applied else None
            if update is not None:
                self._record(attempt, reading, scale, *update, of="update")
                lost = self._losses.see(*update)
                if lost:
                    self._tell_lost(attempt, lost)

    def _record(
        self,
        attempt: Attempt,
        reading: GradientReading,
        scale: float,
        lids: Sequence[int],
        sketches: Sketch,
        *,
        of: str,
    ) -> None:
        self._recorder.sketches(
            attempt.step,
            attempt.completed_us,
            point=reading.point,
            clipped=reading.clipped,
            scale=scale,
            lids=lids,
            sketches=sketches,
            of=of,
        )

    def _tell_lost(self, attempt: Attempt, lost: Sequence[tuple[int, float]]) -> None:
        self._recorder.event(
            "updates_lost",
            attempt.step,
            time_us=attempt.completed_us,
            severity="warning",
            where=[self._taker.layers.name(lid) for lid, _ in lost[:MAX_LAYERS_TOLD]],
            attributes={"num_layers": len(lost), "shares": [share for _, share in lost[:MAX_LAYERS_TOLD]]},
        )

    def _tell_flushed(self, attempt: Attempt, lids: Sequence[int], scale: float) -> None:
        self._recorder.event(
            "layer_flushed",
            attempt.step,
            time_us=attempt.completed_us,
            severity="warning",
            where=[self._taker.layers.name(lid) for lid in lids[:MAX_LAYERS_TOLD]],
            attributes={"num_layers": len(lids), "scale": None if math.isnan(scale) else scale},
        )


class _Flushes:
    """Which layers are all zero now, and were not before."""

    def __init__(self, layers: LayerNumbers) -> None:
        self._layers = layers
        self._alive = np.zeros(len(layers), bool)
        self._times = np.zeros(len(layers), np.int64)
        """How often each has been all zero."""

    def see(self, lids: Sequence[int], sketches: Sketch) -> list[int]:
        """The layers that have become all zero with these sketches."""
        if len(self._layers) > len(self._alive):
            more = len(self._layers) - len(self._alive)
            self._alive, self._times = np.pad(self._alive, (0, more)), np.pad(self._times, (0, more))
        if sketches.nonfinite.any():
            return []  # of a step that overflowed nothing is said about what is too small
        at = np.array(lids)
        is_zero = (sketches.zeros == sketches.n) & (sketches.n > 0)
        fallen = at[is_zero & self._alive[at]]
        self._alive[at] = np.where(sketches.n > 0, ~is_zero, self._alive[at])
        self._times[fallen] += 1
        told: list[int] = fallen[self._times[fallen] <= MAX_FLUSHES].tolist()
        return told


def _scale(attempt: Attempt, part: OptimizerAttempt) -> float:
    """The loss scale of the gradients that an optimizer's share was read from; NaN where there is none."""
    if not part.through_scaler and not part.user_unscaled:
        return math.nan
    scale = host(attempt.scalers[part.scaler].scale) if attempt.scalers else None
    return math.nan if scale is None else scale


def _taken(taken: TakenSketch, written: set[int]) -> tuple[list[int], Sketch] | None:
    """Layers and their sketches, without those that were written of this step before; None where nothing is left.

    Of two optimizers with the same parameters (one inside the other) a layer counts once.

    Args:
        written: layers, to which these are added.
    """
    parts = taken.parts()
    lids = [lid for some, _ in parts for lid in some]
    if not lids:
        return None
    sketches = parts[0][1] if len(parts) == 1 else _joined([of_them for _, of_them in parts])
    kept = [at for at, lid in enumerate(lids) if lid not in written]
    if len(kept) < len(lids):
        lids, sketches = [lids[at] for at in kept], sketches[np.asarray(kept, np.intp)]
    written.update(lids)
    return (lids, sketches) if lids else None


def _joined(stacks: Sequence[Sketch]) -> Sketch:
    """Stacks one behind the other."""
    return stack([each[at] for each in stacks for at in range(each.shape[0])])
