"""Runs on one axis: which steps of two runs stand beside each other, and what a metric was there.

Owns the axes (attempts, applied steps, samples, tokens, time), the reading of a metric along them and its cutting into
equal cells. Must not import the store's tables. Invariants: along an axis a later step never lies before an earlier
one; of steps that a restart did again only the newest count; a non-finite value is counted and is in no mean.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfscope_server.compare.types import Alignment
from halfscope_server.query.over_ranks import ordered
from halfscope_server.query.view import ROLLUP_WIDTH, Piece, RunView
from halfscope_server.query.window import Span
from halfscope_server.store.types import Points, Rollup, SeriesRow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NUM_CELLS = 512
"""Cells of a whole run: as many places as a curve is drawn with."""
MAX_RAW_STEPS = 32_000
"""Up to so many steps raw points are read; beyond, summaries of 64 steps and more."""
MAX_SPARSE_POINTS = 4_000
"""Of a series with no more points than this they are read raw, however long the run is."""
RATE_OF = {"samples": "throughput.samples_per_s", "tokens": "throughput.tokens_per_s"}


class Axis:
    """Where each step of a run lies: a line through knots that never falls."""

    def __init__(self, step: Floats, x: Floats) -> None:
        """
        Args:
            step: ascending; `x` beside it. Before the first knot and after the last the line goes on with the slope it
                has there.
        """
        assert step.size > 1, "an axis needs two knots"
        self._step, self._x = step, x
        self.per_step = float((x[-1] - x[0]) / (step[-1] - step[0]))
        """How far a step leads, on average."""

    def x_at(self, step: Ints | Floats) -> Floats:
        """The place of each step."""
        found = np.interp(step, self._step, self._x)
        before, after = np.minimum(step - self._step[0], 0), np.maximum(step - self._step[-1], 0)
        first, last = self._slopes()
        return np.asarray(found + before * first + after * last, np.float64)

    def step_at(self, x: float) -> float:
        """The last step at or before a place, not rounded."""
        if x < self._x[0] or x >= self._x[-1]:
            end, slope = (0, self._slopes()[0]) if x < self._x[0] else (-1, self._slopes()[1])
            return float(self._step[end] + (x - self._x[end]) / slope) if slope > 0 else float(self._step[end])
        # Of steps at one place (skipped ones) the last: np.interp would take any.
        at = int(np.searchsorted(self._x, x, "right")) - 1
        share = (x - self._x[at]) / (self._x[at + 1] - self._x[at])
        return float(self._step[at] + share * (self._step[at + 1] - self._step[at]))

    def _slopes(self) -> tuple[float, float]:
        step, x = self._step, self._x
        return float((x[1] - x[0]) / (step[1] - step[0])), float((x[-1] - x[-2]) / (step[-1] - step[-2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAxis:
    """A run cannot be laid along an axis."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Equal cells along an axis: cell k is [origin + k * width, origin + (k + 1) * width)."""

    origin: float
    width: float
    num_cells: int

    @property
    def centre(self) -> Floats:
        return np.asarray(self.origin + (np.arange(self.num_cells) + 0.5) * self.width, np.float64)

    @property
    def last(self) -> float:
        """Its end."""
        return self.origin + self.num_cells * self.width

    def cell(self, x: Floats) -> Ints:
        """The cell of each place; -1 and `num_cells` outside."""
        # What lies on an edge but for rounding lies in the cell that begins there.
        cell = np.floor((x - self.origin) / self.width + 1e-9)
        return np.clip(cell, -1, self.num_cells).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A metric along an axis, ascending by x: raw points, or summaries of stretches of steps."""

    x: Floats
    """Of a stretch its middle."""
    step: Ints
    """First step."""
    count: Ints
    """Finite values; all numbers are over these, and 0 where there is none."""
    total: Floats
    minimum: Floats
    maximum: Floats
    last: Floats
    bad: Ints
    """Values that are NaN or infinite."""
    is_raw: bool

    @property
    def mean(self) -> Floats:
        """NaN where there is no finite value."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(self.count > 0, self.total / self.count, np.nan), np.float64)

    def select(self, keep: NDArray[np.bool_] | Ints) -> Track:
        """Some of its places, by a mask or their numbers."""
        return Track(**{name: getattr(self, name)[keep] for name in _COLUMNS}, is_raw=self.is_raw)


_COLUMNS = tuple(field.name for field in fields(Track) if field.name != "is_raw")


# ---- axes --------------------------------------------------------------------------------------


