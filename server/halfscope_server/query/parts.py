"""Frames of a run with what its ranks told put together: parts of a layer added up, replicas counted once.

Owns which rank's sketches count where several have a layer. Must not import plotly. Invariant: a layer is in a frame
only where all of it is: where a part of it has not come yet, or never will, it was not measured.

Suffixes: R rows of single ranks, F frames, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from halfscope.sketch import Sketch
from numpy.typing import NDArray

from halfscope_server.store.types import FrameMoments, Frames, FrameSketches

if TYPE_CHECKING:
    from halfscope_server.query.view import Reader, RunView

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_OF_FRAMES = tuple(item.name for item in fields(Frames))
_INT32 = np.iinfo(np.int32)
_COMBINED: dict[str, tuple[float, np.ufunc]] = {"absmin_nonzero": (np.inf, np.minimum), "absmax": (0, np.maximum)}
"""What is not added: what stands for nothing, and how two become one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReader:
    """Reads frames of all ranks as those of one."""

    store: Reader
    run_id: str
    ranks: tuple[int, ...]
    """That sent anything."""
    parts: Mapping[int, Mapping[int, Mapping[int, str]]]
    """Attempt to rank to layer_id to the part that the rank has of it, where that is not all."""

    def moments(
        self,
        layer_ids: Sequence[int],
        *,
        first_step: int,
        last_step: int,
        attempt: int,
        columns: Sequence[str],
        of: str = "grad",
    ) -> FrameMoments:
        """As of the store, of an attempt; a step is in it once."""
        found = self.store.frame_moments(
            self.run_id,
            layer_ids=layer_ids,
            first_step=first_step,
            last_step=last_step,
            rank=self._alone,
            attempt=attempt,
            of=of,
            columns=columns,
        )
        plan = self._plan(found, attempt)
        if plan is None:
            return found
        combined = {name: plan.combined(name, column) for name, column in found.columns.items()}
        return FrameMoments(**plan.frames(found), columns=combined)

    def sketches(self, layer_ids: Sequence[int], *, first_step: int, last_step: int, attempt: int) -> FrameSketches:
        """Likewise."""
        found = self.store.frame_sketches(
            self.run_id, layer_ids, first_step=first_step, last_step=last_step, rank=self._alone, attempt=attempt
        )
        plan = self._plan(found, attempt)
        if plan is None:
            return found
        names = [item.name for item in fields(Sketch) if item.name != "lowest"]
        combined = {name: plan.combined(name, getattr(found.sketches, name)) for name in names}
        return FrameSketches(**plan.frames(found), sketches=Sketch(**combined, lowest=found.sketches.lowest))

    @property
    def _alone(self) -> int | None:
        """The only rank there is, whose frames are read as they are."""
        return self.ranks[0] if len(self.ranks) == 1 else None

    def _plan(self, found: Frames, attempt: int) -> _Plan | None:
        """How rows become frames; None: they are frames as they are."""
        if len(self.ranks) <= 1 or not found.step.size:
            return None
        told = self.parts.get(attempt, {})
        if not told and bool((found.rank == found.rank[0]).all()):
            return None
        return _plan(found, told)


