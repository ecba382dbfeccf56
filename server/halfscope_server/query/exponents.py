"""Where a layer's gradients lie between "lost" and "overflow": exponents over steps, and of one step.

Owns the shift by the loss scale, the adding of neighbouring frames, and the limits of FP16 beside them. Must not import
plotly. Invariant: no element is dropped; what lies beyond the drawn range is in the outermost bin, so that what lies
outside a limit is exactly the share that is printed.

Suffixes: F frames, C columns of one or more frames, B bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
from halfscope.formats import FP16
from halfscope.sketch import DEFAULT_SCALE, Sketch, concatenate, merge
from numpy.typing import NDArray

from halfscope_server.query.frames import RunFrames, columns, run_frames
from halfscope_server.query.tree import Node
from halfscope_server.query.underflow import default_layer, run_underflow
from halfscope_server.query.view import Piece, RunView
from halfscope_server.query.window import Span, Window
from halfscope_server.store.types import GRADIENT_POINTS, FrameSketches

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

T = TypeVar("T", np.int64, np.float64)

NUM_COLUMNS = 400
OVERFLOW, SUBNORMAL, LOST = 16, FP16.min_normal_log2, FP16.min_normal_log2 - FP16.mantissa_bits - 1
"""Exponents of FP16's limits: too large from 2^16, fewer bits below 2^-14, zero below 2^-25."""
ROOM = 2
"""Bins drawn beyond the outermost limits, so that they are seen."""
MOST_BELOW, MOST_ABOVE = 9, 4
"""And at most so many where data lie further out: as FP16 sees them, from 2^-34 to 2^20."""
MAX_SCALE_LOG2 = 150.0
SKETCHES_AT_ONCE = 250_000
"""Read at once, some 80 MB; in whole bands of layers, which the store keeps together."""
BAND_LAYERS = 25


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exponents:
    """Columns of exponents of one layer or module."""

    name: str
    seen: bool
    """Whether exponents are of the gradient times the scale."""
    step: Ints
    """[C] first frame's."""
    last_step: Ints
    time_us: Ints
    last_time_us: Ints
    num_frames: Ints
    """[C] added up."""
    scale: Floats
    """[C] that of the last frame; the assumed one where there is none. Where layers differ in it, that of most
    elements, at which FP16's limits are drawn on the true gradient. All counts are of every layer at its own."""
    least_scale: Floats
    """[C] the smallest of any layer."""
    most_scale: Floats
    has_scaler: bool
    interpolated: bool
    """Some scale is no power of two: bins are split between two."""
    lowest: int
    """Exponent of the first bin."""
    counts: Floats
    """[C, B] elements; the outer bins hold all beyond."""
    n: Ints
    zeros: Ints
    nan: Ints
    infinite: Ints
    lost: Floats
    """[C] nonzero elements below 2^-25; likewise subnormal and overflow."""
    subnormal: Floats
    overflow: Floats

    @property
    def num_bins(self) -> int:
        return int(self.counts.shape[1])

    @property
    def is_mixed(self) -> bool:
        """Whether its layers differ in their loss scale."""
        return bool((self.least_scale < self.most_scale).any())

    def limit(self, exponent: float) -> Floats:
        """[C] where a limit of FP16 lies on the axis."""
        return np.full(self.step.size, float(exponent)) - (0.0 if self.seen else np.log2(self.scale))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneStep:
    """A layer or module at one measured step."""

    exponents: Exponents
    """Of one column."""
    sketch: Sketch
    attempt: int
    point: str
    """Where the gradient was read; empty: not known."""
    maybe_clipped: bool
    share: float
    """Underflow, as everywhere; NaN: unknown."""


def chosen_node(view: RunView, window: Window) -> Node | None:
    """The node that a window is about; the default one where the name is not known."""
    frames = run_frames(view)
    if frames is None or not frames.layers:
        return None
    return frames.tree.find(window.layer) or frames.tree.find(default_layer(view))


def node_sketches(view: RunView, name: str, span: Span) -> tuple[Ints, Sketch] | None:
    """[F] measured steps of a layer or module within a span, and the sketches of its gradients there; None: it has
    none."""
    frames = run_frames(view)
    node = frames.tree.find(name) if frames is not None else None
    if frames is None or node is None:
        return None
    found = _read(frames, node, span)
    return None if found is None else (found.step, found.sketch)


