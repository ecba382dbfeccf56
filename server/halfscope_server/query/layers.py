"""The layer tree of a run: every module and parameter with its worst value and a spark.

Owns the tree's words, sparks and severities, and why there is nothing to see where there is not. Must not import
plotly. Invariant: the worst of a node is a value that one of its frames has, at the step that is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query import lane
from halfscope_server.query.format import integer, plural, step_range
from halfscope_server.query.frames import RunFrames, run_frames
from halfscope_server.query.statistics import (
    LayerStat,
    NodeValues,
    node_values,
    skip_gravity,
    statistics,
    title_of,
    value_words,
    worst_is_lowest,
)
from halfscope_server.query.strip import StripClass, base64_of, place_of
from halfscope_server.query.tree import Node
from halfscope_server.query.underflow import Severity, Underflow, default_layer, run_underflow
from halfscope_server.query.window import Span, Statistic, Window

if TYPE_CHECKING:
    from halfscope_server.query.view import RunView

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SPARK_BINS = 64
VALUE, NONFINITE = 6, 7
"""Classes of sparks behind those of the strip's lower lane."""
CLASSES = (
    *lane.CLASSES,
    StripClass(id=VALUE, name="measured", role="quiet", rank=6),
    StripClass(id=NONFINITE, name="NaN or Inf", role="nonfinite", rank=7, min_px=2),
)
HEADROOM_ENDS = (-4.0, 16.0)
"""Of the fixed scale, in bits."""
LEAST_HEIGHT, FULL_HEIGHT = 25, 255
_GRAVITY: tuple[Severity, ...] = ("ok", "info", "warning", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNode:
    """A row of the tree; mirrors the API."""

    name: str
    label: str
    depth: int
    kind: str
    elements: int
    shape: list[int]
    worst: str
    worst_step: int | None
    severity: Severity
    spark: str
    spark_heights: str
    note: str
    open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTree:
    """Mirrors the API."""

    stat: Statistic
    stat_title: str
    stats: list[LayerStat]
    nodes: list[LayerNode]
    classes: tuple[StripClass, ...]
    num_frames: int
    first_step: int | None
    last_step: int | None
    default_layer: str
    default_gradient: Literal["seen", "true"]
    precision_note: str
    empty: str


def layer_tree(view: RunView, window: Window) -> LayerTree:
    """The tree with a statistic over a window; remembered by the view."""
    key = ("layer tree", window.x, window.first, window.last, window.stat)
    return view.memo(key, lambda: _layer_tree(view, window))


def _layer_tree(view: RunView, window: Window) -> LayerTree:
    frames, underflow, span = run_frames(view), run_underflow(view), view.resolve(window)
    nodes: list[LayerNode] = []
    if frames is not None and underflow is not None and span is not None:
        nodes = _nodes(view, frames, underflow, span, window.stat)
    return LayerTree(
        stat=window.stat,
        stat_title=title_of(window.stat),
        stats=statistics(underflow),
        nodes=nodes,
        classes=CLASSES,
        num_frames=view.num_frames if frames is not None else 0,
        first_step=span.first_step if span else None,
        last_step=span.last_step if span else None,
        default_layer=default_layer(view),
        default_gradient="seen" if underflow is not None and underflow.is_measured else "true",
        precision_note=f"Underflow is {underflow.note}." if underflow else "",
        empty="" if nodes else nothing_sketched(view, window),
    )


def rows_within(frames: RunFrames, span: Span) -> slice:
    """The frames that begin in a span."""
    low, high = np.searchsorted(frames.table.step, [span.first_step, span.last_step + 1])
    return slice(int(low), int(high))


def nothing_sketched(view: RunView, window: Window) -> str:
    """Why there is nothing to see of the layers, and what to do; empty where there is something."""
    frames, span = run_frames(view), view.resolve(window)
    if frames is not None and not frames.is_empty and span is not None:
        part = rows_within(frames, span)
        if part.stop > part.start:
            return ""
        place = step_range(span.first_step, span.last_step)
        return f"No layer was sketched in {place}. Reset the zoom (key 0) to see the whole run."
    told = view.row.facts.get("sketches")
    every = told.get("every") if isinstance(told, dict) else None
    if not isinstance(every, int) or every < 1:
        return "This run has no sketches: its agent did not record any. every= of halfscope.watch() sets how often."
    if view.row.state not in ("live", "waiting", "lost"):
        return f"The run ended before its first sketch: one was to be made every {plural(every, 'step')}."
    last = view.span.last_step if view.span else -1
    return f"No sketches yet: first at step {integer((last // every + 1) * every)}."


# ---- nodes -----------------------------------------------------------------------------------


def _nodes(view: RunView, frames: RunFrames, underflow: Underflow, span: Span, stat: Statistic) -> list[LayerNode]:
    part = rows_within(frames, span)
    nodes = frames.tree.nodes
    values = node_values(frames, underflow, stat, nodes, part, np.arange(part.stop - part.start))
    worst = _worst(values, stat)
    severity = _severities(view, values, worst, underflow, stat)
    classes, heights = _sparks(values, stat, span)
    elements = _elements(frames)
    leaf_unknown = [row < 0 for node, row in zip(nodes, worst.tolist(), strict=True) if not node.is_module]
    num_unknown = np.concatenate([[0], np.cumsum(leaf_unknown)])
    rows = []
    for k, node in enumerate(nodes):
        row = int(worst[k])
        value = float(values.value[row, k]) if row >= 0 else float("nan")
        rows.append(
            LayerNode(
                name=node.name,
                label=node.label,
                depth=node.depth,
                kind="module" if node.is_module else "parameter",
                elements=int(elements[node.end] - elements[node.first]),
                shape=[] if node.is_module else [int(size) for size in frames.layers[node.first].shape],
                worst=value_words(stat, value),
                worst_step=int(values.step[row]) if row >= 0 else None,
                severity=severity[k],
                spark=base64_of(classes[:, k]),
                spark_heights=base64_of(heights[:, k]),
                note=_note(node, k, values, underflow, stat, row) or _partly(node, num_unknown, stat),
                open=node.is_open,
            )
        )
    return rows


def _elements(frames: RunFrames) -> Ints:
    sizes = [int(np.prod([int(size) for size in layer.shape], dtype=np.int64)) for layer in frames.layers]
    total: Ints = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return total


def _worst(values: NodeValues, stat: Statistic) -> Ints:
    """[N] row of the worst value; -1 where there is none."""
    if not values.step.size:
        return np.full(len(values.nodes), -1, np.int64)
    sign = -1.0 if worst_is_lowest(stat) else 1.0
    ranked = np.where(np.isnan(values.value), -np.inf, values.value * sign)
    row: Ints = ranked.argmax(axis=0)
    return np.where(np.isnan(values.value).all(axis=0), -1, row)


def _severities(
    view: RunView, values: NodeValues, worst: Ints, underflow: Underflow, stat: Statistic
) -> list[Severity]:
    if stat == "underflow":
        return [
            underflow.severity(float(values.value[row, k]) if row >= 0 else float("nan"))
            for k, row in enumerate(worst.tolist())
        ]
    if stat in ("nonfinite", "headroom"):
        # NaN and Inf in a gradient are as grave as what became of the step.
        grave = np.where(values.nonfinite > 0, skip_gravity(view, values.step)[:, None], 0).max(axis=0, initial=0)
        return ["unknown" if row < 0 else _GRAVITY[g] for row, g in zip(worst.tolist(), grave.tolist(), strict=True)]
    return ["unknown" if row < 0 else "ok" for row in worst.tolist()]


def _note(node: Node, k: int, values: NodeValues, underflow: Underflow, stat: Statistic, row: int) -> str:
    if not values.step.size:
        return "no layer was sketched in these steps"
    if not values.present[:, k].any():
        return "no gradient in any measured step"
    if row >= 0:
        return ""
    if stat != "underflow":
        return "nothing to measure: every element is zero, NaN or infinite"
    if not underflow.is_measured:
        return "every gradient is zero or not finite"
    return "not known yet: no frame had room above FP16's floor"


def _partly(node: Node, num_unknown: Ints, stat: Statistic) -> str:
    """How many layers of a module its underflow says nothing of."""
    unknown = int(num_unknown[node.end] - num_unknown[node.first])
    if stat != "underflow" or not node.is_module or not unknown:
        return ""
    return f"not known of {integer(unknown)} of {plural(node.end - node.first, 'layer')}"


# ---- sparks ----------------------------------------------------------------------------------


def _sparks(values: NodeValues, stat: Statistic, span: Span) -> tuple[NDArray[Any], NDArray[Any]]:
    """[bins, N] classes and heights: the worst value of the frames in each bin."""
    num_bins, num_nodes = min(SPARK_BINS, span.num_steps), len(values.nodes)
    classes = np.full((num_bins, num_nodes), lane.NOT_MEASURED, np.uint8)
    heights = np.full((num_bins, num_nodes), lane.HEIGHTS[0], np.uint8)
    if not values.step.size:
        return classes, heights
    place = place_of(values.step, span, num_bins)
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    sign = -1.0 if worst_is_lowest(stat) else 1.0
    # fmax: what is not known in one frame of a bin may be in another.
    binned = np.fmax.reduceat(values.value * sign, starts, axis=0) * sign
    nonfinite = np.add.reduceat(values.nonfinite, starts, axis=0) > 0
    present = np.logical_or.reduceat(values.present, starts, axis=0)
    if stat == "underflow":
        found = lane.classes_of(binned)
        high = np.asarray(lane.HEIGHTS, np.uint8)[found]
    else:
        found = np.where(np.isnan(binned), lane.UNKNOWN, VALUE).astype(np.uint8)
        high = _heights(binned, stat)
    if stat in ("nonfinite", "headroom", "norm"):
        found = np.where(nonfinite, NONFINITE, found).astype(np.uint8)
        high = np.where(nonfinite, FULL_HEIGHT, high).astype(np.uint8)
    classes[place[starts]] = np.where(present, found, lane.NOT_MEASURED)
    heights[place[starts]] = np.where(present, high, lane.HEIGHTS[0])
    return _carried(classes, place[starts]), _carried(heights, place[starts])


def _heights(binned: Floats, stat: Statistic) -> NDArray[np.uint8]:
    if stat == "headroom":
        low, high = HEADROOM_ENDS
        part = (binned - low) / (high - low)
    elif stat == "norm":
        with np.errstate(divide="ignore"):
            log = np.where(binned > 0, np.log10(binned), np.nan)
        low_N, high_N = np.fmin.reduce(log, axis=0), np.fmax.reduce(log, axis=0)
        part = (log - low_N) / np.where(high_N > low_N, high_N - low_N, 1.0)
    else:
        part = binned
    scaled = LEAST_HEIGHT + np.clip(np.nan_to_num(part), 0, 1) * (FULL_HEIGHT - LEAST_HEIGHT)
    result: NDArray[np.uint8] = np.round(scaled).astype(np.uint8)
    return result


def _carried(cells: NDArray[Any], filled: Ints) -> NDArray[Any]:
    """Bins between frames look like the one before, as far apart as frames mostly are."""
    if filled.size < 2:
        return cells
    usual = int(np.median(np.diff(filled)))
    place = np.arange(cells.shape[0])
    before = filled[np.maximum(np.searchsorted(filled, place, "right") - 1, 0)]
    near = (place >= before) & (place - before <= usual)
    result: NDArray[Any] = np.where(near[:, None], cells[before], cells)
    return result
