"""The life of one alert: idle, pending, firing, and back.

Owns the transitions. Must not know metrics or windows. Invariant: the same numbers in any cut give the same
transitions; a number that is missing changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.rule import Rule, Span

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FEW = 64
"""Numbers that are quickly gone through one by one."""

Phase = Literal["idle", "pending", "firing"]
Change = Literal["pending", "dropped", "fired", "resolved"]


class Judged(NamedTuple):
    """Compared numbers in order, none missing. All [N]."""

    step: Ints
    time_us: Ints
    value: Floats


class Levels(NamedTuple):
    """A rule's comparison with its sign taken out: signed values are compared with `>`."""

    sign: float
    fire: float
    clear: float

    @classmethod
    def of(cls, rule: Rule) -> Levels:
        sign = 1.0 if rule.comparison in (">", ">=") else -1.0
        or_equal = rule.comparison in (">=", "<=")
        fire = sign * rule.threshold
        clear = fire if rule.clear is None else sign * rule.clear
        if or_equal:  # v >= t is v > the number before t
            fire, clear = float(np.nextafter(fire, -np.inf)), float(np.nextafter(clear, -np.inf))
        return cls(sign, fire, clear)


@dataclass(slots=True)
class Machine:
    """One alert; see the module."""

    phase: Phase = "idle"
    attempt: int = 0
    first_step: int = 0
    first_us: int = 0
    fired_step: int | None = None
    fired_us: int | None = None
    last_step: int = 0
    last_us: int = 0
    resolved_step: int | None = None
    resolved_us: int | None = None
    value: float = 0.0
    worst: float = 0.0
    clear_step: int | None = None
    """Where it began to be over, while `keep_firing` waits."""
    clear_us: int = 0
    evidence: dict[str, Any] = field(default_factory=dict)
    worst_layer: str = ""
    """Where one alert stands for all layers: the worst of them when it fired."""
    num_layers: int = 0
    """And how many were beyond the threshold."""

    def advance(
        self, judged: Judged, levels: Levels, hold: Span, keep: Span, attempt: int
    ) -> Iterator[tuple[Change, int]]:
        """Take in further numbers.

        Yields:
            What happened, and at which of them; this machine then stands as it stood there.
        """
        signed = judged.value if levels.sign > 0 else -judged.value
        bad = signed > levels.fire
        still = bad if levels.clear == levels.fire else signed > levels.clear
        not_bad = ~bad
        not_still = not_bad if still is bad else ~still
        at, end = 0, signed.size
        # In a long block most of what crosses does not last: the rest need not be looked at one by one.
        lasting = _lasting(bad, judged, hold) if end > FEW and (hold.steps or hold.seconds) else None
        while at < end:
            if self.phase == "idle":
                at = _next(bad, at) if lasting is None else _from(lasting, at, end)
                if at == end:
                    return
                self._begin(judged, at, attempt)
            if self.phase == "pending":
                over = _next(not_bad, at)
                fires = _held(judged, at, self.first_step, self.first_us, hold)
                if fires < over:
                    self._take(judged, levels, at, fires + 1)
                    self.phase, self.value = "firing", float(judged.value[fires])
                    self.fired_step, self.fired_us = self.last_step, self.last_us
                    yield "fired", fires
                    at = fires + 1
                elif over < end:
                    self.phase = "idle"
                    yield "dropped", over
                    at = over + 1
                else:
                    self._take(judged, levels, at, end)
                    self.value = float(judged.value[-1])
                    yield "pending", end - 1
                    return
            elif self.clear_step is None:
                over = _next(not_still, at)
                if over > at:
                    self._take(judged, levels, at, over)
                if over == end:
                    return
                self.clear_step, self.clear_us = int(judged.step[over]), int(judged.time_us[over])
                at = over
            else:
                again = _next(still, at)
                resolves = _held(judged, at, self.clear_step, self.clear_us, keep)
                if resolves < again:
                    self.resolved_step, self.resolved_us = int(judged.step[resolves]), int(judged.time_us[resolves])
                    self.phase, self.clear_step = "idle", None
                    yield "resolved", resolves
                    at = resolves + 1
                else:
                    self.clear_step = self.clear_step if again == end else None
                    at = again

    def _begin(self, judged: Judged, at: int, attempt: int) -> None:
        self.phase, self.attempt = "pending", attempt
        self.first_step, self.first_us = int(judged.step[at]), int(judged.time_us[at])
        self.fired_step = self.fired_us = self.resolved_step = self.resolved_us = self.clear_step = None
        self.value = self.worst = float(judged.value[at])
        self.evidence, self.worst_layer, self.num_layers = {}, "", 0

    def _take(self, judged: Judged, levels: Levels, first: int, end: int) -> None:
        """Numbers that belong to it."""
        part = judged.value[first:end]
        farthest = float(part.max() if levels.sign > 0 else part.min())
        if levels.sign * farthest > levels.sign * self.worst:
            self.worst = farthest
        self.last_step, self.last_us = int(judged.step[end - 1]), int(judged.time_us[end - 1])


def _next(flags: Bools, at: int) -> int:
    """The first place from `at` on where it is so; the end where there is none."""
    if at >= flags.size:
        return flags.size
    place = at + int(flags[at:].argmax())  # stops at the first
    return place if flags[place] else flags.size


def _from(places: Ints, at: int, end: int) -> int:
    """The first of these places that is not before `at`."""
    index = int(np.searchsorted(places, at))
    return int(places[index]) if index < places.size else end


def _lasting(bad: Bools, judged: Judged, hold: Span) -> Ints:
    """Where those stretches begin that last as long as asked, or reach the end."""
    edges = np.flatnonzero(np.diff(bad, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    if hold.seconds:
        lasts = judged.time_us[ends - 1] - judged.time_us[starts] >= int(hold.seconds * 1e6)
    else:
        lasts = judged.step[ends - 1] - judged.step[starts] >= (hold.steps or 0)
    result: Ints = starts[lasts | (ends == bad.size)]
    return result


def _held(judged: Judged, at: int, since_step: int, since_us: int, span: Span) -> int:
    """The first place from `at` on at which it has been so for as long as asked."""
    if span.seconds:
        return at + int(np.searchsorted(judged.time_us[at:], since_us + int(span.seconds * 1e6)))
    if span.steps:
        return at + int(np.searchsorted(judged.step[at:], since_step + span.steps))
    return at
