"""Derived metrics: found by scanning this folder.

A module with `METRICS` adds them; add a file and rules can use it, tested by the contract tests. A plain series needs
no file. Invariant: one metric per id, and no alias that is another's id.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from halfscope_server.alerts.metrics.base import Metric

__all__ = ["Metric", "canonical", "find", "metrics", "parts_beside"]


@cache
def metrics() -> Mapping[str, Metric]:
    """By id.

    Raises:
        ValueError: two files hold one id.
    """
    found: dict[str, Metric] = {}
    for module in pkgutil.iter_modules(__path__):
        for item in getattr(importlib.import_module(f"{__name__}.{module.name}"), "METRICS", ()):
            if item.id in found:
                raise ValueError(f"metric {item.id!r} stands in two files of {__name__}; keep one of them")
            found[item.id] = item
    return found


@cache
def _aliases() -> Mapping[str, str]:
    return {alias: metric.id for metric in metrics().values() for alias in metric.aliases}


def canonical(name: str) -> str:
    """The id that an alias stands for; every other name is what it is."""
    return _aliases().get(name, name)


def find(name: str) -> Metric | None:
    """The derived metric of this name or alias; None: it is a series."""
    return metrics().get(canonical(name))


def parts_beside(name: str) -> list[str]:
    """The names that there are, nearest first, where a name is an unknown part of a derived metric that has parts
    (`nonfinite_rate.aplied`); empty: it may be a series that no run has yet."""
    base, dot, _ = name.partition(".")
    own = [known for known in metrics() if known.startswith(f"{canonical(base)}.")]
    if not dot or not own or find(name) is not None:
        return []
    asked = canonical(base) + name[len(base) :]
    near = difflib.get_close_matches(asked, own, n=len(own), cutoff=0.0)
    return [*near, canonical(base)]
