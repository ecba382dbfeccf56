"""The short way through calm steps, against the ordinary way through the same training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from halfscope import native
from halfscope.instrument.calm import CalmSteps
from halfscope.instrument.report import Reporter
from halfscope.instrument.stretch import Stretches

from tests.agent.instrument.conftest import Watching

STEPS = 90
CLOCKED = ("time.", "throughput.", "halfscope.cost")
"""Another number in each training; that there is one at the same steps is compared."""

Loop = Callable[[Any, int, Any], Any]
"""(run, step, training): one step of a training that is odd now and then."""


class Training:
    """A tiny network with a batch that differs from step to step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.batches = torch.randn(STEPS, 6, 4)

    def backward(self, step: int, factor: float = 1.0) -> torch.Tensor:
        loss: torch.Tensor = self.model(self.batches[step]).square().mean() * factor
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def update(self, step: int, factor: float = 1.0) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.backward(step, factor)
        self.optimizer.step()
        return loss


def plain(run: Any, step: int, training: Training) -> None:
    run.step(loss=training.update(step), samples=6, tokens=60)


def inferred(run: Any, step: int, training: Training) -> None:
    run.step(loss=training.update(step))


def silent(run: Any, step: int, training: Training) -> None:
    training.update(step)


def logged(run: Any, step: int, training: Training) -> None:
    run.step(loss=training.update(step), samples=6)
    run.log({"a": step, "b": step / 3, **({"rare": 1.0} if step % 7 == 0 else {})})
    if step % 5 == 0:
        run.log(late=torch.tensor(2.0))


def scheduled(run: Any, step: int, training: Training) -> None:
    run.step(loss=training.update(step), samples=6)
    if step < 50 or step % 4 == 0:
        training.optimizer.param_groups[0]["lr"] = 0.01 / (step + 1)


def batches_differ(run: Any, step: int, training: Training) -> None:
    run.step(loss=training.update(step), samples=6 + (step > 40) + (step % 9 == 0))


def nonfinite(run: Any, step: int, training: Training) -> None:
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    run.step(loss=training.update(step, math.inf if step in (40, 41, 60) else 1.0), samples=6)
    with torch.no_grad():
        if step in (40, 41, 60):
            training.optimizer.state.clear()
            for parameter, kept in zip(training.model.parameters(), before, strict=True):
                parameter.copy_(kept)


def nonfinite_loss_alone(run: Any, step: int, training: Training) -> None:
    loss = training.update(step)
    run.step(loss=math.nan if step in (33, 34) else loss, samples=6)


def clipped_now_and_then(run: Any, step: int, training: Training) -> None:
    training.optimizer.zero_grad()
    loss = training.backward(step)
    if step % 6 == 0:
        torch.nn.utils.clip_grad_norm_(training.model.parameters(), 0.01)
    training.optimizer.step()
    run.step(loss=loss, samples=6)


def accumulates(run: Any, step: int, training: Training) -> None:
    training.optimizer.zero_grad()
    training.backward(step)
    loss = training.backward(step, 0.5)
    run.step(loss=loss, samples=12)
    training.optimizer.step()


def closure(run: Any, step: int, training: Training) -> None:
    training.optimizer.zero_grad()
    if step % 8 == 0:
        loss = training.optimizer.step(lambda: training.backward(step))
    else:
        loss = training.backward(step)
        training.optimizer.step()
    run.step(loss=loss, samples=6)


def step_raises(run: Any, step: int, training: Training) -> None:
    if step in (37, 38):
        handle = training.optimizer.register_step_pre_hook(_raise)
        with pytest.raises(InterruptedError):
            training.update(step)
        handle.remove()
        training.optimizer.step()
    else:
        run.step(loss=training.update(step), samples=6)


def steps_twice(run: Any, step: int, training: Training) -> None:
    loss = training.update(step)
    if step % 10 == 3:
        training.optimizer.step()
    run.step(loss=loss, samples=6)


