"""Underflow and headroom of layers: the numbers that the pages show, as of the newest frame."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope.sketch import of_array, structural_zeros
from halfscope_server.alerts.block import Block, Sketched
from halfscope_server.alerts.metrics import find
from halfscope_server.alerts.metrics.base import LayerSamples, Memory
from halfscope_server.alerts.metrics.underflow import MAX_FRAMES, SPARE_FRAMES
from halfscope_server.alerts.packing import pack, unpack
from halfscope_server.alerts.rule import Rule, Scope, Span
from halfscope_server.query.underflow import run_underflow
from halfscope_server.query.view import Views
from halfscope_server.store.store import Store
from halfscope_server.store.types import FrameMoments

from tests.helpers.journals import as_moments, moments_of
from tests.helpers.records import Records, Row, cut, evaluate, run_row, values, whole
from tests.server.conftest import RunWriter

NAMES = ("a.weight", "b.weight", "c.weight")


def _frames(count: int, seed: int, *, num_layers: int = 3, elements: int = 200, steady: bool = False) -> FrameMoments:
    """Gradients under a scale that rises and collapses: with room, near the floor, flushed, and NaN now and then.

    Args:
        steady: the scale moves little; it is the gradients that come near the floor.
    """
    rng = np.random.default_rng(seed)
    rows, heads, scale = [], [], 2.0**12
    for at in range(count):
        if rng.random() < 0.06:
            scale = float(2.0 ** (rng.integers(11, 14) if steady else rng.integers(0, 14)))
        sketches = {}
        for layer in range(num_layers):
            if rng.random() < 0.05:
                continue
            low = rng.integers(8, 20) if steady else 0
            grad = rng.normal(0.0, 2.0 ** (-10 - 4 * layer - low), elements).astype(np.float32)
            grad[rng.random(elements) < 0.3 * layer] = 0.0
            if rng.random() < 0.03:
                grad[:] = 0.0
            if rng.random() < 0.03:
                grad[0] = math.nan
            seen = (grad * np.float32(scale)).astype(np.float16).astype(np.float32) / np.float32(scale)
            sketches[layer] = (of_array(seen), scale)
        rows.append(moments_of(sketches, range(num_layers)))
        heads.append((at * 10, at * 1000))
    return as_moments(heads, rows)


def _fed(
    metric: str, moments: FrameMoments, *, at_once: int, restart: bool = False, precision: str = "FP16-AMP"
) -> Any:
    derived, memory = find(metric), Memory()
    assert derived is not None
    source, parts = derived.make(memory), []
    for first in range(0, moments.step.size, at_once):
        frames = Sketched.of(moments, NAMES).rows(slice(first, first + at_once))
        found = source.feed(Block(run=run_row(facts={"precision": precision}), frames=[frames]))
        if isinstance(found, LayerSamples):
            parts.append(found.value)
        if restart:
            source.save()  # type: ignore[attr-defined]  # of sources with something to save
            state = unpack(pack({"memory": memory}))
            assert state is not None
            memory = state["memory"]
            source = derived.make(memory)
    return np.concatenate(parts) if parts else np.empty((0, 3))


def _as_the_newest(moments: FrameMoments, at: int) -> np.ndarray[Any, Any]:
    """What the pages' rules give for a frame when nothing has come after it."""
    zeros, n = moments.zeros[: at + 1], moments.n[: at + 1]
    nonzero = n - zeros - moments.nan[: at + 1] - moments.pos_inf[: at + 1] - moments.neg_inf[: at + 1]
    near = moments.subnormal[: at + 1] + moments.flushed[: at + 1]
    scale = np.where(moments.present[: at + 1], moments.scale[: at + 1], np.nan)
    structural = structural_zeros(zeros=zeros, n=n, nonzero=nonzero, near_floor=near, scale=scale)[-1]
    known = moments.present[at] & ~np.isnan(structural)
    lost, of = np.maximum(zeros[-1] - structural, 0.0), n[-1] - structural
    share = np.divide(lost, of, out=np.zeros(lost.shape), where=known & (of > 0))
    return np.where(known, share, np.nan)


@pytest.mark.parametrize(("seed", "steady"), [(0, False), (1, False), (2, True), (3, True)])
def test_the_share_is_what_the_pages_would_have_said_then(seed: int, steady: bool) -> None:
    """Frame by frame, as long as all earlier frames are remembered; cut and restarted anywhere."""
    moments = _frames(MAX_FRAMES, seed, steady=steady)
    found = _fed("underflow_share", moments, at_once=7)
    for at in range(0, MAX_FRAMES, 2 if steady else 5):
        assert found[at] == pytest.approx(_as_the_newest(moments, at), nan_ok=True, abs=1e-12), at
    assert np.nanmax(found) > 0.05
    assert np.array_equal(_fed("underflow_share", moments, at_once=20, restart=True), found, equal_nan=True)


def test_frames_with_room_are_remembered_for_as_long_as_they_are_the_measure() -> None:
    """A scale that collapses for good: what was seen before it is what zeros are held against, however long ago."""
    rng = np.random.default_rng(2)
    count = 2 * (MAX_FRAMES + SPARE_FRAMES)
    rows = []
    for at in range(count):
        scale = 2.0**18 if at < 20 else 2.0**-2
        grad = rng.normal(0.0, 2.0**-20, 500).astype(np.float32)
        grad[:100] = 0.0
        seen = (grad * np.float32(scale)).astype(np.float16).astype(np.float32) / np.float32(scale)
        rows.append(moments_of({0: (of_array(seen), scale)}, range(3)))
    moments = as_moments([(at, at) for at in range(count)], rows)
    found = _fed("underflow_share", moments, at_once=50)
    for at in (30, 200, count - 1):
        assert found[at, 0] == pytest.approx(_as_the_newest(moments, at)[0], abs=1e-12)
    assert found[-1, 0] > 0.05


