"""Frames of many ranks against the frames of one process that has whole tensors, and against loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from halfscope.sketch import Sketch
from halfscope_server.query import RunView, Views, Window
from halfscope_server.query.exponents import exponents, node_sketches
from halfscope_server.query.frames import FrameTable, RunFrames, run_frames
from halfscope_server.query.window import Span
from halfscope_server.store.store import Store
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

WriteRun = Callable[..., Any]

LAYERS = {"a.w": 48, "b.w": 30, "c.w": 12}
STEPS = range(0, 50, 10)
SCALE = 2.0**10


def newest(views: Views, run_id: str = "run1") -> RunView:
    """The newest view of a run."""
    view = views.get(run_id)
    assert view is not None
    return view


def frames_of(view: RunView) -> RunFrames:
    """Its frames."""
    found = run_frames(view)
    assert found is not None
    return found


def gradient(name: str, step: int) -> NDArray[np.float64]:
    """Values over many powers of two, with zeros, NaN and infinities among them."""
    rng = np.random.default_rng([step, sum(map(ord, name))])
    values: NDArray[np.float64] = np.exp2(rng.uniform(-30, -5, LAYERS[name])) * rng.choice([-1.0, 1.0], LAYERS[name])
    values[rng.random(LAYERS[name]) < 0.2] = 0.0
    if step == 20:
        values[:3] = [np.nan, np.inf, -np.inf]
    return values


def write_whole(write_run: WriteRun) -> None:
    """The same training in one process, as run `whole`."""
    writer = write_run("whole")
    writer.facts(parameters_order=list(LAYERS))
    writer.points("loss", range(50), 1.0)
    for step in STEPS:
        writer.frame(step, {name: gradient(name, step) for name in LAYERS}, SCALE)
    writer.commit()


def write_rank(
    write_run: WriteRun,
    rank: int,
    world_size: int,
    told: Mapping[str, tuple[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]]],
    steps: range = STEPS,
    **more: Any,
) -> Any:
    """One rank of run1: of each layer the name of its part, and how that is cut out."""
    writer = write_run(rank=rank, world_size=world_size, **more)
    writer.facts(parameters_order=list(LAYERS))
    writer.points("loss", range(50), 1.0)
    writer.parts = {name: part for name, (part, _) in told.items() if part}
    for step in steps:
        if told:
            writer.frame(step, {name: cut(gradient(name, step)) for name, (_, cut) in told.items()}, SCALE)
    writer.commit()
    return writer


def shard(rank: int, world_size: int) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """A rank's elements of a tensor."""
    return lambda values: np.asarray(np.array_split(values, world_size)[rank])


def whole(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """All elements."""
    return values


def sharded(rank: int, world_size: int) -> dict[str, Any]:
    """As FSDP has them."""
    return {name: (f"data:{rank}/{world_size}", shard(rank, world_size)) for name in LAYERS}


def staged(rank: int, _world_size: int) -> dict[str, Any]:
    """As pipeline stages have them."""
    return dict.fromkeys([["a.w", "b.w"], ["c.w"], []][rank], ("", whole))


def replicated(rank: int, _world_size: int) -> dict[str, Any]:
    """As DDP has them, told by all."""
    return dict.fromkeys(LAYERS, ("", whole))


def on_a_mesh(rank: int, _world_size: int) -> dict[str, Any]:
    """Two by two: the first layer cut twice, the second along one dimension and alike along the other, the last whole
    and told by rank 0."""
    data, tensor = divmod(rank, 2)
    told: dict[str, Any] = {
        "a.w": (f"tensor:{tensor}/2 data:{data}/2", shard(rank, 4)),
        "b.w": (f"tensor:{tensor}/2", shard(tensor, 2)),
    }
    return told | ({"c.w": ("", whole)} if rank == 0 else {})


ARRANGED: dict[str, tuple[int, Callable[[int, int], dict[str, Any]]]] = {
    "replicas": (3, replicated),
    "shards": (3, sharded),
    "stages": (3, staged),
    "mesh": (4, on_a_mesh),
}


@pytest.mark.parametrize("arranged", ARRANGED)
@pytest.mark.parametrize("is_sealed", [False, True])
def test_ranks_together_are_the_process_that_has_all(
    lite: Store, write_run: WriteRun, sealed: Callable[[], None], arranged: str, is_sealed: bool
) -> None:
    """Counts exactly, sums to rounding, sketches bin by bin; whichever way the tensors are cut."""
    write_whole(write_run)
    world_size, told = ARRANGED[arranged]
    for rank in range(world_size):
        write_rank(write_run, rank, world_size, told(rank, world_size))
    if is_sealed:
        sealed()
    views = Views(lite)
    one, many = newest(views, "whole"), newest(views)
    alone, together = frames_of(one), frames_of(many)
    assert together.tree.leaves == alone.tree.leaves
    for name in FrameTable.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(together.table, name), getattr(alone.table, name), err_msg=name)
    np.testing.assert_allclose(together.sizes.sumsq, alone.sizes.sumsq, rtol=1e-12)
    np.testing.assert_array_equal(together.sizes.absmax, alone.sizes.absmax)
    for node in ("a.w", "b.w"):
        found = [node_sketches(view, node, Span(first_step=0, last_step=49)) for view in (one, many)]
        assert found[0] is not None
        assert found[1] is not None
        same_sketch(found[0][1], found[1][1])
        drawn = [exponents(view, Window(layer=node)) for view in (one, many)]
        assert drawn[0] is not None
        assert drawn[1] is not None
        np.testing.assert_array_equal(drawn[0].counts, drawn[1].counts)
        np.testing.assert_array_equal(drawn[0].scale, drawn[1].scale)


