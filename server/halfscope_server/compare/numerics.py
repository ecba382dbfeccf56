"""In which layers, and from which step on, a member's gradients part from the baseline's.

Owns the respects in which layers can part, what is tolerated in each, and the ranking. Must not import plotly.
Invariant: what parts is beyond what frames of one run, or repeats of one configuration, differ by; it lasts to the end
of what both have; and what cannot be said has its reason.

Suffixes: P pairs of frames, L common layers in the member's forward order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from halfscope.sketch import excess_zero_share, share
from numpy.typing import NDArray

from halfscope_server.compare import histograms
from halfscope_server.compare.lost_updates import LostUpdates, lost_updates
from halfscope_server.compare.pairing import Pairs, pair
from halfscope_server.compare.parting import Parted, carried, first_lasting, last_in_a_row, part, running_median
from halfscope_server.compare.rounding import noise_floor
from halfscope_server.compare.types import Alignment, LayerDivergence, Numerics
from halfscope_server.query.format import plural
from halfscope_server.query.underflow import computes_in_fp16, layer_totals, run_underflow
from halfscope_server.query.view import RunView

if TYPE_CHECKING:
    from halfscope_server.compare.comparison import Comparison

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PAIRED_ZEROS_SHARE, NEAR_ZEROS_SHARE, OTHER_ZEROS_SHARE = 0.05, 0.1, 0.3
"""Excess of zeros that is tolerated: where FP16's floor is known to be near, with the same data and with other; and
where it is not, since the units that a ReLU leaves off differ from seed to seed, and in time within one seed."""
NORM_BITS = 2.0
DISTANCE_BITS = 1.5
UPDATES_SHARE = 0.2
"""Lost updates that are tolerated."""
NEAR_FLOOR_SHARE = 0.01
"""Of a layer's nonzero gradients, subnormal in FP16: from there on zeros may be what lay below."""
OWN_NOISE = 3.0
"""Times what a run differs from itself by at the end; where it is compared frame by frame, times `FRAME_NOISE`."""
FRAME_NOISE = 2.0
REPEATS_NOISE = 1.5
"""Times what repeats differ by."""
MIN_PAIRS = 3
LASTING_FRAMES = 3
"""So many frames with NaN or Inf in a row last, also where their steps were withheld."""
MAX_HISTORY = 40_000
"""Sketches of each run looked at to find where distances part; of more layers the worst."""
RESPECTS = ("nonfinite", "zeros", "updates", "distance", "norm")
"""In which layers part; of several at one frame the first of these is named."""


def diverge(comparison: Comparison) -> list[Numerics]:
    """Every member, the baseline first, whose layers are empty."""
    rest = [_member(comparison, at) for at in range(1, len(comparison.views))]
    return [_nothing(comparison.baseline, ""), *rest]


def _nothing(view: RunView, reason: str, pairs: Pairs | None = None) -> Numerics:
    return Numerics(
        run=view.run_id,
        layers=[],
        num_common=len(pairs.names) if pairs else 0,
        only_baseline=list(pairs.only_baseline) if pairs else [],
        only_member=list(pairs.only_member) if pairs else [],
        num_frames=pairs.num_pairs if pairs else 0,
        interval=pairs.interval if pairs else None,
        first_step=None,
        first_layer="",
        reason=reason,
    )


def _member(comparison: Comparison, index: int) -> Numerics:
    view = comparison.views[index]
    measured = side_by_side(comparison, index)
    pairs = measured.pairs if measured else None
    reason = _missing(comparison.baseline, view, pairs)
    if measured is None or pairs is None or reason:
        return _nothing(view, reason, pairs)
    found = _respects(comparison, index, measured)
    layers = _layers(measured, found)
    parted = [layer for layer in layers if layer.first_step is not None]
    first_step = min((layer.first_step for layer in parted if layer.first_step is not None), default=None)
    place = {name: at for at, name in enumerate(pairs.names)}
    first = [layer.layer for layer in parted if layer.first_step == first_step]
    return Numerics(
        run=view.run_id,
        layers=sorted(layers, key=lambda layer: (-layer.score, place[layer.layer])),
        num_common=len(pairs.names),
        only_baseline=list(pairs.only_baseline),
        only_member=list(pairs.only_member),
        num_frames=pairs.num_pairs,
        interval=pairs.interval,
        first_step=first_step,
        first_layer=max(first, key=place.__getitem__) if first else "",
    )


