"""What a metric says of itself. Must not import torch.

Invariant: a spec is data; the server draws a series it never heard of from its spec alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesSpec:
    """One series name, before labels."""

    name: str
    unit: str = "1"
    kind: Literal["gauge", "state", "flag", "counter"] = "gauge"
    reduction: Literal["last", "mean", "sum", "min", "max", "norm"] = "last"
    """How values of one step combine over ranks."""
    labels: tuple[str, ...] = ()
    """Labels it may carry, each only where there is more than one of that thing."""
