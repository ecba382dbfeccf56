"""What is new in a stream of a run: what readers that go on from a cursor are given.

Must not import sqlalchemy. Invariant: records are whole: what belongs to one row of a step comes in one `Update`.
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

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Of the series, as they can be a key."""
        return tuple(sorted(self.series.labels.items()))


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
    layer_names: Sequence[str] = ()
    """Of the layers of `frames`, in the order of its `layer_ids`."""
    changes: FrameMoments | None = None
    """New sketches of how much weights changed."""
    changed_names: Sequence[str] = ()
    """Of the layers of `changes`."""
    ended: str = ""
    """How the stream ended (`finished`, `exception`, `killed`, `lost_contact`, `superseded`); empty: it goes on."""
    end_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a reader looks at; the rest is not read."""

    series: frozenset[str] = frozenset()
    """Names."""
    events: frozenset[str] = frozenset()
    """Kinds."""
    frames: bool = False
    """Sketched gradients."""
    changes: bool = False
    """Sketched changes of weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCursor:
    """How far a reader is in one stream."""

    next: int = 0
    """First seq not taken in."""
    last_step: int = -1
    """Newest step taken in of any series."""
    steps: Mapping[int, int] = field(default_factory=dict)
    """series_id -> newest step taken in. Merged chunks do not say which record a value came in: of those, what lies
    behind these steps is new."""
    frame_step: int = -1
    """Newest step of sketched gradients that was taken in."""
    change_step: int = -1
    """Of sketched changes of weights, likewise."""
