"""What evaluation is given and what it gives.

Must not import fastapi, nor the store's tables. Invariant: what evaluation gives is a function of the rule and of the
data in the order of each stream: how the data were cut into updates, and when they came, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halfscope_server.store.types import EventRow, FrameMoments, SeriesRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """New values of one series in one stream, in the order in which they were recorded."""

    series: SeriesRow
    step: NDArray[np.int64]
    time_us: NDArray[np.int64]
    value: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What is new in one stream of a run: whole records, so all that belongs to a step's row comes together."""

    run_id: str
    stream: str
    attempt: int
    rank: int
    next: int
    """First seq that is not in it, or in an update before it."""
    columns: Sequence[Column] = ()
    events: Sequence[EventRow] = ()
    """Those of the run's server stream too: what the wall clock decided (no data, stall, lost contact) is among
    them."""
    frames: FrameMoments | None = None
    """Newly sketched steps."""
    ended: str = ""
    """How the stream ended (`finished`, `exception`, `killed`, `lost_contact`, `superseded`); empty: it goes on."""
    end_us: int | None = None


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
