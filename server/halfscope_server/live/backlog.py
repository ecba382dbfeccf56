"""How far an agent's data lag behind, and when they will have caught up.

Pure, with the clock handed in. Invariant: a lag that does not shrink is no backlog: clocks of two machines may simply
differ.
"""

from __future__ import annotations

from collections import deque

MIN_LAG_S = 5.0
"""Below this a run is current: frames travel a few times a second."""
HORIZON_S = 30.0
"""Speed is measured over at most so long."""
MIN_SPEED = 0.2
"""Seconds of backlog worked off per second; slower than this is noise."""


class Backlog:
    """Watches the lag of one run."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def observe(self, at_s: float, lag_s: float) -> float | None:
        """Take in a lag.

        Args:
            at_s: of a monotonic clock.
            lag_s: server time less the time of the newest stored step.

        Returns:
            Seconds until it has caught up, or None when it is current.
        """
        while self._seen and self._seen[0][0] < at_s - HORIZON_S:
            self._seen.popleft()
        self._seen.append((at_s, lag_s))
        first_at_s, first_lag_s = self._seen[0]
        if lag_s < MIN_LAG_S or at_s - first_at_s < 0.2:
            return None
        speed = (first_lag_s - lag_s) / (at_s - first_at_s)
        return lag_s / speed if speed > MIN_SPEED else None
