"""Streams of a run put in order: what is judged next, and what has to wait.

Owns the order: a step is judged when every stream that is still there has passed it. Must not know rules or metrics.
Invariant: blocks follow from the data of each stream alone; a stream is part of it from its first row on, until it
ends or is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.block import Block, Marks, Sketched, mark_of
from halfscope_server.alerts.types import Column, Update
from halfscope_server.store.types import EventRow, RunRow, SeriesRow
from halfscope_server.store.update_types import Wanted

Ints = NDArray[np.int64]
Told = tuple[str, int, int, int]
"""(kind, step, time, mark) of an event."""

IMMEDIATE = frozenset({"lost", "run_ended"})
"""Kinds of the agents' events that wait for no row: they tell of rows that are missing, or that nobody else will get to
either. So do all of the server's."""
NEVER = np.iinfo(np.int64).max


@dataclass(slots=True, kw_only=True)
class _Member:
    """One stream, with what it brought and nobody has judged yet."""

    rank: int
    passed: int = -1
    """Newest step with a row."""
    is_open: bool = False
    columns: dict[int, list[Column]] = field(default_factory=dict)
    events: list[Told] = field(default_factory=list)
    sketches: dict[str, list[Sketched]] = field(default_factory=dict)
    """By what they are of: `frames` of gradients, `changes` of weights."""


