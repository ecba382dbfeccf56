"""A run as rows for machines: every recorded point and event.

Owns the shape of exported rows. Must not import plotly. Invariant: nothing is rounded, thinned or left out, and a
non-finite value is one of the strings NaN, Infinity and -Infinity; memory used is that of one stretch of one series.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from halfscope_server.query.events import plain
from halfscope_server.query.format import iso, json_number
from halfscope_server.query.view import RunView
from halfscope_server.store.types import EventRow, SeriesRow

STEPS_AT_ONCE = 65_536
EVENTS_AT_ONCE = 1000
KINDS = ("points", "events")


def export_rows(view: RunView, *, series: str = "*", kinds: Collection[str] = KINDS) -> Iterator[dict[str, Any]]:
    """Rows of a run: points by (series, labels, attempt, step), then events in their order.

    Args:
        series: a glob over series names, for points.
        kinds: of `points` and `events`; others have no rows yet.
    """
    if "points" in kinds:
        for row in view.series:
            if fnmatchcase(row.name, series or "*"):
                yield from _points(view, row)
    if "events" in kinds:
        yield from _events(view)


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
                    "attempt": attempt,
                    "step": step,
                    "time": iso(time_us),
                    "value": value if is_finite else json_number(value),
                }


def _events(view: RunView) -> Iterator[dict[str, Any]]:
    after: tuple[int, int, str, int] | None = None
    while rows := view.store.events(view.run_id, after=after, limit=EVENTS_AT_ONCE):
        yield from map(event_row, rows)
        if len(rows) < EVENTS_AT_ONCE:
            return
        last = rows[-1]
        after = (last.attempt, last.step, last.stream, last.seq)


def event_row(row: EventRow) -> dict[str, Any]:
    """An event as exported."""
    attributes: Mapping[str, Any] = row.attributes
    return {
        "kind": "event",
        "event": row.kind,
        "rank": row.rank,
        "attempt": row.attempt,
        "step": row.step,
        "time": iso(row.time_us),
        "severity": row.severity,
        "where": [str(name) for name in row.where],
        "attributes": {str(key): plain(value) for key, value in attributes.items()},
    }
