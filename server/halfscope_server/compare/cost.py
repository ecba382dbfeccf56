"""What each member takes, in time and in memory, and against the baseline.

Must not import the store's tables. Invariant: a ratio is of the same thing in both runs, and what makes it no matter of
precision is named beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from halfscope_server.compare import noise, resampling, slowness
from halfscope_server.compare.fairness.base import fact
from halfscope_server.compare.pace import Pace, pace, unit_of
from halfscope_server.compare.types import Cost, Estimate, Fairness
from halfscope_server.query.format import plural
from halfscope_server.query.view import ROLLUP_WIDTH, RunView

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

Floats = NDArray[np.float64]

ENOUGH_STEPS = 100
"""With fewer timed steps it is said how few they are."""
LEAST_STEPS = 10
"""Of fewer nothing is said: the first ones are warm-up, and nothing tells."""
MIN_FREEDOM = 2
"""Of two repeats alone the interval is so wide (64 times their scatter) that it says nothing."""
MAX_RAW_STEPS = 4096
"""At what time a metric had reached a level is asked of its single values in runs up to this, else of 64 steps each."""
MEMORY = {"device": "memory.device_peak_bytes", "process": "memory.rss_bytes"}


def measure(comparison: Comparison) -> list[Cost]:
    """Of every member, the baseline's first."""
    views, fairness = comparison.views, comparison.fairness
    paces = [pace(view) for view in views]
    unit = unit_of(paces)
    spread = _between_runs(comparison, paces, unit)
    speedups = [None, *(_speedup(comparison, at, paces, unit, spread) for at in range(1, len(views)))]
    return [_cost(comparison, at, paces, unit, speedup, fairness) for at, speedup in enumerate(speedups)]


def _cost(
    comparison: Comparison, at: int, paces: list[Pace], unit: str, speedup: Estimate | None, fairness: Fairness
) -> Cost:
    view, baseline = comparison.views[at], comparison.views[0]
    own = paces[at]
    peak, memory_of = _peak(view)
    baseline_peak, baseline_of = _peak(baseline)
    comparable = at > 0 and memory_of == baseline_of and len(view.ranks) == len(baseline.ranks)
    reached = _times_to_level(comparison, at)
    exact = fact(view, "memory")
    exact = exact if isinstance(exact, Mapping) else {}
    return Cost(
        run=view.run_id,
        throughput=view.memo(
            ("throughput", unit), lambda: resampling.median(own.rates[unit], _resampled(view, own, unit))
        ),
        throughput_unit=unit,
        speedup=speedup,
        step_s=view.memo("step_s", lambda: resampling.median(own.step_s)),
        step_spread=own.spread,
        warmup_steps=own.warmup_steps,
        time_to_baseline_s=reached[0],
        baseline_time_s=reached[1],
        peak_memory_bytes=peak,
        memory_of=memory_of,
        parameter_bytes=_integer(exact.get("parameter_bytes")),
        gradient_bytes=_integer(exact.get("gradient_bytes")),
        optimizer_state_bytes=_integer(exact.get("optimizer_state_bytes")),
        memory_ratio=peak / baseline_peak if comparable and peak and baseline_peak else None,
        confounded_by=_confounders(fairness, at),
        because=_because(view, baseline, own, speedup, memory_of),
    )


def _speedup(comparison: Comparison, at: int, paces: list[Pace], unit: str, spread: float) -> Estimate | None:
    key = ("speedup", unit, spread)
    rates, baseline = paces[at].rates[unit], paces[0].rates[unit]

    def estimate() -> Estimate | None:
        if min(rates.size, baseline.size) < LEAST_STEPS:
            return None
        own, other = (_resampled(comparison.views[k], paces[k], unit) for k in (at, 0))
        return resampling.ratio(rates, baseline, extra_log=spread, resampled=own, baseline_resampled=other)

    return comparison.memo_pair(at, key, estimate)


def _resampled(view: RunView, own: Pace, unit: str) -> Floats | None:
    """Resampled medians of a run's throughput: drawn once for all that it is compared with."""
    return view.memo(("resampled throughput", unit), lambda: resampling.resampled_medians(own.rates[unit]))


def _between_runs(comparison: Comparison, paces: list[Pace], unit: str) -> float:
    """Half width, in logarithms, of what repeats of one configuration differ by; 0 where there are too few of them."""
    groups: dict[int, list[float]] = {}
    for member, own in zip(comparison.members, paces, strict=True):
        if own.rates[unit].size:
            groups.setdefault(member.group, []).append(float(np.log(np.median(own.rates[unit]))))
    error = noise.error_of_prediction(list(groups.values()), (1, 1))
    return 0.0 if error is None or error.freedom < MIN_FREEDOM else error.half_width(noise.INTERVAL_SHARE)