def is_seen(view: RunView, window: Window) -> bool:
    """Whether a window asks for the gradient as FP16 sees it."""
    underflow = run_underflow(view)
    if window.gradient != "auto":
        return window.gradient == "seen"
    return underflow is not None and underflow.is_measured


def assumed_scale(view: RunView) -> float:
    """Where a frame has no scale: in FP16 the gradient is as it is; else the scale a scaler would begin with."""
    underflow = run_underflow(view)
    return 1.0 if underflow is not None and underflow.is_measured else DEFAULT_SCALE


def exponents(view: RunView, window: Window) -> Exponents | None:
    """The window chart's arrays; None where nothing was sketched there."""
    node, span, seen = chosen_node(view, window), view.resolve(window), is_seen(view, window)
    if node is None or span is None:
        return None
    return view.memo(("exponents", node, span, seen), lambda: _exponents(view, node, span, seen))


def _exponents(view: RunView, node: Node, span: Span, seen: bool) -> Exponents | None:
    frames = run_frames(view)
    if frames is None:
        return None
    found = _read(frames, node, span)
    if found is None:
        return None
    return _in_columns(found, node.name, seen, assumed_scale(view), columns(found.step, NUM_COLUMNS, frames.interval))


def one_step(view: RunView, window: Window) -> OneStep | None:
    """The measured step that a window asks for; None where nothing was sketched."""
    node, frames, underflow = chosen_node(view, window), run_frames(view), run_underflow(view)
    if node is None or frames is None or underflow is None:
        return None
    step = _measured_step(view, frames, node, window)
    if step is None:
        return None
    found = _read(frames, node, Span(first_step=step, last_step=step))
    if found is None:
        return None
    row = max(0, int(np.searchsorted(frames.table.step, step, "right")) - 1)
    share = underflow.shares(np.array([node.first]), np.array([node.end]), slice(row, row + 1))
    return OneStep(
        exponents=_in_columns(found, node.name, is_seen(view, window), assumed_scale(view), np.zeros(1, np.int64)),
        sketch=found.sketch[0],
        attempt=int(found.attempt[0]),
        point=GRADIENT_POINTS[int(found.point[0])] if found.point[0] < len(GRADIENT_POINTS) else "",
        maybe_clipped=bool(found.maybe_clipped[0]),
        share=float(share[0, 0]),
    )


def _measured_step(view: RunView, frames: RunFrames, node: Node, window: Window) -> int | None:
    """The step nearest to the one asked for; the newest of the window without."""
    table, span = frames.table, view.resolve(window)
    rows = np.flatnonzero((table.frames[:, node.first : node.end] > 0).any(axis=1))
    if not rows.size or span is None:
        return None
    steps = np.unique(np.concatenate([table.step[rows], table.last_step[rows]]))
    if window.step is None:
        inside = steps[(steps >= span.first_step) & (steps <= span.last_step)]
        return int(inside[-1] if inside.size else steps[-1])
    return int(steps[int(np.abs(steps - window.step).argmin())])


# ---- reading ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Frames:
    """Frames of all layers of a node added up; those without any of them left out. All [F]."""

    step: Ints
    time_us: Ints
    attempt: Ints
    point: Ints
    maybe_clipped: NDArray[np.bool_]
    sketch: Sketch
    """Of all layers together."""
    by_scale: tuple[tuple[Floats, Sketch], ...]
    """Of the layers of one loss scale each, with it; most elements first."""


def _read(frames: RunFrames, node: Node, span: Span) -> _Frames | None:
    found = [part for piece in frames.pieces if (part := _read_piece(frames, node, span, piece)) is not None]
    if not found:
        return None
    arrays = {
        item.name: np.concatenate([getattr(part, item.name) for part in found])
        for item in fields(_Frames)
        if item.name not in ("sketch", "by_scale")
    }
    by_scale = []
    for at in range(max(len(part.by_scale) for part in found)):
        # Attempts may differ in how many scales they have.
        groups = [part.by_scale[at] if at < len(part.by_scale) else _no_group(part) for part in found]
        by_scale.append((np.concatenate([scale for scale, _ in groups]), concatenate([one for _, one in groups])))
    return _Frames(sketch=concatenate([part.sketch for part in found]), by_scale=tuple(by_scale), **arrays)


