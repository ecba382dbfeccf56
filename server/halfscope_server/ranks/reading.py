"""Series of all ranks side by side, and which stream stands for a rank.

Must not judge. Invariant: what a rank did not say is not there, also where another rank did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfscope_server.store.store import Store
from halfscope_server.store.types import SeriesRow, StreamRow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PER_STEP = ("time.step_s", "loss", "rank.busy_s")
"""Series that a rank has at every step, in the order in which they are asked how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPoints:
    """One series on one rank, ascending by step."""

    step: Ints
    value: Floats


def read(
    store: Store,
    run_id: str,
    series: Sequence[SeriesRow],
    *,
    attempt: int,
    first_step: int,
    last_step: int | None = None,
) -> dict[int, dict[int, RankPoints]]:
    """Some series of an attempt, by id and rank."""
    if not series:
        return {}
    ids = [row.series_id for row in series]
    found = store.rank_points(run_id, ids, attempt=attempt, first_step=first_step, last_step=last_step)
    return {
        series_id: {rank: RankPoints(step=step, value=value) for rank, (step, value) in ranks.items() if step.size}
        for series_id, ranks in found.items()
    }


def first_named(series: Iterable[SeriesRow], name: str) -> SeriesRow | None:
    """The first series of a name."""
    return next((row for row in series if row.name == name), None)


def newest_streams(streams: Sequence[StreamRow], attempt: int | None = None) -> dict[int, StreamRow]:
    """The stream that stands for each rank in an attempt (None: the newest), by rank: of several the one begun last."""
    if attempt is None:
        attempt = max((row.attempt for row in streams), default=0)
    found: dict[int, StreamRow] = {}
    for row in sorted(streams, key=lambda row: (row.rank, row.started_us, row.stream)):
        if row.attempt == attempt:
            found[row.rank] = row
    return found
