"""Two GradScalers at different scales and an optimizer without one, from a real training to the charts.

The oracle is the training's own gradients, read as float64 after `unscale_`, and the scales that its scalers tell.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import halfscope
import numpy as np
import pytest
import torch
from halfscope.record.layout import find_streams
from halfscope.record.reader import read_stream
from halfscope_server.query import Views, Window
from halfscope_server.query.exponents import exponents
from halfscope_server.query.export import export_rows
from halfscope_server.query.frames import run_frames
from halfscope_server.query.statistics import node_values
from halfscope_server.query.underflow import run_underflow
from halfscope_server.store.store import Store

from tests.helpers.stream import Stream

STEPS = 6
SCALES = {"g": 2.0**-6, "d": 2.0**14, "free": float("nan")}
Gradients = dict[str, np.ndarray[Any, np.dtype[np.float64]]]


def trained(directory: Path) -> list[Gradients]:
    """Records a training and tells the gradients of each of its steps."""
    torch.manual_seed(0)
    parts = {
        name: torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)) for name in SCALES
    }
    optimizers = {name: torch.optim.SGD(part.parameters(), 1e-3) for name, part in parts.items()}
    scalers = {
        name: torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10**6)
        for name, scale in SCALES.items()
        if scale == scale
    }
    run = halfscope.watch(parts, optimizers, scaler=scalers, mode="offline", directory=directory, every=1)
    seen: list[Gradients] = []
    for _ in range(STEPS):
        seen.append({})
        for name, part in parts.items():
            optimizers[name].zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = part(torch.randn(8, 5)).float().square().mean() * 1e-3
            scaler = scalers.get(name)
            (loss if scaler is None else scaler.scale(loss)).backward()
            if scaler is not None:
                scaler.unscale_(optimizers[name])
            for parameter, tensor in part.named_parameters():
                assert tensor.grad is not None
                seen[-1][f"{name}.{parameter}"] = tensor.grad.double().numpy().ravel().copy()
            if scaler is None:
                optimizers[name].step()
            else:
                scaler.step(optimizers[name])
        for scaler in scalers.values():
            scaler.update()
    run.finish()
    return seen


def shipped(store: Store, directory: Path) -> str:
    """The journal's records committed as a sender would; the run's id."""
    (place,) = find_streams(directory)
    sender = Stream(place.run_id, place.stream)
    sender.welcomed(store.grant(sender.hello(), now_us=1))
    for _, record in read_stream(place):
        assert not store.commit([sender.batch(record)], now_us=2).refused
    return place.run_id


def scale_of(layer: str) -> float:
    return SCALES[layer.partition(".")[0]]


def lost(gradient: np.ndarray[Any, np.dtype[np.float64]], scale: float) -> int:
    """Nonzero elements that FP16 makes zero at a scale."""
    return int(((gradient != 0) & (np.abs(gradient) * scale < 2.0**-25)).sum())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_layer_is_judged_at_its_own_scale(store: Store, tmp_path: Path) -> None:
    """In the store, in exported rows and in every chart; whether merged into tiles or not."""
    seen = trained(tmp_path)
    run_id = shipped(store, tmp_path)
    for _ in range(2):
        check_store(store, run_id, seen)
        check_charts(store, run_id, seen)
        store.compact(now_us=10**15, budget_s=60)
    assert store.compact(now_us=10**15, budget_s=60) == 0


def check_store(store: Store, run_id: str, seen: list[Gradients]) -> None:
    names = [row.name for row in store.layers(run_id)]
    assert sorted(names) == sorted(seen[0])
    moments, sketches = store.frame_moments(run_id), store.frame_sketches(run_id, None)
    for found in (moments, sketches):
        assert np.array_equal(found.scale, [[scale_of(name) for name in names]] * STEPS, equal_nan=True)
    usual = [65536.0 if np.isnan(scale_of(name)) else scale_of(name) for name in names]
    expected = [[lost(step[name], scale) for name, scale in zip(names, usual, strict=True)] for step in seen]
    assert moments.flushed.tolist() == expected
    one = store.frame_moments(run_id, layer_ids=[row.layer_id for row in store.layers(run_id) if row.name[0] == "g"])
    assert one.scale.tolist() == [[SCALES["g"]]] * STEPS
    view = Views(store).get(run_id)
    assert view is not None
    for row in export_rows(view, kinds=["sketches"]):
        assert row["scale"] == (None if np.isnan(scale_of(row["layer"])) else scale_of(row["layer"]))


def check_charts(store: Store, run_id: str, seen: list[Gradients]) -> None:
    view = Views(store).get(run_id)
    assert view is not None
    frames, underflow = run_frames(view), run_underflow(view)
    assert frames is not None
    assert underflow is not None
    assert underflow.is_measured
    leaves = [node for node in frames.tree.nodes if not node.is_module]
    headroom = node_values(frames, underflow, "headroom", leaves, slice(None), np.arange(STEPS)).value
    for at, node in enumerate(leaves):
        scale = 1.0 if np.isnan(scale_of(node.name)) else scale_of(node.name)
        largest = [np.abs(step[node.name]).max() * scale for step in seen]
        assert headroom[:, at].tolist() == [15 - np.floor(np.log2(value)) for value in largest]
    for part, scale in SCALES.items():
        used = 1.0 if np.isnan(scale) else scale
        found = exponents(view, Window(layer=part, gradient="true"))
        assert found is not None
        assert found.scale.tolist() == [used] * STEPS
        assert not found.is_mixed
        assert found.lost.tolist() == [
            sum(lost(values, used) for name, values in step.items() if name.startswith(f"{part}.")) for step in seen
        ]
