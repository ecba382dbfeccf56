"""The one place where the agent's own exceptions are caught, counted and warned of once.

Owns every call of ours that happens inside someone's training, and the time those calls take. Must not import torch.
Invariant: after `watch` returned, nothing of the agent raises into the training; a part that failed is not called
again.

A wrapped call costs about a microsecond, and one inside another a third of that: so each hook of torch's is wrapped
once, and inside of it only what must be able to fail alone.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("halfscope")


def tried(function: Callable[[], R]) -> R | Exception:
    """What a function returns, or the exception that it raised: for what a machine may lack, and has a substitute."""
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - what is missing may show itself by any exception
        return error


class Guard:
    """Wraps callbacks of named probes; measures them, and takes out a probe that failed."""

    __slots__ = ("_kept_out", "_nested", "_on_failure", "_out", "_probes", "failures", "own_ns")

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        """
        Args:
            on_failure: told once per probe, when it is taken out.
        """
        self._on_failure = on_failure
        self._nested = False
        self._probes: set[str] = set()
        self._out: set[str] = set()
        """Probes whose calls return at once."""
        self._kept_out: set[str] = set()
        """Likewise, of calls that stay on when they fail."""
        self.failures: Counter[str] = Counter()
        """Exceptions caught, by probe."""
        self.own_ns = 0
        """Time spent in wrapped calls since the start."""

    def stop(self) -> None:
        """The run is over: every wrapped call returns at once from now on."""
        self._out |= self._probes
        self._kept_out |= self._probes

    def wrap(self, probe: str, function: Callable[P, R], *, keep: bool = False) -> Callable[P, R | None]:
        """`function` as a callback that never raises and is not called again after it failed.

        Args:
            probe: what is lost when it fails; the kind of the warning.
            keep: stay on after a failure (for calls whose failure is the fault of one argument).
        """
        self._probes.add(probe)
        out, clock = self._kept_out if keep else self._out, time.perf_counter_ns

        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            if probe in out:
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

    def hook(self, probe: str, function: Callable[..., R], unless: Callable[[], bool]) -> Callable[..., R | None]:
        """As `wrap`, for what torch calls at every step: positional arguments, and never inside another wrapped call.

        Args:
            unless: asked first of all; where it says yes nothing is done (a compiler is tracing the call).
        """
        self._probes.add(probe)
        out, clock = self._out, time.perf_counter_ns

        def halfscope_hook(*args: Any) -> R | None:
            if unless() or probe in out:
                return None
            started = clock()
            self._nested = True
            try:
                return function(*args)
            except Exception as error:  # noqa: BLE001 - the agent's one broad except
                self.caught(probe, error)
                return None
            finally:
                self._nested = False
                self.own_ns += clock() - started

        return halfscope_hook

    def caught(self, probe: str, error: Exception, *, keep: bool = False) -> None:
        """Counts a failure; the first one of a probe is warned of and reported."""
        self.failures[probe] += 1
        if not keep:
            self._out.add(probe)
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
