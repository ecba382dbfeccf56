"""Lost updates of two runs beside each other: steps that left the stored weight as it was.

Must not import plotly. Invariant: a share is of summed counts, and NaN where nothing was looked at.

Suffixes: P pairs of frames, L common layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from halfscope.sketch import share
from numpy.typing import NDArray

from halfscope_server.compare.pairing import Pairs
from halfscope_server.query.states import precision_of
from halfscope_server.query.updates import UpdateMoments, update_moments
from halfscope_server.query.view import RunView

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FP32_WEIGHTS = ("FP32", "TF32", "FP16-AMP", "BF16-AMP")
"""Runs whose weights are stored in FP32: without a record of their updates they still lose hardly any."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LostUpdates:
    """Of a baseline and a member."""

    difference: Floats
    """[P, L] the member's share of lost updates less the baseline's."""
    baseline: Floats
    """[L] at the end; NaN: not recorded."""
    member: Floats


def lost_updates(pairs: Pairs) -> LostUpdates:
    """What both runs lost in the frames that they have in common."""
    one = _shares(pairs, pairs.baseline, pairs.baseline_columns, pairs.baseline_frames.table.step[pairs.baseline_rows])
    two = _shares(pairs, pairs.member, pairs.columns, pairs.step)
    before = one.frames
    if one.is_missing and precision_of(pairs.baseline.row) in FP32_WEIGHTS:
        before = np.zeros(before.shape)
    return LostUpdates(difference=two.frames - before, baseline=one.end, member=two.end)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shares:
    frames: Floats
    end: Floats
    is_missing: bool


def _shares(pairs: Pairs, view: RunView, columns: Ints, step: Ints) -> _Shares:
    found = update_moments(view)
    if found is None or not set(columns.tolist()) <= set(range(len(found.names))):
        unknown = np.full((step.size, columns.size), np.nan)
        return _Shares(frames=unknown, end=np.full(columns.size, np.nan), is_missing=True)
    zeros, n = _at(found, columns, step)
    return _Shares(
        frames=share(zeros, n), end=share(zeros[pairs.tail].sum(axis=0), n[pairs.tail].sum(axis=0)), is_missing=False
    )


def _at(found: UpdateMoments, columns: Ints, step: Ints) -> tuple[Floats, Floats]:
    """[P, L] counts at some steps: a step that was skipped has no update, and its are those before it."""
    row = np.searchsorted(found.step, step, "right") - 1
    at = np.ix_(np.maximum(row, 0), columns)
    known = (row >= 0)[:, None]
    return np.where(known, found.zeros[at], 0).astype(np.float64), np.where(known, found.n[at], 0).astype(np.float64)
