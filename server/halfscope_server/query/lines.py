"""One series over one window, ready to draw.

Owns the choice between raw points and rollups, the joining of attempts and the combining of ranks. Must not import
plotly. Invariant: whatever the width of the window, the smallest and the largest finite value of the series in it are
drawn, and its non-finite values are all counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query import downsample as down
from halfscope_server.query.downsample import BadMarks, Band, Buckets, Curve
from halfscope_server.query.over_ranks import (
    WHOLE,
    Apart,
    apart,
    grid_of_points,
    grid_of_rollups,
    reduced,
    reduced_grid,
)
from halfscope_server.query.view import ROLLUP_WIDTH, WIDE_ROLLUP, Piece, RunView
from halfscope_server.query.window import MARK_PX, MAX_POINTS, Span, Window
from halfscope_server.store.types import Points, Rollup, SeriesRow

NUM_BUCKETS = MAX_POINTS // 2
"""Stretches of a wide window. Two thousand pixels hold them four pixels wide, so a spike of one step is seen."""
MAX_GHOSTS = 2
RAW_STEPS = NUM_BUCKETS * ROLLUP_WIDTH
"""Up to so many steps raw points are read; beyond, rollups."""
RAW_POINTS = 16 * RAW_STEPS
"""And up to so many points, where many ranks have them."""
NEWEST_STEPS = 200
"""Of which it is told whether a rank stands apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series as it is drawn."""

    series: SeriesRow
    curve: Curve
    """The run's line: raw points, extremes of stretches, or means of stretches (then with a band)."""
    band: Band | None
    """Smallest and largest behind the line: of the steps of a stretch, or over ranks."""
    smooth: Curve | None
    """The moving average, where asked for; `curve` and `band` stay behind it."""
    ghosts: tuple[Curve, ...]
    """What later attempts did again, newest last; at most `MAX_GHOSTS`."""
    bad: BadMarks
    is_held: bool
    """A value that holds until it changes: drawn in steps."""
    minimum: float | None
    """Over finite values in the window, ghosts left out."""
    maximum: float | None
    num_points: int
    """Points recorded in the window, non-finite ones included, ghosts left out."""
    bucket_steps: int
    """Steps per drawn place; 1: every point was looked at."""
    apart: Apart | None = None
    """The rank that stands apart from the others at the end of the window."""

    @property
    def is_empty(self) -> bool:
        """No finite value and no mark."""
        return self.curve.size == 0 and self.bad.step.size == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A piece of an attempt, read."""

    curve: Curve
    band: Band | None
    means: Curve
    bad: BadMarks
    count: int
    apart: Apart | None = None


def read_line(view: RunView, series: SeriesRow, window: Window) -> Line | None:
    """A series over a window; None before the run has a step. Remembered by the view."""
    # Everything of the window that changes what is read.
    key = ("line", series.series_id, window.x, window.first, window.last, window.smooth, window.width_px, window.rank)
    return view.memo(key, lambda: _read_line(view, series, window))


def _read_line(view: RunView, series: SeriesRow, window: Window) -> Line | None:
    span = view.resolve(window)
    if span is None:
        return None
    pieces = view.pieces(span)
    width = bucket_width(span, series.kind, len(view.ranks))
    held = series.kind == "state"
    shown = [piece for piece in pieces if not piece.is_ghost]
    parts = [_read_part(view, series, piece, width, held, window.rank) for piece in shown]
    if width > 1 and sum(part.count for part in parts) <= MAX_POINTS:
        # Logged now and then: few points, however wide the window is.
        width = 1
        parts = [_read_part(view, series, piece, width, held, window.rank) for piece in shown]
    done_again = [piece for piece in pieces if piece.is_ghost][-MAX_GHOSTS:]
    ghosts = [_read_part(view, series, piece, width, held, window.rank) for piece in done_again]
    if window.x == "time":
        parts, ghosts = [_cut(part, window) for part in parts], [_cut(part, window) for part in ghosts]
    curve = _limit(_joined([part.curve for part in parts]), held)
    if held:
        curve = _reaching(view, series, span, shown, curve, window)
    band = _joined_band([part.band for part in parts if part.band is not None])
    if band is not None and band.step.size > MAX_POINTS:
        band = _thin_band(band)
    extremes = [curve.value] if band is None or band.step.size == 0 else [curve.value, band.low, band.high]
    everything = np.concatenate(extremes)
    return Line(
        series=series,
        curve=curve,
        band=band,
        smooth=_smooth(parts, window.smooth) if window.smooth > 0 and not held else None,
        ghosts=tuple(_limit(part.curve, held) for part in ghosts),
        bad=down.merge_marks(down.join_marks([part.bad for part in parts]), span, max(10, window.width_px // MARK_PX)),
        is_held=held,
        minimum=float(everything.min()) if everything.size else None,
        maximum=float(everything.max()) if everything.size else None,
        num_points=sum(part.count for part in parts),
        bucket_steps=width,
        apart=parts[-1].apart if parts else None,
    )


def bucket_width(span: Span, kind: str, num_ranks: int = 1) -> int:
    """Steps per drawn place over a span: 1 for raw points, else a multiple of 64."""
    if span.num_steps <= RAW_STEPS and span.num_steps * num_ranks <= RAW_POINTS:
        return 1
    width = -(-span.num_steps // (NUM_BUCKETS * ROLLUP_WIDTH)) * ROLLUP_WIDTH
    # A held value takes four corners a stretch instead of two ends.
    return width * 2 if kind == "state" else width


def _read_part(
    view: RunView, series: SeriesRow, piece: Piece, width: int, held: bool, rank: int | None = None
) -> _Part:
    span = piece.span
    if rank is not None and len(view.ranks) > 1:
        return _one_rank(view, series, piece, width, held, rank)
    if width == 1:
        points = view.store.points(
            view.run_id, series.series_id, first_step=span.first_step, last_step=span.last_step, attempt=piece.attempt
        )
        return _raw_part(view, piece, points, series, held)
    # Stretches are aligned to step, so the first and last may hold steps from outside the piece: less than a pixel of
    # them.
    rollup = view.store.rollup(
        view.run_id,
        series.series_id,
        width,
        first_step=span.first_step,
        last_step=span.last_step,
        attempt=piece.attempt,
    )
    part = _rollup_part(rollup, series, held, span)
    return part if held or len(view.ranks) == 1 else _ranks_part(view, series, piece, width, part)


# ---- raw points ------------------------------------------------------------------------------


def _raw_part(view: RunView, piece: Piece, points: Points, series: SeriesRow, held: bool) -> _Part:
    bad = down.bad_marks(points.step, points.time_us, points.value)
    finite = np.isfinite(points.value)
    several = points.rank.size > 0 and bool((points.rank != points.rank[0]).any())
    outlier = None
    if several:
        curve, band = _over_ranks(view, piece, points, series, held)
        outlier = None if held else apart(grid_of_points(_newest(points)))
    else:
        curve, band = _last_of_step(points, finite), None
    means = curve
    if held:
        curve = down.changes(curve.step, curve.time_us, curve.value)
    elif curve.size > MAX_POINTS:
        width = -(-int(curve.step[-1] - curve.step[0] + 1) // NUM_BUCKETS)
        buckets = down.bucketed(curve.step, curve.time_us, curve.value, width)
        means = Curve(step=buckets.step, time_us=buckets.time_us, value=buckets.mean)
        curve = down.thin(curve.step, curve.time_us, curve.value)
    if band is not None and band.step.size > MAX_POINTS:
        band = _thin_band(band)
    return _Part(curve=curve, band=band, means=means, bad=bad, count=int(points.step.size), apart=outlier)


def _last_of_step(points: Points, finite: NDArray[np.bool_]) -> Curve:
    """One value per step: of a value that was sent twice the later counts."""
    step, time, value = points.step[finite], points.time_us[finite], points.value[finite]
    last = np.ones(step.size, np.bool_)
    last[:-1] = step[1:] != step[:-1]
    return Curve(step=step[last], time_us=time[last], value=value[last])


def _over_ranks(
    view: RunView, piece: Piece, points: Points, series: SeriesRow, held: bool
) -> tuple[Curve, Band | None]:
    """One value per step over the ranks that have a finite one, with the smallest and largest of them."""
    # What is held need not be told again by every rank at every step.
    tellers = None if held else view.tellers(series, piece.attempt)
    one = reduced(points, series.reduction, tellers)
    curve = Curve(step=one.step, time_us=one.time_us, value=one.value)
    if series.reduction in WHOLE:
        return curve, None  # A rank's part lies far below the whole.
    return curve, Band(step=curve.step, time_us=curve.time_us, low=one.low, high=one.high)


def _newest(points: Points) -> Points:
    """The points of the last steps."""
    from_row = int(np.searchsorted(points.step, points.step[-1] - NEWEST_STEPS + 1))
    return _rows(points, np.arange(points.step.size) >= from_row)


def _thin_band(band: Band) -> Band:
    width = -(-int(band.step[-1] - band.step[0] + 1) // NUM_BUCKETS)
    low = down.bucketed(band.step, band.time_us, band.low, width)
    high = down.bucketed(band.step, band.time_us, band.high, width)
    return Band(step=low.step, time_us=low.time_us, low=low.minimum, high=high.maximum)


# ---- rollups ---------------------------------------------------------------------------------


def _rollup_part(rollup: Rollup, series: SeriesRow, held: bool, span: Span) -> _Part:
    num_bad = rollup.num_nan + rollup.num_pos_inf + rollup.num_neg_inf
    is_bad = num_bad > 0
    step = np.maximum(rollup.step, span.first_step)
    bad = BadMarks(
        step=step[is_bad],
        last_step=np.minimum(rollup.step[is_bad] + rollup.width - 1, span.last_step),
        time_us=rollup.time_us[is_bad],
        num_nan=rollup.num_nan[is_bad],
        num_pos_inf=rollup.num_pos_inf[is_bad],
        num_neg_inf=rollup.num_neg_inf[is_bad],
    )
    finite = (rollup.count - num_bad) > 0
    count = (rollup.count - num_bad)[finite]
    minimum, maximum = rollup.minimum[finite], rollup.maximum[finite]
    mean = down.safe_mean(rollup.total[finite], count, minimum, maximum)
    buckets = Buckets(
        step=step[finite],
        time_us=rollup.time_us[finite],
        count=count,
        minimum=minimum,
        maximum=maximum,
        mean=mean,
        first=rollup.first[finite],
        last=rollup.last[finite],
    )
    total = int(rollup.count.sum())
    if held:
        curve = down.corners(buckets, rollup.width)
        return _Part(curve=curve, band=None, means=curve, bad=bad, count=total)
    curve = Curve(step=buckets.step, time_us=buckets.time_us, value=_middle(series, buckets, mean))
    band = Band(step=buckets.step, time_us=buckets.time_us, low=minimum, high=maximum)
    return _Part(curve=curve, band=band, means=curve, bad=bad, count=total)


def _middle(series: SeriesRow, buckets: Buckets, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """What stands for a stretch between its extremes."""
    return buckets.last if series.kind == "counter" else mean


def _ranks_part(view: RunView, series: SeriesRow, piece: Piece, width: int, whole: _Part) -> _Part:
    """The same of several ranks: each rank's stretch first, then all of them."""
    found = view.store.rank_rollups(
        view.run_id,
        series.series_id,
        width,
        first_step=piece.span.first_step,
        last_step=piece.span.last_step,
        attempt=piece.attempt,
    )
    if len(found) < 2:
        return whole
    grid = grid_of_rollups(found, width)
    one = reduced_grid(grid, series.reduction, view.tellers(series, piece.attempt))
    step = np.maximum(one.step, piece.span.first_step)
    curve = Curve(step=step, time_us=one.time_us, value=one.value)
    band = Band(step=step, time_us=one.time_us, low=one.low, high=one.high)
    return replace(whole, curve=curve, band=band, means=curve, apart=apart(grid))


