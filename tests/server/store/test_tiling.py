"""Sketches into tiles: when a slab is full, what is rewritten, and what comes late."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from halfscope_server.store import schema
from halfscope_server.store.sketch_records import layer_id
from halfscope_server.store.store import Store

Make = Callable[..., Any]
FOREVER_US = 10**15


def slabs(store: Store) -> list[tuple[int, bool, int, int, int]]:
    """(number, sealed, frames, first step, last step) of each."""
    slab = schema.slab
    columns = (slab.c.number, slab.c.sealed, slab.c.num_frames, slab.c.first_step, slab.c.last_step)
    database: Any = store._database
    with database.reading() as connection:
        return [tuple(row) for row in connection.execute(sa.select(*columns).order_by(slab.c.number))]


def tiles(store: Store) -> list[tuple[int, int]]:
    """(slab, band) of each."""
    tile = schema.tile
    database: Any = store._database
    with database.reading() as connection:
        rows = connection.execute(sa.select(tile.c.number, tile.c.band).order_by(tile.c.number, tile.c.band))
        return [tuple(row) for row in rows]


def begin(store: Store, begun: Make, make_layers: Make, num_layers: int = 1, **options: Any) -> Any:
    sender = begun(**options)
    names = [f"layer.{lid}" for lid in range(num_layers)]
    assert not store.commit([sender.batch(make_layers(*names))], now_us=2).refused
    return sender


def send(store: Store, sender: Any, records: Sequence[Any]) -> None:
    """One batch, merged."""
    assert not store.commit([sender.batch(*records)], now_us=2).refused
    store.compact(now_us=FOREVER_US, budget_s=60)


def test_a_slab_is_sealed_when_a_65th_frame_comes(
    store: Store, begun: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """A full one stays open, since more of its last frame may come; a sealed one is not written again."""
    sender = begin(store, begun, make_layers)
    seen = []
    for first, end in ((0, 40), (40, 64), (64, 65), (65, 300)):
        send(store, sender, [make_sketches(step, {0: make_cell([step])}) for step in range(first, end)])
        seen.append(slabs(store))
        assert store.frame_moments(sender.run_id).sum[:, 0].tolist() == list(range(end))
    assert seen[0] == [(0, False, 40, 0, 39)]
    assert seen[1] == [(0, False, 64, 0, 63)]
    assert seen[2] == [(0, True, 64, 0, 63), (1, False, 1, 64, 64)]
    assert [(sealed, frames) for _, sealed, frames, _, _ in seen[3]] == [(True, 64)] * 4 + [(False, 44)]
    assert store.count_frames(sender.run_id) == 300


def test_a_frame_cut_by_a_merge_is_one_frame(
    store: Store, begun: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """The layers of one step come in several batches, the last of them at the end of a full slab."""
    sender = begin(store, begun, make_layers, num_layers=60)
    send(store, sender, [make_sketches(step, {0: make_cell([1])}) for step in range(63)])
    for lids in (range(20), range(20, 40), range(40, 60)):
        send(store, sender, [make_sketches(63, {lid: make_cell([lid]) for lid in lids})])
    send(store, sender, [make_sketches(64, {59: make_cell([1])})])
    assert slabs(store) == [(0, True, 64, 0, 63), (1, False, 1, 64, 64)]
    assert tiles(store) == [(0, 0), (0, 1), (0, 2), (1, 2)]
    last = store.frame_moments(sender.run_id, first_step=63, last_step=63)
    assert last.sum.tolist() == [[float(lid) for lid in range(60)]]
    assert last.present.all()


def test_what_comes_after_its_slab_was_sealed_is_added_when_read(
    store: Store, begun: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """Counted once; its time and scale are those of what came first."""
    sender = begin(store, begun, make_layers, num_layers=2)
    send(store, sender, [make_sketches(step, {0: make_cell([1.0, 0.0])}, scale=2.0) for step in range(100)])
    late = make_sketches(10, {0: make_cell([4.0]), 1: make_cell([0.5])}, scale=8.0, time_us=77)
    send(store, sender, [late])
    assert store.count_frames(sender.run_id) == 100
    found = store.frame_sketches(sender.run_id, None, first_step=10, last_step=10)
    assert (found.step.tolist(), found.time_us.tolist(), found.scale.tolist()) == ([10], [10_000], [[2.0, 8.0]])
    assert found.sketches.sum.tolist() == [[5.0, 0.5]]
    assert found.sketches.n.tolist() == [[3, 1]]
    assert (found.sketches.lowest, found.sketches.counts.tolist()) == (-1, [[[0, 1, 0, 1], [1, 0, 0, 0]]])


def test_kinds_of_tensors_do_not_mix(
    store: Store, begun: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """The same layer and step of another kind is another frame, merged or not."""
    sender = begin(store, begun, make_layers)
    records = [make_sketches(1, {0: make_cell([value])}, of=kind) for kind, value in (("grad", 1.0), ("weight", 8.0))]
    assert not store.commit([sender.batch(*records)], now_us=2).refused
    for _ in range(2):
        assert store.frame_kinds(sender.run_id) == ["grad", "weight"]
        assert store.frame_moments(sender.run_id).sum.tolist() == [[1.0]]
        assert store.frame_moments(sender.run_id, of="weight").sum.tolist() == [[8.0]]
        assert [store.count_frames(sender.run_id, of=kind) for kind in ("grad", "weight", "other")] == [1, 1, 0]
        store.compact(now_us=FOREVER_US, budget_s=60)
    assert len(slabs(store)) == 2


def test_two_numbers_of_one_layer_are_one_layer(
    store: Store, begun: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """A parameter registered again goes on under its name, also where both numbers are in one step."""
    sender = begin(store, begun, make_layers)
    assert not store.commit([sender.batch(make_layers("layer.0", "layer.0"))], now_us=2).refused
    records = [make_sketches(1, {0: make_cell([1.0]), 1: make_cell([2.0])}), make_sketches(2, {1: make_cell([4.0])})]
    assert not store.commit([sender.batch(*records)], now_us=2).refused
    for _ in range(2):
        found = store.frame_sketches(sender.run_id, [layer_id("layer.0")])
        assert found.sketches.sum.tolist() == [[3.0], [4.0]]
        assert found.sketches.counts.sum(axis=-1).tolist() == [[2], [1]]
        store.compact(now_us=FOREVER_US, budget_s=60)


def test_a_layer_keeps_its_newest_shape_and_its_smallest_place(store: Store, begun: Make, make_layers: Make) -> None:
    """Ranks may number layers otherwise; a layer is its name."""
    first = begin(store, begun, make_layers, num_layers=3)
    second = begun(stream="22", rank=1)
    assert not store.commit([second.batch(make_layers("new", "layer.2", "layer.0"))], now_us=2).refused
    rows = store.layers(first.run_id)
    assert [(row.name, row.place, row.shape) for row in rows] == [
        ("layer.0", 0, (4, 3)),
        ("new", 0, (4, 1)),
        ("layer.1", 1, (4, 2)),
        ("layer.2", 1, (4, 2)),
    ]
    assert {row.layer_id for row in rows} == {layer_id(row.name) for row in rows}


def test_a_scale_that_is_no_scale_harms_nobody(
    store: Store, begun: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """Zero flushes all, infinity overflows all, and of a negative one nothing is known; the frame is kept as sent."""
    sender = begin(store, begun, make_layers)
    scales = [0.0, math.inf, -1.0, 3.0]
    records = [make_sketches(step, {0: make_cell([1.0, 2.0])}, scale=scale) for step, scale in enumerate(scales)]
    send(store, sender, records)
    found = store.frame_moments(sender.run_id)
    assert found.scale[:, 0].tolist() == scales
    assert found.flushed[:, 0].tolist() == [2, 0, 0, 0]
    assert found.overflow[:, 0].tolist() == [0, 2, 0, 0]
    assert np.array_equal(found.n[:, 0], [2] * 4)


def test_layers_of_a_band_that_were_not_sketched_are_not_there(
    store: Store, begun: Make, make_layers: Make, make_sketches: Make, make_cell: Make
) -> None:
    """Their band has a tile, which holds others only."""
    sender = begin(store, begun, make_layers, num_layers=3)
    send(store, sender, [make_sketches(step, {0: make_cell([1.0])}) for step in range(70)])
    found = store.frame_moments(sender.run_id, layer_ids=[layer_id("layer.2"), layer_id("unknown")])
    assert found.n.shape == found.absmax.shape == (70, 2)
    assert not found.present.any()
    assert store.frame_sketches(sender.run_id, [layer_id("layer.2")], first_step=66).present.tolist() == [[False]] * 4


def test_a_run_without_sketches_reads_empty(store: Store, begun: Make) -> None:
    """Arrays of the right types and shapes, for a run that has none and for one that is not there."""
    sender = begun(["loss"])
    for run_id in (sender.run_id, "nobody"):
        found = store.frame_sketches(run_id, [1, 2])
        assert (found.present.shape, found.sketches.counts.shape, found.step.dtype) == ((0, 2), (0, 2, 0), np.int64)
        moments = store.frame_moments(run_id)
        assert (moments.layer_ids, moments.n.shape, moments.rank.dtype) == ((), (0, 0), np.int32)
        assert (store.layers(run_id), store.count_frames(run_id), store.frame_kinds(run_id)) == ([], 0, [])