def test_it_is_the_number_of_the_page(lite: Store, write_run: Callable[..., RunWriter]) -> None:
    """Of a stored run, the newest frame's share is that of query/underflow."""
    run = write_run()
    run.facts(precision="FP16-AMP")
    run.points("loss", np.arange(400), np.ones(400))
    rng = np.random.default_rng(8)
    for at in range(40):
        scale = 2.0**18 if at < 30 else 2.0**-1
        grads = {}
        for layer, name in enumerate(NAMES):
            grad = rng.normal(0.0, 2.0 ** (-13 - 4 * layer), 300).astype(np.float32)
            grads[name] = (grad * np.float32(scale)).astype(np.float16).astype(np.float32) / np.float32(scale)
        run.frame(at * 10, grads, scale)
    run.commit()
    view = Views(lite).get(run.run_id)
    assert view is not None
    page = run_underflow(view)
    assert page is not None
    layers = [layer.layer_id for layer in view.layers.values()]
    moments = lite.frame_moments(run.run_id, layer_ids=layers)
    derived = find("underflow_share.measured")
    assert derived is not None
    found = derived.make({}).feed(Block(run=view.row, frames=[Sketched.of(moments, tuple(view.layers))]))
    assert isinstance(found, LayerSamples)
    assert found.value[-1] == pytest.approx(page.layer_shares()[-1], abs=1e-12, nan_ok=True)
    assert np.nanmax(found.value[-1]) > 0.05


def test_a_run_that_does_not_compute_in_fp16_loses_nothing() -> None:
    """There it is a prediction, which the measured number leaves out."""
    rng = np.random.default_rng(1)
    sketches = {0: (of_array(rng.normal(0.0, 2.0**-42, 300).astype(np.float32)), math.nan)}
    moments = as_moments([(0, 0)], [moments_of(sketches, range(3))])
    predicted = _fed("underflow_share", moments, at_once=1, precision="FP32")
    assert predicted[0, 0] == pytest.approx(sketches[0][0].would_flush_share(65536.0))
    assert predicted[0, 0] > 0.2
    assert _fed("underflow_share.measured", moments, at_once=1, precision="FP32").size == 0


def _layer_rule(**other: Any) -> Rule:
    return Rule(id="r", name="r", metric="underflow_share", threshold=0.05, **other)


def _layered(count: int = 60) -> Records:
    moments = _frames(count, 3)
    rows = []
    for step in range(count * 10):
        row = Row(step, step * 1000, values({"opt.steps": float(step)}))
        if step % 10 == 0:
            row.frames.append((_row(moments, step // 10), NAMES))
        rows.append(row)
    return Records(rows, ended="finished")


def _row(moments: FrameMoments, at: int) -> FrameMoments:
    part = slice(at, at + 1)
    names = ("step", "time_us", "rank", "attempt", "scale", "present", "point", "maybe_clipped")
    kept = {name: getattr(moments, name)[part] for name in names}
    columns = {name: column[part] for name, column in moments.columns.items()}
    return FrameMoments(layer_ids=moments.layer_ids, columns=columns, **kept)


@pytest.mark.parametrize("group_by", [["run"], ["run", "layer"]])
def test_rules_of_layers_are_the_same_for_any_cut(group_by: list[Any]) -> None:
    """One alert for each layer, or one for the worst of them; ids and evidence included."""
    records = _layered()
    rules = [
        _layer_rule(group_by=group_by),
        _layer_rule(group_by=group_by, hold=Span(steps=10)).model_copy(update={"id": "held", "threshold": 0.0}),
        _layer_rule(group_by=group_by, aggregation="mean", window=Span(steps=50)).model_copy(update={"id": "mean"}),
        _layer_rule(group_by=group_by, scope=Scope(layers=["b.*"])).model_copy(update={"id": "one"}),
    ]
    at_once = evaluate(whole([records]), rules)
    rng = random.Random(5)
    assert evaluate(cut([records], rng), rules, restart=rng) == at_once
    assert {episode.rule_id for episode in at_once} >= {"r", "mean", "one"}
    assert {e.layer for e in at_once if e.rule_id == "one"} == {"b.weight"}
    if "layer" in group_by:
        assert {e.layer for e in at_once} >= {"a.weight", "b.weight"}


def test_a_layer_fires_at_its_first_frame_beyond_the_threshold() -> None:
    """Against the shares themselves, frame by frame."""
    records = _layered()
    share = _fed("underflow_share", _frames(60, 3), at_once=60)
    for at, name in enumerate(NAMES):
        told = [e for e in evaluate(whole([records]), [_layer_rule(group_by=["layer"])]) if e.layer == name]
        known = np.flatnonzero(~np.isnan(share[:, at]))
        beyond = share[known, at] > 0.05
        starts = np.flatnonzero(np.diff(beyond.astype(int), prepend=0) == 1)
        assert [e.fired_step for e in told] == [int(known[start]) * 10 for start in starts]
