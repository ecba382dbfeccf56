"""Series of all ranks side by side: points taken apart by rank, and put into tables of ranks and steps.

Must not judge. Invariant: what a rank did not say is NaN, also where another rank did.

Suffixes: R ranks, S steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfscope_server.store.store import Store
from halfscope_server.store.types import Points, SeriesRow, StreamRow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PER_STEP = ("time.step_s", "loss", "rank.busy_s")
"""Series that a rank has at every step, in the order in which they are asked how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPoints:
    """One series on one rank, ascending by step."""

    step: Ints
    value: Floats


def by_rank(points: Points) -> dict[int, RankPoints]:
    """The points of each rank; of a step that comes twice the last counts."""
    if not points.step.size:
        return {}
    order = np.argsort(points.rank, kind="stable")  # stays ascending by step within a rank
    rank, step, value = points.rank[order], points.step[order], points.value[order]
    is_last = np.ones(rank.size, bool)
    is_last[:-1] = (rank[1:] != rank[:-1]) | (step[1:] != step[:-1])
    rank, step, value = rank[is_last], step[is_last], value[is_last]
    ranks, first = np.unique(rank, return_index=True)
    ends = [*first[1:].tolist(), rank.size]
    return {
        number: RankPoints(step=step[start:end], value=value[start:end])
        for number, start, end in zip(ranks.tolist(), first.tolist(), ends, strict=True)
    }


def read(
    store: Store, run_id: str, series: SeriesRow, *, attempt: int, first_step: int, last_step: int | None = None
) -> dict[int, RankPoints]:
    """A series of an attempt on all of its ranks."""
    return by_rank(store.points(run_id, series.series_id, first_step=first_step, last_step=last_step, attempt=attempt))


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
