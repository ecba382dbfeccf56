"""Scalers of DeepSpeed's and Megatron's conventions, on objects of the same interface that follow the same rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import halfscope
import pytest
import torch
from halfscope.integrations import scalers

from tests.agent.instrument.conftest import Recorded

OVERFLOWS = (0, 3, 4, 5, 9)
NUM_STEPS = 14


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Linear(4, 2)


class DeepSpeedOptimizer:
    """Scales by itself, withholds on overflow, and lowers the scale only when its hysteresis is used up: the rules of
    DeepSpeed's dynamic loss scaler."""

    scale_window, scale_factor, delayed_shift, min_loss_scale = 4, 2.0, 2, 64.0

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.cur_scale, self.overflow = 256.0, False
        self.hysteresis_left, self.num_clean = self.delayed_shift, 0

    def step(self, parameters: list[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.div_(self.cur_scale)
        self.overflow = any(not p.grad.isfinite().all() for p in parameters if p.grad is not None)
        if not self.overflow:
            self.optimizer.step()
            self.num_clean += 1
            if self.num_clean % self.scale_window == 0:
                self.cur_scale *= self.scale_factor
                self.hysteresis_left = self.delayed_shift
        elif self.hysteresis_left > 1:
            self.hysteresis_left, self.num_clean = self.hysteresis_left - 1, 0
        else:
            self.cur_scale, self.num_clean = max(self.cur_scale / self.scale_factor, self.min_loss_scale), 0
        self.optimizer.zero_grad()


class Engine:
    """DeepSpeed's, as far as a loop calls it, with accumulation over two micro-batches."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.module, self.optimizer = model, DeepSpeedOptimizer(optimizer)
        self.global_steps = self.num_micro = 0

    def backward(self, loss: torch.Tensor) -> None:
        (loss / 2 * self.optimizer.cur_scale).backward()

    def step(self) -> None:
        self.num_micro += 1
        if self.num_micro % 2 == 0:
            self.optimizer.step(list(self.module.parameters()))
            self.global_steps += 1


def test_deepspeed_with_hysteresis_and_accumulation(model: torch.nn.Module, watching: Any) -> None:
    """A skip that leaves the scale as it is, is a skip and no backoff; each step has the scale of its backward pass."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    engine = Engine(model, optimizer)
    run = watching(model, engine.optimizer)
    report = scalers.deepspeed(engine)
    scales, applied = [], []
    for step in range(NUM_STEPS):
        scales.append(engine.optimizer.cur_scale)
        for _ in range(2):
            loss = model(torch.ones(3, 4)).pow(2).mean() * (math.inf if step in OVERFLOWS else 1.0)
            engine.backward(loss)
            engine.step()
            report()
        run.step(loss=loss)
        applied.append(not engine.optimizer.overflow)
    _check(watching.read(), scales, engine.optimizer.cur_scale, applied)


def _check(recorded: Recorded, scales: list[float], last: float, applied: list[bool]) -> None:
    assert [step for step, was in enumerate(applied) if not was] == list(OVERFLOWS)
    assert list(recorded.series("amp.scale").values()) == scales
    assert list(recorded.series("amp.scale_next").values()) == [*scales[1:], last]
    assert recorded.series("amp.skipped") == {step: float(not was) for step, was in enumerate(applied)}
    assert list(recorded.series("opt.steps").values()) == [sum(applied[: at + 1]) for at in range(len(applied))]
    assert [event.step for event in recorded.kinds("skip")] == list(OVERFLOWS)
    falls = [step for step, (a, b) in enumerate(zip(scales, [*scales[1:], last], strict=True)) if b < a]
    assert falls
    assert set(falls) < set(OVERFLOWS)
    assert [event.step for event in recorded.kinds("scale_backoff")] == falls
    assert not recorded.kinds("nonfinite_applied", "agent_degraded")
    (scaler,) = recorded.facts["scalers"]
    assert scaler["hysteresis"] == 2
    assert scaler["min_scale"] == 64.0
    assert scaler["growth_interval"] == 4


class MegatronScaler:
    """Megatron's: the scale is a tensor, lowered when `hysteresis` overflows came without a growth."""

    growth_interval, growth_factor, backoff_factor, hysteresis, min_scale = 4, 2.0, 0.5, 2, 64.0

    def __init__(self) -> None:
        self.scale = torch.tensor([256.0])
        self.left, self.clean = self.hysteresis, 0

    def update(self, found_inf: bool) -> None:
        if found_inf:
            self.clean, self.left = 0, self.left - 1
            if self.left <= 0:
                self.scale.mul_(self.backoff_factor).clamp_(min=self.min_scale)
            return
        self.clean += 1
        if self.clean == self.growth_interval:
            self.clean, self.left = 0, self.hysteresis
            self.scale.mul_(self.growth_factor)


class MegatronOptimizer:
    """Returns (whether it updated, norm, number of zeros), as Megatron's do."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.grad_scaler = optimizer, MegatronScaler()

    def step(self) -> tuple[bool, float | None, int | None]:
        grads = [p.grad for group in self.optimizer.param_groups for p in group["params"]]
        for grad in grads:
            grad.div_(self.grad_scaler.scale)
        found_inf = any(not grad.isfinite().all() for grad in grads)
        self.grad_scaler.update(found_inf)
        if found_inf:
            return False, None, None
        self.optimizer.step()
        return True, float(torch.cat([grad.flatten() for grad in grads]).norm()), 0


def test_megatron_whose_scale_is_a_tensor_changed_in_place(model: torch.nn.Module, watching: Any) -> None:
    """As above; the scale is copied before it changes."""
    optimizer = MegatronOptimizer(torch.optim.AdamW(model.parameters(), 1e-2))
    watching(model, optimizer)
    report = scalers.megatron(optimizer)
    scales, applied, norms = [], [], {}
    for step in range(NUM_STEPS):
        scales.append(float(optimizer.grad_scaler.scale))
        optimizer.optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).pow(2).mean() * (math.inf if step in OVERFLOWS else 1.0)
        (loss * optimizer.grad_scaler.scale).sum().backward()
        was_updated, norm, _ = optimizer.step()
        report(was_updated, norm)
        applied.append(was_updated)
        if norm is not None:
            norms[step] = norm
    recorded = watching.read()
    _check(recorded, scales, float(optimizer.grad_scaler.scale), applied)
    assert recorded.series("grad.norm") == pytest.approx(norms, rel=1e-6)


def test_report_scaler_tells_the_run_that_is_on(model: torch.nn.Module, watching: Any) -> None:
    """Without a run it says nothing; then it speaks of the step just made."""
    halfscope.report_scaler(scale=2.0)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    watching(model, optimizer)
    for step in range(3):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        halfscope.report_scaler(
            "mine", scale=2.0**step, scale_next=2.0 ** (step + 1), growth_tracker=step, backoff_factor=0.5
        )
    recorded = watching.read()
    assert recorded.series("amp.scale") == {0: 1.0, 1: 2.0, 2: 4.0}
    assert recorded.series("amp.growth_tracker") == {0: 0.0, 1: 1.0, 2: 2.0}
    assert [event.step for event in recorded.kinds("scale_growth")] == [0, 1, 2]
    assert recorded.facts["scalers"] == [{"name": "mine", "class": "reported", "enabled": True, "backoff_factor": 0.5}]


@pytest.mark.parametrize("sees_backward", [True, False])
def test_steps_withheld_in_a_row_are_counted_where_masters_are_trained(
    model: torch.nn.Module, watching: Any, sees_backward: bool
) -> None:
    """The optimizer holds copies of the weights and is not called on a skip: each report is a step, the first one too,
    whether or not a backward pass through the model was seen; accumulation counts all its samples."""
    masters = [torch.nn.Parameter(parameter.detach().clone()) for parameter in model.parameters()]
    optimizer = torch.optim.SGD(masters, 1e-3)
    watched = model if sees_backward else torch.nn.Linear(1, 1)
    run = watching(watched, optimizer)
    skips = [0, 1, 3]
    for step in range(5):
        for _ in range(2):
            model(torch.ones(3, 4)).sum().backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad, parameter.grad = parameter.grad, None
        if step not in skips:
            optimizer.step()
        run.report_scaler("mine", scale=8.0, skipped=step in skips)
    recorded = watching.read()
    assert recorded.steps() == list(range(5))
    assert recorded.series("amp.skipped") == {step: float(step in skips) for step in range(5)}
    assert [event.step for event in recorded.kinds("skip")] == skips
    assert list(recorded.series("grad.norm")) == [2, 4]
    if sees_backward:
        assert set(recorded.series("samples").values()) == {6.0}


@pytest.mark.parametrize("make", [scalers.deepspeed, scalers.megatron])
def test_what_lacks_the_attributes_is_told_when_the_adapter_is_made(make: Callable[..., Any]) -> None:
    """At once, and not in the middle of a training."""
    with pytest.raises(TypeError, match="nothing to report"):
        make(object())
