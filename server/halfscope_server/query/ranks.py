"""A series of every rank over a window, in so many columns and rows as can be looked at.

Owns how ranks are binned: the worst of a row stands for it, by name. Must not import plotly. Invariant: the largest
value of the window is in the grid, and the rank that had it is named.

Suffixes: N rows of one or more ranks, C columns of one or more steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query.lines import RAW_POINTS
from halfscope_server.query.over_ranks import RankGrid, grid_of_points, grid_of_rollups
from halfscope_server.query.view import ROLLUP_WIDTH, Piece, RunView
from halfscope_server.query.window import Span, Window
from halfscope_server.store.rank_tables import Stretches
from halfscope_server.store.types import SeriesRow

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_ROWS = 64
MAX_COLUMNS = 240
LEAST_COLUMN_PX = 3
MAX_RAW_STEPS = 2000
"""Beyond, stretches of 64 steps are read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """What is drawn."""

    first_name: Ints
    """[N] lowest and highest of a row: ranks, or buckets."""
    last_name: Ints
    step: Ints
    """[C] first and last of a column, and the time of the first."""
    last_step: Ints
    time_us: Ints
    width: int
    """Steps that a column tells of: its own, or up to the next of a series that is logged now and then."""
    value: Floats
    """[N, C] the largest; NaN: none that is finite."""
    worst: Ints
    """[N, C] whose it is; -1: nobody's."""
    bad: Ints
    """[N, C] values that were not finite."""
    most_bad: Ints
    """[N, C] who had most of those; -1: nobody."""