def _read_piece(frames: RunFrames, node: Node, span: Span, piece: Piece) -> _Frames | None:
    low, high = max(piece.span.first_step, span.first_step), min(piece.span.last_step, span.last_step)
    if low > high:
        return None
    num_bands = SKETCHES_AT_ONCE // max(1, frames.told.num_rows) // BAND_LAYERS
    at_once = BAND_LAYERS * max(1, num_bands)
    parts = [
        frames.reader.sketches(
            frames.layer_ids(first, min(first + at_once, node.end)),
            first_step=low,
            last_step=high,
            attempt=piece.attempt,
        )
        for first in range(node.first, node.end, at_once)
    ]
    # A frame that came in meanwhile is in the later of them only.
    kept = [np.isin(part.step, parts[0].step) for part in parts]
    present = np.concatenate([part.present[keep] for part, keep in zip(parts, kept, strict=True)], axis=1)
    rows: NDArray[np.bool_] = np.asarray(present.any(axis=1))
    if not rows.any():
        return None
    first_present = present.argmax(axis=1)[:, None]

    def of_first(name: str) -> Ints:
        """Of the first layer that is there: read at one point, all are."""
        whole = np.concatenate([getattr(part, name)[keep] for part, keep in zip(parts, kept, strict=True)], axis=1)
        found: Ints = np.take_along_axis(whole, first_present, 1)[rows, 0].astype(np.int64)
        return found

    head = parts[0]
    by_scale = _by_scale(parts, kept, rows)
    return _Frames(
        step=head.step[rows],
        time_us=head.time_us[rows],
        attempt=head.attempt[rows].astype(np.int64),
        point=of_first("point"),
        maybe_clipped=of_first("maybe_clipped").astype(np.bool_),
        sketch=by_scale[0][1] if len(by_scale) == 1 else merge([sketch for _, sketch in by_scale]),
        by_scale=by_scale,
    )


def _by_scale(
    parts: Sequence[FrameSketches], kept: Sequence[NDArray[np.bool_]], rows: NDArray[np.bool_]
) -> tuple[tuple[Floats, Sketch], ...]:
    """The layers of each loss scale added up: mostly all of them. Layers that were not there count with none."""
    found: dict[bytes, tuple[Floats, list[Sketch]]] = {}
    for part, keep in zip(parts, kept, strict=True):
        sketches, scales = _rows(part.sketches, keep), part.scale[keep]
        unique, which = np.unique(scales, axis=1, return_inverse=True, equal_nan=True)
        for at in range(unique.shape[1]):
            layers = np.flatnonzero(which.reshape(-1) == at)
            one = sketches if unique.shape[1] == 1 else sketches[:, layers]
            scale = np.ascontiguousarray(unique[:, at])
            found.setdefault(scale.tobytes(), (scale, []))[1].append(one.merged(1))
    added = [(scale[rows], _rows(merge(group), rows)) for scale, group in found.values()]
    return tuple(sorted(added, key=lambda group: -int(group[1].n.sum())))


def _no_group(part: _Frames) -> tuple[Floats, Sketch]:
    """No element, at the scale of the others."""
    return part.by_scale[0][0], Sketch.empty((part.step.size,))


def _rows(sketches: Sketch, keep: NDArray[np.bool_]) -> Sketch:
    """Some frames; all of them without a copy."""
    return sketches if keep.all() else sketches[keep]


# ---- columns ---------------------------------------------------------------------------------


