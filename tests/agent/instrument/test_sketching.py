"""When gradients are sketched, what is written of them, and how sketches come from a device that lags behind.

That every sketch is of the right gradient at the right point is in test_truth.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from halfscope.instrument import watcher as watcher_module
from halfscope.instrument.device import DeviceRing
from halfscope.instrument.rings import Rings
from halfscope.instrument.sketching import BAD_IN_A_ROW, DENSE_STEPS
from halfscope.probes.device_sketches import DeviceSketcher

Net = Callable[[], torch.nn.Sequential]


class Later:
    """An event that is done after it was asked a few times, like a device that lags behind."""

    num_asks = 3

    def __init__(self) -> None:
        self._asks = self.num_asks

    def record(self) -> None: ...

    def query(self) -> bool:
        self._asks -= 1
        return self._asks < 0

    def synchronize(self) -> None:
        self._asks = 0


def late_ring(device: torch.device, width: int) -> DeviceRing:
    return DeviceRing(device, width, pinned=False, make_event=Later, capturing=lambda: False)


def late_sketcher(device: torch.device, num_elements: Sequence[int], has_double: bool, fused: Any) -> DeviceSketcher:
    return DeviceSketcher(
        device, num_elements, has_double=has_double, depth=64, pinned=False, make_event=Later, capturing=lambda: False
    )


@pytest.fixture
def as_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory treated as a device whose values and sketches arrive steps later."""
    monkeypatch.setattr(
        watcher_module,
        "Rings",
        lambda num_layers: Rings(num_layers, make=late_ring, make_sketcher=late_sketcher, on_host=lambda tensor: False),
    )


def train(
    model: torch.nn.Module, optimizer: Any, num_steps: int, *, scaler: Any = None, bad: Sequence[int] = ()
) -> None:
    """Steps of a small network; a NaN goes into a gradient where asked for."""
    generator = torch.Generator().manual_seed(3)
    for step in range(num_steps):
        optimizer.zero_grad()
        loss = model(torch.randn(3, 4, generator=generator)).square().mean()
        (loss if scaler is None else scaler.scale(loss)).backward()
        if step in bad:
            next(model.parameters()).grad[0, 0] = math.nan
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()


# ---- when ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "every"), [({}, 10), ({"every": 1}, 1), ({"every": 7}, 7)])
def test_every_n_th_step_and_every_skipped_one_is_sketched(
    watching: Any, net: Net, options: dict[str, int], every: int
) -> None:
    """Ten on a CPU unless told otherwise, and then those behind a skipped one, too; norms, scale and loss come at every
    step all the same."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watching(model, optimizer, scaler, **options)
    train(model, optimizer, 24, scaler=scaler, bad=(4, 13))
    recorded = watching.read()
    dense = () if options else range(5, 24)
    assert set(recorded.frames) == {*range(0, 24, every), 4, 13, *dense}
    assert recorded.frames[4]["0.weight"].sketch.nan == 1
    assert [step for step, norm in recorded.series("grad.norm").items() if math.isfinite(norm)] == [
        step for step in range(24) if step not in (4, 13)
    ]
    assert list(recorded.series("loss")) == list(range(24))
    assert recorded.facts["sketches"] == {"every": every, "device": "cpu"}
    assert list(recorded.facts["parameters_order"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [(layer.lid, layer.name, layer.shape, layer.dtype) for layer in recorded.layers.values()] == [
        (0, "0.weight", [8, 4], "float32"),
        (1, "0.bias", [8], "float32"),
        (2, "2.weight", [1, 8], "float32"),
        (3, "2.bias", [1], "float32"),
    ]


def test_a_poisoned_run_without_a_scaler_does_not_pay_at_every_step(watching: Any, net: Net) -> None:
    """Nothing holds such steps back, and after some they tell nothing new."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer, every=10)
    train(model, optimizer, 45, bad=range(2, 45))
    assert set(watching.read().frames) == {0, *range(2, 2 + BAD_IN_A_ROW), 20, 30, 40}


