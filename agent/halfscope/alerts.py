"""In-process alerts: `run.on_alert(callback)` and `StopTraining`, for those who want the training itself to react.

Owns which of a run's events are alerts here, and calling back. Needs no server, and judges only what the agent knows by
itself; rules over windows, silences and channels are the server's. Must not import torch. Invariants: a callback is
called in the thread that calls `run.step` or `run.log`, never inside a hook; nothing but its `StopTraining` comes out
of it; and what goes on is told once, not at every step.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from halfscope.guard import tried

logger = logging.getLogger("halfscope")

MAX_WAITING = 64
"""Alerts that wait for a call of `run.step`; older ones go."""
MIN_SCALE = 1.0
"""A loss scale below this makes gradients smaller than unscaled ones are: it has collapsed."""


class StopTraining(Exception):
    """Raise it in a callback of `run.on_alert`: it comes out of `run.step`, and ends the run as any exception does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What went wrong."""

    kind: str
    """`nonfinite_applied`, `skip_streak`, `scale_collapse` or `loss_nonfinite`."""
    step: int
    """Where; it may be a few steps back, since devices tell late."""
    severity: str
    text: str
    """One sentence."""
    where: Sequence[str] = ()
    """Layers, or the optimizer, as far as known."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The event's attributes."""


class Alerts:
    """The callbacks of one run, and what waits for them."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Alert], object]] = []
        self._waiting: deque[Alert] = deque(maxlen=MAX_WAITING)
        self._last_step: dict[tuple[str, str], int] = {}
        """Of each kind and optimizer: the newest step at which it was so."""

    def hear(
        self,
        kind: str,
        step: int,
        *,
        severity: str = "info",
        where: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Take one of the run's events; most are none of ours. Called inside hooks, by the thread that trains."""
        details = attributes or {}
        found = _alert_of(kind, severity, details)
        if found is None:
            return
        name, severity, text = found
        if kind in _AT_EVERY_STEP:
            key = (kind, str(details.get("optimizer", "")))
            before, self._last_step[key] = self._last_step.get(key), step
            if before is not None and step <= before + 1:
                return
        self._waiting.append(
            Alert(kind=name, step=step, severity=severity, text=text, where=tuple(where), details=details)
        )

    def tell(self) -> None:
        """Call back with what waits.

        Raises:
            StopTraining: a callback raised it; all were called before.
        """
        stop: StopTraining | None = None
        while self._waiting:
            alert = self._waiting.popleft()
            for callback in list(self.callbacks):
                outcome = tried(partial(callback, alert))
                if isinstance(outcome, StopTraining):
                    stop = stop or outcome
                elif isinstance(outcome, Exception):
                    logger.warning(
                        "halfscope: a callback of run.on_alert failed (%s: %s); the training goes on. Raise "
                        "halfscope.StopTraining there to end it.", type(outcome).__name__, outcome,
                    )  # fmt: skip
        if stop is not None:
            raise stop


_AT_EVERY_STEP = ("nonfinite_applied", "loss_nonfinite")
"""Events that come again at every step while it is so."""


def _alert_of(kind: str, severity: str, details: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """(kind, severity, text) of the alert that an event is; None: it is none."""
    if kind == "nonfinite_applied":
        text = f"NaN or Inf was applied: gradients of {details['num_nonfinite']} layers reached the weights"
        return kind, "critical", text
    if kind == "bad_streak":
        text = f"{details['num_skips']} skipped steps since step {details['first_step']}: the scale does not recover"
        return "skip_streak", "warning", text
    if kind == "scale_backoff" and details["scale_next"] < MIN_SCALE <= details["scale"]:
        return "scale_collapse", "critical", f"the loss scale fell to {details['scale_next']:g}, under {MIN_SCALE:g}"
    if kind == "loss_nonfinite" and not details.get("caught"):
        return kind, severity, f"the loss is {details['value']}"
    return None
