"""Where this rank stands when it stands still: told by the journal thread while the training thread does not come back.

Must not change anything of the training thread's, nor call a device. Invariant: each place in the training is told at
most once, and a rank whose process is frozen says nothing: that is how it is found.
"""

from __future__ import annotations

import time
from typing import Protocol

from halfscope.instrument.attempt import Attempt
from halfscope.instrument.records import Records
from halfscope.instrument.sids import Sids
from halfscope.probes.standstill import ATTEMPT, BETWEEN, REDUCTION
from halfscope.record.clock import COMPLETE, OPEN, StepClock

STANDING_S = 3.0
"""Without a step or a phase of it; the server asks later, when all have told."""


class Training(Protocol):
    """The part of the watcher that is looked at."""

    clock: StepClock
    attempt: Attempt
    backward_seen: bool
    is_followed: bool


class Standstill:
    """Looks at one run's training; called by the journal thread alone."""

    def __init__(self, recorder: Records, training: Training, first_step: int) -> None:
        """
        Args:
            first_step: before it is complete nothing is said: programs are compiled, and data is fetched.
        """
        self._recorder, self._training, self._first_step = recorder, training, first_step
        self._place: tuple[int, str] = (-1, "")
        self._since_s = 0.0
        self._told: set[str] = set()
        """Phases, since the last step."""
        training.is_followed = True

    def look(self, now_s: float) -> None:
        """
        Args:
            now_s: by a clock that only goes forward.
        """
        place = self._where()
        step, phase = place
        if place != self._place:
            if step != self._place[0]:
                self._told.clear()
            self._place, self._since_s = place, now_s
        elif step >= self._first_step and phase not in self._told and now_s - self._since_s >= STANDING_S:
            self._told.add(phase)
            sid = Sids(self._recorder, {"phase": phase})["rank.standing_s"]
            self._recorder.row(step, time.time_ns() // 1000, ((sid, now_s - self._since_s),))

    def _where(self) -> tuple[int, str]:
        """The last complete step, and what comes after it."""
        training = self._training
        clock = training.clock
        step, phase = clock.step, clock.phase
        last = step if phase is COMPLETE else step - 1
        if _waits(training.attempt):
            return last, REDUCTION
        return last, ATTEMPT if phase is OPEN or training.backward_seen else BETWEEN


def _waits(attempt: Attempt) -> bool:
    """Whether the newest reduction has all that it needs of this rank, and is not over; unknown of a device."""
    if not attempt.reductions:
        return False
    newest = attempt.reductions[-1]
    return newest.is_complete and any(
        bucket.ended is None and isinstance(bucket.began, int) for bucket in newest.buckets
    )
