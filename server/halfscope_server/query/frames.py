"""The sketched steps that stand for a run, with what pages of many layers need of them.

Owns which frames count where attempts and ranks overlap, and how neighbouring frames are added up. Must not import
plotly. Invariant: sums are of counts; a share is formed last, from summed counts, and never averaged.

Suffixes: F frames, L layers in the order of the tree, C columns of added-up frames.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query.memo import Memo
from halfscope_server.query.parts import PartReader, part_reader
from halfscope_server.query.sizes import COLUMNS, FrameSizes, KeptSizes, fill_sizes
from halfscope_server.query.tree import Tree, build_tree
from halfscope_server.query.window import Span
from halfscope_server.store.types import FrameMoments, LayerRow

if TYPE_CHECKING:
    from halfscope_server.query.view import Piece, RunView

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_CELLS = 4_000_000
"""Frames x layers kept of one run, some 20 bytes each and as many again for underflow; of a longer run neighbouring
frames are added up."""
CACHED_CELLS = 6_000_000
"""Of all runs together."""
CHUNK_CELLS = 1_000_000
"""Read at once."""
RUNS_KEPT = 32
"""Whose trees are kept."""

COUNTED = ("n", "zeros", "nan", "pos_inf", "neg_inf", "flushed", "subnormal")
"""What is read of the store for a table."""
_COUNTS = ("frames", "n", "zeros", "nonfinite", "infinite", "flushed", "subnormal")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameTable:
    """See the module. Rows ascend by step."""

    step: Ints
    """[F]; where frames were added up, of the first of them."""
    last_step: Ints
    """[F] of the last of them."""
    time_us: Ints
    scale: Floats
    """[F, 1], or [F, L] where layers differ in it; NaN where there was no scaler. Where frames were
    added up, of the last of them."""
    frames: NDArray[Any]
    """[F, L]; so are all below. How many frames with the layer were added up; 0: it was not sketched."""
    n: NDArray[Any]
    zeros: NDArray[Any]
    nonfinite: NDArray[Any]
    infinite: NDArray[Any]
    flushed: NDArray[Any]
    subnormal: NDArray[Any]

    @property
    def num_frames(self) -> int:
        return int(self.step.size)

    @property
    def present(self) -> NDArray[np.bool_]:
        """[F, L]"""
        return self.frames > 0

    @property
    def nonzero(self) -> NDArray[Any]:
        """[F, L] finite elements other than zero."""
        nonzero: NDArray[Any] = self.n - self.zeros
        nonzero -= self.nonfinite
        return nonzero

    def rows(self, part: slice) -> FrameTable:
        """Some of the frames."""
        return FrameTable(**{item.name: getattr(self, item.name)[part] for item in fields(self)})

    def within(self, span: Span) -> FrameTable:
        """The frames that begin in a span."""
        low, high = np.searchsorted(self.step, [span.first_step, span.last_step + 1])
        return self.rows(slice(int(low), int(high)))

    def added(self, starts: Ints) -> FrameTable:
        """Neighbouring frames added up.

        Args:
            starts: first row of each group, ascending from 0.
        """
        if starts.size == self.num_frames:
            return self
        ends = np.append(starts[1:], self.num_frames) - 1
        counts = {name: in_columns(np.add, getattr(self, name), starts) for name in _COUNTS}
        return FrameTable(
            step=self.step[starts],
            last_step=self.last_step[ends],
            time_us=self.time_us[starts],
            scale=self.scale[ends],
            **counts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How many frames there are, and who told of them."""

    num_rows: int
    """Of all ranks."""
    num_steps: int
    """That any rank told of."""
    last_step: Mapping[int, int]
    """Rank to its newest frame's step, in the newest attempt."""
    is_once: bool
    """Whether none of these ranks has two streams there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunFrames:
    """The layers of a run and the frames that stand for it."""

    tree: Tree
    layers: tuple[LayerRow, ...]
    """[L] in the order of `tree.leaves`."""
    table: FrameTable
    interval: int
    """Steps between sketches, as the agent says or as they mostly lie."""
    group: int
    """Frames that one row stands for: 1 but in very long runs."""
    told: Told
    """Who told of them."""
    pieces: tuple[Piece, ...]
    """Which attempts they are of."""
    reader: PartReader
    kept_sizes: KeptSizes
    memo: Memo = field(default_factory=Memo)
    """For what is computed from them and as large as they are."""
    counted: Memo = field(default_factory=Memo)
    """Likewise, but for what stays while the table does."""

    @property
    def is_empty(self) -> bool:
        return self.table.num_frames == 0

    @property
    def sizes(self) -> FrameSizes:
        """How large the gradients are; read when it is first asked for."""
        return self.memo.get("sizes", self._read_sizes)

    def _read_sizes(self) -> FrameSizes:
        num_kept = self.kept_sizes.num_rows(self.table)
        first_step = int(self.table.step[num_kept]) if num_kept < self.table.num_frames else None
        read = (
            _moments(self.reader, self.layers, part, columns=COLUMNS)
            for piece in self.pieces
            for part in chunks(piece, self.told.num_rows * len(self.layers))
            if first_step is not None and part.span.last_step >= first_step
        )
        return fill_sizes(self.table, self.kept_sizes, read)

    def layer_ids(self, first: int, end: int) -> tuple[int, ...]:
        """Of some columns."""
        return tuple(layer.layer_id for layer in self.layers[first:end])


@dataclass(slots=True)
class _Kept:
    """A run's frames, and the versions of the streams they were read at."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    versions: dict[str, int] | None = None
    frames: RunFrames | None = None