def axis(view: RunView, align: Alignment) -> Axis | NoAxis:
    """Where the steps of a run lie. A step lies where its loss was computed: at the applied steps, samples or tokens
    before it, or at its end in time (of training: what lies between an attempt and its restart does not count)."""
    return view.memo(("axis", align), lambda: _axis(view, align))


def _axis(view: RunView, align: Alignment) -> Axis | NoAxis:
    span = view.span
    if span is None:
        return NoAxis(reason="it has no step yet")
    pieces = [piece for piece in view.pieces(span) if not piece.is_ghost]
    match align:
        case "attempts":
            return _identity(span)
        case "applied":
            return _applied(view, span, pieces)
        case "time":
            return _time(view, pieces)
        case _:
            return _counted(view, align, span, pieces)


def _identity(span: Span) -> Axis:
    ends = np.array([span.first_step, span.last_step + 1], np.float64)
    return Axis(ends, ends)


def _applied(view: RunView, span: Span, pieces: list[Piece]) -> Axis:
    table = view.skips
    shown = [
        table.step[(table.attempt == p.attempt) & (table.step >= p.span.first_step) & (table.step <= p.span.last_step)]
        for p in pieces
    ]
    skipped = np.unique(np.concatenate(shown)).astype(np.float64)
    if not skipped.size:
        return _identity(span)
    before = np.arange(skipped.size)
    # Flat from a skipped step to the next.
    step = np.concatenate([skipped, skipped + 1, [span.first_step, span.last_step + 1]])
    x = np.concatenate([skipped - before, skipped - before, [span.first_step, span.last_step + 1 - skipped.size]])
    _, at = np.unique(step, return_index=True)
    return Axis(step[at], x[at])


def _time(view: RunView, pieces: list[Piece]) -> Axis | NoAxis:
    steps: list[Floats] = []
    xs: list[Floats] = []
    ahead_s = 0.0
    for piece in pieces:
        step, time_us = _clock(view, piece)
        if not step.size:
            continue
        x: Floats = np.maximum.accumulate(time_us - time_us[0]) / 1e6 + ahead_s
        steps.append(step.astype(np.float64))
        xs.append(x)
        per_step = (x[-1] - x[0]) / (step[-1] - step[0]) if step.size > 1 else 0.0
        ahead_s = float(x[-1] + per_step)
    if not steps:
        return NoAxis(reason="no step has a time")
    known, at = np.unique(np.concatenate(steps), return_index=True)
    seconds = np.concatenate(xs)[at]
    if known.size < 2 or seconds[-1] <= seconds[0]:
        return NoAxis(reason="one step alone has no duration")
    return Axis(known, seconds)


def _clock(view: RunView, piece: Piece) -> tuple[Ints, Ints]:
    """Steps of a piece and when they were complete: all of a short one, else one in 64."""
    for series in view.reference[:1]:
        span = piece.span
        if span.num_steps <= MAX_RAW_STEPS:
            points = view.store.points(
                view.run_id,
                series.series_id,
                first_step=span.first_step,
                last_step=span.last_step,
                attempt=piece.attempt,
            )
            return points.step, points.time_us
        rollup = view.coverage(series, piece.attempt)
        step = np.maximum(rollup.step, piece.span.first_step)
        inside = (rollup.step + ROLLUP_WIDTH > span.first_step) & (rollup.step <= span.last_step)
        return step[inside], rollup.time_us[inside]
    return np.empty(0, np.int64), np.empty(0, np.int64)


def _counted(view: RunView, align: Literal["samples", "tokens"], span: Span, pieces: list[Piece]) -> Axis | NoAxis:
    if not view.named(align):
        size = usual_size(view, align)
        if size is None:
            return NoAxis(reason=f"its {align} per step are not known; give them to run.step({align}=...)")
        ends = np.array([span.first_step, span.last_step + 1], np.float64)
        return Axis(ends, ends * size)
    step, per_step = _sizes(view, align, pieces)
    if not step.size or per_step.max() <= 0:
        return NoAxis(reason=f"no step of it has {align}")
    # What came before the first step that is known was of its size: a training that goes on from a checkpoint.
    ends = np.append(step, span.last_step + 1).astype(np.float64)
    x = step[0] * per_step[0] + np.concatenate([[0.0], np.cumsum(np.diff(ends) * per_step)])
    return Axis(ends, x)


