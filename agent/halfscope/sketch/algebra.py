"""Exponent sketches: how many elements of a tensor lie in each power of two, and what follows from that.

One pass over a tensor counts, per integer e = floor(log2|x|), its elements, with zeros, NaN and both infinities apart,
and keeps sum, sum of squares and extremes of the finite ones. Agent and server share this. Must not import torch.
Invariant: sketches add up (over micro-batches, shards, ranks, layers) to the sketch of the whole, in any order; and a
scale that is a power of two moves bins without error, so one measurement answers for every format at every such scale.

A `Sketch` may hold many: its fields are arrays of one shape S, with `counts` of shape S + (B,). Suffixes: S the shape
of the stack, B bins. All statistics return arrays of shape S; a share that has no meaning (nothing to divide by) is
NaN, never a made-up 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfscope.formats import FP16, NumberFormat

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DEFAULT_SCALE = 65536.0
"""The loss scale that torch's GradScaler starts with: what FP16 would do to a run without a scaler is said at it."""

_ADDED = ("n", "zeros", "nan", "pos_inf", "neg_inf", "sum", "sumsq")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sketch:
    """One sketch, or a stack of them."""

    n: Ints
    """All elements, the four kinds below included."""
    zeros: Ints
    """-0 is one."""
    nan: Ints
    pos_inf: Ints
    neg_inf: Ints
    sum: Floats
    """Over finite elements; so are the next three."""
    sumsq: Floats
    absmax: Floats
    """0 where no element is finite and nonzero."""
    absmin_nonzero: Floats
    """Infinity where no element is finite and nonzero."""
    lowest: int
    """Exponent of the first bin."""
    counts: Ints
    """S + (B,): elements with floor(log2|x|) = lowest + k."""

    @classmethod
    def empty(cls, shape: tuple[int, ...] = ()) -> Sketch:
        """Of no element at all: what adding begins with."""
        zero, none = np.zeros(shape, np.int64), np.zeros(shape)
        return cls(
            n=zero, zeros=zero, nan=zero, pos_inf=zero, neg_inf=zero, sum=none, sumsq=none, absmax=none,
            absmin_nonzero=np.full(shape, np.inf), lowest=0, counts=np.zeros((*shape, 0), np.int64),
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        """S."""
        return self.n.shape

    @property
    def nonzero(self) -> Ints:
        """Finite elements other than zero."""
        total: Ints = self.counts.sum(axis=-1)
        return total

    @property
    def nonfinite(self) -> Ints:
        return self.nan + self.pos_inf + self.neg_inf

    @property
    def norm(self) -> Floats:
        """L2 norm over finite elements."""
        return np.sqrt(self.sumsq)

    def __getitem__(self, index: Any) -> Sketch:
        """Part of a stack, by an index over S."""
        fields = {name: np.asarray(getattr(self, name)[index]) for name in (*_ADDED, "absmax", "absmin_nonzero")}
        whole = index if isinstance(index, tuple) else (index,)
        place = whole if Ellipsis in [i for i in whole if i is Ellipsis] else (*whole, ...)
        return Sketch(**fields, lowest=self.lowest, counts=self.counts[(*place, slice(None))])

    def merged(self, axis: int | tuple[int, ...] | None = None) -> Sketch:
        """The sum over some axes of S; over all of them by default."""
        axes = tuple(range(len(self.shape))) if axis is None else axis
        axes = tuple(a % len(self.shape) for a in ((axes,) if isinstance(axes, int) else axes))
        fields = {name: np.asarray(getattr(self, name).sum(axis=axes)) for name in _ADDED}
        return Sketch(
            **fields,
            absmax=np.asarray(self.absmax.max(axis=axes, initial=0.0)),
            absmin_nonzero=np.asarray(self.absmin_nonzero.min(axis=axes, initial=np.inf)),
            lowest=self.lowest,
            counts=self.counts.sum(axis=axes),
        )

    def trimmed(self) -> Sketch:
        """Without bins at either end that are empty in the whole stack."""
        used = np.flatnonzero(self.counts.any(axis=tuple(range(len(self.shape)))))
        if not used.size:
            return _with_bins(self, 0, self.counts[..., :0])
        first, last = int(used[0]), int(used[-1])
        return _with_bins(self, self.lowest + first, self.counts[..., first : last + 1])

    def shifted(self, log2: int) -> Sketch:
        """The sketch of every element times 2^log2: exact, nothing is rounded."""
        with np.errstate(over="ignore", under="ignore"):
            powers = {"sum": log2, "sumsq": 2 * log2, "absmax": log2, "absmin_nonzero": log2}
            moments = {name: np.ldexp(getattr(self, name), power) for name, power in powers.items()}
        return Sketch(
            n=self.n, zeros=self.zeros, nan=self.nan, pos_inf=self.pos_inf, neg_inf=self.neg_inf, **moments,
            lowest=self.lowest + log2, counts=self.counts,
        )  # fmt: skip

    # ---- what rounding once to a format does, at a scale ----------------------------------------

    def below(self, exponent: float, scale: ArrayLike = 1.0) -> Floats:
        """How many nonzero elements have |x| * scale < 2^exponent.

        Exact where 2^exponent / scale is a power of two; else the bin it falls into is split log2-uniformly. NaN where
        the scale is.
        """
        return self._below(_edge(exponent, scale, self.shape))

    def flushed(self, scale: ArrayLike = 1.0, to: NumberFormat = FP16) -> Floats:
        """Nonzero elements that one rounding to a format makes zero. Values of exactly half the smallest subnormal
        round to zero too and are not counted."""
        return self.below(to.min_normal_log2 - to.mantissa_bits - 1, scale)

    def subnormal(self, scale: ArrayLike = 1.0, to: NumberFormat = FP16) -> Floats:
        """Elements that lose bits below a format's smallest normal, but are not lost."""
        return self.below(to.min_normal_log2, scale) - self.flushed(scale, to)

    def overflow(self, scale: ArrayLike = 1.0, to: NumberFormat = FP16) -> tuple[Floats, Floats]:
        """Finite elements that a format cannot hold, as bounds (least, most).

        Whole bins are counted, so these are bounds at any scale. They are (0, 0) where the largest magnitude says that
        nothing is too large, and at least 1 where it says that something is.
        """
        top = math.frexp(to.overflows_at)[1] - 1
        with np.errstate(over="ignore", invalid="ignore"):
            largest = self.absmax * np.asarray(scale, np.float64)
        too_large = largest >= to.overflows_at if to.tie_overflows else largest > to.overflows_at
        if not too_large.any():  # nearly always
            none = np.where(np.isnan(_edge(top, scale, self.shape)), np.nan, 0.0)
            return none, none
        nonzero = self.nonzero
        least = nonzero - self._below(np.ceil(_edge(top + 1, scale, self.shape)))
        most = nonzero - self._below(np.floor(_edge(top, scale, self.shape)))
        unknown = np.isnan(most)
        least = np.where(too_large, np.maximum(least, 1.0), 0.0)
        return np.where(unknown, np.nan, least), np.where(unknown, np.nan, np.where(too_large, most, 0.0))

    def _below(self, edge: Floats) -> Floats:
        """How many elements lie below 2^edge."""
        num_bins = self.counts.shape[-1]
        place = np.nan_to_num(np.clip(edge - self.lowest, 0, num_bins), nan=0.0)
        if not num_bins:
            return np.where(np.isnan(edge), np.nan, 0.0)
        whole = np.minimum(place.astype(np.int64), num_bins - 1)[..., None]
        below = np.take_along_axis(np.cumsum(self.counts, axis=-1), whole, -1)[..., 0]
        inside = np.take_along_axis(self.counts, whole, -1)[..., 0]
        return np.where(np.isnan(edge), np.nan, below - inside * (1.0 - (place - whole[..., 0])))

    def would_flush_share(self, scale: ArrayLike = DEFAULT_SCALE, to: NumberFormat = FP16) -> Floats:
        """Flushed / nonzero finite: a prediction, from a gradient that has *not* been through the format. Read on a
        run that has, it is zero by construction."""
        return share(self.flushed(scale, to), self.nonzero)

    def near_floor_share(self, scale: ArrayLike = DEFAULT_SCALE, to: NumberFormat = FP16) -> Floats:
        """Subnormal / nonzero finite: the early warning of underflow."""
        return share(self.subnormal(scale, to), self.nonzero)

    def pile_up_share(self, scale: ArrayLike = DEFAULT_SCALE, to: NumberFormat = FP16) -> Floats:
        """Share of nonzero elements in a format's two lowest representable bins."""
        smallest = to.min_normal_log2 - to.mantissa_bits
        return share(self.below(smallest + 2, scale) - self.below(smallest, scale), self.nonzero)

    def headroom(self, scale: ArrayLike = DEFAULT_SCALE, to: NumberFormat = FP16) -> Floats:
        """Doublings left before a format overflows, in bits; -1 where an element is infinite, NaN where there is
        nothing to measure."""
        return headroom(self.absmax, self.pos_inf + self.neg_inf, scale, to)


def headroom(absmax: ArrayLike, infinite: ArrayLike, scale: ArrayLike = 1.0, to: NumberFormat = FP16) -> Floats:
    """`Sketch.headroom` from its two ingredients: the largest finite magnitude and how many elements are infinite."""
    with np.errstate(over="ignore"):
        scaled = np.asarray(absmax, np.float64) * np.asarray(scale, np.float64)
    exponent = np.frexp(scaled)[1] - 1.0
    top = math.frexp(to.largest)[1] - 1.0
    bits = np.where((scaled > 0) & np.isfinite(scaled), top - exponent, np.nan)
    return np.where(np.asarray(infinite) > 0, -1.0, bits)


def excess_zero_share(zeros: ArrayLike, n: ArrayLike, structural: ArrayLike) -> Floats:
    """(zeros - structural) / (n - structural): what a run that computes in a format lost in it, at least.

    Args:
        structural: zeros that are there for another reason (ReLU, padding, sparse embeddings, masks), known from a
            frame with room above the floor or from a paired run; NaN: unknown, and so is the share.
    """
    z, all_elements, s = (np.asarray(a, np.float64) for a in (zeros, n, structural))
    excess = share(np.maximum(z - s, 0.0), all_elements - s)
    # Where everything is structural nothing is left that could be lost; of no element at all nothing is known.
    return np.where(np.isnan(s) | (all_elements == 0), np.nan, np.where(all_elements <= s, 0.0, excess))


def share(part: ArrayLike, whole: ArrayLike) -> Floats:
    """part / whole; NaN where whole is 0."""
    p, w = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    result: Floats = np.divide(p, w, out=np.full(np.broadcast(p, w).shape, np.nan), where=w > 0)
    return result


def stack(sketches: Sequence[Sketch]) -> Sketch:
    """Sketches of one shape S as one of shape (K, *S), over the bins of all of them.

    Raises:
        ValueError: no sketch, or shapes that differ.
    """
    if not sketches:
        raise ValueError("no sketch to stack; expected at least one")
    used = [s for s in sketches if s.counts.shape[-1]]
    lowest = min((s.lowest for s in used), default=0)
    num_bins = max((s.lowest + s.counts.shape[-1] for s in used), default=0) - lowest
    counts = np.zeros((len(sketches), *sketches[0].shape, num_bins), np.int64)
    for place, sketch in enumerate(sketches):
        at = sketch.lowest - lowest if sketch.counts.shape[-1] else 0
        counts[place, ..., at : at + sketch.counts.shape[-1]] = sketch.counts
    names = (*_ADDED, "absmax", "absmin_nonzero")
    fields = {name: np.stack([getattr(sketch, name) for sketch in sketches]) for name in names}
    return Sketch(**fields, lowest=lowest, counts=counts)


def concatenate(sketches: Sequence[Sketch]) -> Sketch:
    """Stacks of shapes (K1, ...), (K2, ...) as one of shape (K1 + K2 + ..., ...), over the bins of all of them.

    Raises:
        ValueError: no sketch, or shapes that differ in more than their first axis.
    """
    if len(sketches) == 1:
        return sketches[0]
    used = [s for s in sketches if s.counts.shape[-1]]
    lowest = min((s.lowest for s in used), default=0)
    num_bins = max((s.lowest + s.counts.shape[-1] for s in used), default=0) - lowest
    counts = []
    for s in sketches:
        at = s.lowest - lowest if s.counts.shape[-1] else 0
        around = (at, num_bins - at - s.counts.shape[-1])
        counts.append(np.pad(s.counts, [(0, 0)] * len(s.shape) + [around]))
    names = (*_ADDED, "absmax", "absmin_nonzero")
    fields = {name: np.concatenate([getattr(s, name) for s in sketches]) for name in names}
    return Sketch(**fields, lowest=lowest, counts=np.concatenate(counts))


def merge(sketches: Sequence[Sketch]) -> Sketch:
    """The sum of sketches of one shape; of none, the empty one."""
    return stack(sketches).merged(0) if sketches else Sketch.empty()


def _edge(exponent: float, scale: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """exponent - log2(scale), without error where the scale is a power of two."""
    fraction, whole = np.frexp(np.broadcast_to(np.asarray(scale, np.float64), shape))
    with np.errstate(divide="ignore", invalid="ignore"):
        edge: Floats = exponent - (whole - 1 + np.log2(2 * fraction))
    return edge


def _with_bins(sketch: Sketch, lowest: int, counts: Ints) -> Sketch:
    names = (*_ADDED, "absmax", "absmin_nonzero")
    return Sketch(**{name: getattr(sketch, name) for name in names}, lowest=lowest, counts=counts)
