"""One statistic of modules and layers over frames: what the heatmap shows and the tree sums up.

Owns what each statistic is and how it is formed for a module and for several frames at once. Must not import plotly.
Invariant: a module's value is that of its layers' elements together, formed from sums (of extremes, the extreme); it is
NaN where there is nothing to form it of.

Suffixes: C columns of one or more neighbouring frames, N nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from halfscope.sketch import DEFAULT_SCALE, headroom
from halfscope.sketch import share as quotient
from numpy.typing import NDArray

from halfscope_server.query.format import norm, number, share
from halfscope_server.query.frames import FrameTable, RunFrames, in_columns, node_largest, node_sums
from halfscope_server.query.skips import STREAK
from halfscope_server.query.tree import Node
from halfscope_server.query.underflow import Underflow, shares_of
from halfscope_server.query.window import Statistic

if TYPE_CHECKING:
    from halfscope_server.query.view import RunView

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_TITLES: dict[Statistic, str] = {
    "underflow": "Underflow",
    "headroom": "Headroom",
    "nonfinite": "Non-finite",
    "norm": "Norm",
    "zeros": "Zero share",
}
_TEXTS: dict[Statistic, str] = {
    "headroom": "Doublings left before the largest gradient overflows FP16, at the scale of the step; -1 where an"
    " element is infinite.",
    "nonfinite": "Share of elements that are NaN or infinite.",
    "norm": "L2 norm of the unscaled gradient before clipping, over its finite elements.",
    "zeros": "Share of elements that are exactly zero, for whatever reason: ReLU, padding, masks, underflow.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStat:
    """A statistic that can be chosen; mirrors the API."""

    id: Statistic
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeValues:
    """A statistic of nodes over columns."""

    nodes: tuple[Node, ...]
    step: Ints
    """[C] of the first frame of a column."""
    last_step: Ints
    time_us: Ints
    num_frames: Ints
    """[C] added up in a column."""
    value: Floats
    """[C, N]; NaN: unknown, or nothing to form it of."""
    present: Bools
    """[C, N] whether any layer of the node was sketched."""
    nonfinite: Ints
    """[C, N] elements that are NaN or infinite."""


def statistics(underflow: Underflow | None) -> list[LayerStat]:
    """What can be chosen, in order."""
    first = f"Share of elements lost: {underflow.note}." if underflow else "Share of elements lost below FP16's floor."
    return [LayerStat(id=key, title=title, text=_TEXTS.get(key, first)) for key, title in _TITLES.items()]


def title_of(stat: Statistic) -> str:
    """Its name on the page."""
    return _TITLES[stat]


def value_words(stat: Statistic, value: float) -> str:
    """A value as it is read: `12.4%`, `-1 bits`, `6.80e-4`, `–`."""
    if np.isnan(value):
        return "–"
    if stat == "headroom":
        return f"{number(value)} {'bit' if value == 1 else 'bits'}"
    return norm(value) if stat == "norm" else share(value)


def worst_is_lowest(stat: Statistic) -> bool:
    """Whether small values are the bad ones."""
    return stat == "headroom"


def node_values(
    frames: RunFrames, underflow: Underflow, stat: Statistic, nodes: Sequence[Node], part: slice, starts: Ints
) -> NodeValues:
    """A statistic of some nodes over some frames.

    Args:
        part: rows of the frames.
        starts: first frame of each column, from 0 within `part`.
    """
    table = frames.table.rows(part)
    first, end = np.array([n.first for n in nodes], np.int64), np.array([n.end for n in nodes], np.int64)
    asked = _Asked(frames, table, underflow, part, starts, first, end)
    sizes = np.diff(np.append(starts, table.num_frames))
    return NodeValues(
        nodes=tuple(nodes),
        step=table.step[starts],
        last_step=table.last_step[starts + sizes - 1],
        time_us=table.time_us[starts],
        num_frames=sizes,
        value=_FORMS[stat](asked),
        present=asked.sums(table.frames) > 0,
        nonfinite=asked.sums(table.nonfinite),
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    frames: RunFrames
    table: FrameTable
    underflow: Underflow
    part: slice
    starts: Ints
    first: Ints
    end: Ints

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """[F, L] to [C, N]."""
        if not values.any():  # most counts of most runs
            return np.zeros((self.starts.size, self.first.size), values.dtype)
        return node_sums(self.columns(np.add, values), self.first, self.end)

    def largest(self, values: Floats) -> Floats:
        """Likewise."""
        return node_largest(self.columns(np.maximum, values), self.first, self.end)

    def columns(self, ufunc: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """[F, L] to [C, L]."""
        if not values.size or self.starts.size == values.shape[0]:
            return values
        return in_columns(ufunc, values, self.starts)


def _underflow(a: _Asked) -> Floats:
    lost, of, known = (a.sums(v[a.part]) for v in (a.underflow.lost, a.underflow.of, a.underflow.known))
    return shares_of(lost, of, known > 0)


def _headroom(a: _Asked) -> Floats:
    # Without a scaler the gradient of an FP16 run is as it is; for others it is what FP16 would see to begin with.
    without = 1.0 if a.underflow.is_measured else DEFAULT_SCALE
    scale = np.where(np.isnan(a.table.scale), without, a.table.scale)
    with np.errstate(over="ignore"):
        scaled = a.frames.sizes.absmax[a.part] * scale
    return headroom(a.largest(scaled), a.sums(a.table.infinite))


def _nonfinite(a: _Asked) -> Floats:
    return quotient(a.sums(a.table.nonfinite), a.sums(a.table.n))


def _norm(a: _Asked) -> Floats:
    """Over several frames the root mean square: what one of them has."""
    frames = a.columns(np.add, a.table.frames).astype(np.float64)
    return np.sqrt(quotient(a.sums(a.frames.sizes.sumsq[a.part]), node_largest(frames, a.first, a.end)))


def _zeros(a: _Asked) -> Floats:
    return quotient(a.sums(a.table.zeros), a.sums(a.table.n))


_FORMS = {
    "underflow": _underflow,
    "headroom": _headroom,
    "nonfinite": _nonfinite,
    "norm": _norm,
    "zeros": _zeros,
}


def skip_gravity(view: RunView, step: Ints) -> Ints:
    """How grave NaN and Inf in a gradient are, by what became of the step: 1 a single skip, 2 a streak, 3 not
    withheld."""
    skips = view.skips
    gravity = np.full(step.size, 3, np.int64)
    if skips.size:
        gravity[np.isin(step, skips.step)] = 1
        gravity[np.isin(step, skips.of(STREAK).step)] = 2
    return gravity