def _sizes(view: RunView, name: str, pieces: list[Piece]) -> tuple[Ints, Floats]:
    """Steps at which the size of a batch changed, with its size over all ranks from there on."""
    steps: list[Ints] = []
    sizes: list[Floats] = []
    for piece in pieces:
        found = [
            view.store.points(view.run_id, series.series_id, last_step=piece.span.last_step, attempt=piece.attempt)
            for series in view.named(name)[:1]
        ]
        for points in found:
            ranks = [points.rank == rank for rank in np.unique(points.rank)]
            held = [_held(points, mine, piece) for mine in ranks]
            step = np.unique(np.concatenate([one[0] for one in held])) if held else np.empty(0, np.int64)
            total = np.zeros(step.size)
            for own_step, own in held:
                at = np.searchsorted(own_step, step, "right") - 1
                total += np.where(at >= 0, own[np.maximum(at, 0)], own[0])
            steps.append(step)
            sizes.append(total)
    if not steps:
        return np.empty(0, np.int64), np.empty(0)
    step, at = np.unique(np.concatenate(steps), return_index=True)
    return step, np.concatenate(sizes)[at]


def _held(points: Points, mine: NDArray[np.bool_], piece: Piece) -> tuple[Ints, Floats]:
    """One rank's sizes from the start of a piece on."""
    step = np.maximum(points.step[mine], piece.span.first_step)
    value = np.nan_to_num(points.value[mine], nan=0.0, posinf=0.0, neginf=0.0)
    last = np.append(step[1:] != step[:-1], True)  # of those before the piece the last holds
    return step[last], value[last]


def usual_size(view: RunView, name: Literal["samples", "tokens"]) -> float | None:
    """Samples or tokens of a step over all ranks; None where they are not known, or not the same in all steps."""
    for series in view.named(name)[:1]:
        points = view.store.points(view.run_id, series.series_id)
        sizes = {int(rank): set(points.value[points.rank == rank].tolist()) for rank in np.unique(points.rank)}
        if any(len(found) > 1 for found in sizes.values()):
            return None
        return float(sum(value for found in sizes.values() for value in found)) or None
    # Runs from before sizes were recorded: rate times duration, where that is the same whole number all along.
    rate, step_s = view.recent(RATE_OF[name]), view.recent("time.step_s")
    if not rate.size or rate.size != step_s.size or len(view.ranks) > 1:
        return None
    size = np.rint(rate * step_s)
    return float(size[0]) if (size == size[0]).all() and size[0] > 0 else None


# ---- reading -----------------------------------------------------------------------------------


def series_of(view: RunView, metric: str) -> SeriesRow | None:
    """The series of a metric; of several with labels the first."""
    found = view.named(metric)
    return min(found, key=lambda series: len(series.labels)) if found else None


def between(view: RunView, first: int, last: int | None, num_steps: int = 0) -> Span:
    """Some of a run's steps, cut to those it has.

    Args:
        last: None: `num_steps` from the first on.
    """
    whole = view.span
    assert whole is not None, "a run without a step has no steps"
    end = first + num_steps - 1 if last is None else last
    return Span(first_step=min(max(first, whole.first_step), whole.last_step), last_step=min(end, whole.last_step))


def track(
    view: RunView, metric: str, align: Alignment, span: Span | None = None, series: SeriesRow | None = None
) -> Track | NoAxis:
    """A metric of a run along an axis, restarts joined and ranks put together: raw points of up to 32,000 steps, and
    of a metric that is logged seldom; else summaries of 64 steps.

    Args:
        span: some of its steps; None: all.
        series: of several with labels this one; None: the one with the fewest.
    """
    chosen = series or series_of(view, metric)
    key = ("track", metric, align, span, chosen and chosen.series_id)
    return view.memo(key, lambda: _track(view, metric, align, span, chosen))


