"""What steps did to the weights: against a plain float64 recomputation, whatever the optimizer, and never of a skip."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from halfscope.instrument import watcher as watcher_module
from halfscope.instrument.losses import Losses
from halfscope.instrument.rings import Rings
from halfscope.probes.device_sketches import DeviceSketcher
from halfscope.probes.updates import MOST_ELEMENTS
from halfscope.sketch import Sketch

from tests.agent.instrument.test_sketching import Later, late_ring
from tests.helpers.kernels import interpreted

Optimizer = torch.optim.Optimizer
Make = Callable[[Sequence[torch.nn.Parameter]], Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1),
    "adamw-plain": lambda parameters: torch.optim.AdamW(parameters, 1e-3, foreach=False),
    "adamw-foreach": lambda parameters: torch.optim.AdamW(parameters, 1e-3, foreach=True),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, 1e-3, fused=True),
}


def wide_net(dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    """Its first weight has more elements than are looked at; some units are dead, so their gradients are zero."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(90, 100), torch.nn.ReLU(), torch.nn.Linear(100, 1)).to(dtype)
    with torch.no_grad():
        model[0].bias[::3] = -100.0
    return model


def sketcher(device: torch.device, sizes: Sequence[int], has_double: bool, fused: Any) -> DeviceSketcher:
    return DeviceSketcher(
        device, sizes, has_double=has_double, fused=fused, depth=64, pinned=False, make_event=Later,
        capturing=lambda: False,
    )  # fmt: skip


