"""Loss scalers that are no GradScaler of torch's: what a framework says of its own, put into the current attempt.

Invariant: each report is of one attempt, and completes it: where a framework withholds a step, the optimizer is never
called and nothing else would end it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from halfscope.instrument.attempt import ScalerAttempt, Value
from halfscope.record.clock import FRESH, OPEN

if TYPE_CHECKING:
    from halfscope.instrument.watcher import Watcher


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalerReport:
    """What is said of one step."""

    name: str
    scale: Value
    """Of this step's backward pass."""
    skipped: bool
    scale_next: Value = None
    growth_tracker: Value = None
    optimizer: str | None = None
    """The one that it scales for; None: all of the run."""
    settings: Mapping[str, Any] = field(default_factory=dict)


class ReportedScaler:
    """Stands where watched scalers hold theirs."""

    def __init__(self, report: ScalerReport) -> None:
        self._init_scale = report.scale if isinstance(report.scale, float) else 65536.0
        self.settings = dict(report.settings)

    def describe(self, name: str) -> dict[str, Any]:
        """The facts about it: those that were reported."""
        return {"name": name, "class": "reported", "enabled": True, **self.settings}


class WatchedReport:
    """Has what is asked of a `WatchedScaler`; no hooks are on it."""

    def __init__(self, index: int, report: ScalerReport, *, labelled: bool) -> None:
        self.index, self.name = index, report.name
        self.scaler: Any = ReportedScaler(report)
        self.labels: Mapping[str, str] = {"scaler": report.name} if labelled else {}

    def state(self, optimizer: Any) -> None:
        """Nothing is held of an optimizer."""


def take(watcher: Watcher, report: ScalerReport) -> None:
    """Puts a report into the attempt that it speaks of.

    Where that has its report already, or nothing has begun, a framework withheld the next step without a call that
    torch's hooks could have seen: it keeps weights of its own, and its optimizer was not called.
    """
    if watcher.backward_seen:
        watcher.after_backward()
    watched = _watched(watcher, report)
    if watcher.clock.phase is not OPEN and (
        watcher.clock.phase is FRESH or watcher.attempt.scalers[watched.index].updated
    ):
        watcher.clock.begin()
    attempt = watcher.attempt
    state = attempt.scalers[watched.index]
    state.updated = True
    state.scale, state.scale_next, state.growth_tracker = report.scale, report.scale_next, report.growth_tracker
    for optimizer, part in zip(watcher.optimizers, attempt.optimizers, strict=True):
        if report.optimizer in (None, optimizer.name):
            part.through_scaler, part.scaler = True, watched.index
            if not part.learning_rates:
                watcher.read_rates(optimizer, part)
            # An optimizer of the framework's own may step without a call of torch's.
            part.num_applied = 0 if report.skipped else max(part.num_applied, 1)
    attempt.notable |= report.skipped or report.scale_next not in (None, report.scale)
    if watcher.clock.phase is OPEN:
        watcher.complete()
    elif attempt.notable:
        watcher.judge_now(attempt)


def _watched(watcher: Watcher, report: ScalerReport) -> Any:
    for known in watcher.scalers:
        if known.name == report.name and isinstance(known, WatchedReport):
            return known
    watched: Any = WatchedReport(len(watcher.scalers), report, labelled=bool(watcher.scalers))
    watcher.scalers.append(watched)
    watcher.attempt.scalers.append(ScalerAttempt())
    watcher.reporter.adopted(watcher.clock.step, watched, None)
    return watched
