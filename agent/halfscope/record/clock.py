"""The step clock: which attempt to update the current moment belongs to.

Owns step numbers and nothing else; knows neither torch nor time. Must not import torch.
Invariant: steps are given out in order, each is closed exactly once, and a step is closed only by the work of the next
one (or by `end`), so that whatever is logged between two updates belongs to the first.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Phase(Enum):
    """Where the current attempt stands."""

    FRESH = 0
    """Nothing has happened in it yet."""
    OPEN = 1
    """A backward pass, scaling or optimizer step belongs to it."""
    COMPLETE = 2
    """Its update is over; it stays open for annotations until the next attempt begins."""


FRESH, OPEN, COMPLETE = Phase.FRESH, Phase.OPEN, Phase.COMPLETE
"""As names of the module: looking a member up in its enum takes several times as long."""


class StepClock:
    """Counts attempts to update, skipped ones included."""

    __slots__ = ("_annotates_first", "_on_close", "phase", "step")

    def __init__(self, start_step: int, on_close: Callable[[int], None]) -> None:
        """
        Args:
            start_step: number of the first attempt.
            on_close: told the number of each completed attempt when the next one begins.
        """
        self.step = start_step
        self.phase = FRESH
        self._on_close = on_close
        self._annotates_first: bool | None = None

    def begin(self) -> None:
        """Work of an attempt begins: backward, `scale()`, `unscale_`, an optimizer step. Closes a completed one
        first."""
        if self.phase is COMPLETE:
            self._on_close(self.step)
            self.step += 1
        self.phase = OPEN

    def complete(self) -> None:
        """The current attempt's update is over."""
        if self.phase is COMPLETE:
            self._next()
        self.phase = COMPLETE

    def reopen(self) -> None:
        """More work of a completed attempt was found to be to come: it is open again."""
        if self.phase is COMPLETE:
            self.phase = OPEN

    @property
    def annotates_first(self) -> bool:
        """`run.step` is called before the backward pass of the step that it speaks of."""
        return bool(self._annotates_first)

    def annotate(self) -> None:
        """`run.step` was called: it speaks of the open or the just completed attempt.

        A loop that calls it before its very first backward pass calls it there in every attempt: then a completed
        attempt has its annotation already, and this one is for the next.
        """
        if self._annotates_first is None:
            self._annotates_first = self.phase is FRESH
        if self._annotates_first and self.phase is COMPLETE:
            self._next()

    def end(self) -> None:
        """The run is over: closes a completed attempt. One that never completed is no attempt."""
        if self.phase is COMPLETE:
            self._next()

    def _next(self) -> None:
        self._on_close(self.step)
        self.step += 1
        self.phase = FRESH
