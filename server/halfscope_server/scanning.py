"""Finding what one-file additions bring: a folder of modules, each with an object that carries its own metadata.

Must not import anything of the project. Invariant: one object per id.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any


def found_in(package: str, path: Iterable[str], attribute: str) -> dict[str, Any]:
    """Every module's object of that name, by its id, in the order of the file names; modules without one are left out.

    Args:
        package: `__name__` of the folder's package.
        path: its `__path__`.
        attribute: `CHECK`, `REASON` ...

    Raises:
        ValueError: two files hold one id.
    """
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(path):
        item = getattr(importlib.import_module(f"{package}.{module.name}"), attribute, None)
        if item is None:
            continue
        if item.id in found:
            raise ValueError(f"{attribute} {item.id!r} stands in two files of {package}; keep one of them")
        found[item.id] = item
    return found
