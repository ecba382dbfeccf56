"""The compiled helper, where it was built and is wanted; whoever uses it has another way to the same numbers.

`helper` is None without it: no C compiler at installation, another processor, HALFSCOPE_NO_NATIVE=1. Must not import
torch or numpy. Invariant: a helper of another interface than this code's is not used.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

VERSION = 3
SWITCH = "HALFSCOPE_NO_NATIVE"


def load(environ: dict[str, str] | os._Environ[str] = os.environ) -> tuple[Any, str]:
    """The helper, or None and why there is none."""
    if environ.get(SWITCH) == "1":
        return None, f"switched off by {SWITCH}=1"
    try:
        found = importlib.import_module("halfscope.native._helper")
    except ModuleNotFoundError:
        return None, "not built when halfscope was installed: that takes a C compiler and Python's headers"
    except ImportError as error:
        return None, f"cannot be loaded: {error}"
    if found.VERSION != VERSION:
        return None, f"built from another version of the source ({found.VERSION}, expected {VERSION}): install again"
    return found, ""


helper, absent_because = load()
can_be_built = helper is None and os.environ.get(SWITCH) != "1"
