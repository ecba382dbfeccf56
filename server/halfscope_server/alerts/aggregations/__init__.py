"""How the values of a window become the number that is compared: found by scanning this folder.

A module with an `AGGREGATION` is one; add a file and rules can use it, tested by the contract tests. Invariant: one
per id.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from halfscope_server.alerts.aggregations.base import Aggregation
from halfscope_server.scanning import found_in

__all__ = ["Aggregation", "aggregations"]


@cache
def aggregations() -> Mapping[str, Aggregation]:
    """By id, in the order in which they are offered: the plain ones first.

    Raises:
        ValueError: two files hold one id.
    """
    found: dict[str, Aggregation] = found_in(__name__, __path__, "AGGREGATION")
    plain = ("last", "mean", "max", "min", "sum", "rate", "quantile", "change")
    order = {name: at for at, name in enumerate(plain)}
    return dict(sorted(found.items(), key=lambda pair: (order.get(pair[0], len(order)), pair[0])))
