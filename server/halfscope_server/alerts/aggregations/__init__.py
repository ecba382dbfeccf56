"""How the values of a window become the number that is compared: found by scanning this folder.

A module with an `AGGREGATION` is one; add a file and rules can use it, tested by the contract tests. Invariant: one
per id.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from halfscope_server.alerts.aggregations.base import Aggregation

__all__ = ["Aggregation", "aggregations"]


@cache
def aggregations() -> Mapping[str, Aggregation]:
    """By id, in the order in which they are offered: the plain ones first.

    Raises:
        ValueError: two files hold one id.
    """
    found: dict[str, Aggregation] = {}
    for module in pkgutil.iter_modules(__path__):
        item = getattr(importlib.import_module(f"{__name__}.{module.name}"), "AGGREGATION", None)
        if item is None:
            continue
        if item.id in found:
            raise ValueError(f"aggregation {item.id!r} stands in two files of {__name__}; keep one of them")
        found[item.id] = item
    plain = ("last", "mean", "max", "min", "sum", "rate", "quantile", "change")
    order = {name: at for at, name in enumerate(plain)}
    return dict(sorted(found.items(), key=lambda pair: (order.get(pair[0], len(order)), pair[0])))