class FrameCache:
    """Frames of the runs looked at last, from one view of a run to the next: a live run's earlier frames are not read
    again at every tick. They are too large to be kept by each view."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def get(self, view: RunView) -> RunFrames | None:
        """The frames of a view; None where no layer was declared."""
        with self._lock:
            kept = self._kept.setdefault(view.run_id, _Kept())
            self._kept.move_to_end(view.run_id)
        with kept.lock:
            if kept.versions != view.versions:
                kept.frames = _run_frames(view, kept.frames)
                kept.versions = view.versions
            frames = kept.frames
        self._make_room()
        return frames

    def drop(self, run_id: str) -> None:
        """Forget a run."""
        with self._lock:
            self._kept.pop(run_id, None)

    def _make_room(self) -> None:
        with self._lock:
            sizes = {run: k.frames.table.frames.size for run, k in self._kept.items() if k.frames is not None}
            total = sum(sizes.values())
            for run in list(sizes)[:-1]:
                if total > CACHED_CELLS:
                    total -= sizes[run]
                    del self._kept[run]


def run_frames(view: RunView) -> RunFrames | None:
    """The frames of a run; None where no layer was declared."""
    # A table of runs asks this of each: most have no layers, or are asked for nothing but what was computed before.
    return view.frame_cache.get(view) if view.layers else None


def _run_frames(view: RunView, before: RunFrames | None) -> RunFrames:
    rows = view.layers
    order = view.row.facts.get("parameters_order")
    tree = _tree(tuple(rows), tuple(map(str, order)) if isinstance(order, list | tuple) else ())
    layers = tuple(rows[name] for name in tree.leaves)
    span = view.span
    pieces = () if span is None else tuple(piece for piece in view.pieces(span) if not piece.is_ghost)
    reader, told = part_reader(view), _told(view)
    group = max(1, -(-told.num_steps * len(layers) // MAX_CELLS))
    if group == 1 and before is not None and _continues(before, layers, pieces, reader, told):
        table, kept_sizes = _continued(reader, before, pieces[-1]), before.kept_sizes
    else:
        tables = [one for piece in pieces for one in _read_piece(reader, layers, piece, told, group)]
        table, kept_sizes = _joined(tables) if tables else _empty(len(layers)), KeptSizes()
    return RunFrames(
        counted=before.counted if before is not None and table is before.table else Memo(),
        tree=tree,
        layers=layers,
        table=table,
        interval=_interval(view, table),
        group=group,
        told=told,
        pieces=pieces,
        reader=reader,
        kept_sizes=kept_sizes,
    )


@lru_cache(maxsize=RUNS_KEPT)
def _tree(names: tuple[str, ...], order: tuple[str, ...]) -> Tree:
    """Kept: a live run asks at every tick, and its layers hardly ever change."""
    return build_tree(names, order)


def _interval(view: RunView, table: FrameTable) -> int:
    told = view.row.facts.get("sketches")
    every = told.get("every") if isinstance(told, dict) else None
    known = every if isinstance(every, int) and 0 < every < 2**31 else 1
    # The agent may have widened it to keep within its budget; the extra sketches at skipped steps narrow nothing.
    usual = int(np.median(np.diff(table.step))) if table.num_frames > 1 else 1
    return max(known, usual, 1)


def _told(view: RunView) -> Told:
    newest = view.streams[-1].attempt if view.streams else 0
    ranks = [stream.rank for stream in view.streams if stream.attempt == newest]
    if len(view.ranks) <= 1:
        # Whoever has one rank alone does not ask again how far it is: the table says so.
        last = dict.fromkeys(ranks, 0)
        return Told(num_rows=view.num_frames, num_steps=view.num_frames, last_step=last, is_once=len(ranks) == 1)
    rows = view.store.frame_moments(view.run_id, layer_ids=(), columns=())
    num_steps = int(np.unique(np.stack([rows.attempt.astype(np.int64), rows.step]), axis=1).shape[1])
    own = rows.attempt == newest
    last = {int(rank): int(rows.step[own & (rows.rank == rank)][-1]) for rank in np.unique(rows.rank[own])}
    is_once = all(ranks.count(rank) == 1 for rank in last)
    return Told(num_rows=int(rows.step.size), num_steps=num_steps, last_step=last, is_once=is_once)


def _continues(
    before: RunFrames, layers: tuple[LayerRow, ...], pieces: tuple[Piece, ...], reader: PartReader, told: Told
) -> bool:
    """Whether all that is new lies at the end of what was read."""
    if before.is_empty or before.layers != layers or before.group > 1 or len(before.pieces) != len(pieces):
        return False
    old, new = before.pieces[-1], pieces[-1]
    same = before.pieces[:-1] == pieces[:-1] and (old.attempt, old.span.first_step) == (
        new.attempt,
        new.span.first_step,
    )
    # A stream's records come in order; those of two streams of one rank (a copied journal) need not.
    same &= told.is_once and told.last_step.keys() == before.told.last_step.keys()
    same &= reader.parts == before.reader.parts
    return same and int(before.table.step[-1]) >= new.span.first_step


def _continued(reader: PartReader, before: RunFrames, piece: Piece) -> FrameTable:
    # The newest frame may have come in parts: it is read once more, with all that some rank had not told yet.
    newest = int(before.table.step[-1])
    if len(reader.ranks) > 1:
        newest = max(piece.span.first_step, min(newest, *before.told.last_step.values()))
    newest = min(newest, piece.span.last_step)  # who asks may have looked at the run before what is kept was read
    tail = replace(piece, span=Span(first_step=newest, last_step=piece.span.last_step))
    num_kept = int(np.searchsorted(before.table.step, newest))
    before.kept_sizes.settle(num_kept)
    found = _compact(_moments(reader, before.layers, tail))
    if _are_equal(found, before.table.rows(slice(num_kept, None))):
        return before.table  # Most ticks bring points and no frame.
    return _joined([before.table.rows(slice(0, num_kept)), found])


def _are_equal(one: FrameTable, other: FrameTable) -> bool:
    columns = ((getattr(one, item.name), getattr(other, item.name)) for item in fields(FrameTable))
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in columns)


def _read_piece(
    reader: PartReader, layers: tuple[LayerRow, ...], piece: Piece, told: Told, group: int
) -> Iterator[FrameTable]:
    """A piece in chunks of steps, so that not all of a long run is in memory at full width."""
    for part in chunks(piece, told.num_rows * len(layers)):
        table = _compact(_moments(reader, layers, part))
        if table.num_frames:
            yield table.added(np.arange(0, table.num_frames, group))


def chunks(piece: Piece, num_cells: int) -> Iterator[Piece]:
    """Its steps in parts that are read at once.

    Args:
        num_cells: frames x layers that there are, of the whole run.
    """
    edges = np.linspace(piece.span.first_step, piece.span.last_step + 1, max(1, -(-num_cells // CHUNK_CELLS)) + 1)
    for low, high in pairwise(np.unique(edges.astype(np.int64)).tolist()):
        yield replace(piece, span=Span(first_step=low, last_step=high - 1))


def _moments(
    reader: PartReader, layers: tuple[LayerRow, ...], piece: Piece, columns: Sequence[str] = COUNTED
) -> FrameMoments:
    return reader.moments(
        tuple(layer.layer_id for layer in layers),
        first_step=piece.span.first_step,
        last_step=piece.span.last_step,
        attempt=piece.attempt,
        columns=columns,
    )


def _compact(moments: FrameMoments) -> FrameTable:
    infinite = _sum(moments.pos_inf, moments.neg_inf)
    table = FrameTable(
        step=moments.step,
        last_step=moments.step,
        time_us=moments.time_us,
        scale=moments.scale,
        frames=moments.present.view(np.uint8),
        n=moments.n,
        zeros=moments.zeros,
        nonfinite=_sum(moments.nan, infinite),
        infinite=infinite,
        flushed=moments.flushed,
        subnormal=moments.subnormal,
    )
    # A step of which some rank has not told its part says nothing yet.
    is_empty = np.flatnonzero(~moments.present.any(axis=1))
    return _without(table, is_empty) if is_empty.size and moments.present.shape[1] else table


def _without(table: FrameTable, rows: Ints) -> FrameTable:
    return FrameTable(**{item.name: np.delete(getattr(table, item.name), rows, axis=0) for item in fields(table)})


def _sum(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """The sum of two counts, which fits as a layer's elements do. Zeros that take no memory stay so."""
    for zeros, rest in ((one, other), (other, one)):
        if zeros.size and not any(zeros.strides) and not zeros.flat[0]:
            return rest
    total: NDArray[Any] = one + other
    return total


