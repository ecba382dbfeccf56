"""How long to wait before trying again: exponential with full jitter.

Must not import torch or numpy, nor look at a clock. Invariant: a delay lies between the floor and the cap, whatever
came before.
"""

from __future__ import annotations

import random
from collections.abc import Callable

MIN_DELAY_S = 0.05
"""Full jitter may draw nearly zero; a refusing peer is still not asked in a tight loop."""


class Backoff:
    """Delays drawn uniformly from [0, base * 2^failures], so that many agents do not return in step after an outage."""

    def __init__(self, *, base_s: float, cap_s: float, uniform: Callable[[], float] = random.random) -> None:
        """
        Args:
            base_s: upper end of the first delay.
            cap_s: no delay is longer.
            uniform: draws from [0, 1); tests give their own.
        """
        self._base_s = base_s
        self._cap_s = cap_s
        self._uniform = uniform
        self.num_failures = 0

    def delay_s(self) -> float:
        """The delay after one more failure."""
        # The exponent is bounded because a float's is.
        upper_s = min(self._cap_s, self._base_s * 2.0 ** min(self.num_failures, 60))
        self.num_failures += 1
        return min(self._cap_s, max(MIN_DELAY_S, self._uniform() * upper_s))

    def reset(self) -> None:
        """It worked: the next failure begins anew."""
        self.num_failures = 0