def rank_cells(view: RunView, series: SeriesRow, window: Window) -> Cells | None:
    """The largest value of each rank in each column; None before the first step. Remembered by the view."""
    span = view.resolve(window)
    if span is None:
        return None
    num_columns = min(MAX_COLUMNS, max(1, window.width_px // LEAST_COLUMN_PX))
    key = ("rank cells", series.series_id, span, num_columns)
    return view.memo(key, lambda: _cells(view, series, span, num_columns))


def _cells(view: RunView, series: SeriesRow, span: Span, num_columns: int = MAX_COLUMNS) -> Cells:
    grids = [_grid(view, series, piece, span) for piece in view.pieces(span) if not piece.is_ghost]
    grid = _joined([one for one in grids if one.step.size] or grids)
    group = max(1, -(-grid.step.size // num_columns))
    starts = np.arange(0, grid.step.size, group)
    with np.errstate(invalid="ignore"):
        value = np.fmax.reduceat(grid.high, starts, axis=1) if starts.size else grid.high
    bad = np.add.reduceat(grid.num_bad, starts, axis=1) if starts.size else grid.num_bad
    ends = np.append(starts[1:], grid.step.size) - 1
    usual = int(np.median(np.diff(grid.step[starts]))) if starts.size > 1 else 1
    return in_rows(
        grid.ranks,
        value,
        bad,
        step=np.maximum(grid.step[starts], span.first_step),
        last_step=np.minimum(grid.step[ends] + grid.width - 1, span.last_step) if starts.size else grid.step,
        time_us=grid.time_us[starts],
        width=max(grid.width * group, usual),
        nodes=node_starts(grid.ranks, hosts_of(view)),
    )


def hosts_of(view: RunView) -> Mapping[int, str]:
    """The node of each rank, in its newest attempt."""
    return view.memo("hosts of ranks", lambda: {s.rank: s.host for s in sorted(view.streams, key=lambda s: s.attempt)})


def node_starts(ranks: Ints, hosts: Mapping[int, str]) -> Ints:
    """Places in `ranks` at which another node begins; only the first where ranks of a node do not stand together."""
    names = [hosts.get(rank, "") for rank in ranks.tolist()]
    sizes = [len(list(same)) for _, same in itertools.groupby(names)]
    starts = np.cumsum([0, *sizes[:-1]])
    return starts if len(set(names)) == len(sizes) else starts[:1]


def _row_starts(num_names: int, nodes: Ints) -> Ints:
    """Places at which rows begin: a row holds whole nodes, or a node whole rows."""
    if num_names <= MAX_ROWS:
        return np.arange(num_names)
    if nodes.size > MAX_ROWS:
        return nodes[:: -(-nodes.size // MAX_ROWS)]
    sizes = np.diff(np.append(nodes, num_names))
    groups = -(-sizes // (MAX_ROWS // nodes.size))
    parts = zip(nodes.tolist(), sizes.tolist(), groups.tolist(), strict=True)
    return np.concatenate([np.arange(first, first + size, group) for first, size, group in parts])


def in_rows(
    names: Ints,
    value: Floats,
    bad: Ints,
    *,
    step: Ints,
    last_step: Ints,
    time_us: Ints,
    width: int,
    nodes: Ints | None = None,
) -> Cells:
    """Rows of at most so many that each can be seen.

    Args:
        nodes: see `node_starts`; None: names are of no nodes.
    """
    starts = _row_starts(names.size, np.zeros(1, np.int64) if nodes is None else nodes)
    ends = np.append(starts[1:], names.size)[: starts.size] - 1
    worst = np.full((starts.size, value.shape[1]), -1, np.int64)
    most_bad = worst.copy()
    largest = np.full(worst.shape, np.nan)
    for row, (low, high) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        part = np.where(np.isnan(value[low : high + 1]), -np.inf, value[low : high + 1])
        at = part.argmax(axis=0)
        found = np.take_along_axis(part, at[None], 0)[0]
        is_known = np.isfinite(found)
        largest[row] = np.where(is_known, found, np.nan)
        worst[row] = np.where(is_known, names[low + at], -1)
        counts = bad[low : high + 1]
        most_bad[row] = np.where(counts.any(axis=0), names[low + counts.argmax(axis=0)], -1)
    added = np.add.reduceat(bad, starts, axis=0) if starts.size else bad
    return Cells(
        first_name=names[starts],
        last_name=names[ends] if starts.size else names,
        step=step,
        last_step=last_step,
        time_us=time_us,
        width=width,
        value=largest,
        worst=worst,
        bad=added,
        most_bad=most_bad,
    )


def _grid(view: RunView, series: SeriesRow, piece: Piece, span: Span) -> Stretches:
    first, last = piece.span.first_step, piece.span.last_step
    kept = _kept(view, series, piece)
    if kept is not None:
        return kept
    if span.num_steps <= MAX_RAW_STEPS and span.num_steps * len(view.ranks) <= RAW_POINTS // 2:
        return _of(
            grid_of_points(
                view.store.points(
                    view.run_id, series.series_id, first_step=first, last_step=last, attempt=piece.attempt
                )
            )
        )
    width = max(1, -(-span.num_steps // (MAX_COLUMNS * ROLLUP_WIDTH))) * ROLLUP_WIDTH
    found = view.store.rank_rollups(
        view.run_id, series.series_id, width, first_step=first, last_step=last, attempt=piece.attempt
    )
    return _of(grid_of_rollups(found, width))


def _of(grid: RankGrid) -> Stretches:
    return Stretches(
        width=grid.width,
        ranks=np.array(grid.ranks, np.int64),
        step=grid.step,
        time_us=grid.time_us,
        high=grid.high,
        num_bad=grid.num_bad,
    )


def _kept(view: RunView, series: SeriesRow, piece: Piece) -> Stretches | None:
    """Of a whole attempt, what was kept while it was recorded; None: it has to be read."""
    if not any(piece.attempt == one.number and piece.span == one.span for one in view.attempts):
        return None
    nexts = {stream.stream: stream.next for stream in view.streams if stream.attempt == piece.attempt}
    with view.store.rank_table(view.run_id, piece.attempt, nexts) as table:
        found = None if table is None else table.stretches(series.series_id)
    if found is None:
        return None
    # It may know of more than the view does.
    seen = found.step <= piece.span.last_step
    return replace(
        found,
        step=found.step[seen],
        time_us=found.time_us[seen],
        high=found.high[:, seen],
        num_bad=found.num_bad[:, seen],
    )


def _joined(grids: list[Stretches]) -> Stretches:
    """Attempts one after the other; a rank that one of them does not have is blank there."""
    if len(grids) == 1:
        return grids[0]
    ranks = np.unique(np.concatenate([grid.ranks for grid in grids]))

    def beside(name: str, nothing: float) -> NDArray[np.float64]:
        blocks = []
        for grid in grids:
            block = np.full((ranks.size, grid.step.size), nothing)
            block[np.searchsorted(ranks, grid.ranks)] = getattr(grid, name)
            blocks.append(block)
        return np.concatenate(blocks, axis=1)

    return Stretches(
        width=max(grid.width for grid in grids),
        ranks=ranks,
        step=np.concatenate([grid.step for grid in grids]),
        time_us=np.concatenate([grid.time_us for grid in grids]),
        high=beside("high", np.nan),
        num_bad=beside("num_bad", 0).astype(np.int64),
    )


def bucket_cells(view: RunView, name: str, window: Window) -> Cells | None:
    """The largest value over all ranks of a series with the label `bucket`, one row for each bucket."""
    span = view.resolve(window)
    if span is None:
        return None
    return view.memo(("bucket cells", name, span), lambda: _bucket_cells(view, name, span))


def _bucket_cells(view: RunView, name: str, span: Span) -> Cells:
    by_bucket = {int(s.labels["bucket"]): s for s in view.named(name) if s.labels.get("bucket", "").isdecimal()}
    found = {bucket: _cells(view, series, span) for bucket, series in sorted(by_bucket.items())}
    steps = np.unique(np.concatenate([cells.step for cells in found.values()] or [np.empty(0, np.int64)]))
    shape = (len(found), steps.size)
    value, bad = np.full(shape, np.nan), np.zeros(shape, np.int64)
    time_us, last = np.zeros(steps.size, np.int64), np.zeros(steps.size, np.int64)
    for row, cells in enumerate(found.values()):
        at = np.searchsorted(steps, cells.step)
        with np.errstate(invalid="ignore"):
            value[row, at] = np.fmax.reduce(cells.value, axis=0) if cells.value.size else np.nan
        bad[row, at], time_us[at], last[at] = cells.bad.sum(axis=0), cells.time_us, cells.last_step
    width = max((cells.width for cells in found.values()), default=1)
    return in_rows(
        np.array(list(found), np.int64), value, bad, step=steps, last_step=last, time_us=time_us, width=width
    )
