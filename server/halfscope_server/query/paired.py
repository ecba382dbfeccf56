"""Structural zeros of layers that never had room, from the run that a run names as its baseline.

A layer whose gradients lie near FP16's floor from its first frame on shows nowhere which of its zeros are there for
another reason. The same layer of a baseline in FP32 or BF16 does: this one would have about as many at the same step.
Must not import plotly or view. Invariant: only what the run itself leaves unknown is filled in, and only between the
baseline's first and last frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from halfscope.sketch.structural import lost_beside, nearest
from numpy.typing import NDArray

from halfscope_server.query.frames import FrameTable, RunFrames, run_frames
from halfscope_server.query.partners import baseline_of
from halfscope_server.query.states import precision_of

if TYPE_CHECKING:
    from halfscope_server.query.view import RunView

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

WIDE_LABELS = ("FP32", "TF32", "BF16-AMP", "BF16")
"""Of runs that lose nothing where FP16 does."""


def paired_zeros(view: RunView, frames: RunFrames, unknown: Bools, near_floor: NDArray[Any]) -> Floats | None:
    """How many zeros are structural, where a baseline tells; NaN elsewhere. None: there is none that could.

    Args:
        unknown: [F, L] frames to look at.
        near_floor: [F, L] nonzero elements below FP16's smallest normal number.
    """
    other = _baseline(view)
    if other is None or other.is_empty:
        return None
    place = {layer.name: at for at, layer in enumerate(other.layers)}
    result = np.full(unknown.shape, np.nan)
    for at in np.flatnonzero(unknown.any(axis=0)).tolist():
        there = place.get(frames.layers[at].name)
        if there is not None and list(other.layers[there].shape) == list(frames.layers[at].shape):
            _fill(result[:, at], frames.table, at, other.table, there, unknown[:, at], near_floor[:, at])
    return result


def _baseline(view: RunView) -> RunFrames | None:
    baseline = baseline_of(view.store, view.row)
    row = None if baseline is None or baseline.run is None else view.store.get_run(baseline.run)
    if row is None or precision_of(row) not in WIDE_LABELS:
        return None
    other = type(view)(view.store, row, view.store.versions(row.run_id), frame_cache=view.frame_cache)
    return run_frames(other)


def _fill(
    result: Floats, own: FrameTable, at: int, wide: FrameTable, there: int, unknown: Bools, near_floor: NDArray[Any]
) -> None:
    n, zeros, nonzero = (table[:, at].astype(np.float64) for table in (own.n, own.zeros, own.nonzero))
    measure = wide.present[:, there] & (wide.nonfinite[:, there] == 0)
    gone = measure & (wide.nonzero[:, there] == 0)
    measure &= ~gone
    steps = wide.step[measure]
    if not steps.size:
        return
    # A layer without any gradient in a step is no loss where the baseline has none in that step either.
    unused = (nonzero == 0) & np.isin(own.step, wide.step[gone])
    within = (own.step >= steps[0]) & (own.step <= wide.last_step[measure][-1])
    rows = np.flatnonzero(unknown & within & (own.nonfinite[:, at] == 0) & ~unused)
    if not rows.size:
        return
    # Both in one line of time: a frame stands before those of the baseline at its own step, which count as the next.
    order = np.argsort(np.concatenate([own.step[rows], steps]), kind="stable")
    position = np.argsort(order)
    mask, values = np.zeros((1, order.size), bool), np.zeros((1, order.size))
    mask[0, position[rows.size :]] = True
    values[0, position[rows.size :]] = wide.zeros[measure, there] / wide.n[measure, there]
    most, least, _ = nearest(values, mask, np.zeros(rows.size, np.int64), position[: rows.size])
    with np.errstate(invalid="ignore", divide="ignore"):
        share, near = zeros[rows] / n[rows], near_floor[rows].astype(np.float64) / nonzero[rows]
    result[rows] = zeros[rows] - lost_beside(share, near, most, least) * n[rows]
