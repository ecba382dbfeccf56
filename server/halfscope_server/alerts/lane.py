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

from halfscope_server.alerts.block import Block, Marks, mark_of
from halfscope_server.alerts.types import Column, Update
from halfscope_server.store.types import EventRow, FrameMoments, RunRow, SeriesRow

Ints = NDArray[np.int64]
Frames = tuple[FrameMoments, Sequence[str]]
Told = tuple[str, int, int, int]
"""(kind, step, time, mark) of an event."""

IMMEDIATE = frozenset({"lost"})
"""Kinds of the agents' events that wait for no row: they tell of rows that are missing. So do all of the server's."""
NEVER = np.iinfo(np.int64).max
_PER_FRAME = ("step", "time_us", "rank", "attempt", "scale")


@dataclass(slots=True, kw_only=True)
class _Member:
    """One stream, with what it brought and nobody has judged yet."""

    rank: int
    passed: int = -1
    """Newest step with a row."""
    is_open: bool = False
    columns: dict[int, list[Column]] = field(default_factory=dict)
    events: list[Told] = field(default_factory=list)
    frames: list[Frames] = field(default_factory=list)


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
        self._frame_rank: int | None = None

    @property
    def last_step(self) -> int:
        """Newest step of any stream."""
        return max((member.passed for member in self._members.values()), default=-1)

    def push(self, update: Update, columns: Sequence[Column], events: Sequence[EventRow], *, frames: bool) -> None:
        """Take in what a stream brought.

        Args:
            columns: those that anybody looks at.
            frames: whether anybody looks at sketched steps.
        """
        if self._ranks is not None and update.rank not in self._ranks:
            return
        member = self._members.get(update.stream)
        if member is None:
            member = self._members[update.stream] = _Member(rank=update.rank)
        for column in update.columns:
            if column.step.size:
                member.passed = max(member.passed, int(column.step[-1]))
                member.is_open = True
        for column in columns:
            if column.step.size:
                member.columns.setdefault(column.series.series_id, []).append(column)
        for event in events:
            told = (event.kind, event.step, event.time_us, mark_of(event))
            (self._signals if event.kind in IMMEDIATE else member.events).append(told)
        if frames and update.frames is not None and update.frames.step.size:
            member.frames.append((update.frames, tuple(update.layer_names)))
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
        frames = self._frames(NEVER if final else horizon)
        told, self._signals = self._signals, []
        left: list[Told] = []
        for member in self._members.values():
            if member.events:
                told += [event for event in member.events if event[1] <= horizon]
                left += [event for event in member.events if event[1] > horizon] if final else []
                member.events = [] if final else [event for event in member.events if event[1] > horizon]
        self._judged = max(self._judged, horizon)
        block = Block(run=run, columns=columns, late=late, marks=_marks(told), frames=frames)
        if left:
            # Rows of their own, after those there are.
            steps, first = np.unique(np.array([event[1] for event in left], np.int64), return_index=True)
            times = np.array([event[2] for event in left], np.int64)[first]
            block = replace(block, marks=_marks(told + left), extra_step=steps, extra_us=times)
        return block if columns or late or frames or block.marks else None

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

    def _frames(self, horizon: int) -> list[Frames]:
        """Of one rank: the lowest that has any."""
        having = [member for member in self._members.values() if member.frames]
        if not having:
            return []
        if self._frame_rank is None:
            self._frame_rank = min(member.rank for member in having)
        found: list[Frames] = []
        for member in having:
            if member.rank == self._frame_rank:
                up_to = min(horizon, member.passed) if horizon != NEVER else horizon
                taken, member.frames = _split(member.frames, up_to)
                found += taken
            else:
                member.frames = []
        return _one_per_step(found)

    def state(self) -> dict[str, Any]:
        return {
            "judged": self._judged,
            "frame_rank": self._frame_rank,
            "signals": self._signals,
            "members": {
                stream: {
                    "rank": member.rank,
                    "passed": member.passed,
                    "open": member.is_open,
                    "columns": [_plain_column(c) for parts in member.columns.values() for c in parts],
                    "events": member.events,
                    "frames": [[_plain(moments), list(names)] for moments, names in member.frames],
                }
                for stream, member in self._members.items()
            },
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._judged, self._frame_rank = state["judged"], state["frame_rank"]
        self._signals = [tuple(told) for told in state["signals"]]
        self._members = {}
        for stream, kept in state["members"].items():
            member = _Member(rank=kept["rank"], passed=kept["passed"], is_open=kept["open"])
            for plain in kept["columns"]:
                column = Column(**{**plain, "series": SeriesRow(**plain["series"])})
                member.columns.setdefault(column.series.series_id, []).append(column)
            member.events = [tuple(told) for told in kept["events"]]
            member.frames = [
                (FrameMoments(**{**plain, "layer_ids": tuple(plain["layer_ids"])}), tuple(names))
                for plain, names in kept["frames"]
            ]
            self._members[stream] = member


def _plain(item: Any) -> dict[str, Any]:
    return {each.name: getattr(item, each.name) for each in fields(item)}


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


def _split(frames: Sequence[Frames], horizon: int) -> tuple[list[Frames], list[Frames]]:
    """Up to a step, and after it."""
    taken, left = [], []
    for moments, names in frames:
        at = int(np.searchsorted(moments.step, horizon, "right"))
        if at:
            taken.append((_rows(moments, slice(0, at)), names))
        if at < moments.step.size:
            left.append((_rows(moments, slice(at, None)), names))
    return taken, left


def _rows(moments: FrameMoments, part: slice) -> FrameMoments:
    if part == slice(0, moments.step.size):
        return moments
    values = {each.name: getattr(moments, each.name) for each in fields(moments)}
    return FrameMoments(
        **{name: value if name == "layer_ids" else value[part] for name, value in values.items()}
    )  # fmt: skip


def _one_per_step(frames: Sequence[Frames]) -> list[Frames]:
    """What one step measured may have come in parts, with different layers."""
    found: list[Frames] = []
    for moments, names in frames:
        if found and int(found[-1][0].step[-1]) == int(moments.step[0]):
            before, before_names = found.pop()
            if before.step.size > 1:
                found.append((_rows(before, slice(0, -1)), before_names))
            found.append(_both(_last(before), before_names, _rows(moments, slice(0, 1)), names))
            if moments.step.size > 1:
                found.append((_rows(moments, slice(1, None)), names))
        else:
            found.append((moments, names))
    return found


def _last(moments: FrameMoments) -> FrameMoments:
    return _rows(moments, slice(moments.step.size - 1, moments.step.size))


def _both(one: FrameMoments, names: Sequence[str], other: FrameMoments, other_names: Sequence[str]) -> Frames:
    """One frame of two parts of it: each layer from the part that has it."""
    every = list(dict.fromkeys([*names, *other_names]))
    values: dict[str, Any] = {name: getattr(one, name) for name in _PER_FRAME}
    ids = dict(zip(names, one.layer_ids, strict=True)) | dict(zip(other_names, other.layer_ids, strict=True))
    source = np.full(len(every), -1)
    for part, own in ((one, list(names)), (other, list(other_names))):
        at = [every.index(name) for name, there in zip(own, part.present[0], strict=True) if there]
        source[at] = 0 if part is one else 1
    for each in fields(one):
        if each.name in _PER_FRAME or each.name == "layer_ids":
            continue
        cells = getattr(one, each.name)
        result = np.zeros((1, len(every)), cells.dtype)
        for number, (part, own) in enumerate(((one, list(names)), (other, list(other_names)))):
            mine = [place for place, name in enumerate(own) if source[every.index(name)] == number]
            result[0, [every.index(own[place]) for place in mine]] = getattr(part, each.name)[0, mine]
        values[each.name] = result
    return FrameMoments(layer_ids=tuple(ids[name] for name in every), **values), tuple(every)
