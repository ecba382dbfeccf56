"""The health strip's lower lane: underflow of the worst layer.

Owns its classes, how far a measurement is carried, its read-outs and ranges. Must not import plotly.
Invariant: where nothing was measured nothing is claimed: a gap of more than one sampling interval is "not measured",
and what is not known is neither clean nor violet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query.format import integer, layer_words, share, step_range
from halfscope_server.query.frames import RunFrames, run_frames
from halfscope_server.query.strip import Strip, StripClass, StripRange, base64_of, cell_edges, place_of
from halfscope_server.query.underflow import (
    LEVELS,
    WARNING_SHARE,
    Underflow,
    run_underflow,
    words,
    worst_of_frames,
)
from halfscope_server.query.window import Span

if TYPE_CHECKING:
    from halfscope_server.query.view import RunView

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LANE = "underflow"
NOT_MEASURED, UNKNOWN, BELOW, FROM_1, FROM_5, FROM_20 = range(6)
HEIGHTS = (38, 38, 38, 115, 185, 255)
"""By class."""
TOLD_SHARE = 0.001
"""Cells below it need no read-out of their own: a table of runs would carry thousands of them."""

CLASSES = (
    StripClass(id=NOT_MEASURED, name="underflow not measured", role="nodata", rank=0),
    StripClass(id=UNKNOWN, name="underflow not known yet", role="nodata", rank=1),
    StripClass(id=BELOW, name="underflow below 1%", role="clean", rank=2),
    StripClass(id=FROM_1, name="underflow from 1%", role="underflow", rank=3),
    StripClass(id=FROM_5, name="underflow from 5%", role="underflow", rank=4),
    StripClass(id=FROM_20, name="underflow from 20%", role="underflow", rank=5),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cells:
    """Per cell the worst frame that tells of it; all [num_cells]."""

    edges: Ints
    frame: Ints
    """Row of the frame; -1: none."""
    share: Floats
    own: NDArray[np.bool_]
    """Whether the frame lies in the cell, rather than being carried into it."""


def underflow_strip(
    view: RunView, num_bins: int, first_step: int | None = None, last_step: int | None = None
) -> Strip | None:
    """The lane over a run or a part of it; None where no layer was declared, or before the first step."""
    whole = view.span
    if whole is None or not view.layers:
        return None
    low = min(max(whole.first_step, first_step if first_step is not None else whole.first_step), whole.last_step)
    high = max(low, min(whole.last_step, last_step if last_step is not None else whole.last_step))
    span = Span(first_step=low, last_step=high)
    return view.memo(("underflow strip", num_bins, span), lambda: _strip(view, span, num_bins))


def classes_of(shares: Floats) -> NDArray[np.uint8]:
    """Classes of measured shares; NaN is not known."""
    found = BELOW + np.searchsorted(LEVELS, np.nan_to_num(shares), "right")
    result: NDArray[np.uint8] = np.where(np.isnan(shares), UNKNOWN, found).astype(np.uint8)
    return result


def _strip(view: RunView, span: Span, num_bins: int) -> Strip | None:
    frames, underflow, worst = run_frames(view), run_underflow(view), worst_of_frames(view)
    if frames is None or underflow is None or worst is None:
        return None
    num_cells = min(num_bins, span.num_steps)
    cells = _cells(frames, worst.share, span, num_cells)
    classes = np.where(cells.frame < 0, NOT_MEASURED, classes_of(cells.share)).astype(np.uint8)
    spread = np.arange(num_bins, dtype=np.int64) * num_cells // num_bins
    told = np.flatnonzero((classes != BELOW) | (cells.share >= TOLD_SHARE)).tolist()
    texts = {k: _read_out(frames, underflow, worst.layer, cells, k) for k in told}
    return Strip(
        lane=LANE,
        first_step=span.first_step,
        last_step=span.last_step,
        num_bins=num_bins,
        classes=CLASSES,
        cells=base64_of(classes[spread]),
        heights=base64_of(np.asarray(HEIGHTS)[classes][spread]),
        texts={k: texts[c] for k, c in enumerate(spread.tolist()) if c in texts},
        ranges=_ranges(frames, underflow, worst.layer, worst.share, span, num_cells, classes),
        summary=_summary(frames, underflow, worst.layer, worst.share, span),
        clock=[],
    )


def _cells(frames: RunFrames, shares: Floats, span: Span, num_cells: int) -> _Cells:
    table = frames.table
    edges = cell_edges(span, num_cells)
    first = edges[:-1]
    # The last frame before a cell, where it is not too old.
    before = np.searchsorted(table.step, first, "left") - 1
    carried = before.copy()
    if table.num_frames:
        carried[first > table.last_step[before] + frames.interval] = -1
    frame, own = carried, np.zeros(num_cells, np.bool_)
    inside = np.flatnonzero((table.step >= span.first_step) & (table.step <= span.last_step))
    if inside.size:
        place = place_of(table.step[inside], span, num_cells)
        ranked = np.lexsort((np.nan_to_num(shares[inside], nan=-1.0), place))
        last = np.flatnonzero(np.diff(place[ranked], append=num_cells))  # of a cell, by share: its worst
        frame[place[ranked][last]] = inside[ranked][last]
        own[place[ranked][last]] = True
    found = np.where(frame >= 0, shares[frame], np.nan) if shares.size else np.full(num_cells, np.nan)
    return _Cells(edges=edges, frame=frame, share=found, own=own)


def _read_out(frames: RunFrames, underflow: Underflow, layer: Ints, cells: _Cells, k: int) -> str:
    place = step_range(int(cells.edges[k]), int(cells.edges[k + 1]) - 1)
    row = int(cells.frame[k])
    if row < 0:
        return f"{place}: underflow not measured"
    value = float(cells.share[k])
    if np.isnan(value):
        return f"{place}: underflow not known yet"
    where = f" in {layer_words(frames.tree.leaves[int(layer[row])])}" if value > 0 else ""
    return f"{place}: {words(underflow, value)}{where}"


def _ranges(
    frames: RunFrames,
    underflow: Underflow,
    layer: Ints,
    shares: Floats,
    span: Span,
    num_cells: int,
    classes: NDArray[Any],
) -> list[StripRange]:
    """Neighbouring cells with a frame from 5% on as one range, from its first such step to its last."""
    table = frames.table
    grave = np.flatnonzero(
        (table.step >= span.first_step)
        & (table.step <= span.last_step)
        & (np.nan_to_num(shares, nan=-1.0) >= WARNING_SHARE)
    )
    if not grave.size:
        return []
    place = place_of(table.step[grave], span, num_cells)
    painted = classes >= FROM_5
    # Cells that touch have the same number of unpainted cells before them.
    stretch = np.cumsum(~painted)[place]
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    ends = np.append(starts[1:], grave.size)
    return [_range(frames, underflow, layer, shares, grave[a:b]) for a, b in zip(starts, ends, strict=True)]


def _range(frames: RunFrames, underflow: Underflow, layer: Ints, shares: Floats, rows: Ints) -> StripRange:
    table = frames.table
    worst = int(rows[int(np.argmax(shares[rows]))])
    first, last = int(table.step[rows[0]]), int(table.last_step[rows[-1]])
    name = frames.tree.leaves[int(layer[worst])]
    up_to = "up to " if rows.size > 1 else ""
    severity = underflow.severity(float(shares[worst]))
    return StripRange(
        first_step=first,
        last_step=last,
        text=f"{step_range(first, last)}: {underflow.verb} {up_to}{share(float(shares[worst]))} in {layer_words(name)}",
        severity=severity if severity in ("warning", "critical") else "info",
        layer=name,
        step=int(table.step[worst]),
    )


def _summary(frames: RunFrames, underflow: Underflow, layer: Ints, shares: Floats, span: Span) -> str:
    inside = (frames.table.step >= span.first_step) & (frames.table.step <= span.last_step)
    if not inside.any():
        return "underflow not measured in these steps"
    ranked = np.where(inside, np.nan_to_num(shares, nan=-1.0), -2.0)
    worst = int(np.argmax(ranked))
    value = float(shares[worst])
    if np.isnan(value):
        return "underflow not known yet: no layer had a frame with room above FP16's floor"
    if value == 0:
        return f"no {underflow.verb.removeprefix('would ')} in any measured step"
    name, step = layer_words(frames.tree.leaves[int(layer[worst])]), integer(int(frames.table.step[worst]))
    return f"worst layer: {words(underflow, value)} in {name} at step {step}"
