"""Scalers that are no GradScaler: DeepSpeed's and Megatron's own, and objects of the same interface for what those do
not do on a CPU (a scale that is a tensor changed in place, as older versions of Megatron have it)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import halfscope
import pytest
import torch
from halfscope.integrations import scalers

from tests.agent.instrument.conftest import Recorded
from tests.helpers.frameworks.seen import Seen, weights

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


@pytest.fixture(scope="module")
def own(framework: Callable[[str], Any]) -> Iterator[Any]:
    """DeepSpeed and Megatron, in a process group of one."""
    loaded = framework("own_scalers")
    with loaded.alone():
        yield loaded
        loaded.parallel_state.destroy_model_parallel()


def batches(num: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    found = [torch.randn(4, 4, generator=generator) for _ in range(num)]
    found[num // 2].mul_(2e5)  # infinite in FP16
    return found


def train_deepspeed(engine: Any, report: Callable[[], None], run: Any = None) -> tuple[list[Seen], list[Any]]:
    """What is seen of each step, and the weights at the end."""
    parts = engine.gradient_accumulation_steps()
    seen: list[Seen] = []
    losses: list[float] = []
    for at, inputs in enumerate(batches(12 * parts)):
        scale = float(engine.optimizer.loss_scale)
        loss = engine(inputs.half()).float().pow(2).mean()
        losses.append(float(loss.detach()))
        engine.backward(loss)
        engine.step()
        report()
        if (at + 1) % parts == 0:
            norm = float(engine.get_global_grad_norm() or math.inf)
            seen.append(Seen(losses, scale, norm, not engine.optimizer.overflow))
            if run is not None:
                run.step(loss=sum(losses) / parts)
            losses = []
    return seen, weights(engine.module)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("stage", "accumulation"), [(0, 1), (1, 1), (1, 4)])
def test_deepspeed_itself(own: Any, watching: Any, stage: int, accumulation: int) -> None:
    """Real engines, without ZeRO and with: every step's scale, skip, loss and norm, also of steps withheld in a row,
    which no hook of torch's sees; weights bit for bit those of a training without us."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    seen, plain = train_deepspeed(
        own.deepspeed_engine(copy.deepcopy(model), stage=stage, accumulation=accumulation), lambda: None
    )
    assert {each.applied for each in seen} == {True, False}
    engine = own.deepspeed_engine(model, stage=stage, accumulation=accumulation)
    run = watching(engine.module, engine.optimizer)
    again, watched = train_deepspeed(engine, scalers.deepspeed(engine), run)
    assert watched == plain
    assert repr(again) == repr(seen)
    recorded = watching.read()
    check(recorded, seen, float(engine.optimizer.loss_scale), "deepspeed/grad_norm")
    assert set(recorded.series("samples").values()) == {4.0 * accumulation}
    (scaler,) = recorded.facts["scalers"]
    assert scaler["growth_interval"] == 3
    if stage:
        assert scaler["hysteresis"] == 2
    clipped = recorded.series("grad.norm")  # DeepSpeed clips before it calls the optimizer
    assert all(norm <= 0.5001 for norm in clipped.values())
    assert recorded.facts["gradient_points"]["AdamW"]["clipped"] == "maybe"


def check(recorded: Recorded, seen: list[Seen], last_scale: float, norm: str) -> None:
    """Every step is what the training saw."""
    steps = range(len(seen))
    assert recorded.steps() == list(steps)
    assert list(recorded.series("amp.scale").values()) == [each.scale for each in seen]
    assert list(recorded.series("amp.scale_next").values()) == [*[each.scale for each in seen[1:]], last_scale]
    assert recorded.series("amp.skipped") == {step: float(not seen[step].applied) for step in steps}
    assert list(recorded.series("opt.steps").values()) == [sum(each.applied for each in seen[: n + 1]) for n in steps]
    losses = {step: sum(seen[step].losses) / len(seen[step].losses) for step in steps}
    assert recorded.series("loss") == pytest.approx(losses, rel=1e-6, nan_ok=True)
    assert [event.step for event in recorded.kinds("skip")] == [step for step in steps if not seen[step].applied]
    assert not recorded.kinds("nonfinite_applied", "agent_degraded", "half_precision_parameters")
    norms = {step: seen[step].norm for step in recorded.series(norm) if seen[step].applied}
    assert norms
    assert {step: recorded.series(norm)[step] for step in norms} == pytest.approx(norms, rel=1e-6)
    assert recorded.series("lr")[0] == 1e-2


@pytest.mark.filterwarnings("ignore")
def test_megatron_itself(own: Any, watching: Any) -> None:
    """Its real optimizer and scaler, with hysteresis and clipping: every step, bit for bit as without us."""

    def train(watch: bool) -> tuple[list[Seen], list[Any], float]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).half()
        seen = []
        with own.on_cpu():
            optimizer = own.megatron_optimizer(model)
            run = watching(model, optimizer) if watch else None
            report = scalers.megatron(optimizer) if watch else lambda *_: None
            for inputs in batches(12):
                optimizer.zero_grad()
                scale = float(optimizer.grad_scaler.scale)
                loss = model(inputs.half()).float().pow(2).mean()
                optimizer.scale_loss(loss).sum().backward()
                result = optimizer.step()
                report(*result)
                if run is not None:
                    run.step(loss=loss)
                seen.append(Seen([float(loss.detach())], scale, float(result[1] or math.inf), result[0]))
            return seen, weights(model), float(optimizer.grad_scaler.scale)

    seen, plain, last = train(False)
    assert {each.applied for each in seen} == {True, False}
    assert repr(train(True)) == repr((seen, plain, last))
    recorded = watching.read()
    check(recorded, seen, last, "megatron/grad_norm")
    (scaler,) = recorded.facts["scalers"]
    assert (scaler["hysteresis"], scaler["min_scale"], scaler["growth_interval"]) == (2, 1.0, 3)
    # Megatron's clipping is its own: the optimizer is handed what is clipped already.
    assert all(norm <= 0.501 for norm in recorded.series("grad.norm").values())


@pytest.mark.parametrize("make", [scalers.deepspeed, scalers.megatron])
def test_what_lacks_the_attributes_is_told_when_the_adapter_is_made(make: Callable[..., Any]) -> None:
    """At once, and not in the middle of a training."""
    with pytest.raises(TypeError, match="nothing to report"):
        make(object())
