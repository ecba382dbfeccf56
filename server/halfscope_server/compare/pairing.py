"""Which layers and which sketched steps two runs have in common.

Owns the matching of names and of frames. Must not import plotly. Invariant: a frame stands beside at most one of the
other run, and never beside one that lies further away than half the distance between sketches.

Suffixes: P pairs of frames, L common layers in the member's forward order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfscope_server.compare.align import Axis, NoAxis, axis
from halfscope_server.compare.types import Alignment
from halfscope_server.query.frames import RunFrames, run_frames
from halfscope_server.query.view import RunView

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WRAPPER_PARTS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Parts of names that wrappers add; agents of today leave them out already."""
_NO_ROWS = np.empty(0, np.int64)
TAIL_SHARE, MIN_TAIL, MAX_TAIL = 0.1, 3, 64
"""Of the common frames those that stand for how things are at the end: enough to be sure, and quickly read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """The common layers and frames of a baseline and a member."""

    baseline: RunView
    member: RunView
    baseline_frames: RunFrames
    frames: RunFrames
    """The member's."""
    names: tuple[str, ...]
    """[L] as the member calls them."""
    baseline_columns: Ints
    """[L]"""
    columns: Ints
    only_baseline: tuple[str, ...]
    only_member: tuple[str, ...]
    baseline_rows: Ints
    """[P] ascending."""
    rows: Ints
    interval: int | None
    """Steps of the member between them, mostly."""
    problem: str
    """Why there are none; empty where there may be."""

    @property
    def num_pairs(self) -> int:
        return int(self.rows.size)

    @property
    def step(self) -> Ints:
        """[P] the member's."""
        return self.frames.table.step[self.rows]

    @property
    def tail(self) -> slice:
        """The pairs that stand for the end."""
        length = min(MAX_TAIL, max(MIN_TAIL, int(TAIL_SHARE * self.num_pairs)))
        return slice(max(0, self.num_pairs - length), None)


def pair(baseline: RunView, member: RunView, align: Alignment) -> Pairs | None:
    """What two runs have in common; None where one of them declared no layer."""
    one, two = run_frames(baseline), run_frames(member)
    if one is None or two is None:
        return None
    common = match_names(one.tree.leaves, two.tree.leaves)
    axes, rows, problem = (axis(baseline, align), axis(member, align)), (_NO_ROWS, _NO_ROWS), ""
    for view, at in zip((baseline, member), axes, strict=True):
        if isinstance(at, NoAxis):
            problem = f"{view.row.name or view.run_id} cannot be laid beside the other by {align}: {at.reason}"
    if isinstance(axes[0], Axis) and isinstance(axes[1], Axis):
        rows = match_places(axes[0].x_at(one.table.step), axes[1].x_at(two.table.step))
    steps = two.table.step[rows[1]]
    return Pairs(
        baseline=baseline,
        member=member,
        baseline_frames=one,
        frames=two,
        names=tuple(two.tree.leaves[at] for _, at in common),
        baseline_columns=np.array([at for at, _ in common], np.int64),
        columns=np.array([at for _, at in common], np.int64),
        only_baseline=_rest(one.tree.leaves, [at for at, _ in common]),
        only_member=_rest(two.tree.leaves, [at for _, at in common]),
        baseline_rows=rows[0],
        rows=rows[1],
        interval=int(np.median(np.diff(steps))) if steps.size > 1 else None,
        problem=problem,
    )


def match_names(one: Sequence[str], two: Sequence[str]) -> list[tuple[int, int]]:
    """Places of the same layers in both, in the order of the second.

    Equal names match; of the others those that are equal without the parts that wrappers add, where each is the only
    one of its kind.
    """
    place = {name: at for at, name in enumerate(one)}
    found = {at: place.pop(name) for at, name in enumerate(two) if name in place}
    plain_one = _by_plain_name(list(place.items()))
    plain_two = _by_plain_name([(name, at) for at, name in enumerate(two) if at not in found])
    found |= {at: plain_one[name] for name, at in plain_two.items() if name in plain_one}
    return [(found[at], at) for at in sorted(found)]


def _by_plain_name(named: Sequence[tuple[str, int]]) -> dict[str, int]:
    plain = [".".join(part for part in name.split(".") if part not in WRAPPER_PARTS) for name, _ in named]
    return {name: at for name, (_, at) in zip(plain, named, strict=True) if plain.count(name) == 1}


def _rest(names: Sequence[str], taken: Sequence[int]) -> tuple[str, ...]:
    known = set(taken)
    return tuple(name for at, name in enumerate(names) if at not in known)


def match_places(one: Floats, two: Floats) -> tuple[Ints, Ints]:
    """Rows of two ascending axes that stand beside each other.

    Where most of the sparser one's places are also places of the other, those; else the nearest.
    """
    exact, rows_one, rows_two = np.intersect1d(one, two, return_indices=True)
    if not one.size or not two.size:
        return rows_one.astype(np.int64), rows_two.astype(np.int64)
    reach = max(_usual(one), _usual(two)) / 2
    low, high = max(one[0], two[0]) - reach, min(one[-1], two[-1]) + reach
    possible = min(int(((x >= low) & (x <= high)).sum()) for x in (one, two))
    if 2 * exact.size >= possible:
        return rows_one.astype(np.int64), rows_two.astype(np.int64)
    if one.size > two.size:
        rows = match_places(two, one)
        return rows[1], rows[0]
    after = np.clip(np.searchsorted(two, one), 1, max(1, two.size - 1))
    nearest = np.where(
        np.abs(two[after - 1] - one) <= np.abs(two[np.minimum(after, two.size - 1)] - one), after - 1, after
    )
    nearest = np.minimum(nearest, two.size - 1)
    away = np.abs(two[nearest] - one)
    # Of several that are nearest to one place only the closest stands beside it.
    order = np.lexsort((away, nearest))
    order = order[away[order] <= reach]
    kept = np.sort(order[np.flatnonzero(np.diff(nearest[order], prepend=-1))])
    return kept.astype(np.int64), nearest[kept].astype(np.int64)


def _usual(x: Floats) -> float:
    return float(np.median(np.diff(x))) if x.size > 1 else 0.0
