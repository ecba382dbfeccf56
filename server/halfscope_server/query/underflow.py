"""Underflow of every layer in every frame: which of the numbers it is, and the worst of them.

Owns the choice between what was measured and what is predicted (docs/numerics.md). Must not import plotly. Invariant:
what is not known stays NaN through every sum and maximum, and is never called 0.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from halfscope.sketch import DEFAULT_SCALE, structural_zeros
from numpy.typing import NDArray

from halfscope_server.query.format import power_of_two, share
from halfscope_server.query.frames import FrameTable, RunFrames, node_sums, run_frames
from halfscope_server.query.paired import paired_zeros
from halfscope_server.query.states import precision_of

if TYPE_CHECKING:
    from halfscope_server.query.view import RunView

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVELS = (0.01, 0.05, 0.2)
"""Shares at which the strip's violet steps up; the last two are a warning and critical."""
WARNING_SHARE, CRITICAL_SHARE = LEVELS[1:]
_FP16_LABELS = ("FP16-AMP", "FP16")
_UNSETTLED_LABELS = ("mixed", "")
"""Where a loss scale says that some of it is FP16."""
SKETCHES_AT_ONCE = 200_000
MIN_RETURNS = 2
MAX_FLUSHED = 100
"""Events read to name the layers that were flushed."""

