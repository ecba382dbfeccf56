"""What kind of skip a skipped step is, and when skips are a bad streak. The one implementation of these rules.

Pure: numbers in, classes out; must not import torch. One classifier watches one optimizer under one scaler.
Invariant: the classes depend on the sequence of attempts alone, so a replay gives the same ones.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

SkipClass = Literal["settling", "probe", "streak", "single"]

SETTLED_AFTER = 50
"""Clean attempts in a row after which the scale has settled; a streak, too, is over after so many, probes left out."""
STREAK_IN_A_ROW = 3
RATE_WINDOW = 200
RATE_LIMIT_SHARE = 0.01
SETTLING_SLACK = 8
"""A scale that halves from 2^k passes 1 after k skips; this many more and it does not settle, it collapses."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreakStart:
    """A bad streak was recognised at this attempt; it began at `first_step`."""

    first_step: int
    num_skips: int
    reason: Literal["in_a_row", "rate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StreakEnd:
    """A bad streak is over: `SETTLED_AFTER` attempts followed its last skip, all of them clean or a probe."""

    first_step: int
    last_step: int
    num_skips: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What one attempt was."""

    skip: SkipClass | None
    """None for an attempt that was not skipped."""
    streak_start: StreakStart | None = None
    streak_end: StreakEnd | None = None


_CLEAN = Verdict(skip=None)


class SkipClassifier:
    """Classifies the attempts of one optimizer, in order."""

    def __init__(self, init_scale: float) -> None:
        log2_scale = math.log2(init_scale) if 0 < init_scale < math.inf else 0.0
        self._settling_limit = max(0, math.ceil(log2_scale)) + SETTLING_SLACK
        self._settled = False
        self._num_settling = 0
        self._clean_in_a_row = 0
        self._row: list[int] = []
        """Steps of the skips since the last clean attempt."""
        self._row_hard = 0
        """How many of them, counted from the newest back, are not settling."""
        self._probe_due = False
        """The scale was reached by a growth and nothing was skipped at it yet."""
        self._grown: deque[tuple[int, float]] = deque()
        """(attempt, scale), ascending in both, of growths within the rate window that no skip has taken back. A scale
        that is tried one doubling higher and set back is still on trial: where growths come every few attempts, the
        highest scale that works most of the time is taken back now and then, and grown again."""
        self._scale: float | None = None
        self._attempt = 0
        self._counted: deque[tuple[int, int]] = deque()
        """(attempt, step) of skips within the rate window that are neither settling nor probe."""
        self._streak: tuple[int, int, int] | None = None
        """(first step, last step, number of skips) of the streak that is on."""

    def observe(self, *, step: int, skipped: bool, scale: float, loss_finite: bool | None) -> Verdict:
        """Take in the next attempt.

        Args:
            scale: the loss scale this attempt used.
            loss_finite: of the raw loss; None where it is not known, which counts as finite.
        """
        self._attempt += 1
        if self._scale is not None and scale != self._scale:
            # Any other way to a new scale (a backoff, another optimizer's skip, a value set) is no probe.
            self._probe_due = scale > self._scale
            while self._grown and self._grown[-1][1] > scale:
                self._grown.pop()
            if self._probe_due:
                self._grown.append((self._attempt, scale))
        self._scale = scale
        while self._grown and self._grown[0][0] <= self._attempt - RATE_WINDOW:
            self._grown.popleft()
        while self._counted and self._counted[0][0] <= self._attempt - RATE_WINDOW:
            self._counted.popleft()
        return self._skip(step, loss_finite is not False) if skipped else self._clean()

    def _clean(self) -> Verdict:
        if self._row:
            self._row = []
        self._row_hard = 0
        self._clean_in_a_row += 1
        if self._clean_in_a_row < SETTLED_AFTER:
            return _CLEAN
        self._settled = True
        if self._streak is None:
            return _CLEAN
        first, last, count = self._streak
        self._streak = None
        self._counted.clear()
        return Verdict(skip=None, streak_end=StreakEnd(first_step=first, last_step=last, num_skips=count))

    def _skip(self, step: int, loss_finite: bool) -> Verdict:
        if self._streak is None:
            self._row.append(step)
        kind = self._kind(loss_finite)
        self._row_hard = 0 if kind == "settling" else self._row_hard + 1
        if kind == "probe" and self._row_hard < STREAK_IN_A_ROW:
            # However often the scale is tried, that alone neither makes a streak nor keeps one from ending.
            return Verdict(skip="probe")
        self._clean_in_a_row = 0
        if kind == "single":
            self._counted.append((self._attempt, step))
        if self._streak is not None:
            first, _, count = self._streak
            self._streak = (first, step, count + 1)
            return Verdict(skip="streak")
        start = self._streak_start()
        if start is None:
            return Verdict(skip=kind)
        self._streak = (start.first_step, step, start.num_skips)
        self._row = []
        return Verdict(skip="streak", streak_start=start)

    def _kind(self, loss_finite: bool) -> SkipClass:
        is_due = self._probe_due
        self._probe_due = False
        if self._grown and self._grown[-1][1] == self._scale:
            self._grown.pop()
            is_due = True
        # A loss that is not finite does not get better with a smaller scale: neither settling nor probe.
        if loss_finite and not self._settled and self._num_settling < self._settling_limit:
            self._num_settling += 1
            return "settling"
        if loss_finite and is_due:
            return "probe"
        return "single"

    def _streak_start(self) -> StreakStart | None:
        if self._row_hard >= STREAK_IN_A_ROW:
            return StreakStart(first_step=self._row[-self._row_hard], num_skips=self._row_hard, reason="in_a_row")
        if len(self._row) > self._settling_limit:
            return StreakStart(first_step=self._row[0], num_skips=len(self._row), reason="in_a_row")
        if len(self._counted) > RATE_LIMIT_SHARE * RATE_WINDOW:
            return StreakStart(first_step=self._counted[0][1], num_skips=len(self._counted), reason="rate")
        return None
