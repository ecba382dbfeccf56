"""The error of each bucket's reduction at sampled steps of a window.

Must not judge. Invariant: a step is there only where every rank has told its slices of it; how much is read is bounded,
so of long windows steps are left out evenly, never the last.
"""

from __future__ import annotations

import numpy as np

from halfscope_server.query.ranks import MAX_COLUMNS, Cells, in_rows
from halfscope_server.query.view import RunView
from halfscope_server.query.window import Span, Window
from halfscope_server.ranks.communication import BucketError, bucket_errors

MAX_SLICES = 2048
"""Read for one chart: some 100 ms."""
LEAST_STEPS = 8
"""Of a job of more than 16 ranks with 16 buckets there would be fewer: then there is no chart."""
MAX_STEPS = 100_000


def has_errors(view: RunView) -> bool:
    """Whether there are slices, and few enough of each step."""
    return _steps_to_read(view) >= LEAST_STEPS and bool(view.memo("has slices", lambda: _steps(view, None)))


def error_cells(view: RunView, window: Window) -> Cells | None:
    """The error of each bucket at sampled steps, with the time at which the first rank told of it."""
    span = view.resolve(window)
    if span is None:
        return None
    return view.memo(("bucket errors", span), lambda: _cells(view, span))


def _cells(view: RunView, span: Span) -> Cells:
    steps = _steps(view, span)
    count = min(len(steps), MAX_COLUMNS, max(LEAST_STEPS, _steps_to_read(view)))
    chosen = [steps[at] for at in np.unique(np.linspace(0, len(steps) - 1, count).round().astype(int))] if steps else []
    errors: list[BucketError] = []
    times: dict[int, int] = {}
    for step in chosen:
        found = view.store.slices(view.run_id, first_step=step, last_step=step, attempt=_attempt(view))
        times[step] = min((one.time_us for one in found), default=0)
        errors += bucket_errors(found, view.row.world_size)
    buckets = sorted({error.bucket for error in errors})
    told = sorted({error.step for error in errors})
    value = np.full((len(buckets), len(told)), np.nan)
    for error in errors:
        value[buckets.index(error.bucket), told.index(error.step)] = error.error
    step = np.array(told, np.int64)
    width = int(np.median(np.diff(step))) if step.size > 1 else 1
    return in_rows(
        np.array(buckets, np.int64),
        value,
        np.zeros(value.shape, np.int64),
        step=step,
        last_step=step,
        time_us=np.array([times[one] for one in told], np.int64),
        width=width,
    )


def _attempt(view: RunView) -> int:
    return max((stream.attempt for stream in view.streams), default=0)


def _steps(view: RunView, span: Span | None) -> list[int]:
    if span is None:
        return view.store.slice_steps(view.run_id, attempt=_attempt(view), limit=1)
    return view.store.slice_steps(
        view.run_id, attempt=_attempt(view), limit=MAX_STEPS, after=span.first_step - 1, upto=span.last_step
    )


def _steps_to_read(view: RunView) -> int:
    num_buckets = max(1, len(view.named("comm.time_s")))
    return MAX_SLICES // (max(1, view.row.world_size) * num_buckets)
