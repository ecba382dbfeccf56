"""How far a value has risen above its own best: for what should fall, as a validation loss."""

from __future__ import annotations

import functools

from halfscope_server.alerts.aggregations.base import Aggregation
from halfscope_server.alerts.aggregations.best import FromBest

AGGREGATION = Aggregation(
    id="above_best",
    title="rise above its best",
    text="How far the newest value lies above the smallest of the run so far, as a share of that.",
    make=functools.partial(FromBest, sign=-1.0),
    needs_window=False,
    unit="share",
)
