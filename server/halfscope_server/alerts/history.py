"""A stored run as blocks, in the order in which evaluation would have judged it.

Owns the way from the store to blocks for back-tests and baselines. Must not judge. Invariant: a run gives the same
blocks as its updates would, but for streams that began late: here every stream is known from the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.block import NO_MARKS, Block, Marks, Sketched, mark_of
from halfscope_server.alerts.lane import reduced
from halfscope_server.alerts.types import Column
from halfscope_server.query.view import RunView
from halfscope_server.store.types import EventMarks, StreamRow
from halfscope_server.store.update_types import Wanted

Ints = NDArray[np.int64]

ROWS = 65_536
"""Steps of one block: what is worked on stays in a processor's cache."""
CELLS = 500_000
"""Layers x frames read at once."""
QUICK_KINDS = ("skip", "loss_nonfinite", "nonfinite_applied")
"""Kinds of which there can be as many as steps: where they lie is read without their text."""
MAX_EVENTS = 10_000
"""Of the other kinds."""
ENDS = ("finished", "exception", "killed", "superseded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One start of a training."""

    attempt: int
    columns: Sequence[Column]
    """Every series over the whole start, ranks as one."""
    is_over: bool
    """Every stream of it has ended, of these ranks."""

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last step."""
        there = [column.step for column in self.columns if column.step.size]
        return (min(int(s[0]) for s in there), max(int(s[-1]) for s in there)) if there else None


class History:
    """One run, or some of its ranks, read once."""

    def __init__(self, view: RunView, wanted: Wanted, ranks: frozenset[int] | None = None) -> None:
        """
        Args:
            ranks: None: all.
        """
        self._view, self._wanted, self._ranks = view, wanted, ranks
        self.parts = self._parts()
        self._marks = self._quick_marks()
        self._told = self._slow_events()

    def blocks(self, part: Part) -> Iterator[Block]:
        """One start of it, in order."""
        span = part.span
        frames = list(self._sketches(part.attempt, "grad")) if self._wanted.frames else []
        changes = list(self._sketches(part.attempt, "update")) if self._wanted.changes else []
        run = self._view.row
        if span is None:
            if frames or changes or any(attempt == part.attempt for attempt, _ in self._told):
                yield Block(run=run, frames=frames, changes=changes, marks=self._marks_of(part))
            return
        marks = self._marks_of(part)
        edges = [*range(span[0], span[1] + 1, ROWS), span[1] + 1]
        for low, high in pairwise(edges):
            is_last = high == edges[-1]
            columns = [_between(column, low, high) for column in part.columns]
            inside = {kind: _marks_between(found, low, None if is_last else high) for kind, found in marks.items()}
            taken, frames = _up_to(frames, None if is_last else high)
            changed, changes = _up_to(changes, None if is_last else high)
            yield Block(
                run=run,
                columns=[column for column in columns if column.step.size],
                marks={kind: found for kind, found in inside.items() if found.step.size},
                frames=taken,
                changes=changed,
            )

    def _parts(self) -> list[Part]:
        view = self._view
        names = self._wanted.series
        streams = view.store.streams(view.run_id)
        numbers = sorted({stream.attempt for stream in streams if not stream.stream.startswith("~")})
        of_attempt: dict[int, list[Column]] = {number: [] for number in numbers}
        for series in view.series:
            if series.name not in names:
                continue
            points = view.store.points(view.run_id, series.series_id)
            whole = Column(series=series, step=points.step, time_us=points.time_us, value=points.value)
            for number in numbers:
                own = _where(whole, points.attempt == number) if len(numbers) > 1 else whole
                rank = points.rank[points.attempt == number] if len(numbers) > 1 else points.rank
                column = self._of_ranks(own, rank)
                if column is not None:
                    of_attempt[number].append(column)
        return [
            Part(
                attempt=number,
                columns=columns,
                is_over=self._is_over([stream for stream in streams if stream.attempt == number]),
            )
            for number, columns in of_attempt.items()
        ]

    def _is_over(self, streams: Sequence[StreamRow]) -> bool:
        """As live evaluation sees it: of ranks that are not there all count."""
        own = [stream for stream in streams if self._ranks is None or stream.rank in self._ranks]
        return all(stream.ended in ENDS for stream in own or streams if not stream.stream.startswith("~"))

    def _of_ranks(self, column: Column, rank: NDArray[np.int32]) -> Column | None:
        if not column.step.size:
            return None
        if int(rank.min()) == int(rank.max()):
            return column if self._ranks is None or int(rank[0]) in self._ranks else None
        there = [r for r in np.unique(rank).tolist() if self._ranks is None or r in self._ranks]
        return reduced([(r, _where(column, rank == r)) for r in there]) if there else None

    def _quick_marks(self) -> EventMarks | None:
        kinds = tuple(kind for kind in QUICK_KINDS if kind in self._wanted.events)
        return self._view.marks(kinds) if kinds else None

    def _slow_events(self) -> dict[tuple[int, str], list[tuple[int, int, int]]]:
        """(step, time, mark) by attempt and kind."""
        kinds = sorted(self._wanted.events - set(QUICK_KINDS))
        found: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
        if not any(self._view.event_counts.get(kind) for kind in kinds):
            return found
        store, run_id = self._view.store, self._view.run_id
        for event in store.events(run_id, kinds=kinds, limit=MAX_EVENTS):
            if self._ranks is None or event.rank in self._ranks:
                found.setdefault((event.attempt, event.kind), []).append((event.step, event.time_us, mark_of(event)))
        return found

    def _marks_of(self, part: Part) -> dict[str, Marks]:
        found = {}
        for (attempt, kind), rows in self._told.items():
            if attempt == part.attempt:
                step, time_us, mark = np.array(sorted(rows), np.int64).T
                found[kind] = Marks(step=step, time_us=time_us, mark=mark)
        quick = self._marks
        if quick is None or not quick.step.size or not part.columns:
            return found
        longest = max(part.columns, key=lambda column: column.step.size)
        mine = quick.attempt == part.attempt
        if self._ranks is not None:
            mine &= np.isin(quick.rank, list(self._ranks))
        for number, kind in enumerate(quick.kinds):
            at = np.flatnonzero(mine & (quick.kind == number))
            if at.size:
                step = quick.step[at]
                row = np.minimum(np.searchsorted(longest.step, step), longest.step.size - 1)
                found[kind] = Marks(step=step, time_us=longest.time_us[row], mark=quick.skip_class[at].astype(np.int64))
        return found

    def _sketches(self, attempt: int, of: str) -> Iterator[Sketched]:
        """Of the lowest rank that has any; a few at a time."""
        view, layers = self._view, list(self._view.layers.values())
        if not layers or not view.num_frames:
            return
        names, ids = tuple(layer.name for layer in layers), [layer.layer_id for layer in layers]
        ranks = [rank for rank in view.ranks if self._ranks is None or rank in self._ranks]
        spans = [a.span for a in view.attempts if a.number == attempt]
        num_chunks = max(1, -(-view.num_frames * len(layers) // CELLS))
        for rank in ranks:
            there = False
            for span in spans:
                edges = np.linspace(span.first_step, span.last_step + 1, num_chunks + 1).astype(np.int64)
                for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                    moments = view.store.frame_moments(
                        view.run_id,
                        layer_ids=ids,
                        first_step=low,
                        last_step=high - 1,
                        rank=rank,
                        attempt=attempt,
                        of=of,
                    )
                    if moments.step.size:
                        there = True
                        yield Sketched.of(moments, names)
            if there:
                return


def _up_to(frames: list[Sketched], high: int | None) -> tuple[list[Sketched], list[Sketched]]:
    """Those that end before a step (None: all), and the rest."""
    count = sum(high is None or int(frame.step[-1]) < high for frame in frames)
    return frames[:count], frames[count:]


def _where(column: Column, mask: NDArray[np.bool_]) -> Column:
    return replace(column, step=column.step[mask], time_us=column.time_us[mask], value=column.value[mask])


def _between(column: Column, low: int, high: int) -> Column:
    first, end = np.searchsorted(column.step, [low, high]).tolist()
    if first == 0 and end == column.step.size:
        return column
    part = slice(first, end)
    return replace(column, step=column.step[part], time_us=column.time_us[part], value=column.value[part])


def _marks_between(marks: Marks, low: int, high: int | None) -> Marks:
    first = int(np.searchsorted(marks.step, low))
    end = marks.step.size if high is None else int(np.searchsorted(marks.step, high))
    if first >= end:
        return NO_MARKS
    part = slice(first, end)
    return Marks(step=marks.step[part], time_us=marks.time_us[part], mark=marks.mark[part])
