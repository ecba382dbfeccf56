"""Sketches laid flat: one cell per (step, layer), bins of all cells one after another.

What an unsealed tail is read from and what tiles are built of. Must not import the tables or do I/O. Invariant: a cell
holds exactly what its record said of one layer, and cells keep the order of arrival. Suffixes: R records, C cells, B
all bins of all cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from halfscope.formats import FP16
from halfscope.sketch import DEFAULT_SCALE, Sketch
from halfscope.wire.messages import Sketches
from numpy.typing import NDArray

from halfscope_server.store.sketch_records import WIDTHS
from halfscope_server.store.types import GRADIENT_POINTS

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

COUNTS = ("n", "zeros", "nan", "pos_inf", "neg_inf", "flushed", "subnormal", "overflow")
"""Rows of `counts`; the last three are what FP16 would do at the record's scale."""
NUM_SENT = 5
"""How many of them the agent sends; the others follow from its bins."""
FLOATS = ("sum", "sumsq", "absmax", "absmin_nonzero")
"""Rows of `floats`."""
NO_FLOATS = (0.0, 0.0, 0.0, np.inf)
"""Those of no element at all."""

FP16_CELLS = 2048
"""Unfolded at once: a megabyte, or 40 where one spans all of float64."""

PRESENT = 0x80
MAYBE_CLIPPED = 0x40
POINT_BITS = 0x3F
"""The rest of a cell's flags: index into `GRADIENT_POINTS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Sketches of one stream and one kind of tensor."""

    step_R: Int64s
    time_us_R: Int64s
    scale_R: Float64s
    step_C: Int64s
    lid_C: Int64s
    scale_C: Float64s
    flags_C: NDArray[np.uint8]
    counts_C: Int64s
    """[8, C], see `COUNTS`."""
    floats_C: Float64s
    """[4, C], see `FLOATS`."""
    lowest_C: Int64s
    num_bins_C: Int64s
    bins_B: NDArray[Any]
    """Unsigned, as narrow as they came."""

    @property
    def num_bytes(self) -> int:
        return sum(getattr(self, item.name).nbytes for item in fields(self))

    def column(self, name: str) -> NDArray[Any]:
        """[C] of `COUNTS` or `FLOATS`."""
        column: NDArray[Any] = (
            self.floats_C[FLOATS.index(name)] if name in FLOATS else self.counts_C[COUNTS.index(name)]
        )
        return column

    def chosen(self, which: NDArray[Any]) -> Cells:
        """Some of the cells, by mask or by position; of all records."""
        starts = np.cumsum(self.num_bins_C) - self.num_bins_C
        num_bins = self.num_bins_C[which]
        return Cells(
            step_R=self.step_R,
            time_us_R=self.time_us_R,
            scale_R=self.scale_R,
            step_C=self.step_C[which],
            lid_C=self.lid_C[which],
            scale_C=self.scale_C[which],
            flags_C=self.flags_C[which],
            counts_C=self.counts_C[:, which],
            floats_C=self.floats_C[:, which],
            lowest_C=self.lowest_C[which],
            num_bins_C=num_bins,
            bins_B=self.bins_B[np.repeat(starts[which], num_bins) + within(num_bins)],
        )


def of_records(records: Sequence[Sketches]) -> Cells:
    """The cells of records that were checked when they were taken in; at least one."""
    cells = join([_of_record(record) for record in records])
    scale_C = np.where(np.isnan(cells.scale_C), DEFAULT_SCALE, cells.scale_C)
    for at in range(0, len(scale_C), FP16_CELLS):
        part = slice(at, at + FP16_CELLS)
        cells.counts_C[NUM_SENT:, part] = _in_fp16(cells.chosen(np.arange(len(scale_C))[part]), scale_C[part])
    return cells


def join(parts: Sequence[Cells]) -> Cells:
    """Cells in the order of the parts; at least one part."""
    if len(parts) == 1:
        return parts[0]
    return Cells(
        **{
            item.name: np.concatenate([getattr(part, item.name) for part in parts], axis=-1)
            for item in fields(Cells)
        }
    )  # fmt: skip


def within(lengths: Int64s) -> Int64s:
    """0, 1, .. length - 1 for each of some lengths, one after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - lengths, lengths)


def _of_record(record: Sketches) -> Cells:
    lid = np.frombuffer(record.lids, "<u4").astype(np.int64)
    sent = np.frombuffer(record.counts, "<i8").reshape(-1, NUM_SENT).T
    floats = np.frombuffer(record.moments, "<f8").reshape(-1, len(FLOATS)).T
    lowest = np.frombuffer(record.lowest, "<i2").astype(np.int64)
    num_bins = np.frombuffer(record.num_bins, "<u2").astype(np.int64)
    bins = np.frombuffer(record.bins, WIDTHS[record.width])
    point = GRADIENT_POINTS.index(record.point) if record.point in GRADIENT_POINTS else 0
    flags = PRESENT | point | (0 if record.clipped == "no" else MAYBE_CLIPPED)
    return Cells(
        step_R=np.array([record.step], np.int64),
        time_us_R=np.array([record.time_us], np.int64),
        scale_R=np.array([record.scale]),
        step_C=np.full(len(lid), record.step, np.int64),
        lid_C=lid,
        scale_C=np.full(len(lid), record.scale),
        flags_C=np.full(len(lid), flags, np.uint8),
        counts_C=np.concatenate((sent, np.zeros((len(COUNTS) - NUM_SENT, len(lid)), np.int64))),
        floats_C=floats,
        lowest_C=lowest,
        num_bins_C=num_bins,
        bins_B=bins,
    )


def _in_fp16(cells: Cells, scale_C: Float64s) -> Int64s:
    """[3, C]: elements that FP16 would flush, make subnormal, overflow, each at a scale."""
    lowest, num_bins = cells.lowest_C, cells.num_bins_C
    has_bins = num_bins > 0
    first = int(lowest[has_bins].min()) if bool(has_bins.any()) else 0
    end = int((lowest + num_bins)[has_bins].max()) if bool(has_bins.any()) else 0
    counts = np.zeros((len(lowest), end - first), np.int64)
    rows = np.repeat(np.arange(len(lowest)), num_bins)
    counts[rows, np.repeat(lowest - first, num_bins) + within(num_bins)] = cells.bins_B
    columns: dict[str, Any] = dict(zip(COUNTS[:NUM_SENT], cells.counts_C, strict=False))
    columns |= dict(zip(FLOATS, cells.floats_C, strict=True))
    sketch = Sketch(**columns, lowest=first, counts=counts)
    with np.errstate(invalid="ignore"):
        flushed = sketch.flushed(scale_C)
        subnormal = sketch.below(FP16.min_normal_log2, scale_C) - flushed
        found = np.stack((flushed, subnormal, sketch.overflow(scale_C)[0]))
    # Of a scale that is no scale (negative) nothing is known.
    return np.rint(np.nan_to_num(found)).astype(np.int64)
