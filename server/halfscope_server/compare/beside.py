"""One run beside the baseline: a metric of both in the same cells, and their difference.

Must not import the store's tables. Invariant: where both have their values at the same places, only those are compared,
so that what batches do to both cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from halfscope_server.compare import align
from halfscope_server.compare.align import NUM_CELLS, Axis, Floats, Grid, NoAxis, Track
from halfscope_server.query.view import ROLLUP_WIDTH, RunView

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

FINAL_SHARE = 0.1
MIN_FINAL_PLACES = 20
MAX_FINAL_SHARE = 0.25
"""Of few places no more than the last quarter is an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two runs in the cells that both have a finite value in; K of them, ascending."""

    grid: Grid
    cell: NDArray[np.int64]
    """[K] which cells of the grid."""
    baseline: Track
    """[K] likewise member."""
    member: Track
    num_bad: tuple[int, int]
    """Values of each that are NaN or infinite, within what both have."""
    is_in_step: bool
    """Whether the same steps of both lie at the same places, so that batches may be the same there."""

    @property
    def x(self) -> Floats:
        return self.grid.centre[self.cell]

    @property
    def difference(self) -> Floats:
        """[K] member's mean less the baseline's."""
        return self.member.mean - self.baseline.mean

    @property
    def final(self) -> slice:
        """The cells of the end: the last tenth, at least 20 of them, but no more than the last quarter."""
        return final_cells(self.x)


def final_cells(x: Floats) -> slice:
    """Which of some places are the end of a run."""
    if not x.size:
        return slice(0, 0)
    tenth = int(x.size - np.searchsorted(x, x[-1] - FINAL_SHARE * (x[-1] - x[0]), "left"))
    few = min(MIN_FINAL_PLACES, int(np.ceil(MAX_FINAL_SHARE * x.size)))
    return slice(x.size - max(tenth, few), x.size)


def pair(comparison: Comparison, index: int, metric: str = "") -> Pair | NoAxis:
    """A member beside the baseline over all that both have.

    Args:
        index: 1 or more.
        metric: the comparison's own by default.
    """
    options = comparison.options
    metric = metric or options.metric
    return comparison.memo_pair(
        index,
        ("cells", metric, options.align),
        lambda: _pair(comparison.baseline, comparison.views[index], comparison, metric),
    )


def _pair(baseline: RunView, other: RunView, comparison: Comparison, metric: str) -> Pair | NoAxis:
    how = comparison.options.align
    tracks = [align.track(view, metric, how) for view in (baseline, other)]
    axes = [align.axis(view, how) for view in (baseline, other)]
    for track, axis, whose in zip(tracks, axes, ("the baseline", "the run"), strict=True):
        if isinstance(track, NoAxis):
            return NoAxis(reason=track.reason.replace("it ", f"{whose} ", 1).replace("its ", f"{whose}'s ", 1))
        assert isinstance(axis, Axis)
    one, two = tracks
    assert isinstance(one, Track)
    assert isinstance(two, Track)
    if how != "time":
        one, two = _at_same_places(one, two)
    grid = common_grid([one, two], [axis for axis in axes if isinstance(axis, Axis)], whole=how != "time")
    if grid is None:
        return NoAxis(reason="the two runs have no stretch in common")
    cells = [align.into_cells(track, grid) for track in (one, two)]
    has = np.flatnonzero((cells[0].count > 0) & (cells[1].count > 0))
    return Pair(
        grid=grid,
        cell=has,
        baseline=cells[0].select(has),
        member=cells[1].select(has),
        num_bad=(int(cells[0].bad.sum()), int(cells[1].bad.sum())),
        is_in_step=_is_in_step([axis for axis in axes if isinstance(axis, Axis)], grid),
    )


def _is_in_step(axes: list[Axis], grid: Grid) -> bool:
    """Whether two axes have the same steps at the beginning, the middle and the end of a grid."""
    places = (grid.origin, (grid.origin + grid.last) / 2, grid.last)
    one, two = (np.array([axis.step_at(x) for x in places]) for axis in axes)
    return bool(np.abs(one - two).max() < 0.5)


def common_grid(tracks: list[Track], axes: list[Axis], *, whole: bool) -> Grid | None:
    """Cells over what all of some runs have; None: there is nothing.

    Args:
        whole: whether a cell must hold a whole number of steps: on all axes but time.
    """
    first = max(
        float(track.x[0] if track.is_raw else axis.x_at(track.step[:1])[0]) for track, axis in _zip(tracks, axes)
    )
    last = min(float(track.x[-1]) for track in tracks)
    if last < first:
        return None
    # Steps of the run that leads farthest with one of them; where all were skipped it leads nowhere.
    unit = max(axis.per_step for axis in axes) or 1.0
    length = (last - first) / unit
    if all(track.is_raw for track in tracks):
        width = max(1.0, np.ceil((length + 1) / NUM_CELLS)) if whole else max(length, 1.0) / NUM_CELLS
        if not np.array_equal(tracks[0].x, tracks[1].x):
            # Logged at other places: cells in which either has a value mostly.
            spacing = max(_spacing(track) for track in tracks) / unit
            width = max(width, np.ceil(spacing - 1e-9) if whole else spacing)
    else:
        width = np.ceil(length / NUM_CELLS / ROLLUP_WIDTH) * ROLLUP_WIDTH
    width = float(width * unit)
    origin = float(np.floor(first / width + 1e-9) * width) if whole else first
    # `last` lies in the last cell.
    return Grid(origin=origin, width=width, num_cells=int((last - origin) / width + 1e-9) + 1)


def _spacing(track: Track) -> float:
    """How far apart its values lie, mostly."""
    return float(np.median(np.diff(track.x))) if track.x.size > 1 else 0.0


def _zip(tracks: list[Track], axes: list[Axis]) -> zip[tuple[Track, Axis]]:
    return zip(tracks, axes, strict=True)


def _at_same_places(one: Track, two: Track) -> tuple[Track, Track]:
    """Of raw points those that lie at places of both, where that is most of what either has."""
    if not (one.is_raw and two.is_raw):
        return one, two
    common = np.intersect1d(one.x[one.count > 0], two.x[two.count > 0])
    if common.size < min(one.x.size, two.x.size) / 2:
        return one, two
    # Places that are not finite in one of them are left in: they are counted.
    keep = [np.isin(track.x, common) | (track.bad > 0) for track in (one, two)]
    return one.select(keep[0]), two.select(keep[1])
