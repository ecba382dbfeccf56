"""Stacks of sketches as `Sketches` records, and back.

Must not import torch. Invariant: what is unpacked is what was packed, to the bit, and a record is one that servers
take: at most 512 layers, some 2 MiB, exponents within what they allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope.sketch.algebra import Sketch
from halfscope.wire.messages import Sketches

RECORD_LAYERS = 512
RECORD_BIN_BYTES = 2 * 1024 * 1024
LIMIT_LOG2 = 1100
"""Exponents beyond it are told as this one: no float64 gradient under a sensible scale has them."""

_COUNTS = ("n", "zeros", "nan", "pos_inf", "neg_inf")
_MOMENTS = ("sum", "sumsq", "absmax", "absmin_nonzero")
_WIDTHS = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}


def pack(
    sketches: Sketch,
    lids: NDArray[Any],
    *,
    step: int,
    time_us: int,
    point: str,
    clipped: str,
    scale: float,
    of: str = "grad",
) -> Iterator[Sketches]:
    """Records of a stack of shape (L,).

    Args:
        lids: numbers of its layers, all different.
    """
    lowest, counts = _within_limits(sketches.lowest, sketches.counts)
    start = 0
    while start < len(lids):
        end = min(start + RECORD_LAYERS, len(lids))
        while end > start + 1 and counts[start:end].any(axis=0).sum() * (end - start) * 8 > RECORD_BIN_BYTES:
            end = start + (end - start + 1) // 2
        part = slice(start, end)
        firsts, num_bins, bins = _ragged(counts[part])
        width = next(width for width in _WIDTHS if int(bins.max(initial=0)) < 1 << 8 * width)
        yield Sketches(
            step=step,
            time_us=time_us,
            point=point,
            clipped=clipped,
            scale=scale,
            lids=np.asarray(lids[part], "<u4").tobytes(),
            counts=np.stack([getattr(sketches, name)[part] for name in _COUNTS], -1).astype("<i8").tobytes(),
            moments=np.stack([getattr(sketches, name)[part] for name in _MOMENTS], -1).astype("<f8").tobytes(),
            lowest=np.where(num_bins > 0, firsts + lowest, 0).astype("<i2").tobytes(),
            num_bins=num_bins.astype("<u2").tobytes(),
            bins=bins.astype(_WIDTHS[width]).tobytes(),
            width=width,
            of=of,
        )
        start = end


def unpack(record: Sketches) -> tuple[NDArray[np.int64], Sketch]:
    """Numbers of the layers of a well-formed record, and their sketches as a stack of shape (L,)."""
    lids = np.frombuffer(record.lids, "<u4").astype(np.int64)
    counts = np.frombuffer(record.counts, "<i8").reshape(len(lids), -1).T.astype(np.int64)
    moments = np.frombuffer(record.moments, "<f8").reshape(len(lids), -1).T.astype(np.float64)
    lowest = np.frombuffer(record.lowest, "<i2").astype(np.int64)
    num_bins = np.frombuffer(record.num_bins, "<u2").astype(np.int64)
    first = int(lowest[num_bins > 0].min(initial=1 << 15)) if num_bins.any() else 0
    end = int((lowest + num_bins)[num_bins > 0].max(initial=first))
    table = np.zeros((len(lids), end - first), np.int64)
    columns = np.arange(end - first)
    at = (lowest - first)[:, None]
    table[(columns >= at) & (columns < at + num_bins[:, None])] = np.frombuffer(record.bins, _WIDTHS[record.width])
    fields = dict(zip((*_COUNTS, *_MOMENTS), (*counts, *moments), strict=True))
    return lids, Sketch(**fields, lowest=first, counts=table)


def _within_limits(lowest: int, counts: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    end = lowest + counts.shape[-1]
    if lowest >= -LIMIT_LOG2 and end <= LIMIT_LOG2:
        return lowest, counts
    columns = np.clip(np.arange(lowest, end), -LIMIT_LOG2, LIMIT_LOG2 - 1)
    first = int(columns[0])
    folded = np.zeros((len(counts), int(columns[-1]) - first + 1), np.int64)
    np.add.at(folded.T, columns - first, counts.T)
    return first, folded


def _ragged(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Per layer its first used bin and how many there are up to its last, and those bins one after another."""
    used = counts > 0
    alive = used.any(axis=-1)
    if not counts.shape[-1]:
        return np.zeros(len(counts), np.int64), np.zeros(len(counts), np.int64), np.zeros(0, np.int64)
    first = np.where(alive, used.argmax(axis=-1), 0)
    num_bins = np.where(alive, counts.shape[-1] - used[:, ::-1].argmax(axis=-1) - first, 0)
    columns = np.arange(counts.shape[-1])
    inside = (columns >= first[:, None]) & (columns < (first + num_bins)[:, None])
    return first, num_bins, counts[inside]