def test_sketches_that_cost_too_much_come_more_rarely_and_the_run_says_so(watching: Any, net: Net) -> None:
    """No sketch costs as little as a ten-thousandth of ten such steps: after the first ones the interval is the widest.
    What every step has, every step still has."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer, budget_share=1e-4)
    train(model, optimizer, 130)
    recorded = watching.read()
    assert 0 in recorded.frames
    assert set(recorded.frames) <= set(range(0, 101, 10))
    intervals = recorded.series("halfscope.sketch_every")
    assert set(intervals) <= set(recorded.frames)
    assert list(intervals.values()) == [10.0, 1000.0]
    assert recorded.facts["sketches"] == {"every": 1000, "device": "cpu"}
    assert set(recorded.series("input.absmax")) == set(recorded.frames)
    assert list(recorded.series("grad.norm")) == list(range(130))


def test_start_step_counts_on(watching: Any, net: Net) -> None:
    """A training that continues is sketched at the same multiples."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer, start_step=17)
    train(model, optimizer, 15)
    assert set(watching.read().frames) == {20, 30}


# ---- of what ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_device", [False, True])
def test_a_layer_that_was_frozen_later_is_left_out(
    watching: Any, net: Net, on_device: bool, request: pytest.FixtureRequest
) -> None:
    """What `zero_grad(set_to_none=False)` leaves is no gradient, and no layer that was flushed."""
    if on_device:
        request.getfixturevalue("as_device")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer, every=1)
    for step in range(9):
        model[0].requires_grad_(not 3 <= step < 6)
        optimizer.zero_grad(set_to_none=False)
        model(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()
    recorded = watching.read()
    assert [step for step in range(9) if "0.weight" in recorded.frames[step]] == [0, 1, 2, 6, 7, 8]
    assert all("2.weight" in recorded.frames[step] for step in range(9))
    assert recorded.kinds("layer_flushed") == []


def test_layers_without_a_gradient_are_left_out_and_sparse_ones_counted_whole(
    watching: Any, assert_is_sketch_of: Any
) -> None:
    """A frozen layer has no sketch; of an embedding's sparse gradient untouched rows are zeros."""
    model = torch.nn.ModuleDict(
        {
            "embedding": torch.nn.Embedding(9, 2, sparse=True),
            "head": torch.nn.Linear(2, 1),
            "off": torch.nn.Linear(2, 1),
        }
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    optimizer.zero_grad()
    model["head"](model["embedding"](torch.tensor([1, 1, 4]))).sum().backward()
    expected = model["embedding"].weight.grad.to_dense().flatten().tolist()
    optimizer.step()
    frame = watching.read().frames[0]
    assert list(frame) == ["embedding.weight", "head.weight", "head.bias"]
    assert_is_sketch_of(frame["embedding.weight"].sketch, expected)


def test_a_parameter_that_comes_later_is_declared_and_a_replaced_one_keeps_its_layer(watching: Any, net: Net) -> None:
    """By its name in the model as it is then."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer, every=1)
    train(model, optimizer, 1)
    model[2].weight = torch.nn.Parameter(torch.ones(1, 8))
    optimizer.param_groups[0]["params"][2] = model[2].weight
    model.append(torch.nn.Linear(1, 1))
    optimizer.add_param_group({"params": list(model[3].parameters())})
    train(model, optimizer, 1)
    recorded = watching.read()
    assert list(recorded.frames[0]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert list(recorded.frames[1]) == ["0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias"]
    assert [layer.name for layer in recorded.layers.values()] == list(recorded.frames[1])


def test_a_gradient_that_grew_after_clipping_was_seen_is_sketched_as_it_is_in_the_end(
    watching: Any, net: Net, assert_is_sketch_of: Any
) -> None:
    """Accumulation with clipping in every micro-batch: what was read at the first is not the step's gradient."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    model(torch.ones(2, 4)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    model(torch.ones(1, 4)).sum().backward()
    expected = model[0].weight.grad.double().flatten().tolist()
    optimizer.step()
    found = watching.read().frames[0]["0.weight"]
    assert (found.point, found.clipped) == ("step", "maybe")
    assert_is_sketch_of(found.sketch, expected)


def test_two_optimizers_have_their_own_scales_and_their_sketches_are_one_frame(watching: Any, net: Net) -> None:
    """One through a scaler, one without."""
    models = net(), net()
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in models]
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    watching({"a": models[0], "b": models[1]}, optimizers, scaler)
    for model in models:
        model(torch.ones(1, 4)).sum().backward()
    for parameter in models[0].parameters():
        parameter.grad *= 16.0
    scaler.scale(torch.ones(()))
    optimizers[1].step()
    scaler.step(optimizers[0])
    scaler.update()
    frame = watching.read().frames[0]
    assert len(frame) == 8
    for name, found in frame.items():
        assert (found.scale == 16.0) if name.startswith("a.") else math.isnan(found.scale)
        assert found.sketch.absmax == frame["a" + name[1:]].sketch.absmax


def test_a_sketch_that_fails_costs_sketches_alone(
    watching: Any, net: Net, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Norms go on; the failure is one warning and one event."""
    monkeypatch.setattr("halfscope.probes.sketches.HostSketcher.measure", lambda *args: 1 / 0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer, every=1)
    train(model, optimizer, 5)
    recorded = watching.read()
    assert recorded.frames == {}
    assert list(recorded.series("grad.norm")) == list(range(5))
    (event,) = recorded.kinds("agent_degraded")
    assert event.attributes["probe"] == "sketches"
    assert len(caplog.records) == 1


# ---- from a device --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["unfused", "fused"])
@pytest.mark.parametrize("has_scaler", [False, True])
def test_a_device_gives_the_frames_that_the_host_gives(
    watching: Any, net: Net, monkeypatch: pytest.MonkeyPatch, kind: str, has_scaler: bool
) -> None:
    """At the same steps, with the same scales, also where they arrive steps later."""

    def run() -> None:
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, **({"fused": True} if kind == "fused" else {}))
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=4) if has_scaler else None
        watching(model, optimizer, scaler, every=3)
        train(model, optimizer, 20, scaler=scaler)
        watching.runs[-1].finish()

    run()
    monkeypatch.setattr(
        watcher_module,
        "Rings",
        lambda num_layers: Rings(num_layers, make=late_ring, make_sketcher=late_sketcher, on_host=lambda tensor: False),
    )
    run()
    host, device = watching.read_all()
    assert list(device.frames) == list(host.frames) == list(range(0, 20, 3))
    assert device.kinds("agent_degraded") == []
    for step, frame in host.frames.items():
        for name, expected in frame.items():
            found = device.frames[step][name]
            assert (found.point, found.clipped) == (expected.point, expected.clipped)
            assert found.scale == expected.scale or math.isnan(expected.scale)
            one, other = found.sketch.trimmed(), expected.sketch.trimmed()
            assert (one.lowest, one.counts.tolist()) == (other.lowest, other.counts.tolist())
            assert (one.n, one.zeros, one.absmax) == (other.n, other.zeros, other.absmax)


def test_a_skip_that_the_host_learns_of_in_time_is_sketched_on_a_device_too(
    watching: Any, net: Net, as_device: None
) -> None:
    """Without clipping by the user nobody has touched the gradients since they were unscaled."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watching(model, optimizer, scaler)
    train(model, optimizer, 60, scaler=scaler, bad=(7,))
    recorded = watching.read()
    assert set(recorded.frames) == {0, *range(7, 8 + DENSE_STEPS), 50}
    assert (recorded.frames[7]["0.weight"].sketch.nan, recorded.frames[7]["0.weight"].point) == (1, "unscale")
    assert recorded.facts["sketches"]["every"] == 50


def test_after_a_skip_that_was_told_too_late_a_later_step_is_sketched(
    watching: Any, net: Net, as_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fused optimizer's own flag arrives when the gradients are gone."""
    monkeypatch.setattr(Later, "num_asks", 0)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watching(model, optimizer, scaler)
    train(model, optimizer, 90, scaler=scaler, bad=(7,))
    first, later, *rest = watching.read().frames
    assert first == 0
    assert 7 < later < 50
    assert rest == [*range(later + 1, later + 1 + DENSE_STEPS), 50]


# ---- layers that are all zero -----------------------------------------------------------------------------


def test_a_layer_that_becomes_all_zero_is_told_once_until_it_recovers_and_twice_at_most(watching: Any) -> None:
    """Layers that never had a gradient, and steps that overflow, are no news."""
    model = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(3)) for name in ("a", "b", "never")})
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer, every=1)
    a_is_zero = [False, True, True, False, True, False, True, False]
    for step, is_zero in enumerate(a_is_zero):
        model["a"].grad = torch.full((3,), 0.0 if is_zero else 1.0)
        model["b"].grad = torch.full((3,), math.inf if step == 6 else 1.0)
        model["never"].grad = torch.zeros(3)
        optimizer.step()
    events = watching.read().kinds("layer_flushed")
    assert [(event.step, event.where, event.severity) for event in events] == [
        (1, ["a"], "warning"),
        (4, ["a"], "warning"),
    ]
    assert events[0].attributes == {"num_layers": 1, "scale": None}