Severity = Literal["ok", "info", "warning", "critical", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Underflow:
    """Elements lost and elements that could have been, [F, L] like the frames; their quotient is the share."""

    is_measured: bool
    """True: excess zeros of a run that computes in FP16, at least. False: what FP16 would flush, predicted."""
    note: str
    """Which number it is, in a sentence."""
    verb: str
    """Before a share: `underflow`, or `would underflow`."""
    lost: Floats
    """0 where it is not known."""
    of: Floats
    """Likewise."""
    known: NDArray[np.bool_]

    def shares(self, first: Ints, end: Ints, part: slice = slice(None)) -> Floats:
        """[F, N] of the nodes over layers [first, end), from summed counts; of what is unknown below a node, nothing
        is in it. NaN where nothing is known."""
        lost, of, num_known = (node_sums(v[part], first, end) for v in (self.lost, self.of, self.known))
        return shares_of(lost, of, num_known > 0)

    def layer_shares(self) -> Floats:
        """[F, L]"""
        return shares_of(self.lost, self.of, self.known)

    def severity(self, value: float) -> Severity:
        """How grave a share is: a prediction is never more than information."""
        if np.isnan(value):
            return "unknown"
        grave = (
            "critical" if value >= CRITICAL_SHARE else "warning" if value >= WARNING_SHARE else "info"
        )  # fmt: skip
        if value < LEVELS[0]:
            return "ok"
        return grave if self.is_measured else "info"  # type: ignore[return-value]  # one of the three words above


def shares_of(lost: Floats, of: Floats, known: NDArray[np.bool_]) -> Floats:
    """Quotients; NaN where nothing is known, 0 where nothing could be lost."""
    result = np.divide(lost, of, out=np.zeros(lost.shape), where=known & (of > 0))
    result[~known] = np.nan
    return result


def computes_in_fp16(view: RunView, table: FrameTable) -> bool:
    """Whether what FP16 flushes is zero by the time it is seen."""
    label = precision_of(view.row)
    return label in _FP16_LABELS or (label in _UNSETTLED_LABELS and bool(np.isfinite(table.scale).any()))


def run_underflow(view: RunView) -> Underflow | None:
    """Underflow of all frames of a run; None where no layer was declared."""
    frames = run_frames(view)
    if frames is None:
        return None
    # What the run says of its precision decides which of the two it is.
    key = ("underflow", precision_of(view.row))
    return frames.counted.get(key, lambda: _measured(view, frames) or _predicted(frames.table))


def _measured(view: RunView, frames: RunFrames) -> Underflow | None:
    table = frames.table
    if not computes_in_fp16(view, table):
        return None
    near_floor = _near_floor(frames)
    structural = structural_zeros(
        zeros=table.zeros,
        n=table.n,
        nonzero=table.nonzero,
        near_floor=near_floor,
        scale=table.scale,
    )
    known = ~np.isnan(structural)
    known &= table.present
    unknown = table.present & ~known
    found = paired_zeros(view, frames, unknown, near_floor) if unknown.any() else None
    if found is not None:
        told = ~np.isnan(found)
        np.copyto(structural, found, where=told)
        known |= told
    # In place: these are as large as all frames.
    lost = np.subtract(table.zeros, structural)
    np.maximum(lost, 0.0, out=lost)
    of = np.subtract(table.n, structural, out=structural)
    for values in (lost, of):
        np.copyto(values, 0.0, where=~known)
    return Underflow(
        is_measured=True,
        note="measured, at least: zeros beyond those that the layer has while its gradients have room above FP16's"
        " floor" + ("" if found is None else ", or in the run's baseline where they never had"),
        verb="underflow",
        lost=lost,
        of=of,
        known=known,
    )


def _near_floor(frames: RunFrames) -> NDArray[Any]:
    """Nonzero elements below FP16's smallest normal number. Without a loss scale the gradient itself is in FP16, and
    the store's counts, made for the usual scale, do not apply: they are counted again from the sketches."""
    table = frames.table
    near: NDArray[Any] = table.subnormal + table.flushed
    bare = np.isnan(table.scale)
    if not bare.any():
        return near
    near = np.where(bare, 0.0, near)
    width = max(1, SKETCHES_AT_ONCE // max(1, frames.told.num_rows))
    for piece in frames.pieces:
        for first in range(0, len(frames.layers), width):
            end = min(first + width, len(frames.layers))
            if not bare[:, first if bare.shape[1] > 1 else 0 : end].any():
                continue
            found = frames.reader.sketches(
                frames.layer_ids(first, end),
                first_step=piece.span.first_step,
                last_step=piece.span.last_step,
                attempt=piece.attempt,
            )
            row = np.searchsorted(table.step, found.step, "right") - 1
            counted = np.isnan(found.scale) & (row >= 0)[:, None]
            below = np.where(counted, found.sketches.below(-14), 0.0)
            # One by one: rows repeat where frames were added up.
            for at in np.flatnonzero(counted.any(axis=1)).tolist():
                near[row[at], first:end] += below[at]
    return near


def _predicted(table: FrameTable) -> Underflow:
    nonzero = table.nonzero
    known = table.present & (nonzero > 0)
    own, usual = np.isfinite(table.scale), f"scale {power_of_two(DEFAULT_SCALE)}"
    at = "the run's own loss scale" if own.any() else usual
    if own.any() and not own.all(axis=1).any():
        at = f"the layer's own loss scale, or {usual} where it has none"
    return Underflow(
        is_measured=False,
        note=f"predicted, at least: what one rounding of these gradients to FP16 would flush at {at}; what FP16 loses"
        " on the way to them is not in it",
        verb="would underflow",
        lost=np.where(known, table.flushed, 0).astype(np.float64),
        of=np.where(known, nonzero, 0).astype(np.float64),
        known=known,
    )


# ---- the worst -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorstOfFrames:
    """Per frame the layer that loses the largest share. All [F]."""

    share: Floats
    """NaN: nothing known."""
    layer: Ints
    """Column; meaningless where the share is NaN."""


def worst_of_frames(view: RunView) -> WorstOfFrames | None:
    """The worst layer of every frame."""
    underflow = run_underflow(view)
    return None if underflow is None else view.memo("worst of frames", lambda: _worst_of_frames(underflow))


def _worst_of_frames(underflow: Underflow) -> WorstOfFrames:
    shares = underflow.layer_shares()
    if not shares.size:
        return WorstOfFrames(share=np.full(shares.shape[0], np.nan), layer=np.zeros(shares.shape[0], np.int64))
    layer = np.where(np.isnan(shares), -1.0, shares).argmax(axis=1)
    return WorstOfFrames(share=shares[np.arange(layer.size), layer], layer=layer)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstLayer:
    """A layer with the share it loses over a stretch of frames."""

    name: str
    share: float
    first_step: int
    last_step: int
    severity: Severity


def worst_recent(view: RunView) -> WorstLayer | None:
    """The worst layer over the recent frames (at least the newest), by summed counts; None where nothing is known."""
    return view.memo("worst recent", lambda: _worst_recent(view))


def _worst_recent(view: RunView) -> WorstLayer | None:
    frames, underflow = run_frames(view), run_underflow(view)
    if frames is None or underflow is None or frames.is_empty:
        return None
    table = frames.table
    first = min(int(np.searchsorted(table.step, view.recent_from)), table.num_frames - 1)
    part = slice(first, None)
    totals = layer_totals(underflow, part)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nothing known: said by the NaN
        largest = float(np.nanmax(totals)) if totals.size else float("nan")
    if np.isnan(largest):
        return None
    # Of equally bad ones the largest: where nothing is lost it shows more than a bias.
    at = int(np.where(totals == largest, table.n.max(axis=0), -1).argmax())
    return WorstLayer(
        name=frames.tree.leaves[at],
        share=largest,
        first_step=int(table.step[first]),
        last_step=int(table.last_step[-1]),
        severity=underflow.severity(largest),
    )


def layer_totals(underflow: Underflow, part: slice) -> Floats:
    """[L] share of each layer over some frames, from summed counts."""
    any_known: NDArray[np.bool_] = np.asarray(underflow.known[part].any(axis=0))
    return shares_of(underflow.lost[part].sum(axis=0), underflow.of[part].sum(axis=0), any_known)


def default_layer(view: RunView) -> str:
    """The layer that is shown where none was chosen: the worst of late, else the last one that has a gradient; empty
    without layers."""
    worst, frames = worst_recent(view), run_frames(view)
    if worst is not None:
        return worst.name
    if frames is None:
        return ""
    with_gradient = np.flatnonzero(frames.table.present.any(axis=0))
    return frames.tree.leaves[int(with_gradient[-1]) if with_gradient.size else -1]


def all_zero_layers(view: RunView) -> frozenset[str]:
    """Layers whose newest frame holds nothing but zeros, but for those that come and go (a branch, an expert): they
    have been all zero and back at least twice."""
    frames = run_frames(view)
    if frames is None or frames.is_empty:
        return frozenset()

    def find() -> frozenset[str]:
        table = frames.table
        newest = table.num_frames - 1 - table.present[::-1].argmax(axis=0)
        at = np.arange(newest.size)
        zero = table.present & (table.zeros == table.n)
        now = np.flatnonzero(zero[newest, at]).tolist()
        gone = {layer: zero[table.present[:, layer], layer] for layer in now}
        return frozenset(frames.tree.leaves[layer] for layer in now if _num_returns(gone[layer]) < MIN_RETURNS)

    return view.memo("all zero layers", find)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """Layers that had gradients and are all zero now."""

    names: tuple[str, ...]
    """The newest first."""
    since: int
    """Step at which the first of them was told."""


def flushed_now(view: RunView) -> Flushed | None:
    """What an event has told and is so still; None: nothing."""
    return view.memo("flushed now", lambda: _flushed_now(view))


def _flushed_now(view: RunView) -> Flushed | None:
    if not view.event_counts.get("layer_flushed", 0):
        return None
    events = view.store.events(view.run_id, kinds=("layer_flushed",), limit=MAX_FLUSHED, newest_first=True)
    zero = all_zero_layers(view)
    names = tuple(dict.fromkeys(name for event in events for name in map(str, event.where) if name in zero))
    if not names:
        return None
    return Flushed(names=names, since=min(e.step for e in events if any(str(name) in zero for name in e.where)))


def _num_returns(gone: NDArray[np.bool_]) -> int:
    """How often a layer came back after frames of nothing but zeros."""
    return int((gone[:-1] & ~gone[1:]).sum())


def words(underflow: Underflow, value: float) -> str:
    """`underflow 0.8%`, `would underflow 12%`, `underflow unknown`."""
    return f"{underflow.verb} {share(value)}" if not np.isnan(value) else f"{underflow.verb} unknown"
