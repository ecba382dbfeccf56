"""Whose a series is, by its name.

Must not import anything of the project. Invariant: what the agent records of its own accord is the same everywhere; all
other names are the user's.
"""

from __future__ import annotations

import re

_OWN = re.compile(
    r"(amp|comm|grad|halfscope|host|input|memory|opt|rank|throughput|time|update|weights)\.|(lr|samples|tokens)$"
)


def is_own(name: str) -> bool:
    """Whether the agent records a series of this name, which then says nothing of how good a model is."""
    return _OWN.match(name) is not None