@pytest.fixture(params=["host", "device"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The host; or its memory treated as a device whose sketches arrive steps later, by stock operations, or by the
    kernels where a test asks for those."""
    name: str = request.param
    if name != "host":
        fused = interpreted() if name == "kernels" else None
        monkeypatch.setattr(
            watcher_module,
            "Rings",
            lambda num_layers: Rings(
                num_layers,
                make=late_ring,
                make_sketcher=sketcher,
                make_fused=lambda device: fused,
                on_host=lambda tensor: False,
            ),
        )
    return name


class Truth:
    """Recomputes what each applied step did, from whole copies of weights and gradients."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.steps: dict[int, dict[str, Any]] = {}

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Around the part of a step that changes weights; gradients are those that the optimizer is handed."""
        before = self.copies()
        grads = {name: p.grad.detach().clone() for name, p in self.model.named_parameters() if p.grad is not None}
        yield
        after = self.copies()
        self.steps[number] = {name: plainly(before[name], after[name], grad) for name, grad in grads.items()}

    def copies(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.model.named_parameters()}


def plainly(before: torch.Tensor, after: torch.Tensor, grad: torch.Tensor) -> dict[str, Any]:
    """By Python's own arithmetic, element by element."""
    stride = math.ceil(before.numel() / MOST_ELEMENTS)
    flat = (each.double().flatten().tolist()[::stride] for each in (before, after, grad))
    changes = [new - old for old, new, slope in zip(*flat, strict=True) if slope and math.isfinite(slope)]
    moved = [change for change in changes if change]
    return {
        "n": len(changes),
        "zeros": len(changes) - len(moved),
        "sum": math.fsum(moved),
        "norm": math.sqrt(math.fsum(change * change for change in moved)),
        "bins": Counter(math.frexp(change)[1] - 1 for change in moved),
    }


def check(found: dict[str, Any], expected: dict[str, Any], *, exact: bool) -> None:
    """Every layer's sketch is what was recomputed; of float32 changes an element may round up to the next power."""
    assert found.keys() == expected.keys()
    for name, truth in expected.items():
        sketch = found[name].sketch
        assert (int(sketch.n), int(sketch.zeros), int(sketch.nonfinite)) == (truth["n"], truth["zeros"], 0), name
        digits = 1e-12 if exact else 1e-6
        assert float(sketch.norm) == pytest.approx(truth["norm"], rel=digits)
        assert float(sketch.sum) == pytest.approx(truth["sum"], rel=digits, abs=digits * truth["norm"])
        bins = Counter({sketch.lowest + at: count for at, count in enumerate(sketch.counts.tolist()) if count})
        assert (bins - truth["bins"]).total() <= (0 if exact else 1)


# ---- of the right step ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "kind", "scaled"),
    [
        *itertools.product(["host", "device"], OPTIMIZERS, [None, "plain", "unscaled and clipped"]),
        ("kernels", "adamw-fused", "plain"),  # their interpreter is slow, and what they are handed is the same
    ],
    indirect=["place"],
)
def test_changes_are_those_of_a_float64_recomputation(watching: Any, place: str, kind: str, scaled: str | None) -> None:
    """Every other step is sketched, two steps are skipped: nothing is said of those, and all is right of the others."""
    model = wide_net()
    optimizer = OPTIMIZERS[kind](list(model.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if scaled else None
    watching(model, optimizer, scaler, every=2)
    truth = Truth(model)
    bad = (2, 3) if scaler else ()
    for number in range(7):
        optimizer.zero_grad()
        loss = model(torch.randn(5, 90)).square().mean()
        (loss if scaler is None else scaler.scale(loss)).backward()
        if number in bad:
            model[2].weight.grad[0, 0] = math.inf
        if scaled == "unscaled and clipped":
            assert scaler is not None
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        with truth.step(number):
            optimizer.step() if scaler is None else scaler.step(optimizer)
        if scaler is not None:
            scaler.update()
    recorded = watching.read()
    assert recorded.kinds("agent_degraded") == []
    assert set(recorded.updates) == {0, 2, 4, 6} - set(bad)
    for number, found in recorded.updates.items():
        check(found, truth.steps[number], exact=place == "host")
    assert set(recorded.frames) >= {0, 2, 4, 6}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_weights_of_any_width_are_told_at_their_values(watching: Any, place: str, dtype: torch.dtype) -> None:
    """BF16 loses most steps of this size, FP16 some, double none."""
    model = wide_net(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, eps=1e-4, foreach=True)
    watching(model, optimizer, every=1)
    truth = Truth(model)
    for number in range(4):
        optimizer.zero_grad()
        model(torch.randn(5, 90).to(dtype)).float().square().mean().backward()
        with truth.step(number):
            optimizer.step()
    recorded = watching.read()
    assert set(recorded.updates) == {0, 1, 2, 3}
    for number, found in recorded.updates.items():
        check(found, truth.steps[number], exact=place == "host" or dtype is torch.float64)
    lost = recorded.updates[3]["0.weight"].sketch
    share = int(lost.zeros) / int(lost.n)
    assert share == 0.0 if dtype is torch.float64 else share > (0.5 if dtype is torch.bfloat16 else 0.0)


def test_a_closure_is_looked_at_from_the_weights_it_began_with(watching: Any) -> None:
    """LBFGS evaluates several times in a step: the change is the whole of it, the gradient that of the first time."""
    model = wide_net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    watching(model, optimizer, every=1)
    batch = torch.randn(5, 90)
    before = Truth(model).copies()
    grads: list[dict[str, torch.Tensor]] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        grads.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
        return loss

    optimizer.step(closure)
    assert len(grads) > 1
    after = Truth(model).copies()
    expected = {name: plainly(before[name], after[name], grads[0][name]) for name in before}
    check(watching.read().updates[0], expected, exact=True)


def test_a_closure_that_clips_is_looked_at_behind_the_clipping(watching: Any) -> None:
    """The gradient is the one that the optimizer was handed."""
    model = wide_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer, every=1)
    before = Truth(model).copies()
    batch = torch.randn(5, 90)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 1e-3)
        return loss

    optimizer.step(closure)
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    after = Truth(model).copies()
    expected = {name: plainly(before[name], after[name], grads[name]) for name in before}
    check(watching.read().updates[0], expected, exact=True)


def test_of_several_optimizers_each_tells_its_own(watching: Any) -> None:
    """Under one scaler, unscaled before either steps: one is skipped, the other is not."""
    model = wide_net()
    first, second = torch.optim.SGD(model[0].parameters(), 0.1), torch.optim.AdamW(model[2].parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watching(model, [first, second], scaler, every=1)
    truth = Truth(model)
    for number in range(3):
        model.zero_grad()
        scaler.scale(model(torch.randn(5, 90)).square().mean()).backward()
        if number == 1:
            model[0].weight.grad[0, 0] = math.nan
        scaler.unscale_(first)
        scaler.unscale_(second)
        with truth.step(number):
            scaler.step(first)
            scaler.step(second)
        scaler.update()
    recorded = watching.read()
    assert {number: sorted(found) for number, found in recorded.updates.items()} == {
        0: ["0.bias", "0.weight", "2.bias", "2.weight"],
        1: ["2.bias", "2.weight"],
        2: ["0.bias", "0.weight", "2.bias", "2.weight"],
    }
    for number, found in recorded.updates.items():
        check(found, {name: truth.steps[number][name] for name in found}, exact=True)


# ---- what does not count ------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, torch.tensor(0.0)], ids=["float", "tensor"])
def test_a_group_that_does_not_step_loses_nothing(watching: Any, place: str, rate: Any) -> None:
    """A learning rate of zero, as a warm-up begins with: its weights are not looked at, or none of them counts."""
    model = wide_net(torch.bfloat16)
    groups = [{"params": model[0].parameters(), "lr": rate}, {"params": model[2].parameters()}]
    optimizer = torch.optim.SGD(groups, 0.1, foreach=False)
    watching(model, optimizer, every=1)
    for _ in range(4):
        model(torch.randn(5, 90).bfloat16()).float().square().mean().backward()
        optimizer.step()
    recorded = watching.read()
    counted = {name for name, found in recorded.updates[3].items() if int(found.sketch.n)}
    assert counted == {"2.weight", "2.bias"}
    assert not any("0.weight" in event.where for event in recorded.kinds("updates_lost"))


def test_gradients_taken_out_before_the_step_do_not_count(watching: Any) -> None:
    """What the program sets to zero between `unscale_` and the step is no update of that step."""
    model = wide_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watching(model, optimizer, scaler, every=1)
    scaler.scale(model(torch.randn(5, 90)).square().mean()).backward()
    scaler.unscale_(optimizer)
    model[2].weight.grad[0, 10:] = 0.0
    left = int((model[2].weight.grad != 0).sum())
    scaler.step(optimizer)
    scaler.update()
    found = watching.read().updates[0]["2.weight"].sketch
    assert 0 < left < 10
    assert (int(found.n), int(found.zeros)) == (left, 0)


def test_layouts_that_differ_are_compared_element_by_element(watching: Any) -> None:
    """Channels-last weights with gradients in another order; sparse gradients have no such sketch."""
    torch.manual_seed(2)
    conv = torch.nn.Conv2d(40, 30, 3).to(memory_format=torch.channels_last)
    embedding = torch.nn.Embedding(7, 3, sparse=True)
    model = torch.nn.ModuleList([conv, embedding])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching([conv, embedding], optimizer, every=1)
    conv.weight.grad = torch.randn(conv.weight.shape)
    conv.weight.grad[:, 1] = 0.0
    conv.bias.grad = torch.ones(30)
    embedding.weight.grad = torch.sparse_coo_tensor([[1, 2]], torch.ones(2, 3), (7, 3), check_invariants=True)
    assert conv.weight.stride() != conv.weight.grad.stride()
    before = {"0.weight": conv.weight.detach().clone().contiguous(), "0.bias": conv.bias.detach().clone()}
    optimizer.step()
    after = {"0.weight": conv.weight.detach().contiguous(), "0.bias": conv.bias}
    grads = {"0.weight": conv.weight.grad, "0.bias": conv.bias.grad}
    expected = {name: plainly(before[name], after[name], grads[name]) for name in before}
    check(watching.read().updates[0], expected, exact=True)


def test_a_step_that_never_comes_is_not_waited_for(watching: Any) -> None:
    """Gradients that are unscaled and thrown away: nothing of them is told, nor of the next step's."""
    model = wide_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    run = watching(model, optimizer, scaler, every=1)
    for number in range(4):
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(5, 90)).square().mean()).backward()
        scaler.unscale_(optimizer)
        if number != 1:
            scaler.step(optimizer)
        scaler.update()
    assert not run._watcher.updates.is_waiting
    recorded = watching.read()
    assert set(recorded.updates) == {0, 2, 3}
    assert recorded.kinds("agent_degraded") == []