def _missing(baseline: RunView, member: RunView, pairs: Pairs | None) -> str:
    """Why nothing can be said; empty where something can."""
    for view in (baseline, member):
        if not view.layers or not view.num_frames:
            return f"{view.row.name or view.run_id} has no sketches of its layers"
    if pairs is None or not pairs.names:
        return "the runs have no layer in common: no parameter has the same name in both"
    if pairs.problem:
        return pairs.problem
    if pairs.num_pairs < MIN_PAIRS:
        seen = plural(pairs.num_pairs, "sketched step") if pairs.num_pairs else "no sketched step"
        return f"the runs have {seen} in common; at least {MIN_PAIRS} are needed"
    return ""


# ---- what is measured of two runs ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Two runs side by side."""

    pairs: Pairs
    zeros: Floats
    """[P, L] excess of the member's zeros over the baseline's, as a share of what is not zero in both; negative where
    it has fewer. NaN: not comparable in this frame."""
    norm_bits: Floats
    """[P, L] log2 of the member's norm over the baseline's."""
    above: Floats
    """[P, L] exponent below which sizes are rounding noise."""
    nonfinite: NDArray[np.bool_]
    """[P, L] where only the member has NaN or Inf."""
    ends: histograms.Ends
    zero_shares: tuple[Floats, Floats]
    """[L] at the end, by summed counts: baseline's and member's."""
    norm_ratio: Floats
    underflow: Floats
    """[L] of the member, at the end."""
    updates: LostUpdates


def side_by_side(comparison: Comparison, index: int, baseline: int = 0) -> Measured | None:
    """Of a member and the baseline, or of any two; computed once for as long as neither has new data. None where one
    of them declared no layer."""
    align = comparison.options.align
    views = comparison.views[baseline], comparison.views[index]
    key = ("numerics", views[1].run_id, tuple(sorted(views[1].versions.items())), align)
    return views[0].memo(key, lambda: _measured(*views, align))


def _measured(baseline: RunView, member: RunView, align: Alignment) -> Measured | None:
    pairs = pair(baseline, member, align)
    if pairs is None or not pairs.names or pairs.num_pairs < MIN_PAIRS:
        return None if pairs is None else _empty(pairs)
    one, two = (_counts(pairs, is_member) for is_member in (False, True))
    usable = (one["n"] > 0) & (two["n"] > 0) & (one["nonfinite"] == 0) & (two["nonfinite"] == 0)
    floor = noise_floor(pairs, (one["absmax"], two["absmax"]))
    sums = [{name: np.where(usable, c[name], 0)[pairs.tail].sum(axis=0) for name in c} for c in (one, two)]
    ends = [share(total["zeros"], total["n"]) for total in sums]
    with np.errstate(divide="ignore"):
        above = np.floor(np.log2(floor))
    return Measured(
        pairs=pairs,
        zeros=np.where(usable & (one["absmax"] > floor), _excess_zeros(one, two), np.nan),
        norm_bits=np.where(usable, _norm_bits(one, two, floor), np.nan),
        nonfinite=(two["nonfinite"] > 0) & (one["nonfinite"] == 0) & (one["n"] > 0),
        above=above,
        ends=histograms.at_the_end(pairs, np.median(above[pairs.tail], axis=0)),
        zero_shares=(ends[0], ends[1]),
        norm_ratio=np.sqrt(share(sums[1]["sumsq"], sums[0]["sumsq"])),
        underflow=_underflow(pairs, sums[1], ends[0]),
        updates=lost_updates(pairs),
    )


def _counts(pairs: Pairs, is_member: bool) -> dict[str, NDArray[Any]]:
    """[P, L] of one of the runs."""
    frames = pairs.frames if is_member else pairs.baseline_frames
    rows = pairs.rows if is_member else pairs.baseline_rows
    at = np.ix_(rows, pairs.columns if is_member else pairs.baseline_columns)
    table, sizes = frames.table, frames.sizes
    found = {name: getattr(table, name)[at] for name in ("n", "zeros", "nonfinite")}
    return found | {"sumsq": sizes.sumsq[at], "absmax": sizes.absmax[at]}


