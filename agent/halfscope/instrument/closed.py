"""Closed attempts on their way to the reporter.

Owns the queue between an attempt's end and the row that is written of it, and the time that each step took.
Invariant: attempts leave in order, each once, and only when all their values are on the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from halfscope.instrument.attempt import Attempt

BATCH_ATTEMPTS = 16
BATCH_NS = 20_000_000
"""Quiet attempts are told together, at the latest after 20 ms: in one go it costs half as much as one by one."""


class ClosedAttempts:
    """The queue of one run."""

    def __init__(self, emit: Callable[[Sequence[Attempt]], Any]) -> None:
        """
        Args:
            emit: takes attempts whose values have arrived; must not raise.
        """
        self._emit = emit
        self._queue: deque[Attempt] = deque()
        self._drained_ns = 0
        self._has_flights = False
        """Some attempt of this run had values on a device."""
        self.before: tuple[int, int, int] | None = None
        """Of the attempt before the oldest in the queue: when it was complete, what watching had cost until it closed,
        and how long it was idle behind it."""

    def __len__(self) -> int:
        return len(self._queue)

    def training_began(self, now_ns: int) -> None:
        """The first forward pass: what the first step's time is counted from."""
        if self.before is None:
            self.before = now_ns, 0, 0

    def add(self, attempt: Attempt) -> None:
        """Takes an attempt that has closed, and tells what is due."""
        queue, now_ns = self._queue, attempt.completed_ns
        queue.append(attempt)
        if attempt.pending:
            self._has_flights = True
        if attempt.notable or len(queue) >= BATCH_ATTEMPTS or now_ns - self._drained_ns >= BATCH_NS:
            self._drained_ns = now_ns
            self.drain()

    def drain(self, *, wait: bool = False) -> None:
        """Hands on the closed attempts whose values have arrived, in order.

        Args:
            wait: for those that have not: only at the end of a run.
        """
        arrived = self._arrived(wait=wait)
        if not arrived:
            return
        before = self.before
        for attempt in arrived:
            now_ns, own_ns = attempt.completed_ns, attempt.own_ns
            if before is not None and now_ns > before[0]:
                took_ns = now_ns - before[0]
                attempt.step_s = took_ns / 1e9
                attempt.between_s = before[2] / 1e9
                attempt.cost_share = (own_ns - before[1]) / took_ns
            before = now_ns, own_ns, attempt.idle_ns
        self.before = before
        self._emit(arrived)
        if self._has_flights:
            for attempt in arrived:
                for flight in attempt.flights:
                    flight.land()

    def _arrived(self, *, wait: bool) -> list[Attempt]:
        """Takes out of the queue what can be told."""
        queue = self._queue
        if not self._has_flights:
            arrived = list(queue)
            queue.clear()
            return arrived
        arrived = []
        while queue and (wait or not queue[0].flights or queue[0].arrived()):
            attempt = queue.popleft()
            arrived.append(attempt)
            if wait:
                for flight in attempt.flights:
                    flight.event.synchronize()
        return arrived