def _peak(view: RunView) -> tuple[int | None, str]:
    """Most memory at any time, all ranks added up; of the device where there is one, else of the process."""
    return view.memo("peak memory", lambda: _read_peak(view))


def _read_peak(view: RunView) -> tuple[int | None, str]:
    for kind, name in MEMORY.items():
        for series in view.named(name)[:1]:
            peaks = []
            for rank in view.ranks:
                extent = view.store.extent(view.run_id, series.series_id, rank=rank)
                peaks += [extent.maximum] if extent is not None and extent.maximum is not None else []
            if peaks and max(peaks) > 0:
                return int(sum(peaks)), kind
    return None, "process"


def _confounders(fairness: Fairness, at: int) -> list[str]:
    return [
        item.id
        for item in fairness.items
        if not item.is_intended and item.states[at] == "different" and {"speed", "memory"} & set(item.confounds)
    ]


def _because(view: RunView, baseline: RunView, own: Pace, speedup: Estimate | None, memory_of: str) -> list[str]:
    found = []
    if speedup is not None:
        slow = slowness.Slow(view=view, baseline=baseline, pace=own, speedup=speedup)
        found += slowness.causes(slow)
    if 0 < own.step_s.size < ENOUGH_STEPS:
        found.append(f"timed over {plural(own.step_s.size, 'step')} only")
    if memory_of == "process" and view.has(MEMORY["process"]):
        found.append("memory is that of the whole process: Python and its libraries are in it")
    return found


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value == value else None


# ---- time to the baseline's level --------------------------------------------------------------


def _times_to_level(comparison: Comparison, at: int) -> tuple[float | None, float | None]:
    """Seconds until a member, and until the baseline, had the baseline's final level of the metric, within the
    tolerance: as a mean over the last tenth of the baseline's steps, or as many of the member's."""
    quality = comparison.quality[0]
    if quality.final is None:
        return None, None
    level, margin = quality.final.value, abs(quality.final.value) * comparison.options.tolerance_share
    times = []
    for view in (comparison.views[at], comparison.views[0]):
        seconds, value = _metric(view, comparison.options.metric)
        over = _trailing_mean(value, max(20, value.size // 10))
        with np.errstate(invalid="ignore"):
            there = over <= level + margin if quality.lower_is_better else over >= level - margin
        times.append(float(seconds[np.argmax(there)]) if there.any() else None)
    return times[0], times[1]


def _metric(view: RunView, name: str) -> tuple[Floats, Floats]:
    """Seconds of training, and the metric there. Remembered by the view."""
    return view.memo(("metric by time", name), lambda: _read_metric(view, name))


def _read_metric(view: RunView, name: str) -> tuple[Floats, Floats]:
    series, span = next(iter(view.named(name)), None), view.span
    if series is None or span is None:
        return np.empty(0), np.empty(0)
    seconds, values, before = [], [], 0.0
    for piece in view.pieces(span):
        if piece.is_ghost:
            continue
        first, last, attempt = piece.span.first_step, piece.span.last_step, piece.attempt
        if span.num_steps <= MAX_RAW_STEPS:
            points = view.store.points(view.run_id, series.series_id, first_step=first, last_step=last, attempt=attempt)
            time_us, value = points.time_us, points.value
        else:
            rollup = view.coverage(series, attempt)
            part = slice(*np.searchsorted(rollup.step + ROLLUP_WIDTH, [first, last + ROLLUP_WIDTH], "right").tolist())
            bad = (rollup.num_nan + rollup.num_pos_inf + rollup.num_neg_inf)[part]
            time_us = rollup.time_us[part]
            with np.errstate(invalid="ignore", divide="ignore"):
                value = np.where(bad > 0, np.nan, rollup.total[part] / rollup.count[part])
        if not time_us.size:
            continue
        # The first step's own time is not known; what passes between two starts is no training.
        seconds.append(before + (time_us - time_us[0]) / 1e6)
        values.append(value)
        before = float(seconds[-1][-1])
    return (np.concatenate(seconds), np.concatenate(values)) if seconds else (np.empty(0), np.empty(0))


def _trailing_mean(value: Floats, width: int) -> Floats:
    """Of as many values up to and with each; NaN before there are as many, and where one of them is not finite."""
    found = np.full(value.size, np.nan)
    if value.size >= width:
        finite = np.isfinite(value)
        total = np.cumsum(np.insert(np.where(finite, value, 0.0), 0, 0.0))
        bad = np.cumsum(np.insert(~finite, 0, False))
        mean = (total[width:] - total[:-width]) / width
        found[width - 1 :] = np.where(bad[width:] > bad[:-width], np.nan, mean)
    return found