# ---- one rank --------------------------------------------------------------------------------


def _one_rank(view: RunView, series: SeriesRow, piece: Piece, width: int, held: bool, rank: int) -> _Part:
    """A rank's own line; the band is that of all others."""
    span = piece.span
    if width == 1:
        points = view.store.points(
            view.run_id, series.series_id, first_step=span.first_step, last_step=span.last_step, attempt=piece.attempt
        )
        own, others = _rows(points, points.rank == rank), reduced(_rows(points, points.rank != rank), "mean")
        part = _raw_part(view, piece, own, series, held)
        band = Band(step=others.step, time_us=others.time_us, low=others.low, high=others.high)
        return replace(part, band=_thin_band(band) if band.step.size > MAX_POINTS else band)
    first, last = span.first_step, span.last_step
    found = view.store.rank_rollups(
        view.run_id, series.series_id, width, first_step=first, last_step=last, attempt=piece.attempt
    )
    own_rollup = found.pop(rank, None)
    grid = grid_of_rollups(found, width)
    low, high = np.fmin.reduce(grid.low, axis=0), np.fmax.reduce(grid.high, axis=0)
    there = ~np.isnan(low)
    band = Band(step=np.maximum(grid.step, first)[there], time_us=grid.time_us[there], low=low[there], high=high[there])
    if own_rollup is None:
        nothing = _rows(_no_points(), np.zeros(0, np.bool_))
        return replace(_raw_part(view, piece, nothing, series, held), band=band)
    # Its own extremes are corners of the line: the band is not its own.
    part = _rollup_part(own_rollup, series, True, span)
    return replace(part, band=band, means=_rollup_part(own_rollup, series, held, span).means)