def part_reader(view: RunView) -> PartReader:
    """The frames of a view."""
    ranks = view.ranks
    parts: dict[int, dict[int, dict[int, str]]] = {}
    if len(ranks) > 1:
        by_stream = view.store.layer_parts(view.run_id)
        for stream in view.streams:
            if stream.stream in by_stream:
                parts.setdefault(stream.attempt, {}).setdefault(stream.rank, {}).update(by_stream[stream.stream])
    return PartReader(store=view.store, run_id=view.run_id, ranks=ranks, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """Which rows make up each frame."""

    starts: Ints
    """[F] first row of each."""
    take: Bools
    """[R, L] cells that count."""
    first: Ints
    """[F, L] row that counts first; where none does, the frame's first."""
    present: Bools
    """[F, L]"""

    def combined(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """[R, L, ...] of rows to [F, L, ...] of frames."""
        shape = (self.starts.size, *values.shape[1:])
        if values.size and not any(values.strides) and not values.flat[0]:
            return np.broadcast_to(values.flat[0], shape)  # Zeros that take no memory stay so.
        nothing, ufunc = _COMBINED.get(name, (0, np.add))
        wide = values.astype(np.int64) if values.dtype.kind in "iu" else values
        take = self.take.reshape(*self.take.shape, *(1,) * (values.ndim - 2))
        total: NDArray[Any] = ufunc.reduceat(np.where(take, wide, nothing), self.starts, axis=0)
        fits = values.dtype == np.int32 and total.max(initial=0) <= _INT32.max
        return total.astype(np.int32) if fits else total

    def frames(self, found: Frames) -> dict[str, Any]:
        """What frames have in common."""
        common = {name: getattr(found, name) for name in _OF_FRAMES}
        for name in ("step", "time_us", "rank", "attempt"):
            common[name] = common[name][self.starts]
        return common | {
            "scale": self._scale(found.scale),
            "present": self.present,
            "point": np.where(self.present, np.take_along_axis(found.point, self.first, 0), 0).astype(np.uint8),
            "maybe_clipped": np.logical_or.reduceat(self.take & found.maybe_clipped, self.starts, axis=0),
        }

    def _scale(self, scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """[F, L] of what counts first; [F, 1] where layers do not differ."""
        if not self.first.shape[1]:
            return scale[self.starts]
        whole = np.take_along_axis(np.broadcast_to(scale, self.take.shape), self.first, 0)
        alike = (whole == whole[:, :1]) | (np.isnan(whole) & np.isnan(whole[:, :1]))
        return np.ascontiguousarray(whole[:, :1]) if alike.all() else whole


def _plan(found: Frames, told: Mapping[int, Mapping[int, str]]) -> _Plan:
    """Rows ascend by (step, rank).

    Args:
        told: rank to layer_id to part.
    """
    is_new = np.diff(found.step, prepend=found.step[0] - 1) != 0
    starts, frame = np.flatnonzero(is_new), np.cumsum(is_new) - 1
    shape = (starts.size, found.present.shape[1])
    part_of, num_parts = _numbered(found.layer_ids, told)
    whole, take = np.zeros(shape, np.bool_), np.zeros(found.present.shape, np.bool_)
    seen: Bools = np.zeros((*shape, int(num_parts.max(initial=0))), np.bool_)
    by_rank = [(int(rank), _first_rows(frame, np.flatnonzero(found.rank == rank))) for rank in np.unique(found.rank)]
    # Whoever has all of a layer tells of it alone, the lowest rank first; then each part by the lowest that has it.
    for rank, rows in by_rank:
        has_all = found.present[rows] & (part_of[rank] < 0 if rank in part_of else True)
        take[rows] = has_all & ~whole[frame[rows]]
        whole[frame[rows]] |= has_all
    for rank, rows in by_rank:
        if rank not in part_of:
            continue
        layer = np.flatnonzero(part_of[rank] >= 0)
        part, at = part_of[rank][layer], frame[rows]
        new = found.present[np.ix_(rows, layer)] & ~whole[np.ix_(at, layer)]
        new &= ~seen[at[:, None], layer, part]
        take[np.ix_(rows, layer)] |= new
        seen[at[:, None], layer, part] |= new
    num_seen: Ints = seen.astype(np.int64).sum(axis=-1)
    there: Bools = whole | ((num_parts > 0) & (num_seen == num_parts))
    take &= there[frame]
    row = np.where(take, np.arange(found.step.size)[:, None], found.step.size)
    first = np.minimum.reduceat(row, starts, axis=0)
    return _Plan(starts=starts, take=take, first=np.where(there, first, starts[:, None]), present=there)


def _first_rows(frame: Ints, rows: Ints) -> Ints:
    """Of each frame one: two streams of a rank (a copied journal) tell the same."""
    _, first = np.unique(frame[rows], return_index=True)
    return rows[first]


def _numbered(layer_ids: Sequence[int], told: Mapping[int, Mapping[int, str]]) -> tuple[dict[int, Ints], Ints]:
    """Parts as numbers: rank to [L] (-1: it has no part of it, but all or nothing), and [L] how many parts make up
    each."""
    numbers: list[dict[str, int]] = [{} for _ in layer_ids]
    part_of = {}
    for rank, parts in told.items():
        own = [parts.get(layer_id) for layer_id in layer_ids]
        part_of[rank] = np.array(
            [-1 if part is None else numbers[at].setdefault(part, len(numbers[at])) for at, part in enumerate(own)],
            np.int64,
        )
    return part_of, np.array([len(found) for found in numbers], np.int64)
