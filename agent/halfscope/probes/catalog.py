"""All built-in series, found by scanning this folder: a new metric is one new file.

Invariant: one spec per name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

import halfscope.probes
from halfscope.probes.spec import SeriesSpec


@cache
def specs() -> Mapping[str, SeriesSpec]:
    """Name to spec.

    Raises:
        ValueError: two files describe one name.
    """
    found: dict[str, SeriesSpec] = {}
    for module_info in pkgutil.iter_modules(halfscope.probes.__path__):
        module = importlib.import_module(f"halfscope.probes.{module_info.name}")
        for spec in getattr(module, "SERIES", ()):
            if spec.name in found:
                raise ValueError(f"series {spec.name!r} is described twice in halfscope.probes; keep one of them")
            found[spec.name] = spec
    return found
