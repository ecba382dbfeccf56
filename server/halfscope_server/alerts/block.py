"""What a part of a run brought, in the order in which it is judged: rows, events, sketched steps.

Owns the shape that metrics read. Must not know rules. Invariant: everything in a block belongs to its steps, and the
steps of one block all come after those of the block before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.types import Column
from halfscope_server.store.types import CAUGHT, SKIP_CLASSES, EventRow, FrameMoments, RunRow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GRAVE = 1
"""What `Marks.mark` is for an event of any other kind that is worse than information."""
BY_HAND = ("KeyboardInterrupt",)
"""Exceptions by which people end a training: that is no failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Where events of one kind lie, ascending by step."""

    step: Ints
    time_us: Ints
    mark: Ints
    """Of skips and losses as in `EventMarks.skip_class`; of other kinds `GRAVE`, or 0 for mere information: of the
    ends of streams for all that are no failures. Of errors of reductions how large they are, in parts per million."""


NO_MARKS = Marks(step=np.empty(0, np.int64), time_us=np.empty(0, np.int64), mark=np.empty(0, np.int64))


def mark_of(event: EventRow) -> int:
    """What is kept of an event beside its place."""
    if event.kind == "skip":
        told = event.attributes.get("class", "")
        return SKIP_CLASSES.index(told) if told in SKIP_CLASSES else 0
    if event.kind == "loss_nonfinite":
        return CAUGHT if event.attributes.get("caught") is True else 0
    if event.kind == "run_ended":
        return GRAVE if _is_failure(event) else 0
    if event.kind == "comm_error":
        return _parts_per_million(event.attributes.get("error"))
    return 0 if event.severity == "info" else GRAVE


def _parts_per_million(share: object) -> int:
    return round(1e6 * share) if isinstance(share, float) and 0 <= share < 1e6 else 0


def _is_failure(end: EventRow) -> bool:
    told = end.attributes
    if told.get("outcome") == "exception":
        is_exit = told.get("error_type") == "SystemExit" and told.get("message") in ("", "0", "None")
        return not is_exit and told.get("error_type") not in BY_HAND
    return told.get("outcome") == "killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketched:
    """Sketched steps, ascending; of each layer what metrics look at."""

    names: tuple[str, ...]
    """[L]"""
    step: Ints
    """[F]"""
    time_us: Ints
    cells: Mapping[str, NDArray[Any]]
    """[F, L] each: `present`, `scale` (NaN: no scaler), `n`, `zeros`, `nonfinite`, `infinite`, `flushed`, `subnormal`,
    `absmax`."""

    @classmethod
    def of(cls, moments: FrameMoments, names: Sequence[str]) -> Sketched:
        """What the store gives of some frames."""
        infinite = moments.pos_inf + moments.neg_inf
        cells: dict[str, NDArray[Any]] = {
            "present": moments.present,
            "scale": np.broadcast_to(moments.scale, moments.present.shape),
            "n": moments.n,
            "zeros": moments.zeros,
            "nonfinite": moments.nan + infinite,
            "infinite": infinite,
            "flushed": moments.flushed,
            "subnormal": moments.subnormal,
            "absmax": moments.absmax,
        }
        return cls(names=tuple(names), step=moments.step, time_us=moments.time_us, cells=cells)

    def rows(self, part: slice) -> Sketched:
        """Some of the steps."""
        cells = {name: cell[part] for name, cell in self.cells.items()}
        return Sketched(names=self.names, step=self.step[part], time_us=self.time_us[part], cells=cells)


@dataclass(frozen=True, kw_only=True)
class Block:
    """See the module."""

    run: RunRow
    columns: Sequence[Column] = ()
    late: Sequence[Column] = ()
    """Values of steps that were judged before they came: of use to nobody but the series itself."""
    marks: Mapping[str, Marks] = field(default_factory=dict)
    """By kind."""
    frames: Sequence[Sketched] = ()
    """Ascending by step."""
    changes: Sequence[Sketched] = ()
    """The same of how much weights changed."""
    extra_step: Ints | None = None
    """Steps that have events but will have no row any more: the training ended in them."""
    extra_us: Ints | None = None

    @cached_property
    def rows(self) -> tuple[Ints, Ints]:
        """Every step that has a row, and its time; then those that will have none."""
        step, time_us = self._rows()
        if self.extra_step is None or self.extra_us is None:
            return step, time_us
        return np.concatenate((step, self.extra_step)), np.concatenate((time_us, self.extra_us))

    def _rows(self) -> tuple[Ints, Ints]:
        if not self.columns:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        longest = max(self.columns, key=lambda column: column.step.size)
        others = [c for c in self.columns if c is not longest and not _lies_in(c.step, longest.step)]
        if not others:
            return longest.step, longest.time_us
        step = np.concatenate([longest.step, *(c.step for c in others)])
        time_us = np.concatenate([longest.time_us, *(c.time_us for c in others)])
        unique, first = np.unique(step, return_index=True)
        return unique, time_us[first]

    def named(self, name: str) -> list[Column]:
        """The columns of a series, one per set of labels."""
        return self._by_name.get(name, [])

    @cached_property
    def _by_name(self) -> dict[str, list[Column]]:
        found: dict[str, list[Column]] = {}
        for column in self.columns:
            found.setdefault(column.series.name, []).append(column)
        return found

    def of(self, kind: str) -> Marks:
        """The events of a kind."""
        return self.marks.get(kind, NO_MARKS)


def _lies_in(step: Ints, of: Ints) -> bool:
    """Whether all of these steps are among the others."""
    if step.size == of.size:
        return step is of or bool((step == of).all())
    if not step.size:
        return True
    at = np.searchsorted(of, step)
    return bool(at[-1] < of.size and (of[np.minimum(at, of.size - 1)] == step).all())