def layer_freezes(run: Any, step: int, training: Training) -> None:
    if step == 45:
        training.model[2].bias.requires_grad_(False)
    run.step(loss=training.update(step), samples=6)


def joins(run: Any, step: int, training: Training) -> None:
    if step == 45:
        training.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))], "lr": 0.5})
    run.step(loss=training.update(step), samples=6)


def evaluates(run: Any, step: int, training: Training) -> None:
    run.step(loss=training.update(step), samples=6)
    with torch.no_grad():
        run.log({"val/loss": training.model(training.batches[0]).square().mean()})


def _raise(*_: Any) -> None:
    raise InterruptedError


LOOPS = [
    plain, inferred, silent, logged, scheduled, batches_differ, nonfinite, nonfinite_loss_alone, clipped_now_and_then,
    accumulates, closure, step_raises, steps_twice, layer_freezes, joins, evaluates,
]  # fmt: skip
INTERRUPTED = (logged, clipped_now_and_then, closure, accumulates)
"""Every few steps, so that stretches are short."""


def recorded(watching: Watching, loop: Loop) -> tuple[Any, Any]:
    """(points by series' name, events) of one training."""
    training = Training()
    run = watching(training.model, training.optimizer, every=25)
    for step in range(STEPS):
        loop(run, step, training)
    run.finish()
    found = watching.read_all()[-1]
    points = {}
    for sid, series in found.declared.items():
        if not series.name.startswith(("memory.", "host.")):
            values = sorted(found.points.get(sid, {}).items())
            points[series.name] = [step for step, _ in values] if series.name.startswith(CLOCKED) else values
    assert len(points) > 5
    return sorted(points.items()), [(event.kind, event.step, event.where, event.attributes) for event in found.events]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_calm_steps_leave_the_records_of_ordinary_ones(
    loop: Loop, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every series has the same values at the same steps, and every event is told, whatever is odd in between: in
    stretches that the helper gathers, in calm steps of Python alone, and in the ordinary way."""
    counts = Counts()
    monkeypatch.setattr(CalmSteps, "begin", counts.calm(CalmSteps.begin))
    monkeypatch.setattr(Reporter, "rows", counts.stretches(Reporter.rows))
    monkeypatch.setattr("halfscope.instrument.stretch.MOST_TO_WAIT", 2)
    found = {}
    if native.helper is not None and hasattr(native.helper, "Stretch"):
        found["stretches"] = recorded(Watching(tmp_path_factory.mktemp("stretches")), loop)
        assert counts.in_stretches > STEPS // (8 if loop in INTERRUPTED else 4)
    monkeypatch.setattr(Stretches, "enter", lambda self, norm: None)
    counts.in_stretches = counts.num_calm = 0
    found["calm"] = recorded(Watching(tmp_path_factory.mktemp("calm")), loop)
    assert counts.num_calm > STEPS // 4
    assert not counts.in_stretches
    monkeypatch.setattr(CalmSteps, "settle", lambda self, *, has_settled: None)
    counts.num_calm = 0
    ordinary = recorded(Watching(tmp_path_factory.mktemp("ordinary")), loop)
    assert not counts.num_calm, "the last training took the short way too"
    for way, records in found.items():
        for one, other in zip(records, ordinary, strict=True):
            for a, b in zip(one, other, strict=True):
                assert repr(a) == repr(b), way


class Counts:
    """How many steps went each way."""

    def __init__(self) -> None:
        self.num_calm = self.in_stretches = 0

    def calm(self, begin: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*arguments: Any) -> bool:
            begun = begin(*arguments)
            self.num_calm += begun
            return begun

        return counted

    def stretches(self, rows: Callable[..., None]) -> Callable[..., None]:
        def counted(reporter: Any, now_ns: int, steps: bytes, *others: Any) -> None:
            self.in_stretches += len(steps) // 8
            rows(reporter, now_ns, steps, *others)

        return counted