def _joined(tables: list[FrameTable]) -> FrameTable:
    present = [table for table in tables if table.num_frames] or tables[:1]
    if len(present) == 1:
        return present[0]
    joined = {
        item.name: np.concatenate([getattr(t, item.name) for t in present])
        for item in fields(FrameTable)
        if item.name != "scale"
    }
    num_scales = max(table.scale.shape[1] for table in present)
    scales = [np.broadcast_to(table.scale, (table.num_frames, num_scales)) for table in present]
    return FrameTable(**joined, scale=np.concatenate(scales))


def _empty(num_layers: int) -> FrameTable:
    shape = (0, num_layers)
    counts: dict[str, Any] = {name: np.zeros(shape, np.int64) for name in _COUNTS}
    return FrameTable(
        step=np.zeros(0, np.int64),
        last_step=np.zeros(0, np.int64),
        time_us=np.zeros(0, np.int64),
        scale=np.zeros((0, 1)),
        **counts,
    )


def columns(step: Ints, num_columns: int, interval: int) -> Ints:
    """First rows of at most about `num_columns` groups of neighbouring frames, none of which reaches over a gap.

    Args:
        interval: steps between sketches; frames more than one and a half of them apart have a gap between them.
    """
    group = max(1, -(-step.size // max(1, num_columns)))
    after_gap = np.flatnonzero(2 * np.diff(step) > 3 * max(interval, 1)) + 1
    if group == 1 or after_gap.size > num_columns // 4:
        return np.arange(0, step.size, group)
    ends = np.concatenate([[0], after_gap, [step.size]])
    return np.concatenate([np.arange(low, high, group) for low, high in pairwise(ends.tolist())])


def in_columns(ufunc: np.ufunc, values: NDArray[Any], starts: Ints) -> NDArray[Any]:
    """Neighbouring rows taken together: [F, L] to [C, L]. Counts are added in 64 bits.

    Args:
        starts: first row of each group, ascending from 0.
    """
    wide = values.dtype if values.dtype.kind == "f" else np.dtype(np.int64)
    sizes = np.diff(np.append(starts, values.shape[0]))
    most = int(sizes.max(initial=0))
    even = bool((sizes[:-1] == most).all())
    result = values[starts].astype(wide)
    # One row of each group at a time: five times as fast as reduceat, whose groups are short here.
    for k in range(1, most):
        if even:
            rows = values[k::most]
            ufunc(result[: len(rows)], rows, out=result[: len(rows)])
        else:
            longer = sizes > k
            result[longer] = ufunc(result[longer], values[starts[longer] + k])
    return result


def node_sums(values: NDArray[Any], first: Ints, end: Ints) -> NDArray[Any]:
    """Sums over the layers of each node: [F, L] to [F, N]. Exact for counts."""
    return _over_nodes(np.add, values, first, end)


def node_largest(values: Floats, first: Ints, end: Ints) -> Floats:
    """The largest over the layers of each node; of values from 0 on."""
    return _over_nodes(np.maximum, values, first, end)


def _over_nodes(ufunc: np.ufunc, values: NDArray[Any], first: Ints, end: Ints) -> NDArray[Any]:
    # Most nodes are one layer. The others are few, and a layer's frames lie side by side.
    rows = values.T
    wide = values.dtype if values.dtype.kind == "f" else np.dtype(np.int64)
    result = np.zeros((first.size, rows.shape[1]), wide)
    single = np.flatnonzero(end - first == 1)
    result[single] = rows[first[single]]
    for node in np.flatnonzero(end - first > 1).tolist():
        ufunc.reduce(rows[first[node] : end[node]], axis=0, dtype=wide, out=result[node])
    return result.T
