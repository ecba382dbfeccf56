"""How large gradients are, beside the counts of a run's frames: read only where somebody looks at norms or headroom.

Owns the rows' agreement with those of `FrameTable`. Must not import plotly. Invariant: a row holds what the frames of
the table's row hold, also where frames were added up or came in while the table was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from halfscope_server.query.frames import FrameTable
    from halfscope_server.store.types import FrameMoments

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

COLUMNS = ("sumsq", "absmax")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameSizes:
    """Of the frames of a table, [F, L]; 0 where a layer was not sketched."""

    step: Ints
    """[F] of the table."""
    sumsq: Floats
    absmax: Floats


@dataclass(slots=True)
class KeptSizes:
    """The newest of them, handed on from one table of a live run to the next."""

    sizes: FrameSizes | None = None
    settled_rows: int | None = None
    """Rows that ranks which were behind have not changed since; None: all but the newest."""

    def settle(self, num_rows: int) -> None:
        """Only so many rows stay as they are."""
        self.settled_rows = num_rows if self.settled_rows is None else min(self.settled_rows, num_rows)

    def num_rows(self, table: FrameTable) -> int:
        """Rows of a table that need not be read again: the newest may have been read in part."""
        if self.sizes is None:
            return 0
        num_rows = max(0, min(self.sizes.step.size, table.num_frames) - 1)
        num_rows = num_rows if self.settled_rows is None else min(num_rows, self.settled_rows)
        return num_rows if np.array_equal(self.sizes.step[:num_rows], table.step[:num_rows]) else 0


def fill_sizes(table: FrameTable, kept: KeptSizes, read: Iterator[FrameMoments]) -> FrameSizes:
    """The sizes of a table's frames.

    Args:
        table: gives the rows.
        kept: those of an earlier table, which are not read again; replaced by the new ones.
        read: frames with `COLUMNS`, at least those of the other rows.
    """
    # Layer after layer, as the store gives them.
    sumsq, absmax = (np.zeros(table.n.shape[::-1]).T for _ in COLUMNS)
    num_kept = kept.num_rows(table)
    if kept.sizes is not None:
        sumsq[:num_kept], absmax[:num_kept] = kept.sizes.sumsq[:num_kept], kept.sizes.absmax[:num_kept]
    for found in read:
        row = np.searchsorted(table.step, found.step, "right") - 1
        inside = (row >= num_kept) & (found.step <= table.last_step[row])
        # Neighbouring frames of one row, as they were added up.
        starts = np.flatnonzero(np.diff(row[inside], prepend=-1))
        if starts.size:
            sumsq[row[inside][starts]] += _reduced(np.add, found.sumsq, inside, starts)
            place = row[inside][starts]
            absmax[place] = np.maximum(absmax[place], _reduced(np.maximum, found.absmax, inside, starts))
    kept.settled_rows = None
    kept.sizes = FrameSizes(step=table.step, sumsq=sumsq, absmax=absmax)
    return kept.sizes


def _reduced(ufunc: np.ufunc, values: Floats, inside: NDArray[np.bool_], starts: Ints) -> NDArray[Any]:
    if not inside.all():
        values = values[inside]
    reduced: NDArray[Any] = values if starts.size == values.shape[0] else ufunc.reduceat(values, starts, axis=0)
    return reduced
