"""How far a value has fallen below its own best: for what should grow, as an accuracy."""

from __future__ import annotations

import functools

from halfscope_server.alerts.aggregations.base import Aggregation
from halfscope_server.alerts.aggregations.best import FromBest

AGGREGATION = Aggregation(
    id="below_best",
    title="fall below its best",
    text="How far the newest value lies below the largest of the run so far, as a share of that.",
    make=functools.partial(FromBest, sign=1.0),
    needs_window=False,
    unit="share",
)