def test_weights_are_bit_for_bit_what_they_are_without_us(watching: Any, place: str) -> None:
    """Looking changes nothing."""

    def train() -> list[torch.Tensor]:
        model = wide_net()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        if is_watched:
            watching(model, optimizer, every=1)
        torch.manual_seed(5)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 90)).square().mean().backward()
            optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    is_watched = False
    plain = train()
    is_watched = True
    assert all(torch.equal(one, other) for one, other in zip(plain, train(), strict=True))


# ---- the event ----------------------------------------------------------------------------------------


def updates_of(*layers: tuple[int, int]) -> Sketch:
    """Sketches of layers with so many updates, so many of them lost."""
    n, zeros = (np.array(column) for column in zip(*layers, strict=True))
    return replace(Sketch.empty((len(layers),)), n=n, zeros=zeros, counts=(n - zeros)[:, None])


def test_a_layer_is_told_at_its_third_loss_in_a_row_and_again_once_it_has_recovered() -> None:
    """Half is enough; a better one in between begins anew; around the limit nothing is told again."""
    losses = Losses(lambda lid: True)
    told = [losses.see([7], updates_of((100, lost))) for lost in (50, 60, 49, 50, 50, 70, 80, 40, 90, 90, 90)]
    assert [at for at, found in enumerate(told) if found] == [5]
    assert told[5] == [(7, 0.7)]
    again = [losses.see([7], updates_of((100, lost))) for lost in (24, 99, 99, 99, 99)]
    assert [at for at, found in enumerate(again) if found] == [3]


