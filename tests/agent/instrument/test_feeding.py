"""The input batch: when it is looked at, what is told, and that it dies when the training lets go of it."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from halfscope.instrument.feeding import TRIES

Net = Callable[[], torch.nn.Sequential]


def step(model: torch.nn.Module, optimizer: Any, batch: torch.Tensor, scaler: Any = None) -> torch.Tensor:
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.detach()


def test_largest_magnitude_and_bad_elements_at_sampled_steps(watching: Any, net: Net) -> None:
    """Of the finite elements; zero bad ones is a number, too."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer, every=2)
    for number in range(5):
        step(model, optimizer, torch.full((2, 4), -float(number)))
    recorded = watching.read()
    assert recorded.series("input.absmax") == {0: 0.0, 2: 2.0, 4: 4.0}
    assert recorded.series("input.nonfinite") == {0: 0.0, 2: 0.0, 4: 0.0}
    assert recorded.kinds("input_nonfinite") == []
    assert recorded.kinds("agent_degraded") == []


@pytest.mark.parametrize("has_scaler", [False, True])
def test_a_bad_batch_is_told_of_at_its_step_though_that_is_not_sampled(
    watching: Any, net: Net, has_scaler: bool
) -> None:
    """With the first bad row and the argument it came in."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0) if has_scaler else None
    watching(model, optimizer, scaler)
    for number in range(6):
        batch = torch.ones(5, 4)
        if number == 3:
            batch[2, 1], batch[4, 0] = math.nan, -math.inf
        step(model, optimizer, batch, scaler)
    recorded = watching.read()
    (event,) = recorded.kinds("input_nonfinite")
    assert (event.step, event.severity) == (3, "critical")
    assert event.attributes == {"argument": "0", "first_row": 2, "num_nan": 1, "num_inf": 1}
    # Without a scaler the weights are NaN from then on: every step is bad, and its batch is not to blame.
    later = {} if has_scaler else {4: 0.0, 5: 0.0}
    assert recorded.series("input.nonfinite") == {0: 0.0, 3: 2.0, **later}
    assert set(recorded.series("input.absmax").values()) == {1.0}


def test_a_good_batch_of_a_bad_step_is_told_to_be_good(watching: Any, net: Net) -> None:
    """Then the operation is at fault, not the data; a loss that is told late is enough."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    run = watching(model, optimizer)
    for number in range(4):
        batch = torch.full((2, 4), 3.0)
        step(model, optimizer, batch)
        run.step(loss=math.nan if number == 2 else 1.0)
    recorded = watching.read()
    assert recorded.series("input.nonfinite") == {0: 0.0, 2: 0.0}
    assert recorded.kinds("input_nonfinite") == []


def test_missing_values_that_the_model_replaces_are_told_once_and_calmly(watching: Any, net: Net) -> None:
    """NaN that never reaches a loss or a gradient is no alarm at every sampled step."""

    class Imputing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner: torch.Tensor = self.inner(torch.nan_to_num(x))
            return inner

    model = Imputing()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer, every=2)
    for number in range(9):
        batch = torch.ones(5, 4)
        if number != 6:
            batch[1, 0] = math.nan
        step(model, optimizer, batch)
    events = watching.read().kinds("input_nonfinite")
    assert [(event.step, event.severity) for event in events] == [(0, "info"), (8, "info")]


def test_micro_batches_add_up(watching: Any, net: Net) -> None:
    """The largest of all, and all bad elements."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer)
    for value in (1.0, -5.0, 2.0):
        batch = torch.full((2, 4), value)
        batch[0, 0] = math.inf
        model(batch).nan_to_num().sum().backward()
    optimizer.step()
    recorded = watching.read()
    assert recorded.series("input.absmax") == {0: 5.0}
    assert recorded.series("input.nonfinite") == {0: 3.0}


def test_a_batch_dies_when_the_training_lets_go_of_it(watching: Any, net: Net) -> None:
    """It is held weakly between its forward pass and the end of its step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer)
    batch = torch.ones(2, 4)
    gone = weakref.ref(batch)
    loss = model(batch).sum()
    loss.backward()
    del batch, loss
    gc.collect()
    assert gone() is None
    optimizer.step()
    assert watching.read().kinds("agent_degraded") == []


def test_of_whole_numbers_the_mean_alone_is_told(watching: Any) -> None:
    """Tokens are neither large nor NaN; their mean at sampled steps tells whether two runs were fed the same."""
    model = torch.nn.Sequential(torch.nn.Embedding(50, 3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer, every=4)
    for number in range(13):
        step(model, optimizer, torch.tensor([[1, number], [2, 3]]))
    recorded = watching.read()
    assert {"input.absmax", "input.nonfinite"}.isdisjoint(recorded.names())
    looked_at = {at: mean for at, mean in recorded.series("input.mean").items() if at >= TRIES}
    assert looked_at == {8: (1 + 8 + 2 + 3) / 4, 12: (1 + 12 + 2 + 3) / 4}
    assert recorded.series("input.mean")[4] == (1 + 4 + 2 + 3) / 4
    assert recorded.kinds("agent_degraded") == []


def test_a_model_without_numbers_is_called_without_a_hook_again(watching: Any) -> None:
    """Once samples are declared there is nothing to look at."""

    class Chooser(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, chosen: str) -> torch.Tensor:
            return self.weight[int(chosen)].square()

    model = Chooser()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    run = watching(model, optimizer)
    for _ in range(12):
        model("1").backward()
        optimizer.step()
        run.step(samples=1)
    assert not model._forward_pre_hooks
    recorded = watching.read()
    assert "input.mean" not in recorded.names()
    assert recorded.kinds("agent_degraded") == []


def test_the_mean_of_a_batch_is_of_its_finite_elements(watching: Any, net: Net) -> None:
    """Over all micro-batches of a step, in float64."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer)
    batches = torch.randn(3, 5, 4)
    batches[1, 0, 0] = math.inf
    for batch in batches:
        model(batch).nan_to_num().sum().backward()
    optimizer.step()
    finite = [value for value in batches.double().flatten().tolist() if math.isfinite(value)]
    assert watching.read().series("input.mean") == {0: pytest.approx(math.fsum(finite) / 59, rel=1e-12)}


def test_evaluation_is_not_looked_at(watching: Any, net: Net) -> None:
    """Without gradients a forward pass belongs to no step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer)
    with torch.no_grad():
        model(torch.full((2, 4), math.nan))
    step(model, optimizer, torch.ones(2, 4))
    recorded = watching.read()
    assert recorded.series("input.absmax") == {0: 1.0}
    assert recorded.kinds("input_nonfinite") == []
