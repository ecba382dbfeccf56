"""Aggregates that rules share, and the alerts of each rule on them.

Owns one stream of compared numbers per (metric, lane, aggregation, argument, window): the aggregator, the newest
numbers for evidence, and which of a rule's machines have to look at them. Must not know how data arrive. Invariant:
rules that ask for the same numbers share one node, and a rule that is idle and not crossed costs one comparison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.aggregations.base import Shape, full_from
from halfscope_server.alerts.machine import Change, Floats, Ints, Judged, Levels, Machine
from halfscope_server.alerts.metrics import find
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.scope import layer_mask
from halfscope_server.alerts.types import Samples

MAX_EVIDENCE = 64
MAX_LAYER_EVIDENCE = 16
"""Of each of many layers."""


@dataclass(slots=True, kw_only=True)
class RuleOnNode:
    """A rule in one stream of numbers; several optimizers or ranks make several of these."""

    rule: Rule
    version: int
    levels: Levels
    judges_early: bool
    """Whether a window that is not full yet can be judged."""
    by_layer: bool
    rank: int | None
    machines: dict[str, Machine] = field(default_factory=dict)
    """By layer (the empty name where there is one for all): those that are not idle."""
    _mask: tuple[int, np.ndarray[Any, Any]] | None = None

    def mask(self, names: Sequence[str]) -> np.ndarray[Any, Any]:
        """[L] the layers it looks at."""
        if self._mask is None or self._mask[0] != len(names):
            self._mask = len(names), layer_mask(self.rule, names)
        return self._mask[1]


Observer = Callable[[Ints, Floats, Sequence[str]], None]
"""Is shown the numbers that can be judged: their steps, [N, G] of them, and the names of layers."""
Happened = tuple[RuleOnNode, str, Machine, Change]
"""(rule, layer, its machine as it stands just then, what happened)."""


class Node:
    """See the module."""

    def __init__(
        self, rule: Rule, labels: Mapping[str, str], *, by_layer: bool, reference: float | None = None
    ) -> None:
        """
        Args:
            rule: any of those that share it.
            labels: of the stream of numbers.
            by_layer: the numbers are of many layers side by side.
            reference: what a baseline run has.
        """
        aggregation, window = aggregations()[rule.aggregation], rule.window
        by_time = bool(window.seconds)
        length = max(1, int((window.seconds or 0) * 1e6) if by_time else window.steps or 1)
        argument = aggregation.default_argument if rule.argument is None else rule.argument
        self._shape = Shape(window=length, by_time=by_time, argument=argument, reference=reference)
        self._aggregator = aggregation.make(self._shape)
        self._reach = aggregation.reach
        self._needs_window = aggregation.needs_window
        metric = find(rule.metric)
        self._is_signal = metric is not None and metric.aggregations == ("last",)
        """Told by events, which stand at the step of the newest row there is: both count."""
        self.labels = labels
        self._asks_time = by_time
        self._rules: list[RuleOnNode] = []
        self._above, self._below = np.inf, -np.inf
        """Beyond these a number crosses some rule's threshold."""
        self.by_layer = by_layer
        self._first_key: int | None = None
        self._last_step = -1
        self._last_us = 0
        self._names: Sequence[str] = ()
        self.observe: Observer | None = None
        self._recent: deque[tuple[Ints, Floats]] = deque()
        """Newest numbers, at least as many as evidence takes; [N] or [N, L]."""
        self._num_recent = 0

    @property
    def rules(self) -> list[RuleOnNode]:
        """Those that look at these numbers."""
        return self._rules

    @rules.setter
    def rules(self, rules: list[RuleOnNode]) -> None:
        self._rules = rules
        spans = [span for on in rules for span in (on.rule.hold, on.rule.keep_firing)]
        self._asks_time = self._shape.by_time or any(span.seconds for span in spans)
        self._above = min((on.levels.fire for on in rules if on.levels.sign > 0), default=np.inf)
        self._below = -min((on.levels.fire for on in rules if on.levels.sign < 0), default=np.inf)

    @property
    def window(self) -> int:
        """Length of the window, in steps or microseconds."""
        return self._shape.window

    @property
    def is_by_time(self) -> bool:
        return self._shape.by_time

    @property
    def can_wait(self) -> bool:
        """Whether samples may come later than they could, as long as `could_tell` says that nothing comes of them."""
        return self._reach is not None and not (self.by_layer or self._is_signal or self.observe is not None)

    def could_tell(self, low: float, high: float) -> bool:
        """Whether anything could be told of windows with values between these two; none, where low is above high."""
        for on in self._rules:
            if on.machines:
                return True
        if low > high or self._reach is None:
            return False
        least, most = self._reach(self._shape, low, high)
        return most > self._above or least < self._below

    def restart(self) -> None:
        """The training began anew."""
        self._aggregator.restart()
        self._first_key, self._last_step = None, -1

    def feed(
        self, step_N: Ints, time_N: Ints, value_NG: Floats, names: Sequence[str], attempt: int
    ) -> Iterator[Happened]:
        """Take in samples and judge them.

        Args:
            value_NG: as the metric gave them; what is not finite is no sample.
            names: of the layers, where there are any.
        """
        if step_N[0] <= self._last_step or (step_N.size > 1 and not (step_N[1:] > step_N[:-1]).all()):
            newest = np.maximum.accumulate(np.concatenate(([self._last_step], step_N)))
            keep = step_N >= newest[:-1] if self._is_signal else newest[1:] > newest[:-1]
            step_N, time_N, value_NG = step_N[keep], time_N[keep], value_NG[keep]
            if not step_N.size:
                return
        if self._asks_time:  # a clock that is set back would put windows out of order
            time_N = np.maximum.accumulate(np.maximum(time_N, self._last_us))
        self._last_step, self._last_us = int(step_N[-1]), int(time_N[-1])
        finite = np.isfinite(value_NG)
        if not finite.all():
            value_NG = np.where(finite, value_NG, np.nan)
        key_N = time_N if self._shape.by_time else step_N
        if self._first_key is None:
            self._first_key = int(key_N[0])
        compared = self._aggregator.feed(key_N, value_NG)
        full = 0
        if self._needs_window and (from_key := full_from(self._shape, self._first_key)) > key_N[0]:
            full = int(key_N.searchsorted(from_key))
        if self.observe is not None:
            from_ = 0 if all(on.judges_early for on in self.rules) else full
            self.observe(step_N[from_:], compared[from_:], names)
        if self.by_layer:
            self._names = names
            yield from self._judge_layers(step_N, time_N, compared, full, names, attempt)
        else:
            yield from self._judge(step_N, time_N, compared[:, 0], full, attempt)

    def _judge(self, step_N: Ints, time_N: Ints, value_N: Floats, full: int, attempt: int) -> Iterator[Happened]:
        high = float(value_N.max())
        if high != high:  # numbers are missing
            there = ~np.isnan(value_N)
            full = int(there[:full].sum())
            step_N, time_N, value_N = step_N[there], time_N[there], value_N[there]
            if not step_N.size:
                return
        everything = Judged(step_N, time_N, value_N)
        whole = everything if not full else Judged(step_N[full:], time_N[full:], value_N[full:])
        extremes = [_extremes(everything.value)]
        extremes.append(_extremes(whole.value) if full else extremes[0])
        for on in self.rules:
            high, low = extremes[0 if on.judges_early else 1]
            if not on.machines and not (high if on.levels.sign > 0 else -low) > on.levels.fire:
                continue
            judged = everything if on.judges_early else whole
            if judged.step.size:
                first = everything.step.size - judged.step.size
                yield from self._advance(on, "", judged, range(first, everything.step.size), everything, attempt)
        self._remember(step_N, value_N, MAX_EVIDENCE)

    def _judge_layers(
        self, step_N: Ints, time_N: Ints, value_NL: Floats, full: int, names: Sequence[str], attempt: int
    ) -> Iterator[Happened]:
        known = ~np.isnan(value_NL)
        looked_at: dict[tuple[float, tuple[str, ...]], Floats] = {}
        """By what rules differ in: most look at all layers, and above something."""
        for on in self.rules:
            from_ = 0 if on.judges_early else full
            key = on.levels.sign, tuple(on.rule.scope.layers)
            if key not in looked_at:
                looked_at[key] = np.where(known & on.mask(names), value_NL * on.levels.sign, -np.inf)
            signed = looked_at[key]
            if not on.by_layer:
                yield from self._judge_worst(on, step_N, time_N, signed, from_, attempt)
                continue
            crossed = np.flatnonzero((signed[from_:] > on.levels.fire).any(axis=0))
            concerned = dict.fromkeys([*on.machines, *(names[at] for at in crossed.tolist())])
            for name in concerned:
                column = Judged(step_N, time_N, value_NL[:, names.index(name)])
                yield from self._advance_column(on, name, column, from_, attempt)
        self._remember(step_N, value_NL, MAX_LAYER_EVIDENCE)

    def _judge_worst(
        self, on: RuleOnNode, step_N: Ints, time_N: Ints, signed_NL: Floats, from_: int, attempt: int
    ) -> Iterator[Happened]:
        """One alert for all layers, of the worst of them in each step."""
        worst = signed_NL.max(axis=1, initial=-np.inf)
        if not on.machines and not (worst[from_:] > on.levels.fire).any():
            return
        value = np.where(np.isneginf(worst), np.nan, worst * on.levels.sign)
        for happened in self._advance_column(on, "", Judged(step_N, time_N, value), from_, attempt):
            machine = happened[2]
            if happened[3] in ("fired", "pending"):
                row = signed_NL[np.searchsorted(step_N, machine.last_step)]
                machine.worst_layer = self._names[int(row.argmax())]
                machine.num_layers = int((row > on.levels.fire).sum())
            yield happened

    def _advance_column(
        self, on: RuleOnNode, layer: str, column: Judged, from_: int, attempt: int
    ) -> Iterator[Happened]:
        """Judge what a column has from a place on; NaN: nothing."""
        places = from_ + np.flatnonzero(~np.isnan(column.value[from_:]))
        if places.size:
            judged = Judged(column.step[places], column.time_us[places], column.value[places])
            yield from self._advance(on, layer, judged, places, column, attempt)

    def _advance(
        self, on: RuleOnNode, layer: str, judged: Judged, places: Ints | range, everything: Judged, attempt: int
    ) -> Iterator[Happened]:
        """
        Args:
            places: where the judged numbers are among all.
        """
        machine = on.machines.pop(layer, None) or Machine()
        rule = on.rule
        for change, at in machine.advance(judged, on.levels, rule.hold, rule.keep_firing, attempt):
            if change == "fired":
                machine.evidence = self._evidence(on, layer, everything, int(places[at]))
            yield on, layer, machine, change
        if machine.phase != "idle":
            on.machines[layer] = machine

    def resume(self, told: Samples, changed: Collection[tuple[str, int]], attempt: int) -> Iterator[Happened]:
        """Show rules that were changed the newest of these numbers, which the others have seen."""
        judged = Judged(told.step, told.time_us, told.value)
        seen = Judged(told.step[:0], told.time_us[:0], told.value[:0]) if self._recent else judged
        for on in self._rules:
            if (on.rule.id, on.version) in changed:
                yield from self._advance(on, "", judged, range(1), seen, attempt)

    def _evidence(self, on: RuleOnNode, layer: str, column: Judged, at: int) -> dict[str, Any]:
        """The numbers up to the firing: of so many samples, those that there are."""
        limit = MAX_LAYER_EVIDENCE if self.by_layer else MAX_EVIDENCE
        steps, values = [column.step[: at + 1]], [column.value[: at + 1]]
        for step, value in reversed(self._recent):
            if sum(part.size for part in steps) >= limit:
                break
            steps.insert(0, step)
            values.insert(0, self._of_layer(on, layer, value))
        value = np.concatenate(values)[-limit:]
        there = ~np.isnan(value)
        return {"step": np.concatenate(steps)[-limit:][there].tolist(), "value": value[there].tolist()}

    def _of_layer(self, on: RuleOnNode, layer: str, value: Floats) -> Floats:
        if not self.by_layer:
            return value
        names = self._names
        if on.by_layer:
            at = names.index(layer)
            return value[:, at] if at < value.shape[1] else np.full(value.shape[0], np.nan)
        known = on.mask(names)[: value.shape[1]]
        signed = np.where(np.isnan(value) | ~known, -np.inf, value * on.levels.sign).max(axis=1, initial=-np.inf)
        return np.where(np.isinf(signed), np.nan, signed * on.levels.sign)

    def _remember(self, step_N: Ints, value: Floats, limit: int) -> None:
        if step_N.size > limit:  # not to keep alive what they were cut from
            step_N, value = step_N[-limit:].copy(), value[-limit:].copy()
        self._recent.append((step_N, value))
        self._num_recent += step_N.size
        while self._num_recent - self._recent[0][0].size >= limit:
            self._num_recent -= self._recent.popleft()[0].size

    def state(self) -> dict[str, Any]:
        """Numbers only: the machines are kept with their rules."""
        return {
            "aggregator": self._aggregator.state(),
            "first_key": self._first_key,
            "last_step": self._last_step,
            "last_us": self._last_us,
            "recent": list(self._recent),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._aggregator.load(state["aggregator"])
        self._first_key, self._last_step, self._last_us = state["first_key"], state["last_step"], state["last_us"]
        self._recent = deque((step, value) for step, value in state["recent"])
        self._num_recent = sum(step.size for step, _ in self._recent)


def _extremes(value: Floats) -> tuple[float, float]:
    """(largest, smallest); of none what crosses nothing."""
    return (float(value.max()), float(value.min())) if value.size else (-np.inf, np.inf)