def _excess_zeros(one: dict[str, NDArray[Any]], two: dict[str, NDArray[Any]]) -> Floats:
    """Of what is not zero in both, what has become so in the second."""
    shares = share(one["zeros"], one["n"]), share(two["zeros"], two["n"])
    room = 1.0 - np.minimum(*shares)
    return np.divide(shares[1] - shares[0], room, out=np.zeros(room.shape), where=room > 0)


def _norm_bits(one: dict[str, NDArray[Any]], two: dict[str, NDArray[Any]], floor: Floats) -> Floats:
    """log2 of the ratio of root mean squares; what is below the noise counts as that, and NaN is where one has none."""
    sizes = [np.sqrt(share(count["sumsq"], count["n"])) for count in (one, two)]
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = np.log2(np.maximum(sizes[1], floor) / np.maximum(sizes[0], floor))
    return np.where((sizes[0] > 0) & (sizes[1] > 0), bits, np.nan)


def _underflow(pairs: Pairs, sums: dict[str, Floats], baseline_zeros: Floats) -> Floats:
    """[L] the member's underflow at the end. Where its own frames do not tell which zeros are structural, a baseline
    that lost none tells."""
    found = run_underflow(pairs.member)
    assert found is not None
    rows = pairs.rows[pairs.tail]
    own = layer_totals(found, slice(int(rows[0]), int(rows[-1]) + 1))[pairs.columns]
    if not found.is_measured or computes_in_fp16(pairs.baseline, pairs.baseline_frames.table):
        return own
    paired = excess_zero_share(sums["zeros"], sums["n"], baseline_zeros * sums["n"])
    return np.where(np.isnan(own), paired, own)


def _empty(pairs: Pairs) -> Measured:
    none, nowhere = np.empty(0), np.empty((0, 0))
    return Measured(
        pairs=pairs,
        zeros=nowhere,
        norm_bits=nowhere,
        nonfinite=np.empty((0, 0), np.bool_),
        above=nowhere,
        ends=histograms.nothing(),
        zero_shares=(none, none),
        norm_ratio=none,
        underflow=none,
        updates=LostUpdates(difference=nowhere, baseline=none, member=none),
    )


# ---- what has parted -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """What became of all layers in each respect."""

    respects: dict[str, Parted]
    repeats_bits: Floats
    """[L] what repeats differ by in distance; NaN without any."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Noise:
    """What repeats of a configuration differ by, [L]; 0 where there are none."""

    zeros: Floats
    norm: Floats
    distance: Floats


def _respects(comparison: Comparison, index: int, measured: Measured) -> Found:
    pairs, ends = measured.pairs, measured.ends
    noise = _repeats(comparison, index, pairs.names)
    floors = np.maximum(_zeros_floor(comparison, index, measured), REPEATS_NOISE * noise.zeros)
    respects = {
        "nonfinite": _lasting_nonfinite(measured),
        "zeros": part(measured.zeros, pairs.tail, floors),
        "updates": part(measured.updates.difference, pairs.tail, UPDATES_SHARE),
        "norm": part(measured.norm_bits, pairs.tail, np.maximum(NORM_BITS, REPEATS_NOISE * noise.norm)),
    }
    tolerated = np.maximum(
        DISTANCE_BITS, np.maximum(OWN_NOISE * np.nan_to_num(ends.noise_bits), REPEATS_NOISE * noise.distance)
    )
    respects["distance"] = _distances(measured, tolerated)
    bits = np.where(noise.distance > 0, noise.distance, np.nan)
    return Found(respects=respects, repeats_bits=bits)


def _zeros_floor(comparison: Comparison, index: int, measured: Measured) -> Floats:
    near = (measured.ends.near_floor_share >= NEAR_FLOOR_SHARE) & ~(measured.underflow < PAIRED_ZEROS_SHARE)
    share_near = PAIRED_ZEROS_SHARE if _same_data(comparison, index) else NEAR_ZEROS_SHARE
    return np.where(near, share_near, OTHER_ZEROS_SHARE)


def _same_data(comparison: Comparison, index: int) -> bool:
    """Whether a member began with the baseline's weights and saw the same batches."""
    states = {item.id: item.states[index] for item in comparison.fairness.items}
    return all(states.get(name) == "same" for name in ("initial_weights", "data_order"))


