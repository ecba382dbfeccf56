"""The one place where the agent's own exceptions are caught, counted and warned of once.

Owns every call of ours that happens inside someone's training, and the time those calls take. Must not import torch.
Invariant: after `watch` returned, nothing of the agent raises into the training; a part that failed is not called
again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("halfscope")


class Guard:
    """Wraps callbacks of named probes; measures them, and takes out a probe that failed."""

    __slots__ = ("_nested", "_on_failure", "failures", "own_ns", "stopped")

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        """
        Args:
            on_failure: told once per probe, when it is taken out.
        """
        self._on_failure = on_failure
        self._nested = False
        self.failures: Counter[str] = Counter()
        """Exceptions caught, by probe."""
        self.own_ns = 0
        """Time spent in wrapped calls since the start."""
        self.stopped = False
        """Set at the end of the run: every wrapped call then returns at once."""

    def wrap(self, probe: str, function: Callable[P, R], *, keep: bool = False) -> Callable[P, R | None]:
        """`function` as a callback that never raises and is not called again after it failed.

        Args:
            probe: what is lost when it fails; the kind of the warning.
            keep: stay on after a failure (for calls whose failure is the fault of one argument).
        """
        failures, clock = self.failures, time.perf_counter_ns

        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            if self.stopped or (failures and not keep and probe in failures):
                return None
            if self._nested:
                # Inside another wrapped call: its clock runs already.
                try:
                    return function(*args, **kwargs)
                except Exception as error:  # noqa: BLE001 - the agent's one broad except
                    self.caught(probe, error, keep=keep)
                    return None
            started = clock()
            self._nested = True
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the agent's one broad except
                self.caught(probe, error, keep=keep)
                return None
            finally:
                self._nested = False
                self.own_ns += clock() - started

        return guarded

    def caught(self, probe: str, error: Exception, *, keep: bool = False) -> None:
        """Counts a failure; the first one of a probe is warned of and reported."""
        self.failures[probe] += 1
        if self.failures[probe] > 1:
            return
        after = (
            "the value was left out"
            if keep
            else "it is switched off for the rest of this run. The training is not affected; please report this"
        )
        logger.warning(
            "halfscope: %s failed (%s: %s); %s.",
            probe, type(error).__name__, error, after, exc_info=logger.isEnabledFor(logging.DEBUG),
        )  # fmt: skip
        try:
            self._on_failure(probe, error)
        except Exception:  # noqa: BLE001 - a failing report must not undo the catch
            self.failures["report"] += 1