def _rows(points: Points, keep: NDArray[np.bool_]) -> Points:
    return Points(**{name: getattr(points, name)[keep] for name in Points.__slots__})


def _no_points() -> Points:
    whole, half = np.empty(0, np.int64), np.empty(0, np.int32)
    return Points(step=whole, time_us=whole, value=np.empty(0), rank=half, attempt=whole)


# ---- joining ---------------------------------------------------------------------------------


def _joined(curves: list[Curve]) -> Curve:
    if len(curves) == 1:
        return curves[0]
    if not curves:
        return down.empty_curve()
    return Curve(
        step=np.concatenate([c.step for c in curves]),
        time_us=np.concatenate([c.time_us for c in curves]),
        value=np.concatenate([c.value for c in curves]),
    )


def _joined_band(bands: list[Band]) -> Band | None:
    if not bands:
        return None
    return Band(
        step=np.concatenate([b.step for b in bands]),
        time_us=np.concatenate([b.time_us for b in bands]),
        low=np.concatenate([b.low for b in bands]),
        high=np.concatenate([b.high for b in bands]),
    )


def _limit(curve: Curve, held: bool) -> Curve:
    """At most `MAX_POINTS`, whatever the pieces added up to."""
    if curve.size <= MAX_POINTS:
        return curve
    step, time, value = curve.step, curve.time_us, curve.value
    if not held:
        return down.thin(step, time, value)
    width = -(-int(step[-1] - step[0] + 1) // (NUM_BUCKETS // 2))
    corners = down.corners(down.bucketed(step, time, value, width), width)
    return corners if corners.size <= MAX_POINTS else down.thin(corners.step, corners.time_us, corners.value)


def _reaching(view: RunView, series: SeriesRow, span: Span, pieces: list[Piece], curve: Curve, window: Window) -> Curve:
    """A held value over the whole window: from what held before it, to its last step."""
    steps, times, values = [curve.step], [curve.time_us], [curve.value]

    def time_at(step: int) -> NDArray[np.int64]:
        clock_step, clock_time = view.clock
        return np.array([np.interp(step, clock_step, clock_time)]).astype(np.int64)

    if pieces and (curve.size == 0 or curve.step[0] > span.first_step):
        before = _held_before(view, series, pieces[0])
        if before is not None:
            steps.insert(0, np.array([span.first_step]))
            times.insert(0, time_at(span.first_step))
            values.insert(0, np.array([before]))
    newest = next((value[-1] for value in reversed(values) if value.size), None)
    reached = next((step[-1] for step in reversed(steps) if step.size), span.last_step)
    if newest is not None and reached < span.last_step:
        steps.append(np.array([span.last_step]))
        times.append(time_at(span.last_step))
        values.append(np.array([newest]))
    return Curve(step=np.concatenate(steps), time_us=np.concatenate(times), value=np.concatenate(values))


def _held_before(view: RunView, series: SeriesRow, piece: Piece) -> float | None:
    """The newest finite value of a piece's attempt before it begins."""
    first = piece.span.first_step
    rollup = view.store.rollup(view.run_id, series.series_id, WIDE_ROLLUP, last_step=first - 1, attempt=piece.attempt)
    for bucket in rollup.step[::-1].tolist():
        points = view.store.points(
            view.run_id,
            series.series_id,
            first_step=bucket,
            last_step=min(first - 1, bucket + WIDE_ROLLUP - 1),
            attempt=piece.attempt,
        )
        finite = points.value[np.isfinite(points.value)]
        if finite.size:
            return float(finite[-1])
    return None


def _smooth(parts: list[_Part], weight: float) -> Curve:
    means = _joined([part.means for part in parts])
    if means.size > MAX_POINTS:
        width = -(-int(means.step[-1] - means.step[0] + 1) // NUM_BUCKETS)
        buckets = down.bucketed(means.step, means.time_us, means.value, width)
        means = Curve(step=buckets.step, time_us=buckets.time_us, value=buckets.mean)
    return Curve(step=means.step, time_us=means.time_us, value=down.smoothed(means.value, weight))


def _cut(part: _Part, window: Window) -> _Part:
    """Only what lies in a window of time."""
    first = -np.inf if window.first is None else window.first
    last = np.inf if window.last is None else window.last

    def inside(time_us: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (time_us >= first) & (time_us <= last)

    def cut(curve: Curve) -> Curve:
        keep = inside(curve.time_us)
        return Curve(step=curve.step[keep], time_us=curve.time_us[keep], value=curve.value[keep])

    band, bad = part.band, part.bad
    if band is not None:
        keep = inside(band.time_us)
        band = Band(step=band.step[keep], time_us=band.time_us[keep], low=band.low[keep], high=band.high[keep])
    keep = inside(bad.time_us)
    bad = BadMarks(**{name: getattr(bad, name)[keep] for name in BadMarks.__slots__})
    return _Part(curve=cut(part.curve), band=band, means=cut(part.means), bad=bad, count=part.count)