def _lasting_nonfinite(measured: Measured) -> Parted:
    pairs, marked = measured.pairs, measured.nonfinite
    row = last_in_a_row(marked)
    was_applied = pairs.step[-1] not in pairs.member.skips.step
    lasts = row >= (1 if was_applied else LASTING_FRAMES)
    first = np.where(lasts, pairs.num_pairs - row, -1)
    return Parted(level=lasts.astype(np.float64), threshold=np.full(row.size, 0.01), first=first)


def _distances(measured: Measured, tolerated: Floats) -> Parted:
    """Histograms are read frame by frame only where those at the end are apart."""
    level, pairs = measured.ends.distance_bits, measured.pairs
    excess = np.nan_to_num(level / tolerated)
    first = np.full(level.size, -1)
    apart = np.flatnonzero(excess >= 1)
    apart = apart[np.argsort(-excess[apart], kind="stable")][: max(1, MAX_HISTORY // pairs.num_pairs)]
    if apart.size:
        apart.sort()
        bits, own = pairs.member.memo(
            ("distances", pairs.baseline.run_id, tuple(sorted(pairs.baseline.versions.items())), tuple(apart.tolist())),
            lambda: histograms.frame_by_frame(pairs, apart, measured.above[:, apart]),
        )
        smooth = running_median(np.nan_to_num(carried(bits)))
        first[apart] = first_lasting(smooth, np.maximum(tolerated[apart], FRAME_NOISE * own))
    return Parted(level=level, threshold=tolerated, first=first)


def _repeats(comparison: Comparison, index: int, names: Sequence[str]) -> _Noise:
    """The most that any repeats of the baseline's or the member's configuration differ by, in each layer. The member
    itself is left out: what is wrong with it is not noise."""
    groups = [member.group for member in comparison.members]
    noise = _Noise(**{name: np.zeros(len(names)) for name in ("zeros", "norm", "distance")})
    if groups[0] == groups[index]:
        return noise  # they are repeats themselves
    for one in range(len(groups)):
        for other in range(one + 1, len(groups)):
            if index not in (one, other) and groups[one] == groups[other] and groups[one] in (groups[0], groups[index]):
                _add_noise(noise, names, side_by_side(comparison, other, one))
    return noise


def _add_noise(noise: _Noise, names: Sequence[str], measured: Measured | None) -> None:
    if measured is None or not measured.zeros.size:
        return
    place = {name: at for at, name in enumerate(measured.pairs.names)}
    columns = np.array([place.get(name, -1) for name in names])
    known = columns >= 0
    for total, found in (
        (noise.zeros, _most(measured.zeros)),
        (noise.norm, _most(measured.norm_bits)),
        (noise.distance, np.nan_to_num(measured.ends.distance_bits)),
    ):
        total[known] = np.maximum(total[known], found[columns[known]])


def _most(difference: Floats) -> Floats:
    """[L] the largest that lasts for some frames."""
    most: Floats = np.abs(running_median(np.nan_to_num(carried(difference)))).max(axis=0)
    return most


# ---- layer by layer --------------------------------------------------------------------------


def _layers(measured: Measured, found: Found) -> list[LayerDivergence]:
    pairs, ends, respects = measured.pairs, measured.ends, found.respects
    noise = np.where(np.isnan(found.repeats_bits), ends.noise_bits, found.repeats_bits)
    score = np.max([parted.excess for parted in respects.values()], axis=0)
    step = pairs.step
    layers = []
    for at, name in enumerate(pairs.names):
        parted = {what: int(respects[what].first[at]) for what in RESPECTS}
        apart = [what for what, first in parted.items() if first >= 0]
        what = min(apart, key=lambda what: (parted[what], RESPECTS.index(what)), default="")
        layers.append(
            LayerDivergence(
                layer=name,
                distance_bits=_known(ends.distance_bits[at]),
                noise_bits=_known(noise[at]),
                norm_ratio=_known(measured.norm_ratio[at]),
                zero_share=_known(measured.zero_shares[1][at]),
                baseline_zero_share=_known(measured.zero_shares[0][at]),
                underflow_share=_known(measured.underflow[at]),
                would_flush_share=_known(ends.would_flush_share[at]),
                lost_update_share=_known(measured.updates.member[at]),
                baseline_lost_update_share=_known(measured.updates.baseline[at]),
                first_step=int(step[parted[what]]) if what else None,
                what=what,
                score=float(score[at]),
            )
        )
    return layers


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
