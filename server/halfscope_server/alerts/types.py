"""What evaluation is given and what it gives.

Must not import fastapi, nor the store's tables. Invariant: what evaluation gives is a function of the rule and of the
data in the order of each stream: how the data were cut into updates, and when they came, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halfscope_server.store.update_types import Column, Update

__all__ = ["Column", "Group", "Samples", "Update", "joined"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One number per step of a metric, for one group. NaN or an infinity is a sample that no average takes in."""

    step: NDArray[np.int64]
    time_us: NDArray[np.int64]
    value: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What one alert is about, within a run."""

    layer: str = ""
    rank: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the series: scaler, optimizer."""


def joined(parts: Sequence[Samples]) -> Samples:
    """All of them, one after the other; at least one."""
    if len(parts) == 1:
        return parts[0]
    return Samples(
        step=np.concatenate([part.step for part in parts]),
        time_us=np.concatenate([part.time_us for part in parts]),
        value=np.concatenate([part.value for part in parts]),
    )
