"""From attempts to events: what happened at a step.

Owns skip classes, streaks and the count of applied steps. Sets no hooks.
Invariant: attempts come in order, each once, with all their values on the host; an event carries the step it is of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from halfscope.instrument import origin
from halfscope.instrument.attempt import Attempt, OptimizerAttempt, ScalerAttempt, host
from halfscope.instrument.records import Tells
from halfscope.instrument.skips import SkipClassifier, StreakEnd, StreakStart
from halfscope.instrument.watched import WatchedOptimizer, WatchedScaler

MAX_LAYERS_TOLD = 32


class Judge:
    """Tells the events of one run's attempts."""

    def __init__(
        self,
        recorder: Tells,
        *,
        names: Mapping[int, str],
        optimizers: Sequence[WatchedOptimizer],
        scalers: Sequence[WatchedScaler],
    ) -> None:
        """
        Args:
            names: id of a parameter to its canonical name.
            scalers: the list that grows when a scaler is adopted.
        """
        self.num_steps = [0] * len(optimizers)
        """Applied steps of each optimizer."""
        self.hear: Callable[..., None] | None = None
        """Told of every event too; must not raise."""
        self.order: Sequence[str] = ()
        """Layers in the order the backward pass reaches them."""
        self._recorder, self._names = recorder, names
        self._optimizers, self._scalers = optimizers, scalers
        self._classifiers: dict[tuple[int, int], SkipClassifier] = {}
        self._last_bad: list[Sequence[str]] = [()] * len(optimizers)

    def attempt(self, attempt: Attempt) -> None:
        """Tells what happened in a completed attempt."""
        attempt.judged = True
        if attempt.scalers:
            for watched, scaler_part in zip(self._scalers, attempt.scalers, strict=False):
                self._scale(attempt, watched, scaler_part)
        for index, part in enumerate(attempt.optimizers):
            if part.num_applied:
                self.num_steps[index] += part.num_applied
                reading = part.reading
                if self._last_bad[index] or (reading is not None and reading.nonfinite):
                    self._applied(attempt, self._optimizers[index], part)
            if part.through_scaler:
                self._through_scaler(attempt, self._optimizers[index], part)
        if attempt.update_missing:
            self._event(attempt, "update_missing", severity="warning")
        if attempt.notable or attempt.pending:  # a loss that is not finite makes it notable, if the host knew at once
            self.loss(attempt)

    @property
    def is_calm(self) -> bool:
        """Steps that are not notable change nothing but the count of them."""
        return not any(self._last_bad)

    def loss(self, attempt: Attempt) -> None:
        """Tells of a loss that is not finite, once; it may become known only after the attempt is complete."""
        loss = attempt.loss
        if loss is None or math.isfinite(loss) or attempt.loss_told or not attempt.judged:
            return
        attempt.loss_told = True
        # Nothing of it reached weights through an optimizer that was withheld, or that stepped on finite gradients: the
        # loss may hold a micro-batch that was left out, or another optimizer's share that the scaler caught.
        caught = not any(part.num_applied and _may_be_nonfinite(part) for part in attempt.optimizers)
        value = "NaN" if math.isnan(loss) else "Infinity" if loss > 0 else "-Infinity"
        severity = "warning" if caught else "critical"
        self._event(attempt, "loss_nonfinite", severity=severity, attributes={"value": value, "caught": caught})

    def _scale(self, attempt: Attempt, watched: WatchedScaler, part: ScalerAttempt) -> None:
        before, after = host(part.scale), host(part.scale_next)
        if before is None or after is None or (after == before and not part.was_set):
            return
        kind = "scale_set" if part.was_set else "scale_growth" if after > before else "scale_backoff"
        attributes = {"scaler": watched.name, "scale": before, "scale_next": after}
        self._event(attempt, kind, attributes=attributes)

    def _applied(self, attempt: Attempt, watched: WatchedOptimizer, part: OptimizerAttempt) -> None:
        bad, num_layers = self._nonfinite(part)
        # A run poisoned for good says so at every step; the names come only when they change.
        named = bad if bad != self._last_bad[watched.index] else []
        self._last_bad[watched.index] = bad
        if bad:
            attributes = {"num_nonfinite": len(bad), "num_finite": num_layers - len(bad), **watched.labels}
            where = named[:MAX_LAYERS_TOLD]
            self._event(attempt, "nonfinite_applied", severity="critical", where=where, attributes=attributes)

    def _through_scaler(self, attempt: Attempt, watched: WatchedOptimizer, part: OptimizerAttempt) -> None:
        scaler = self._scalers[part.scaler]
        state = attempt.scalers[part.scaler]
        scale = host(state.scale)
        if scale is None:
            return
        loss = attempt.loss
        loss_finite = None if loss is None else math.isfinite(loss)
        verdict = self._classifier(watched, scaler).observe(
            step=attempt.step, skipped=part.skipped, scale=scale, loss_finite=loss_finite
        )
        if verdict.streak_end is not None:
            self._streak_end(attempt, watched, verdict.streak_end)
        if verdict.streak_start is not None:
            self._streak_start(attempt, watched, part, verdict.streak_start, loss_finite)
        if verdict.skip is None:
            return
        bad, num_layers = self._nonfinite(part)
        attributes = {
            "class": verdict.skip,
            "optimizer": watched.name,
            "scaler": scaler.name,
            "scale": scale,
            "scale_next": host(state.scale_next),
            "loss_finite": loss_finite,
            "nonfinite": bad[:MAX_LAYERS_TOLD],
            "num_nonfinite": len(bad),
            "num_finite": num_layers - len(bad),
        }
        severity = "warning" if verdict.skip == "streak" else "info"
        where = [watched.name] if watched.labels else []
        self._event(attempt, "skip", severity=severity, where=where, attributes=attributes, urgent=True)

    def _streak_start(
        self,
        attempt: Attempt,
        watched: WatchedOptimizer,
        part: OptimizerAttempt,
        start: StreakStart,
        loss_finite: bool | None,
    ) -> None:
        bad, _ = self._nonfinite(part)
        known = frozenset(bad)
        began = origin.find(known, self.order or bad[::-1], loss_finite)
        parameters = () if part.reading is None else part.reading.parameters
        finite = [name for key in parameters if (name := self._names.get(key, "?")) not in known]
        attributes = {
            "first_step": start.first_step,
            "num_skips": start.num_skips,
            "reason": start.reason,
            "optimizer": watched.name,
            "origin": began.origin,
            "origin_layer": began.layer,
            "loss_finite": loss_finite,
            "nonfinite": bad[:MAX_LAYERS_TOLD],
            "finite": finite[:MAX_LAYERS_TOLD],
            "num_nonfinite": len(bad),
            "num_finite": len(finite),
        }
        where = [watched.name] if watched.labels else []
        self._event(attempt, "bad_streak", severity="warning", where=where, attributes=attributes, urgent=True)

    def _streak_end(self, attempt: Attempt, watched: WatchedOptimizer, end: StreakEnd) -> None:
        attributes = {
            "first_step": end.first_step,
            "last_step": end.last_step,
            "num_skips": end.num_skips,
            "optimizer": watched.name,
        }
        self._event(attempt, "bad_streak_end", where=[watched.name] if watched.labels else [], attributes=attributes)

    def _event(self, attempt: Attempt, kind: str, **details: Any) -> None:
        self._recorder.event(kind, attempt.step, time_us=attempt.completed_us, **details)
        if self.hear is not None:
            self.hear(kind, attempt.step, **details)

    def _classifier(self, watched: WatchedOptimizer, scaler: WatchedScaler) -> SkipClassifier:
        key = (watched.index, scaler.index)
        found = self._classifiers.get(key)
        if found is None:
            found = self._classifiers[key] = SkipClassifier(float(scaler.scaler._init_scale))
        return found

    def _nonfinite(self, part: OptimizerAttempt) -> tuple[list[str], int]:
        """Names of the layers with a non-finite gradient, and how many layers had one at all."""
        reading = part.reading
        if reading is None or not reading.nonfinite:
            return [], 0
        names = [self._names.get(reading.parameters[at], "?") for at in reading.nonfinite]
        return names, len(reading.parameters)


def _may_be_nonfinite(part: OptimizerAttempt) -> bool:
    """Whether the gradients that an optimizer was given were not finite, or were not looked at."""
    return part.reading is None or part.reading.norm is None or not math.isfinite(part.reading.norm)
