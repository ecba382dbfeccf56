"""A run as rows for machines: every recorded point, event and sketch.

Owns the shape of exported rows. Must not import plotly. Invariant: nothing is rounded, thinned or left out, and a
non-finite value is one of the strings NaN, Infinity and -Infinity; memory used is that of one stretch of one series, or
of a few thousand sketches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol, cast

import numpy as np

from halfscope_server.query.events import plain
from halfscope_server.query.format import iso, json_number
from halfscope_server.query.view import RunView
from halfscope_server.store.types import GRADIENT_POINTS, EventRow, FrameMoments, FrameSketches, LayerRow, SeriesRow

STEPS_AT_ONCE = 65_536
EVENTS_AT_ONCE = 1000
SKETCHES_AT_ONCE = 8192
"""Some 5 MB of float32 gradients' histograms; 140 MB where one holds the smallest and the largest float64."""
KINDS = ("points", "events", "sketches")
COUNTS = ("n", "zeros", "nan", "pos_inf", "neg_inf")


class SketchReader(Protocol):
    """What is asked of the store beyond what a view needs."""

    def layers(self, run_id: str) -> list[LayerRow]: ...
    def frame_kinds(self, run_id: str) -> list[str]: ...
    def frame_moments(self, run_id: str, *, layer_ids: Sequence[int] | None, attempt: int, of: str) -> FrameMoments: ...
    def frame_sketches(
        self,
        run_id: str,
        layer_ids: Sequence[int] | None,
        *,
        first_step: int,
        last_step: int,
        attempt: int,
        of: str,
    ) -> FrameSketches: ...


def export_rows(view: RunView, *, series: str = "*", kinds: Collection[str] = KINDS) -> Iterator[dict[str, Any]]:
    """Rows of a run: points by (series, labels, attempt, step), then events in their order, then sketches.

    Args:
        series: a glob over series names, for points.
        kinds: of `points`, `events` and `sketches`; the last by (of, attempt, step, rank, layer).
    """
    if "points" in kinds:
        for row in view.series:
            if fnmatchcase(row.name, series or "*"):
                yield from _points(view, row)
    if "events" in kinds:
        yield from _events(view)
    if "sketches" in kinds:
        yield from _sketches(view)


def _points(view: RunView, series: SeriesRow) -> Iterator[dict[str, Any]]:
    for attempt in sorted({s.attempt for s in view.store.streams(view.run_id)}):
        span = view.store.rollup(view.run_id, series.series_id, 4096, attempt=attempt).step
        if not span.size:
            continue
        for first in range(int(span[0]), int(span[-1]) + 4096, STEPS_AT_ONCE):
            points = view.store.points(
                view.run_id,
                series.series_id,
                first_step=first,
                last_step=first + STEPS_AT_ONCE - 1,
                attempt=attempt,
            )
            finite = np.isfinite(points.value).tolist()
            columns = zip(
                points.step.tolist(),
                points.time_us.tolist(),
                points.value.tolist(),
                points.rank.tolist(),
                finite,
                strict=True,
            )
            for step, time_us, value, rank, is_finite in columns:
                yield {
                    "kind": "point",
                    "series": series.name,
                    "labels": dict(series.labels),
                    "rank": rank,
                    "attempt": view.start_number(attempt),
                    "step": step,
                    "time": iso(time_us),
                    "value": value if is_finite else json_number(value),
                }


def _sketches(view: RunView) -> Iterator[dict[str, Any]]:
    store, run_id = cast(SketchReader, view.store), view.run_id
    layers = store.layers(run_id)
    ids, names = [row.layer_id for row in layers], [row.name for row in layers]
    for kind in store.frame_kinds(run_id):
        for attempt in sorted({s.attempt for s in view.store.streams(run_id)}):
            steps, num_ranks = np.unique(
                store.frame_moments(run_id, layer_ids=(), attempt=attempt, of=kind).step, return_counts=True
            )
            if not steps.size:
                continue
            at_once = max(1, SKETCHES_AT_ONCE // (len(layers) * int(num_ranks.max())))
            for at in range(0, steps.size, at_once):
                span = steps[at : at + at_once]
                first, last = int(span[0]), int(span[-1])
                found = store.frame_sketches(run_id, ids, first_step=first, last_step=last, attempt=attempt, of=kind)
                yield from _sketch_rows(found, names, kind, view.start_number(attempt))


def _sketch_rows(found: FrameSketches, names: Sequence[str], kind: str, start_number: int) -> Iterator[dict[str, Any]]:
    """The layers of one frame after another."""
    frame, layer = np.nonzero(found.present)
    stack = found.sketches
    counts = stack.counts[frame, layer]
    scales = np.broadcast_to(found.scale, found.present.shape)[frame, layer].tolist()
    row, place = np.nonzero(counts)
    exponents, elements = (stack.lowest + place).tolist(), counts[row, place].tolist()
    ends = np.cumsum(np.bincount(row, minlength=len(frame))).tolist()
    columns = {
        "layer": [names[at] for at in layer.tolist()],
        "rank": found.rank[frame].tolist(),
        "attempt": [start_number] * len(frame),
        "step": found.step[frame].tolist(),
        "scale": [None if scale != scale else json_number(scale) for scale in scales],
        "point": [GRADIENT_POINTS[at] for at in found.point[frame, layer].tolist()],
        "clipped": ["maybe" if maybe else "no" for maybe in found.maybe_clipped[frame, layer].tolist()],
        **{name: getattr(stack, name)[frame, layer].tolist() for name in COUNTS},
        **{name: list(map(json_number, getattr(stack, name)[frame, layer].tolist())) for name in ("sum", "sumsq")},
        "absmax": list(map(json_number, stack.absmax[frame, layer].tolist())),
        "absmin_nonzero": list(map(json_number, stack.absmin_nonzero[frame, layer].tolist())),
    }
    start = 0
    for values, end in zip(zip(*columns.values(), strict=True), ends, strict=True):
        made: dict[str, Any] = {"kind": "sketch", "of": kind, **dict(zip(columns, values, strict=True))}
        if end == start:  # no finite element but zeros
            made["absmax"] = made["absmin_nonzero"] = None
        # Keys of JSON objects are strings.
        made["exponents"] = dict(zip(map(str, exponents[start:end]), elements[start:end], strict=True))
        yield made
        start = end


def _events(view: RunView) -> Iterator[dict[str, Any]]:
    after: tuple[int, int, str, int] | None = None
    while rows := view.store.events(view.run_id, after=after, limit=EVENTS_AT_ONCE):
        yield from (event_row(row, view.start_number(row.attempt)) for row in rows)
        if len(rows) < EVENTS_AT_ONCE:
            return
        last = rows[-1]
        after = (last.attempt, last.step, last.stream, last.seq)


def event_row(row: EventRow, start_number: int) -> dict[str, Any]:
    """An event as exported.

    Args:
        start_number: which start of the run its attempt is, from 0.
    """
    attributes: Mapping[str, Any] = row.attributes
    return {
        "kind": "event",
        "event": row.kind,
        "rank": row.rank,
        "attempt": start_number,
        "step": row.step,
        "time": iso(row.time_us),
        "severity": row.severity,
        "where": [str(name) for name in row.where],
        "attributes": {str(key): plain(value) for key, value in attributes.items()},
    }