class Lane:
    """All streams of a run, or those of some ranks, as one."""

    def __init__(self, ranks: frozenset[int] | None = None) -> None:
        """
        Args:
            ranks: None: all.
        """
        self._ranks = ranks
        self.restart()

    def restart(self) -> None:
        """The training began anew: the streams there were do not count any more."""
        self._members: dict[str, _Member] = {}
        self._signals: list[Told] = []
        self._judged = -1
        self._sketch_rank: dict[str, int] = {}
        """Whose are judged, once that is known, by what they are of."""

    @property
    def last_step(self) -> int:
        """Newest step of any stream."""
        return max((member.passed for member in self._members.values()), default=-1)

    def push(
        self, update: Update, columns: Sequence[Column], events: Sequence[EventRow], passed: int, *, wanted: Wanted
    ) -> None:
        """Take in what a stream brought.

        Args:
            columns: those that anybody looks at.
            passed: newest step that has a row in it; -1: none has.
            wanted: which sketches anybody looks at.
        """
        if self._ranks is not None and update.rank not in self._ranks:
            return
        member = self._members.get(update.stream)
        if member is None:
            member = self._members[update.stream] = _Member(rank=update.rank)
        if passed >= 0:
            member.passed = max(member.passed, passed)
            member.is_open = True
        for column in columns:
            if column.step.size:
                member.columns.setdefault(column.series.series_id, []).append(column)
        for event in events:
            told = (event.kind, event.step, event.time_us, mark_of(event))
            (self._signals if event.kind in IMMEDIATE else member.events).append(told)
        for of, moments, names in (
            ("frames", update.frames if wanted.frames else None, update.layer_names),
            ("changes", update.changes if wanted.changes else None, update.changed_names),
        ):
            if moments is not None and moments.step.size:
                member.sketches.setdefault(of, []).append(Sketched.of(moments, names))
        if update.ended:
            member.is_open = False

    def signal(self, event: EventRow) -> None:
        """Take in an event of the server's own."""
        if self._ranks is None or event.rank in self._ranks:
            self._signals.append((event.kind, event.step, event.time_us, mark_of(event)))

    def take(self, run: RunRow, *, final: bool = False) -> Block | None:
        """What can be judged now; None: nothing new.

        Args:
            final: nothing more comes: events of a step that will have no row are judged without one.
        """
        horizon = self._horizon()
        columns, late = self._columns(horizon)
        frames, changes = (self._sketches(of, NEVER if final else horizon) for of in ("frames", "changes"))
        told, self._signals = self._signals, []
        left: list[Told] = []
        for member in self._members.values():
            if member.events:
                told += [event for event in member.events if event[1] <= horizon]
                left += [event for event in member.events if event[1] > horizon] if final else []
                member.events = [] if final else [event for event in member.events if event[1] > horizon]
        self._judged = max(self._judged, horizon)
        block = Block(run=run, columns=columns, late=late, marks=_marks(told), frames=frames, changes=changes)
        if left:
            # Rows of their own, after those there are.
            steps, first = np.unique(np.array([event[1] for event in left], np.int64), return_index=True)
            times = np.array([event[2] for event in left], np.int64)[first]
            block = replace(block, marks=_marks(told + left), extra_step=steps, extra_us=times)
        return block if columns or late or frames or changes or block.marks else None

    def _horizon(self) -> int:
        passed = [member.passed for member in self._members.values() if member.is_open]
        return min(passed) if passed else self.last_step

    def _columns(self, horizon: int) -> tuple[list[Column], list[Column]]:
        """Of the steps up to the horizon, in the order of the steps; and those that come too late."""
        by_series: dict[int, list[tuple[int, Column]]] = {}
        members = self._members.values()
        for member in members:
            for series_id, parts in member.columns.items():
                column = _joined(parts)
                if int(column.step[-1]) > horizon:
                    at = int(np.searchsorted(column.step, horizon, "right"))
                    column, rest = _part(column, slice(0, at)), _part(column, slice(at, None))
                    member.columns[series_id] = [rest]
                else:
                    member.columns[series_id] = []
                if column.step.size:
                    by_series.setdefault(series_id, []).append((member.rank, column))
            member.columns = {key: parts for key, parts in member.columns.items() if parts}
        columns, late = [], []
        for found in by_series.values():
            whole = found[0][1] if len(self._members) == 1 else reduced(sorted(found, key=lambda pair: pair[0]))
            if int(whole.step[0]) <= self._judged:
                at = int(np.searchsorted(whole.step, self._judged, "right"))
                late.append(_part(whole, slice(0, at)))
                whole = _part(whole, slice(at, None))
            if whole.step.size:
                columns.append(whole)
        return columns, late if len(self._members) == 1 else []

    def _sketches(self, of: str, horizon: int) -> list[Sketched]:
        """Of one rank: the lowest that has any in the first step that has any, once all have passed it."""
        having = [member for member in self._members.values() if member.sketches.get(of)]
        if not having:
            return []
        if of not in self._sketch_rank:
            begun = [member for member in having if int(member.sketches[of][0].step[0]) <= horizon]
            if not begun:
                return []
            self._sketch_rank[of] = min(member.rank for member in begun)
        found: list[Sketched] = []
        for member in having:
            if member.rank == self._sketch_rank[of]:
                up_to = min(horizon, member.passed) if horizon != NEVER else horizon
                taken, member.sketches[of] = _split(member.sketches[of], up_to)
                found += taken
            else:
                member.sketches[of] = []
        return _one_per_step(found)

    def state(self) -> dict[str, Any]:
        return {
            "judged": self._judged,
            "sketch_rank": self._sketch_rank,
            "signals": self._signals,
            "members": {
                stream: {
                    "rank": member.rank,
                    "passed": member.passed,
                    "open": member.is_open,
                    "columns": [_plain_column(c) for parts in member.columns.values() for c in parts],
                    "events": member.events,
                    "sketches": {of: list(map(_plain, parts)) for of, parts in member.sketches.items()},
                }
                for stream, member in self._members.items()
            },
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._judged, self._sketch_rank = state["judged"], state["sketch_rank"]
        self._signals = [tuple(told) for told in state["signals"]]
        self._members = {}
        for stream, kept in state["members"].items():
            member = _Member(rank=kept["rank"], passed=kept["passed"], is_open=kept["open"])
            for plain in kept["columns"]:
                column = Column(**{**plain, "series": SeriesRow(**plain["series"])})
                member.columns.setdefault(column.series.series_id, []).append(column)
            member.events = [tuple(told) for told in kept["events"]]
            member.sketches = {of: list(map(_sketched, parts)) for of, parts in kept["sketches"].items()}
            self._members[stream] = member


def _plain(item: Any) -> dict[str, Any]:
    return {each.name: getattr(item, each.name) for each in fields(item)}


def _sketched(plain: Mapping[str, Any]) -> Sketched:
    return Sketched(**{**plain, "names": tuple(plain["names"])})


def _plain_column(column: Column) -> dict[str, Any]:
    series = {**_plain(column.series), "labels": dict(column.series.labels)}
    return {**_plain(column), "series": series}


def _marks(told: Sequence[Told]) -> dict[str, Marks]:
    if not told:
        return {}
    by_kind: dict[str, list[Told]] = {}
    for event in told:
        by_kind.setdefault(event[0], []).append(event)
    found = {}
    for kind, events in by_kind.items():
        table = np.array([event[1:] for event in events], np.int64)
        step, time_us, mark = table[np.argsort(table[:, 0], kind="stable")].T
        found[kind] = Marks(step=step, time_us=time_us, mark=mark)
    return found


def _part(column: Column, part: slice) -> Column:
    return replace(column, step=column.step[part], time_us=column.time_us[part], value=column.value[part])


def _joined(parts: Sequence[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        step=np.concatenate([part.step for part in parts]),
        time_us=np.concatenate([part.time_us for part in parts]),
        value=np.concatenate([part.value for part in parts]),
    )


def reduced(found: Iterable[tuple[int, Column]]) -> Column:
    """One value per step of several ranks' values, as the series says."""
    columns = [column for _, column in found]
    whole = _joined(columns)
    if len(columns) == 1:
        return whole
    order = np.argsort(whole.step, kind="stable")
    step, value = whole.step[order], whole.value[order]
    starts = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    sizes = np.diff(np.append(starts, step.size))
    with np.errstate(invalid="ignore", over="ignore"):
        match whole.series.reduction:
            case "sum":
                result = np.add.reduceat(value, starts)
            case "mean":
                result = np.add.reduceat(value, starts) / sizes
            case "min":
                result = np.minimum.reduceat(value, starts)
            case "max":
                result = np.maximum.reduceat(value, starts)
            case _:
                result = value[starts + sizes - 1]
    return replace(
        whole,
        step=step[starts],
        time_us=np.maximum.reduceat(whole.time_us[order], starts),
        value=result,
    )


def _split(frames: Sequence[Sketched], horizon: int) -> tuple[list[Sketched], list[Sketched]]:
    """Up to a step, and after it."""
    taken, left = [], []
    for item in frames:
        at = int(np.searchsorted(item.step, horizon, "right"))
        if at:
            taken.append(item.rows(slice(0, at)))
        if at < item.step.size:
            left.append(item.rows(slice(at, None)))
    return taken, left


def _one_per_step(frames: Sequence[Sketched]) -> list[Sketched]:
    """What one step measured may have come in parts, with different layers."""
    found: list[Sketched] = []
    for item in frames:
        if found and int(found[-1].step[-1]) == int(item.step[0]):
            before = found.pop()
            if before.step.size > 1:
                found.append(before.rows(slice(0, -1)))
            found.append(_both(before.rows(slice(-1, None)), item.rows(slice(0, 1))))
            item = item.rows(slice(1, None))
        if item.step.size:
            found.append(item)
    return found


def _both(one: Sketched, other: Sketched) -> Sketched:
    """One step of two parts of it: each layer from the part that has it."""
    names = tuple(dict.fromkeys(one.names + other.names))
    place = {name: at for at, name in enumerate(names)}
    cells = {name: np.zeros((1, len(names)), cell.dtype) for name, cell in one.cells.items()}
    for part in (one, other):
        there = np.flatnonzero(part.cells["present"][0])
        to = [place[part.names[at]] for at in there.tolist()]
        for name, cell in part.cells.items():
            cells[name][0, to] = cell[0, there]
    return Sketched(names=names, step=one.step, time_us=one.time_us, cells=cells)