def test_layers_without_updates_and_those_of_full_precision_are_no_news() -> None:
    """A step in which a layer has no gradient says nothing; nor do steps next to nothing in FP32."""
    losses = Losses(lambda lid: lid != 2)
    for lost in (100, 100):
        assert losses.see([1, 2], updates_of((100, lost), (100, lost))) == []
    assert losses.see([1, 2], updates_of((0, 0), (100, 100))) == []
    assert losses.see([1, 2], updates_of((100, 100), (100, 100))) == [(1, 1.0)]


def test_bf16_weights_with_steps_too_small_are_told_once(watching: Any) -> None:
    """All layers at one step, with what they lost; the same training with FP32 weights says nothing."""
    for dtype in (torch.bfloat16, torch.float32):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-6)
        watching(model, optimizer, every=5)
        for _ in range(40):
            optimizer.zero_grad()
            model(torch.randn(8, 16).to(dtype)).float().square().mean().backward()
            optimizer.step()
    half, full = watching.read_all()
    (event,) = half.kinds("updates_lost")
    assert (event.step, event.severity) == (10, "warning")
    assert event.attributes["num_layers"] == len(event.where) == len(event.attributes["shares"])
    assert {"0.weight", "2.weight"} <= set(event.where)
    for name, share in zip(event.where, event.attributes["shares"], strict=True):
        sketch = half.updates[10][name].sketch
        assert share == int(sketch.zeros) / int(sketch.n) >= 0.5
    assert full.kinds("updates_lost") == []
    assert full.updates.keys() == half.updates.keys()


def test_what_looking_costs_is_counted_into_the_budget(watching: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both looks are told to the interval, beside the sketch of the gradients."""
    model = wide_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = watching(model, optimizer, every=1)
    assert run._watcher.updates._interval is run._watcher.sketches.interval
    spent: list[int] = []
    monkeypatch.setattr(run._watcher.sketches.interval, "spend", spent.append)
    model(torch.randn(5, 90)).square().mean().backward()
    spent.clear()
    optimizer.step()
    assert len(spent) == 3
    assert min(spent) > 0
