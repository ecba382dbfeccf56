"""The smallest value of a window."""

from __future__ import annotations

import functools

import numpy as np

from halfscope_server.alerts.aggregations.base import Aggregation, as_far
from halfscope_server.alerts.aggregations.extremes import Extreme

AGGREGATION = Aggregation(
    id="min",
    title="smallest value",
    text="The smallest value of the window.",
    make=functools.partial(Extreme, ufunc=np.minimum, identity=np.inf),
    for_layers=True,
    reach=as_far,
    early="below",
)