def _track(view: RunView, metric: str, align: Alignment, span: Span | None, series: SeriesRow | None) -> Track | NoAxis:
    along, span = axis(view, align), span or view.span
    if isinstance(along, NoAxis):
        return along
    if series is None or span is None:
        return NoAxis(reason=f"it has no {metric}")
    pieces = [piece for piece in view.pieces(span) if not piece.is_ghost]
    is_raw = span.num_steps <= MAX_RAW_STEPS or _num_points(view, series, pieces) <= MAX_SPARSE_POINTS
    parts = [part for piece in pieces for part in _piece(view, series, piece, is_raw)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    if not joined["x"].size:
        return NoAxis(reason=f"it has no {metric}")
    if series.reduction == "sum" and len(view.ranks) > 1:
        for name in ("total", "minimum", "maximum", "last"):
            joined[name] = joined[name] * len(view.ranks)
    # `x` of a part is its middle in steps until here.
    joined["x"] = along.x_at(joined["x"])
    return Track(**joined, is_raw=is_raw)


def _num_points(view: RunView, series: SeriesRow, pieces: list[Piece]) -> int:
    found = [view.extent(series, attempt) for attempt in {piece.attempt for piece in pieces}]
    return sum(each.num_points for each in found if each is not None)


def _piece(view: RunView, series: SeriesRow, piece: Piece, is_raw: bool) -> list[dict[str, NDArray[Any]]]:
    """What a piece has: summaries of whole stretches, and at its ends raw points, because a stretch there also holds
    steps that do not count."""
    first, last, width = piece.span.first_step, piece.span.last_step, ROLLUP_WIDTH
    inner_first, inner_end = -(-first // width) * width, (last + 1) // width * width
    if is_raw or inner_end <= inner_first:
        return [_points(view, series, piece, first, last)]
    parts = [_summaries(view.coverage(series, piece.attempt), inner_first, inner_end)]
    if first < inner_first:
        parts.insert(0, _points(view, series, piece, first, inner_first - 1))
    if inner_end <= last:
        parts.append(_points(view, series, piece, inner_end, last))
    return parts


def _summaries(rollup: Rollup, first: int, end: int) -> dict[str, NDArray[Any]]:
    inside = slice(*np.searchsorted(rollup.step, [first, end]).tolist())
    bad = (rollup.num_nan + rollup.num_pos_inf + rollup.num_neg_inf)[inside]
    numbers = {name: np.nan_to_num(getattr(rollup, name)[inside]) for name in ("total", "minimum", "maximum", "last")}
    step = rollup.step[inside]
    return {
        "x": step + (rollup.width - 1) / 2,
        "step": step,
        "count": rollup.count[inside] - bad,
        "bad": bad,
        **numbers,
    }


def _points(view: RunView, series: SeriesRow, piece: Piece, first: int, last: int) -> dict[str, NDArray[Any]]:
    points = view.store.points(view.run_id, series.series_id, first_step=first, last_step=last, attempt=piece.attempt)
    step, _, value, _ = ordered(points)
    finite = np.isfinite(value)
    starts = np.flatnonzero(np.append(True, step[1:] != step[:-1])) if step.size else np.empty(0, np.int64)

    def over_ranks(ufunc: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        return values if starts.size == step.size else np.asarray(ufunc.reduceat(values, starts))

    count = over_ranks(np.add, finite.astype(np.int64))
    zeroed = np.where(finite, value, 0.0)
    has = count > 0
    with np.errstate(over="ignore"):
        total = over_ranks(np.add, zeroed)
    return {
        "x": step[starts].astype(np.float64),
        "step": step[starts],
        "count": count,
        "bad": over_ranks(np.add, (~finite).astype(np.int64)),
        "total": total,
        "minimum": np.where(has, over_ranks(np.minimum, np.where(finite, value, np.inf)), 0.0),
        "maximum": np.where(has, over_ranks(np.maximum, np.where(finite, value, -np.inf)), 0.0),
        "last": np.where(has, total / np.maximum(count, 1), 0.0),
    }


# ---- cells -------------------------------------------------------------------------------------


def into_cells(track: Track, grid: Grid) -> Track:
    """A metric in the cells of a grid, empty ones included."""
    cell = grid.cell(track.x)
    inside = (cell >= 0) & (cell < grid.num_cells)
    if not inside.all():
        track, cell = track.select(inside), cell[inside]
    size = grid.num_cells
    has = track.count > 0

    def extreme(ufunc: np.ufunc, values: Floats, start: float) -> Floats:
        found = np.full(size, start)
        ufunc.at(found, cell[has], values[has])
        return np.where(np.isfinite(found), found, 0.0)

    last = np.zeros(size)
    last[cell[has]] = track.last[has]  # ascending, so the last stays
    step = np.full(size, -1, np.int64)
    step[cell[::-1]] = track.step[::-1]
    return Track(
        x=grid.centre,
        step=step,
        count=np.bincount(cell, track.count, size).astype(np.int64),
        total=np.bincount(cell, track.total, size).astype(np.float64),
        minimum=extreme(np.minimum, track.minimum, np.inf),
        maximum=extreme(np.maximum, track.maximum, -np.inf),
        last=last,
        bad=np.bincount(cell, track.bad, size).astype(np.int64),
        is_raw=False,
    )
