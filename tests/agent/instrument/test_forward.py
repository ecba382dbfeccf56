"""The forward hook, and copies of a watched model."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from halfscope.instrument import watcher
from halfscope.instrument.forward import ForwardHook, leading_size

from tests.helpers.preloaded import Preloaded

Net = Callable[[], torch.nn.Sequential]


@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_copies_of_a_watched_model_are_untouched_by_watching(watching: Any, net: Net, copied: Any) -> None:
    """A copy trains by itself and adds nothing to the run."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    twin = copied(model)
    assert torch.equal(twin(torch.ones(2, 4)), model(torch.ones(2, 4)))
    twin_optimizer = torch.optim.SGD(twin.parameters(), 0.1)
    for _ in range(3):
        twin(torch.ones(5, 4)).sum().backward()
        twin_optimizer.step()
    recorded = watching.read()
    assert recorded.steps() == [0]
    assert recorded.kinds("agent_degraded") == []


def test_a_saved_watched_model_loads_without_halfscope(
    watching: Any, net: Net, python: Preloaded, tmp_path: Path
) -> None:
    """What the copy carries of our hook is a do-nothing of the standard library."""
    model = net()
    watching(model, torch.optim.SGD(model.parameters(), 0.1))
    torch.save(model, tmp_path / "model.pt")
    program = (
        "import sys, torch; sys.modules['halfscope'] = None\n"
        f"model = torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)\n"
        "print(tuple(model(torch.ones(2, 4)).shape))"
    )
    done = python.run(["-c", program])
    assert (done.returncode, done.stdout.strip()) == (0, "(2, 1)"), done.stderr


def test_the_hook_runs_where_gradients_are_wanted_only(watching: Any, net: Net) -> None:
    """Validation between steps does not count as samples."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for _ in range(3):
        model(torch.ones(8, 4)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            model(torch.ones(1000, 4))
    recorded = watching.read()
    rates, times = recorded.series("throughput.samples_per_s"), recorded.series("time.step_s")
    assert [round(rates[step] * times[step]) for step in range(3)] == [8, 8, 8]
    assert recorded.facts["samples_source"] == "inferred"


@dataclass
class HandClock:
    """Time that passes where the test says so."""

    now_ns: int = 10**12

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return self.now_ns

    def pass_ms(self, milliseconds: float) -> None:
        self.now_ns += round(milliseconds * 1e6)


class Slow(torch.nn.Module):
    """Takes 5 ms for a pass."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self.inner, self._clock = torch.nn.Linear(4, 1), clock

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self._clock.pass_ms(5)
        found: torch.Tensor = self.inner(batch)
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    made = HandClock()
    monkeypatch.setattr(watcher, "time", made)
    return made


@pytest.mark.parametrize("num_micro", [1, 3])
@pytest.mark.parametrize("scaled", [False, True])
def test_what_lies_between_two_steps_is_timed(watching: Any, clock: HandClock, num_micro: int, scaled: bool) -> None:
    """Data that takes 30 ms before a step's first pass, and a validation of 5 ms without gradients; waiting within
    the step is the step's, and before the first step nothing is told."""
    model = Slow(clock)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0) if scaled else None
    watching(model, optimizer, scaler)
    for _ in range(4):
        clock.pass_ms(30)
        with torch.no_grad():
            model(torch.ones(2, 4))
        for _ in range(num_micro):
            loss = model(torch.ones(2, 4)).sum()
            (loss if scaler is None else scaler.scale(loss)).backward()
            clock.pass_ms(10)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    recorded = watching.read()
    assert recorded.series("time.between_s") == pytest.approx(dict.fromkeys((1, 2, 3), 0.035))
    assert recorded.series("time.step_s")[2] == pytest.approx(0.035 + num_micro * 0.015)


def test_of_several_models_it_is_not_known(watching: Any, clock: HandClock) -> None:
    """What comes before the first one's pass may be the other one's."""
    models = {"one": Slow(clock), "two": Slow(clock)}
    optimizer = torch.optim.SGD([*models["one"].parameters(), *models["two"].parameters()], 0.1)
    watching(models, optimizer)
    for _ in range(3):
        clock.pass_ms(30)
        models["one"](models["two"](torch.ones(2, 4)).expand(2, 4)).sum().backward()
        optimizer.step()
    assert recorded_names(watching.read()).isdisjoint({"time.between_s"})


def recorded_names(recorded: Any) -> set[str]:
    """The series that were declared."""
    return {series.name for series in recorded.declared.values()}


def test_inferred_samples_add_up_over_micro_batches(watching: Any, net: Net) -> None:
    """Two passes before one backward are one batch; two backwards are two."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    for _ in range(2):
        for size in (3, 5):
            (model(torch.ones(size, 4)).sum() + model(torch.ones(size, 4)).sum()).backward()
        optimizer.step()
    recorded = watching.read()
    rates, times = recorded.series("throughput.samples_per_s"), recorded.series("time.step_s")
    assert [round(rates[step] * times[step]) for step in range(2)] == [8, 8]


@pytest.mark.parametrize(
    ("args", "kwargs", "size"),
    [
        ((torch.ones(3, 2),), {}, 3),
        ((), {"input_ids": torch.ones(4, 7)}, 4),
        (({"x": torch.ones(5, 1)},), {}, 5),
        (([torch.ones(6)],), {}, 6),
        ((torch.tensor(1.0),), {}, None),
        ((1, "a"), {"flag": True}, None),
        ((), {}, None),
    ],
)
def test_the_leading_size_is_of_the_first_tensor(args: Any, kwargs: Any, size: int | None) -> None:
    """Among positional, keyword and once-nested inputs; None where it cannot be told."""
    assert leading_size(args, kwargs) == size


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_a_compiled_model_is_watched_without_breaking_its_graph(watching: Any, net: Net) -> None:
    """The hook is traced to nothing, so `fullgraph=True` holds, and every step is recorded."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(4):
        optimizer.zero_grad()
        compiled(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    recorded = watching.read()
    assert recorded.steps() == [0, 1, 2, 3]
    assert recorded.facts["parameters"]["names"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert recorded.kinds("agent_degraded") == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_watching_the_compiled_module_gives_the_same_names(watching: Any, net: Net) -> None:
    """`_orig_mod.` is no part of a name; samples are seen from outside the graph."""
    model = torch.compile(net(), backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    recorded = watching.read()
    assert recorded.facts["parameters"]["names"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert recorded.facts["precision"] == "FP32"
    assert len(recorded.series("throughput.samples_per_s")) == 3


def test_a_pickled_hook_is_a_plain_function_that_does_nothing() -> None:
    """Whatever it is called with."""
    hook = pickle.loads(pickle.dumps(ForwardHook(lambda *arguments: 1 / 0)))
    assert "halfscope" not in type(hook).__module__
    assert hook(None, (1,), {"a": 2}) is None
