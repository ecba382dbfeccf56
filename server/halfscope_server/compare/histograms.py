"""Exponent histograms of two runs beside each other: how far apart, and what FP16 does to them.

Owns reading sketches of the frames that both have. Must not import plotly. Invariant: histograms are added up before
shares are formed; a distance is of nonzero finite elements only.

Suffixes: P pairs of frames, T those of the end, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from halfscope.sketch import Sketch, concatenate, distance_bits, share
from numpy.typing import NDArray

from halfscope_server.compare.pairing import Pairs
from halfscope_server.query.frames import RunFrames
from halfscope_server.query.underflow import computes_in_fp16
from halfscope_server.query.view import RunView

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SKETCHES_AT_ONCE = 100_000
"""Read at once, some 30 MB of each run."""
MAX_KEPT_SKETCHES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ends:
    """The last common frames added up. All [L]; NaN: nothing to form it of."""

    distance_bits: Floats
    noise_bits: Floats
    """What either run differs from itself by: the earlier against the later half of these frames."""
    would_flush_share: Floats
    """Of the baseline's nonzero elements, what FP16 flushes at the member's scale; NaN where the member does not
    compute in FP16, or the baseline does too."""
    near_floor_share: Floats
    """Of the member's nonzero elements those below FP16's smallest normal number; NaN where it computes otherwise."""
    baseline: Sketch
    """A stack of [L]."""
    member: Sketch


def at_the_end(pairs: Pairs, above: Floats) -> Ends:
    """The histograms of the last common frames, all layers.

    Args:
        above: [L] exponents below which sizes are not told apart.
    """
    width = max(1, SKETCHES_AT_ONCE // max(1, pairs.rows[pairs.tail].size))
    parts = [_ends(pairs, above, slice(first, first + width)) for first in range(0, len(pairs.names), width)]
    parts = parts or [nothing()]
    arrays = ("distance_bits", "noise_bits", "would_flush_share", "near_floor_share")
    return Ends(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays},
        baseline=concatenate([part.baseline for part in parts]),
        member=concatenate([part.member for part in parts]),
    )


def nothing() -> Ends:
    """Of no layer."""
    none, no_sketch = np.empty(0), Sketch.empty((0,))
    return Ends(
        distance_bits=none, noise_bits=none, would_flush_share=none, near_floor_share=none, baseline=no_sketch,
        member=no_sketch,
    )  # fmt: skip


def _ends(pairs: Pairs, above: Floats, part: slice) -> Ends:
    rows, baseline_rows, limit = pairs.rows[pairs.tail], pairs.baseline_rows[pairs.tail], above[part]
    one = _kept(pairs.baseline, pairs.baseline_frames, pairs.baseline_columns[part], baseline_rows)
    two = _kept(pairs.member, pairs.frames, pairs.columns[part], rows)
    half = rows.size // 2
    noise = [distance_bits(run[:half].merged(0), run[half:].merged(0), limit) for run in (one, two)]
    unknown = np.full(one.shape[1:], np.nan)
    flushed = near = unknown
    if computes_in_fp16(pairs.member, pairs.frames.table):
        scale = _scales(pairs.frames, pairs.columns[part], rows)
        near = share(two.below(-14, scale).sum(axis=0), two.nonzero.sum(axis=0))
        if not computes_in_fp16(pairs.baseline, pairs.baseline_frames.table):
            flushed = share(one.flushed(scale).sum(axis=0), one.nonzero.sum(axis=0))
    baseline, member = one.merged(0), two.merged(0)
    return Ends(
        distance_bits=distance_bits(baseline, member, limit),
        noise_bits=np.fmax(*noise),
        would_flush_share=flushed,
        near_floor_share=near,
        baseline=baseline,
        member=member,
    )


def frame_by_frame(pairs: Pairs, layers: Ints, above: Floats) -> tuple[Floats, Floats]:
    """How the distance went in some layers.

    Args:
        layers: places in `pairs.names`.
        above: of these layers, [P, len(layers)], as in `at_the_end`.

    Returns:
        [P, len(layers)] bits between the two runs, NaN where there is nothing to compare; and per layer the bits that
        lie between one frame and the next of the same run, mostly.
    """
    width = max(2, SKETCHES_AT_ONCE // max(1, layers.size))
    found, own = [], []
    for first in range(0, pairs.num_pairs, width):
        # One more, so that every frame but the last stands beside its successor.
        part = slice(first, first + width + 1)
        one = read(pairs.baseline, pairs.baseline_frames, pairs.baseline_columns[layers], pairs.baseline_rows[part])
        two = read(pairs.member, pairs.frames, pairs.columns[layers], pairs.rows[part])
        limit = above[part]
        found.append(distance_bits(one, two, limit)[:width])
        own.append(np.fmax(*(distance_bits(run[:-1], run[1:], limit[1:]) for run in (one, two))))
    if not found:
        return np.empty((0, layers.size)), np.zeros(layers.size)
    return np.concatenate(found), _usual(np.concatenate(own))


def _kept(view: RunView, frames: RunFrames, columns: Ints, rows: Ints) -> Sketch:
    """As `read`, and few of them are kept for the next that the run is compared with."""
    if rows.size * columns.size > MAX_KEPT_SKETCHES:
        return read(view, frames, columns, rows)
    key = ("sketches", columns.tobytes(), rows.tobytes())
    return frames.memo.get(key, lambda: read(view, frames, columns, rows))


def read(view: RunView, frames: RunFrames, columns: Ints, rows: Ints) -> Sketch:
    """Sketches of some layers in some frames, a stack of [rows, columns]; of no element where there is none."""
    if not rows.size or not columns.size:
        return Sketch.empty((rows.size, columns.size))
    wanted = frames.table.step[rows]
    ids = tuple(frames.layers[at].layer_id for at in columns.tolist())
    steps, stacks = [], []
    for piece in frames.pieces:
        low, high = max(piece.span.first_step, int(wanted[0])), min(piece.span.last_step, int(wanted[-1]))
        if low > high:
            continue
        part = frames.reader.sketches(ids, first_step=low, last_step=high, attempt=piece.attempt)
        inside = np.isin(part.step, wanted)
        steps.append(part.step[inside])
        stacks.append(part.sketches if inside.all() else part.sketches[inside])
    # What is not there (a frame whose layers came in another record) is of no element.
    stacks.append(Sketch.empty((1, columns.size)))
    whole = concatenate(stacks)
    step = np.concatenate(steps) if steps else np.empty(0, np.int64)
    at = np.searchsorted(step, wanted)
    is_there = at < step.size
    is_there[is_there] = step[at[is_there]] == wanted[is_there]
    return whole[np.where(is_there, at, step.size)]


def _scales(frames: RunFrames, columns: Ints, rows: Ints) -> Floats:
    """[T, L], or [T, 1] where layers do not differ in it; without a scaler the gradient is in FP16 as it is."""
    scale = frames.table.scale[rows]
    return np.nan_to_num(scale if scale.shape[1] == 1 else scale[:, columns], nan=1.0)


def _usual(values: Floats) -> Floats:
    """[L] median over frames of what is known; 0 where nothing is."""
    known = np.sort(values, axis=0)  # NaN last
    count = (~np.isnan(known)).sum(axis=0)
    if not known.shape[0]:
        return np.zeros(values.shape[1])
    middle: Floats = np.take_along_axis(known, np.maximum(count - 1, 0)[None, :] // 2, axis=0)[0]
    return np.nan_to_num(middle)
