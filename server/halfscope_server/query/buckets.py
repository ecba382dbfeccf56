"""What the reduction of each bucket moved and how fast, over a window.

Must not import plotly. Invariant: bytes hold until others are told; a rate is that of the slowest reduction of its
column, on the slowest rank, so it never looks better than it was.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from halfscope_server.query.ranks import MAX_COLUMNS, Cells, Floats, Ints, bucket_cells, in_rows
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span, Window

BYTES = "comm.bytes"
TIME = "comm.time_s"


def bytes_cells(view: RunView, window: Window) -> Cells | None:
    """Bytes that a rank hands to the reduction of each bucket, as at the end of each column."""
    span = view.resolve(window)
    if span is None:
        return None
    held = _held(view, span)
    width = -(-span.num_steps // MAX_COLUMNS)
    step = np.arange(span.first_step, span.last_step + 1, width)
    last = np.minimum(step + width - 1, span.last_step)
    value = np.array([_at(one, last) for one in held.values()]).reshape(len(held), step.size)
    return in_rows(
        np.array(list(held), np.int64),
        value,
        np.zeros(value.shape, np.int64),
        step=step,
        last_step=last,
        time_us=_times(view, step),
        width=width,
    )


def rate_cells(view: RunView, window: Window) -> Cells | None:
    """Bytes of a bucket over the time from ready to reduced."""
    span, cells = view.resolve(window), bucket_cells(view, TIME, window)
    if span is None or cells is None:
        return cells
    held = _held(view, span)
    size = np.full(cells.value.shape, np.nan)
    for bucket, one in held.items():
        # A row of several buckets shows the slowest of them.
        row, column = np.nonzero(cells.worst == bucket)
        size[row, column] = _at(one, cells.last_step)[column]
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = size / cells.value
    return replace(cells, value=np.where(np.isfinite(rate), rate, np.nan), bad=np.zeros_like(cells.bad))


def _held(view: RunView, span: Span) -> dict[int, tuple[Ints, Floats]]:
    """By bucket, from which step on it has how many bytes, as the lowest rank of the newest attempt tells it: ranks
    that reduce with each other hand over the same."""
    attempt = view.pieces(span)[-1].attempt
    rank = min((stream.rank for stream in view.streams if stream.attempt == attempt), default=0)
    found = {}
    for series in view.named(BYTES):
        if series.labels.get("bucket", "").isdecimal():
            points = view.store.points(
                view.run_id, series.series_id, rank=rank, attempt=attempt, last_step=span.last_step
            )
            if points.step.size:
                found[int(series.labels["bucket"])] = points.step, points.value
    return dict(sorted(found.items()))


def _at(held: tuple[Ints, Floats], steps: Ints) -> Floats:
    """The value at each step: the one told last; NaN before the first."""
    at = np.searchsorted(held[0], steps, "right") - 1
    return np.where(at >= 0, held[1][np.maximum(at, 0)], np.nan)


def _times(view: RunView, steps: Ints) -> Ints:
    """When those steps were, about: of the time that the run's times of reductions have."""
    cells = bucket_cells(view, TIME, Window())
    if cells is None or not cells.step.size:
        return np.zeros(steps.size, np.int64)
    return np.interp(steps, cells.step, cells.time_us).astype(np.int64)
