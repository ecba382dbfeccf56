"""Whether a training stalls: its agent is there, and no step was completed for far longer than its steps take.

The only question to the clock that rules depend on; its answer is written into the run's events. Must not write them.
Invariant: a training that pauses no longer than it did before, or than a validation or a checkpoint may take, does
not stall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from halfscope_server.store.pulses import Pulse

GAPS = 3
"""Times the longest time between two of its steps so far."""


class Stalls:
    """Remembers of which runs it was said.

    Args:
        least_s: silence that is never a stall.
        started_us: since when agents could be heard at all, by the server's clock.
    """

    def __init__(self, *, least_s: float, started_us: int) -> None:
        self._least_us, self._started_us = int(least_s * 1e6), started_us
        self._told: dict[str, int] = {}
        """Run -> when its newest frame came, when it was found to stall."""

    def found(self, pulses: Iterable[Pulse], gaps_us: Mapping[str, int], *, now_us: int) -> list[Pulse]:
        """Those that are found to stall now, each once until something new comes.

        Args:
            pulses: of all runs that are not over.
            gaps_us: longest time between two steps so far, of runs of which it is known.
            now_us: the server's clock.
        """
        stalled = []
        for pulse in pulses:
            is_there = not pulse.is_over and any(ended == "" for ended in pulse.ended.values())
            if not is_there or pulse.last_step is None or self._told.get(pulse.run_id) == pulse.updated_us:
                continue
            least_us = max(self._least_us, GAPS * gaps_us.get(pulse.run_id, 0))
            if now_us - max(pulse.updated_us, self._started_us) > least_us:
                self._told[pulse.run_id] = pulse.updated_us
                stalled.append(pulse)
        return stalled