def _in_columns(found: _Frames, name: str, seen: bool, assumed: float, starts: Ints) -> Exponents:
    levels = [_level(scale, assumed) for scale, _ in found.by_scale]
    ends = np.append(starts[1:], found.step.size) - 1
    parts = [
        _shifted(sketch.trimmed(), level if seen else np.zeros(level.size))
        for level, (_, sketch) in zip(levels, found.by_scale, strict=True)
    ]
    lowest, counts = _aligned(parts)
    below = {limit: _below(found, levels, limit) for limit in (LOST, SUBNORMAL, OVERFLOW)}
    sketch = found.sketch

    def added(values: NDArray[T]) -> NDArray[T]:
        result: NDArray[T] = np.add.reduceat(values, starts, axis=0)
        return result

    all_levels = np.stack(levels)
    there = np.stack([one.n > 0 for _, one in found.by_scale])
    lines = np.zeros(1) if seen else all_levels
    lowest, drawn = _cut(lowest, added(counts), LOST - float(lines.max()), OVERFLOW - float(lines.min()))
    return Exponents(
        name=name,
        seen=seen,
        step=found.step[starts],
        last_step=found.step[ends],
        time_us=found.time_us[starts],
        last_time_us=found.time_us[ends],
        num_frames=ends - starts + 1,
        scale=np.exp2(levels[0][ends]),
        least_scale=np.exp2(np.where(there, all_levels, np.inf).min(axis=0)[ends]),
        most_scale=np.exp2(np.where(there, all_levels, -np.inf).max(axis=0)[ends]),
        has_scaler=any(bool(_usable(scale).any()) for scale, _ in found.by_scale),
        interpolated=bool((all_levels != np.round(all_levels)).any()),
        lowest=lowest,
        counts=drawn,
        n=added(sketch.n),
        zeros=added(sketch.zeros),
        nan=added(sketch.nan),
        infinite=added(sketch.pos_inf + sketch.neg_inf),
        lost=added(below[LOST]),
        subnormal=added(below[SUBNORMAL] - below[LOST]),
        overflow=added(sketch.nonzero - below[OVERFLOW]),
    )


def _below(found: _Frames, levels: Sequence[Floats], limit: int) -> Floats:
    """[F] nonzero elements below a limit of FP16, each layer's at its own scale."""
    total: Floats = np.zeros(found.step.size)
    for level, (_, sketch) in zip(levels, found.by_scale, strict=True):
        total += sketch.below(limit, np.exp2(level))
    return total


def _usable(scale: Floats) -> NDArray[np.bool_]:
    return np.isfinite(scale) & (scale > 0)


def _level(scale: Floats, assumed: float) -> Floats:
    """Logarithm of each frame's scale, within reason."""
    level: Floats = np.log2(np.where(_usable(scale), scale, assumed))
    return np.clip(level, -MAX_SCALE_LOG2, MAX_SCALE_LOG2)


def _aligned(parts: Sequence[tuple[int, Floats]]) -> tuple[int, Floats]:
    """The sum of counts of [F, B] that begin at different exponents."""
    if len(parts) == 1:
        return parts[0]
    lowest = min(first for first, _ in parts)
    total = np.zeros((parts[0][1].shape[0], max(first + counts.shape[1] for first, counts in parts) - lowest))
    for first, counts in parts:
        total[:, first - lowest : first - lowest + counts.shape[1]] += counts
    return lowest, total


def _shifted(sketch: Sketch, level_F: Floats) -> tuple[int, Floats]:
    """Counts after multiplying each frame by its scale, and the exponent of the first bin. A scale that is no power of
    two divides a bin between two, log2-uniformly."""
    num_bins = sketch.counts.shape[-1]
    whole = np.floor(level_F).astype(np.int64)
    part = level_F - whole
    first = int(whole.min())
    shifted = np.zeros((level_F.size, int(whole.max()) - first + num_bins + 1))
    for level in np.unique(level_F).tolist():
        rows = np.flatnonzero(level_F == level)
        at, rest = int(whole[rows[0]]) - first, float(part[rows[0]])
        shifted[rows, at : at + num_bins] += sketch.counts[rows] * (1.0 - rest)
        if rest:
            shifted[rows, at + 1 : at + 1 + num_bins] += sketch.counts[rows] * rest
    return sketch.lowest + first, shifted


def _cut(lowest: int, counts: Floats, lost: float, overflow: float) -> tuple[int, Floats]:
    """Only the bins that are drawn: the data and FP16's limits; what lies beyond goes into the outermost."""
    used = np.flatnonzero(counts.any(axis=0))
    low, high = (lowest + int(used[0]), lowest + int(used[-1]) + 1) if used.size else (SUBNORMAL, OVERFLOW)
    least, most = int(np.floor(lost)), int(np.ceil(overflow))
    bottom = max(min(low, least - ROOM), least - MOST_BELOW)
    top = min(max(high, most + ROOM), most + MOST_ABOVE)
    drawn = np.zeros((counts.shape[0], top - bottom))
    place = np.clip(np.arange(lowest, lowest + counts.shape[1]), bottom, top - 1) - bottom
    np.add.at(drawn.T, place, counts.T)
    return bottom, drawn
