"""Skips, streaks and non-finite steps of a run as arrays.

Owns how a run's events become a table of skipped steps. The classes themselves come from the agent, which alone sees
the scaler; what is decided here is only that a skip inside a streak's range is a streak whatever its own event said,
since a streak is known at its third skip; but for a probe, which stays one unless it stands in a row of three. Must not
import plotly. Invariant: every (attempt, step) stands in a table once, with its gravest class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.store.types import EventRow

Ints = NDArray[np.int64]

SKIP_CLASSES = ("settling", "probe", "single", "streak")
"""Ascending by gravity; the number of a class in a table is its place here."""
SETTLING, PROBE, SINGLE, STREAK = range(4)
STREAK_IN_A_ROW = 3
"""Skips one right after the other that are a streak; the agent's own rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streak:
    """A stretch of steps in which too many were skipped."""

    attempt: int
    first_step: int
    last_step: int
    """Last step so far, where it is still open."""
    is_open: bool
    reason: str
    """`in_a_row` or `rate`."""
    origin: str
    origin_layer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Steps with a class each, ascending by (attempt, step)."""

    attempt: Ints
    step: Ints
    kind: NDArray[np.int8]

    @property
    def size(self) -> int:
        return int(self.step.size)

    def of(self, *kinds: int) -> StepTable:
        """The rows of these classes."""
        keep = np.isin(self.kind, kinds)
        return StepTable(attempt=self.attempt[keep], step=self.step[keep], kind=self.kind[keep])


def step_table(attempt: Ints, step: Ints, kind: NDArray[Any]) -> StepTable:
    """Rows in any order and with repeats (ranks, optimizers) as a table; of repeats the largest class stays."""
    order = np.lexsort((kind, step, attempt))
    attempt, step, kind = attempt[order], step[order], kind[order]
    last = np.ones(step.size, np.bool_)
    last[:-1] = (step[1:] != step[:-1]) | (attempt[1:] != attempt[:-1])
    return StepTable(attempt=attempt[last], step=step[last], kind=kind[last].astype(np.int8))


def find_streaks(events: Iterable[EventRow], last_step_of: dict[int, int]) -> tuple[Streak, ...]:
    """Pair `bad_streak` with `bad_streak_end`; one without an end lasts to the newest step of its attempt.

    Args:
        events: of these two kinds, in order.
        last_step_of: newest step of each attempt.
    """
    open_by_key: dict[tuple[str, int], tuple[EventRow, int]] = {}
    found: list[Streak] = []

    def close(start: EventRow, first: int, last: int, is_open: bool) -> None:
        found.append(
            Streak(
                attempt=start.attempt,
                first_step=first,
                last_step=max(first, last),
                is_open=is_open,
                reason=str(start.attributes.get("reason", "in_a_row")),
                origin=str(start.attributes.get("origin", "")),
                origin_layer=str(start.attributes.get("origin_layer", "") or ""),
            )
        )

    for event in events:
        first = _int(event.attributes.get("first_step"), event.step)
        if event.kind == "bad_streak":
            open_by_key[event.stream, first] = (event, first)
        else:
            started = open_by_key.pop((event.stream, first), None)
            if started is not None:
                close(*started, last=_int(event.attributes.get("last_step"), event.step), is_open=False)
    for start, first in open_by_key.values():
        close(start, first, last_step_of.get(start.attempt, start.step), is_open=True)
    return merge_streaks(found)


def merge_streaks(streaks: Sequence[Streak]) -> tuple[Streak, ...]:
    """One entry per stretch: ranks that saw the same streak, and streaks that touch, become one."""
    merged: list[Streak] = []
    for streak in sorted(streaks, key=lambda s: (s.attempt, s.first_step, s.last_step)):
        before = merged[-1] if merged else None
        if before is None or before.attempt != streak.attempt or streak.first_step > before.last_step:
            merged.append(streak)
            continue
        merged[-1] = Streak(
            attempt=before.attempt,
            first_step=before.first_step,
            last_step=max(before.last_step, streak.last_step),
            is_open=before.is_open or streak.is_open,
            reason=before.reason,
            origin=before.origin or streak.origin,
            origin_layer=before.origin_layer or streak.origin_layer,
        )
    return tuple(merged)


def classify(attempt: Ints, step: Ints, told: NDArray[Any], streaks: Sequence[Streak]) -> StepTable:
    """The skips of a run with the class that is shown.

    Args:
        told: class index each event carried; anything unknown counts as single.
    """
    kind = np.where((told >= SETTLING) & (told <= STREAK), told, SINGLE).astype(np.int8)
    table = step_table(attempt, step, kind)
    attempt, step, kind = table.attempt, table.step, table.kind
    taken = (kind != PROBE) | (_row_lengths(table) >= STREAK_IN_A_ROW)
    for streak in streaks:
        inside = (attempt == streak.attempt) & (step >= streak.first_step) & (step <= streak.last_step)
        # A streak begins with a probe only where that was the first of a row.
        kind[inside & (taken | (step == streak.first_step))] = STREAK
    return table


def member(attempt: Ints, step: Ints, table: StepTable) -> NDArray[np.bool_]:
    """Which of these steps stand in the table."""
    if table.size == 0 or step.size == 0:
        return np.zeros(step.size, np.bool_)
    found = np.zeros(step.size, np.bool_)
    for number in np.unique(attempt):
        mine = attempt == number
        found[mine] = np.isin(step[mine], table.step[table.attempt == number])
    return found


def longest_row(table: StepTable) -> int:
    """Most skips one right after the other."""
    return int(_row_lengths(table).max(initial=0))


def _row_lengths(table: StepTable) -> Ints:
    """Of the row that each step stands in."""
    if table.size == 0:
        return np.empty(0, np.int64)
    breaks = (np.diff(table.step) != 1) | (np.diff(table.attempt) != 0)
    lengths = np.diff(np.concatenate([[0], np.flatnonzero(breaks) + 1, [table.size]]))
    return np.repeat(lengths, lengths)


def _int(value: object, otherwise: int) -> int:
    return int(value) if isinstance(value, int | float) and value == value and abs(value) < 2**62 else otherwise