def same_sketch(one: Sketch, other: Sketch) -> None:
    """Counts alike, sums to rounding."""
    one, other = one.trimmed(), other.trimmed()
    assert one.lowest == other.lowest
    for name in ("n", "zeros", "nan", "pos_inf", "neg_inf", "absmax", "absmin_nonzero", "counts"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_allclose(one.sumsq, other.sumsq, rtol=1e-12)


def test_a_layer_of_which_a_part_is_missing_was_not_measured(lite: Store, write_run: WriteRun) -> None:
    """Two thirds of a tensor are not the tensor; layers that are there as a whole stay."""
    for rank in range(3):
        told = sharded(rank, 3)
        del told["c.w"]
        if rank == 0:
            told["c.w"] = ("", whole)
        write_rank(write_run, rank, 3, told, range(0, 30, 10) if rank == 2 else STEPS)
    table = frames_of(newest(Views(lite))).table
    assert table.step.tolist() == list(STEPS)
    assert table.present.tolist() == [[True] * 3] * 3 + [[False, False, True]] * 2
    assert table.n[3:].tolist() == [[0, 0, 12]] * 2


def test_frames_that_come_from_ranks_one_after_the_other_are_those_read_at_once(
    lite: Store, write_run: WriteRun
) -> None:
    """A rank that is behind, one that joins late, a restart: what was kept is never a part taken for the whole."""
    views = Views(lite)
    for attempt in range(2):
        writers = []
        for rank in range(2):
            writer = write_run(rank=rank, world_size=2, attempt=attempt)
            writer.parts = dict.fromkeys(("a.w", "b.w"), f"data:{rank}/2")
            writers.append(writer)
        for tick in range(6):
            for rank in (0, 1) if tick % 2 else (1, 0):
                step = 10 * tick + 30 * attempt
                writer = writers[rank]
                writer.points("loss", range(step, step + 10), 1.0)
                told = {name: shard(rank, 2)(gradient(name, step)) for name in ("a.w", "b.w")}
                if rank == 0:
                    told["c.w"] = gradient("c.w", step)
                if not (rank == 1 and tick == 2):  # it tells of this one later
                    writer.frame(step, told, SCALE)
                if rank == 1 and tick == 3:
                    late = step - 10
                    writer.frame(late, {n: shard(1, 2)(gradient(n, late)) for n in ("a.w", "b.w")}, SCALE)
                writer.commit()
                grown, fresh = frames_of(newest(views)), frames_of(newest(Views(lite)))
                for name in FrameTable.__dataclass_fields__:
                    np.testing.assert_array_equal(
                        getattr(grown.table, name), getattr(fresh.table, name), err_msg=f"{name}, {attempt}, {tick}"
                    )
                np.testing.assert_array_equal(grown.sizes.sumsq, fresh.sizes.sumsq)
    assert grown.table.step.size == 3 + 6


def test_layers_keep_the_scale_of_the_rank_that_tells_of_them(lite: Store, write_run: WriteRun) -> None:
    """Pipeline stages whose scales part: each layer is judged at its own."""
    for rank, scale in enumerate((2.0**8, 2.0**12)):
        writer = write_run(rank=rank, world_size=2)
        writer.points("loss", range(50), 1.0)
        name = ("a.w", "b.w")[rank]
        for step in STEPS:
            writer.frame(step, {name: gradient(name, step)}, scale)
        writer.commit()
    table = frames_of(newest(Views(lite))).table
    assert table.scale.tolist() == [[2.0**8, 2.0**12]] * len(STEPS)


@given(st.data())
def test_any_arrangement_is_what_a_loop_over_ranks_gives(data: st.DataObject) -> None:
    """Whoever has all counts alone, the lowest rank first; else every part once, and only where none is missing."""
    from halfscope_server.query.parts import _plan
    from halfscope_server.store.types import FrameMoments

    num_ranks, num_layers, num_steps = (data.draw(st.integers(1, n)) for n in (4, 3, 3))
    told = {
        rank: {
            layer: part
            for layer in range(num_layers)
            if (part := data.draw(st.sampled_from([None, None, "x", "y", "z"]))) is not None
        }
        for rank in range(num_ranks)
    }
    rows = [(s, r) for s in range(num_steps) for r in range(num_ranks) if data.draw(st.booleans())]
    if not rows:
        return
    present = np.array([[data.draw(st.booleans()) for _ in range(num_layers)] for _ in rows])
    n = np.where(present, np.arange(1, present.size + 1).reshape(present.shape), 0)
    step, rank = (np.array([row[k] for row in rows]) for k in (0, 1))
    found = FrameMoments(
        layer_ids=tuple(range(num_layers)), step=step, time_us=step, rank=rank.astype(np.int32),
        attempt=np.zeros(len(rows), np.int32), scale=np.ones((len(rows), 1)), present=present,
        point=present.astype(np.uint8), maybe_clipped=np.zeros(present.shape, np.bool_), columns={"n": n},
    )  # fmt: skip
    plan = _plan(found, told)
    for frame, at in enumerate(np.unique(step).tolist()):
        for layer in range(num_layers):
            expected: int | None = None
            parts: dict[str, int] = {}
            for row, (s, r) in enumerate(rows):
                if s == at and present[row, layer]:
                    part = told[r].get(layer)
                    if part is None and expected is None:
                        expected = int(n[row, layer])
                    elif part is not None:
                        parts.setdefault(part, int(n[row, layer]))
            all_parts = {parts_of[layer] for parts_of in told.values() if layer in parts_of}
            if expected is None and all_parts and parts.keys() == all_parts:
                expected = sum(parts.values())
            assert plan.present[frame, layer] == (expected is not None)
            assert plan.combined("n", n)[frame, layer] == (expected or 0)
