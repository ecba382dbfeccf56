"""Frames of sketches against brute force over what was sent, wherever compaction struck."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from halfscope_server.store import compactor, frames, tiles, tiling
from halfscope_server.store.sketch_records import layer_id
from halfscope_server.store.store import Store
from halfscope_server.store.tails import Tails
from halfscope_server.store.types import GRADIENT_POINTS, FrameMoments, FrameSketches
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

Make = Callable[..., Any]
NAMES = tuple(f"block.{at}.weight" for at in range(7))
IDS = [layer_id(name) for name in NAMES]
FOREVER_US = 10**15
COUNTS = ("zeros", "nan", "pos_inf", "neg_inf")
FLOATS = ("sum", "sumsq", "absmax", "absmin_nonzero")


@dataclass
class Part:
    """One layer of one record, as it was sent."""

    frame: tuple[int, int, int, str]
    """(attempt, step, rank, stream)"""
    name: str
    time_us: int
    scale: float
    point: str
    clipped: str
    cell: Any


@dataclass
class Model:
    """What a store must read like."""

    parts: list[Part] = field(default_factory=list)
    """In order of arrival."""

    def frames(self, **bounds: int | None) -> list[tuple[int, int, int, str]]:
        def inside(frame: tuple[int, int, int, str]) -> bool:
            attempt, step, rank, _ = frame
            return (
                (bounds.get("first_step") is None or step >= bounds["first_step"])
                and (bounds.get("last_step") is None or step <= bounds["last_step"])
                and (bounds.get("rank") is None or rank == bounds["rank"])
                and (bounds.get("attempt") is None or attempt == bounds["attempt"])
            )

        return sorted({part.frame for part in self.parts if inside(part.frame)})


def in_fp16(bins: Mapping[int, int], absmax: float, scale: float) -> tuple[int, int, int]:
    """Flushed, subnormal, overflow at a scale that is a power of two; without one at 65536."""
    log2 = math.log2(65536.0 if math.isnan(scale) else scale)
    flushed = sum(count for exponent, count in bins.items() if exponent + log2 <= -26)
    subnormal = sum(count for exponent, count in bins.items() if -25 <= exponent + log2 <= -15)
    overflow = sum(count for exponent, count in bins.items() if exponent + log2 >= 16)
    too_large = absmax * 2.0**log2 >= 65520
    return flushed, subnormal, max(overflow, 1) if too_large else 0


def check(store: Store, model: Model, run_id: str, names: list[str], **bounds: int | None) -> None:
    ids = [layer_id(name) for name in names]
    wanted = model.frames(**bounds)
    moments = store.frame_moments(run_id, layer_ids=ids, **bounds)
    sketches = store.frame_sketches(run_id, ids, **bounds)
    first = {part.frame: part for part in reversed(model.parts)}
    for found in (moments, sketches):
        assert found.layer_ids == tuple(ids)
        assert list(zip(found.attempt, found.step, found.rank, strict=True)) == [frame[:3] for frame in wanted]
        firsts = [first[frame] for frame in wanted]
        assert found.time_us.tolist() == [part.time_us for part in firsts]
        assert found.scale.shape in ((len(wanted), 1), (len(wanted), len(names)))
    parts: dict[tuple[Any, str], list[Part]] = {}
    for part in model.parts:
        parts.setdefault((part.frame, part.name), []).append(part)
    scales = [[parts.get((frame, name), [first[frame]])[0].scale for name in names] for frame in wanted]
    for found in (moments, sketches):
        sent = np.reshape(scales, found.present.shape)
        assert np.array_equal(np.broadcast_to(found.scale, sent.shape), sent, equal_nan=True)
        is_one = all(len({str(scale) for scale in row}) == 1 for row in scales)
        assert found.scale.shape == (len(wanted), 1 if is_one else len(names))
    for f, frame in enumerate(wanted):
        for k, name in enumerate(names):
            check_cell(moments, sketches, (f, k), parts.get((frame, name), []))


def check_cell(moments: FrameMoments, sketches: FrameSketches, at: tuple[int, int], parts: list[Part]) -> None:
    """All there is to know of one layer in one frame."""
    bins: dict[int, int] = {}
    for part in parts:
        for exponent, count in part.cell.bins.items():
            bins[exponent] = bins.get(exponent, 0) + count
    others = [sum(part.cell.others[k] for part in parts) for k in range(4)]
    floats = [0.0, 0.0, 0.0, math.inf]
    if parts:
        floats = list(parts[0].cell.floats)
    for part in parts[1:]:
        sums = [floats[k] + part.cell.floats[k] for k in (0, 1)]
        floats = [*sums, max(floats[2], part.cell.floats[2]), min(floats[3], part.cell.floats[3])]
    fp16 = np.sum([(0, 0, 0), *(in_fp16(p.cell.bins, p.cell.floats[2], p.scale) for p in parts)], axis=0).tolist()
    for found, fields in ((moments, moments), (sketches, sketches.sketches)):
        assert found.present[at] == bool(parts)
        assert found.point[at] == (GRADIENT_POINTS.index(parts[0].point) if parts else 0)
        assert found.maybe_clipped[at] == (bool(parts) and parts[0].clipped != "no")
        assert fields.n[at] == sum(bins.values()) + sum(others)
        assert [getattr(fields, name)[at] for name in COUNTS] == others
        values = np.array([getattr(fields, name)[at] for name in FLOATS])
        assert values.view("<i8").tolist() == np.array(floats).view("<i8").tolist()
    assert [moments.flushed[at], moments.subnormal[at], moments.overflow[at]] == fp16
    stack = sketches.sketches
    counted = {stack.lowest + k: int(count) for k, count in enumerate(stack.counts[at]) if count}
    assert counted == {exponent: count for exponent, count in bins.items() if count}


COUNT = st.integers(0, 300) | st.integers(0, 2**40)
BITS = st.integers(0, 2**64 - 1).map(lambda bits: float(np.array([bits], "<u8").view("<f8")[0]))
MANTISSA = st.sampled_from([1.0, 1.5, 65520 / 2**15, math.nextafter(2.0, 0.0)])


@st.composite
def cell_parts(draw: st.DrawFn, *, may_repeat: bool) -> tuple[Any, ...]:
    """Bins, others and floats; floats that may be added to others are whole numbers, so that any order is exact."""
    start = draw(st.integers(-60, 20) | st.sampled_from([-1074, 1000]))
    bins = {start + k: count for k, count in enumerate(draw(st.lists(COUNT, max_size=6))) if count}
    others = tuple(draw(st.tuples(COUNT, *[st.integers(0, 3)] * 3)))
    sums = st.integers(-(2**20), 2**20).map(float) if may_repeat else BITS
    extremes = (0.0, math.inf)
    if bins:
        extremes = (math.ldexp(draw(MANTISSA), max(bins)), math.ldexp(draw(MANTISSA), min(bins)))
    return bins, others, (draw(sums), draw(sums), *extremes)


@st.composite
def record_parts(draw: st.DrawFn) -> tuple[Any, ...]:
    """One record: layers with even numbers may be sketched again in the same step, the others once."""
    lids = draw(st.lists(st.integers(0, len(NAMES) - 1), min_size=1, max_size=len(NAMES), unique=True))
    cells = {lid: draw(cell_parts(may_repeat=lid % 2 == 0)) for lid in lids}
    step = draw(st.integers(0, 30))
    options = {
        "time_us": 1000 * step + draw(st.integers(0, 2)),
        "scale": draw(st.sampled_from([math.nan, 1.0, 1024.0, 65536.0, 2.0**-4])),
        "point": draw(st.sampled_from(["unscale", "step", "elsewhere"])),
        "clipped": draw(st.sampled_from(["no", "maybe"])),
    }
    return step, cells, options


ACTIONS = st.lists(
    st.tuples(st.just("record"), st.integers(0, 3), record_parts())
    | st.tuples(st.just("send"), st.none(), st.none())
    | st.tuples(st.just("compact"), st.none(), st.none())
    | st.tuples(st.just("restart"), st.none(), st.none())
    | st.tuples(st.just("read"), st.none(), st.none()),
    min_size=4,
    max_size=20,
)
NOTHING: Any = ({}, (0, 0, 0, 0), (0.0, 0.0, 0.0, math.inf))
OPTIONS: Any = {"time_us": 0, "scale": 1024.0, "point": "unscale", "clipped": "no"}
SEND: Any = ("send", None, None)
COMES_LATER: Any = [
    *[("record", 0, (0, {0: NOTHING}, OPTIONS))] * 3,
    *[SEND] * 3,
    ("record", 1, (28, {0: NOTHING, 1: ({2: 222}, (0, 0, 0, 0), (0.0, 0.0, 4.0, 4.0))}, OPTIONS)),
    *[SEND] * 3,
    ("compact", None, None),
    ("record", 1, (28, {0: ({3: 167}, (0, 0, 0, 0), (0.0, 0.0, 8.0, 8.0))}, OPTIONS)),
    SEND,
    ("compact", None, None),
]
"""What is in a tile, and more of the same layer and step in another."""
RUNS = iter(range(10**9))


@pytest.mark.parametrize("slab_frames", [3, 64])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS)
@example(actions=COMES_LATER)
def test_frames_equal_brute_force_whatever_compaction_did(
    store: Store,
    make_sender: Make,
    make_layers: Make,
    make_sketches: Make,
    make_cell: Make,
    monkeypatch: pytest.MonkeyPatch,
    slab_frames: int,
    actions: list[Any],
) -> None:
    """Random records of two ranks, a second attempt and a fork, late and repeated ones; restarts; tiny tiles, too."""
    for module in (tiling, frames, tiles):
        monkeypatch.setattr(module, "BAND_LAYERS", 3 if slab_frames == 3 else 25)
    monkeypatch.setattr(tiling, "SLAB_FRAMES", slab_frames)
    monkeypatch.setattr(compactor, "MAX_SEGMENTS", 3)
    cell_type = type(make_cell([]))
    run_id = f"run{next(RUNS)}"
    senders = [
        make_sender(run_id=run_id, stream=f"s{at}", rank=rank, attempt=attempt)
        for at, (rank, attempt) in enumerate(((0, 0), (1, 0), (0, 1), (0, 0)))
    ]
    pending: dict[int, list[Any]] = {}
    for at, sender in enumerate(senders):
        sender.greet(store)
        pending[at] = [make_layers(*NAMES[: 7 - at])]
    model, written = Model(), set()

    def send() -> None:
        batches = [senders[at].batch(*records) for at, records in pending.items() if records]
        pending.update({at: [] for at in pending})
        assert not batches or not store.commit(batches, now_us=2).refused

    for kind, at, parts in actions:
        if kind == "record":
            step, cells, options = parts
            sender = senders[at]
            known = {lid: cell_type(*cell) for lid, cell in cells.items() if lid < 7 - at}
            known = {lid: c for lid, c in known.items() if lid % 2 == 0 or (at, step, lid) not in written}
            if not known:
                continue
            written |= {(at, step, lid) for lid in known}
            pending[at].append(make_sketches(step, known, **options))
            frame = (sender.info.attempt, step, sender.info.rank, sender.stream)
            options = options | {"point": options["point"] if options["point"] in GRADIENT_POINTS else ""}
            model.parts += [Part(frame=frame, name=NAMES[lid], cell=cell, **options) for lid, cell in known.items()]
        elif kind == "send":
            send()
        elif kind == "compact":
            store.compact(now_us=FOREVER_US, budget_s=60)
        elif kind == "restart":
            # All that a process knows and a database does not.
            store._tails = Tails()
            store._committer.forget()
        else:
            send()
            check(store, model, run_id, [NAMES[4], NAMES[1]], first_step=5, last_step=20)
    send()
    check(store, model, run_id, list(NAMES))
    check(store, model, run_id, [NAMES[6], "unknown", NAMES[0]], rank=0)
    check(store, model, run_id, [NAMES[2]], attempt=1, first_step=10)
    assert store.count_frames(run_id) == len(model.frames())
    assert [row.name for row in store.layers(run_id)] == list(NAMES)
    assert store.frame_moments(run_id).layer_ids == tuple(IDS)
