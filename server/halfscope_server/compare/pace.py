"""How fast a run goes: the time and the work of its steps, its warm-up found and left out.

Must not import the store's tables. Invariant: one value per step, over all ranks: the slowest rank's time, and the work
of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query import over_ranks
from halfscope_server.query.view import WIDE_ROLLUP, Attempt, RunView
from halfscope_server.query.window import Span

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RATES = {"samples/s": "throughput.samples_per_s", "tokens/s": "throughput.tokens_per_s"}
STEPS = "steps/s"
MIN_STEPS = 50
"""A start of a run with fewer is looked at only where there is no longer one."""
MAX_RAW_STEPS = 16 * WIDE_ROLLUP
NUM_STRETCHES, STRETCH_STEPS = 16, 2048
"""What is looked at of a longer run, spread evenly over it."""
CALM_STEPS = 5
"""The warm-up is over with so many usual steps in a row."""
USUAL_SHARE = 1.2
"""A usual step takes no longer than this times the median of the second half, or than 19 of 20 steps there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pace:
    """Of one run's steps after its warm-up, in order."""

    step_s: Floats
    rates: Mapping[str, Floats]
    """Work per second by its unit: those recorded, and steps."""
    warmup_steps: int

    @property
    def spread(self) -> float | None:
        """(95th - 5th percentile) / median of the step time."""
        if not self.step_s.size:
            return None
        low, middle, high = np.quantile(self.step_s, [0.05, 0.5, 0.95])
        return float((high - low) / middle) if middle > 0 else None


def pace(view: RunView) -> Pace:
    """Of the newest start of a run that has at least `MIN_STEPS` steps, else of its longest. Remembered by the view."""
    return view.memo("pace", lambda: _read(view))


def unit_of(paces: list[Pace]) -> str:
    """The unit in which all of them have their work recorded."""
    return next((unit for unit in RATES if all(unit in each.rates for each in paces)), STEPS)


def _read(view: RunView) -> Pace:
    attempt = _chosen(view)
    if attempt is None:
        return Pace(step_s=np.empty(0), rates={STEPS: np.empty(0)}, warmup_steps=0)
    step, step_s = _per_step(view, "time.step_s", "max", attempt)
    usable = np.isfinite(step_s) & (step_s > 0)
    step, step_s = step[usable], step_s[usable]
    num_warm = _num_warm(step_s)
    begins = int(step[num_warm]) if num_warm < step.size else attempt.span.last_step + 1
    rates = {STEPS: 1 / step_s[num_warm:]}
    for unit, name in RATES.items():
        at, rate = _per_step(view, name, "sum", attempt)
        keep = (at >= begins) & np.isfinite(rate) & (rate > 0)
        if keep.any():
            rates[unit] = rate[keep]
    return Pace(step_s=step_s[num_warm:], rates=rates, warmup_steps=begins - attempt.span.first_step if num_warm else 0)


def _chosen(view: RunView) -> Attempt | None:
    long = [attempt for attempt in view.attempts if attempt.span.num_steps >= MIN_STEPS]
    if long:
        return long[-1]
    return max(view.attempts, key=lambda attempt: attempt.span.num_steps, default=None)


def _num_warm(step_s: Floats) -> int:
    """Steps at the start before the first `CALM_STEPS` usual ones in a row; at most half of them."""
    half = step_s.size // 2
    if half < CALM_STEPS:
        return 0
    settled = step_s[half:]
    usual = step_s <= max(USUAL_SHARE * float(np.median(settled)), float(np.quantile(settled, 0.95)))
    in_a_row = np.convolve(usual, np.ones(CALM_STEPS), "valid") == CALM_STEPS
    first = int(np.argmax(in_a_row)) if in_a_row.any() else half
    return min(first, half)


def _per_step(view: RunView, name: str, reduction: str, attempt: Attempt) -> tuple[Ints, Floats]:
    """Steps and one value each of a series without labels."""
    series = next(iter(view.named(name)), None)
    if series is None:
        return np.empty(0, np.int64), np.empty(0)
    points = view.store.points(
        view.run_id, series.series_id, attempt=attempt.number, stretches=_stretches(attempt.span)
    )
    return over_ranks.per_step(points, reduction)


def _stretches(span: Span) -> list[tuple[int, int]]:
    """First and last steps of what is looked at; none: all."""
    if span.num_steps <= MAX_RAW_STEPS:
        return []
    # Each within one of the stretches that the store keeps together.
    firsts = np.linspace(span.first_step, span.last_step - STRETCH_STEPS, NUM_STRETCHES).astype(np.int64)
    firsts[1:] -= firsts[1:] % STRETCH_STEPS
    return [(first, first + STRETCH_STEPS - 1) for first in firsts.tolist()]
