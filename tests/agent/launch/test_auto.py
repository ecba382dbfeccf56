"""Runs that begin by themselves: what is found, what is one run, and that it equals an explicit `watch`."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import halfscope
import pytest
import torch
from halfscope.launch import auto
from halfscope.launch.start import AutoWatch
from torch.nn.utils import clip_grad_norm_

from tests.agent.instrument.conftest import Recorded, read_journal


class Automatic:
    """`halfscope run` within the test's own process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.watch = AutoWatch({"mode": "offline"}, "program")
        self.watch.start()

    def read(self) -> list[Recorded]:
        """Every run, oldest first; watching is over then."""
        self.watch.stop()
        return read_journal(self.directory)


@pytest.fixture
def automatic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Automatic]:
    monkeypatch.setenv("HALFSCOPE_DIR", str(tmp_path / "journals"))
    made = Automatic(tmp_path / "journals")
    yield made
    made.watch.stop()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


SCRIPTING_IS_OLD = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def net(width: int = 4) -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


LAYERS = ["0.weight", "0.bias", "2.weight", "2.bias"]


def loss_of(model: torch.nn.Module, factor: float = 1.0, rows: int = 3) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.float16):
        return model(torch.ones(rows, 4)).float().pow(2).mean() * factor


# ---- trainings that are watched both ways ------------------------------------------------------


def with_scaler(watch: Callable[..., Any], **settings: Any) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, **settings)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    watch(model, optimizer, scaler)
    for factor in (1e4, 1.0, 1e4, 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, factor)).backward()
        scaler.step(optimizer)
        scaler.update()


def with_clipping(watch: Callable[..., Any]) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    watch(model, optimizer)
    for factor in (1.0, float("nan"), 2.0):
        optimizer.zero_grad()
        loss_of(model, factor).backward()
        clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()


def with_closure(watch: Callable[..., Any]) -> None:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), 1e-2, max_iter=3)
    watch(model, optimizer)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


def with_accumulation(watch: Callable[..., Any]) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    watch(model, optimizer, scaler)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            scaler.scale(loss_of(model) / 2).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()


def in_bf16(watch: Callable[..., Any]) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    watch(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.ones(5, 4)).float().mean()
        loss.backward()
        optimizer.step()


def by_keyword(watch: Callable[..., Any]) -> None:
    class Keyword(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, *, batch: torch.Tensor) -> torch.Tensor:
            return self.inner(batch)

    model = Keyword()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    watch(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model(batch=torch.ones(6, 4)).mean().backward()
        optimizer.step()


TRAININGS: dict[str, Callable[[Callable[..., Any]], None]] = {
    "scaler": with_scaler,
    "fused": lambda watch: with_scaler(watch, fused=True),
    "clipping": with_clipping,
    "closure": with_closure,
    "accumulation": with_accumulation,
    "bf16": in_bf16,
    "keyword": by_keyword,
}
TIMED = {"time.step_s", "time.between_s", "halfscope.cost_share", "throughput.samples_per_s", "memory.rss_bytes"}


@pytest.mark.parametrize("training", TRAININGS)
def test_it_records_what_watch_records(tmp_path: Path, automatic: Automatic, training: str) -> None:
    """Every value of every step from step 0 on, every event and every fact; only times differ."""
    torch.manual_seed(0)
    TRAININGS[training](lambda *_: None)
    (ours,) = automatic.read()
    runs: list[halfscope.Run] = []
    torch.manual_seed(0)
    TRAININGS[training](
        lambda *given: runs.append(halfscope.watch(*given, mode="offline", directory=tmp_path / "explicit"))
    )
    runs[0].finish()
    (explicit,) = read_journal(tmp_path / "explicit")
    assert ours.names() == explicit.names()
    for name in explicit.names() - TIMED:
        assert repr(ours.series(name)) == repr(explicit.series(name)), name
    assert ours.series("throughput.samples_per_s").keys() == explicit.series("throughput.samples_per_s").keys()
    assert [(e.kind, e.step, e.attributes) for e in ours.events] == [
        (e.kind, e.step, e.attributes) for e in explicit.events
    ]
    assert {key: value for key, value in ours.facts.items() if key != "memory"} == {
        key: value for key, value in explicit.facts.items() if key != "memory"
    }
    assert ours.end is not None
    assert (ours.end.outcome, ours.end.step) == ("finished", explicit.end and explicit.end.step)


# ---- what is found ------------------------------------------------------------------------------


def train(model: Any, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


@SCRIPTING_IS_OLD
@pytest.mark.parametrize("wrapper", ["compiled before", "compiled after", "scripted", "parallel", "compile in place"])
def test_wrapped_models_keep_their_layers_names(automatic: Automatic, wrapper: str) -> None:
    """Canonical names, both steps recorded, and no warning of torch that is not there without us."""
    model: Any = torch.jit.script(net()) if wrapper == "scripted" else net()
    if wrapper == "compiled before":
        model = torch.compile(model, backend="eager")
    if wrapper == "compile in place":
        model.compile(backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    if wrapper == "compiled after":
        model = torch.compile(model, backend="eager")
    if wrapper == "parallel":
        model = torch.nn.DataParallel(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(model, optimizer)
    (recorded,) = automatic.read()
    assert [str(warning.message) for warning in caught] == []
    assert recorded.facts["parameters"]["names"] == LAYERS
    assert sorted(recorded.series("grad.norm")) == [0, 1]


def test_a_model_called_by_its_parts_is_found_whole(automatic: Automatic) -> None:
    """The module that owns all parameters is the model, though only its children are ever called."""

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    model = Whole()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model.head(model.encoder(torch.ones(2, 4))).sum().backward()
        optimizer.step()
    (recorded,) = automatic.read()
    assert recorded.facts["parameters"]["names"] == ["encoder.weight", "encoder.bias", "head.weight", "head.bias"]


def test_parameters_without_a_module_are_watched(automatic: Automatic) -> None:
    """A functional training begins at its first step, which is recorded."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (weight * 2).sum().backward()
        optimizer.step()
    (recorded,) = automatic.read()
    assert recorded.series("grad.norm") == {0: pytest.approx(12**0.5), 1: pytest.approx(12**0.5)}


def test_clipping_at_the_first_step_is_seen(automatic: Automatic) -> None:
    """It is the sign by which a functional training begins, and the norm is the one before it."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (weight * 2).sum().backward()
        clip_grad_norm_([weight], 0.5)
        optimizer.step()
    (recorded,) = automatic.read()
    assert recorded.series("grad.norm") == {0: pytest.approx(12**0.5), 1: pytest.approx(12**0.5)}
    assert recorded.series("grad.norm_clipped") == {0: pytest.approx(0.5), 1: pytest.approx(0.5)}
    assert recorded.facts["gradient_points"]["SGD"] == {"point": "clip", "clipped": "no"}


def test_a_scaler_made_after_the_start_is_watched_from_its_first_call(automatic: Automatic) -> None:
    """One for each epoch: every skip is seen, and nobody is told that it was forgotten."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(3):
        loss = loss_of(model, 1e3)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(loss).backward(retain_graph=True)
            scaler.step(optimizer)
            scaler.update()
            loss = loss_of(model, 1e-3)
    (recorded,) = automatic.read()
    assert [event.step for event in recorded.kinds("skip")] == [0, 2, 4]
    assert recorded.kinds("unwatched_scaler") == []
    applied = recorded.series("opt.steps")
    assert applied == {0: 0.0, 1: 1.0, 2: 1.0, 3: 2.0, 4: 2.0, 5: 3.0}


def test_an_optimizer_that_never_steps_holds_up_nothing(automatic: Automatic) -> None:
    """It was made last, for a plot of the learning rate: each step of the one that works is an attempt all the same."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for_a_plot = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
    train(model, optimizer, steps=4)
    (recorded,) = automatic.read()
    assert len(for_a_plot.state) == 0
    (name,) = recorded.facts["gradient_points"]
    assert recorded.series("opt.steps", optimizer=name) == {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}
    assert sorted(recorded.series("grad.norm", optimizer=name)) == [0, 1, 2, 3]


def test_an_optimizer_inside_another_is_watched_with_it(automatic: Automatic) -> None:
    """As SAM's: the outer one's step calls the inner one's."""

    class Outer(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})
            self.inner = torch.optim.SGD(self.param_groups[0]["params"], 0.1)

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    model = net()
    train(model, Outer(model.parameters()), steps=3)
    (recorded,) = automatic.read()
    assert recorded.series("opt.steps", optimizer="SGD") == {0: 1.0, 1: 2.0, 2: 3.0}


def test_an_optimizer_that_was_copied_or_unpickled_is_found(automatic: Automatic) -> None:
    """No constructor has run: it is met at its first step."""
    model = net()
    pair = pickle.loads(pickle.dumps((model, torch.optim.SGD(model.parameters(), 0.1))))
    train(*pair)
    (recorded,) = automatic.read()
    assert sorted(recorded.series("grad.norm")) == [0, 1]
    assert recorded.facts["parameters"]["names"] == LAYERS


def test_a_copy_that_trains_beside_its_original_is_not_watched(automatic: Automatic) -> None:
    """A rate finder, a line search: the run goes on, and records the original alone."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    train(*copy.deepcopy((model, optimizer)), steps=3)
    train(model, optimizer, steps=1)
    (recorded,) = automatic.read()
    assert sorted(recorded.series("grad.norm")) == [0, 1]


@SCRIPTING_IS_OLD
def test_calls_that_train_nothing_begin_nothing(automatic: Automatic) -> None:
    """Evaluation, tracing, models without an optimizer, and a scaler alone."""
    model, other = net(), net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with torch.no_grad():
        model(torch.ones(2, 4))
    other(torch.ones(2, 4)).sum().backward()
    torch.jit.trace(model, torch.ones(2, 4))
    torch.jit.script(model)
    copy.deepcopy(model)
    torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
    assert automatic.read() == []
    assert optimizer.state_dict()["state"] == {}


# ---- what is one run ----------------------------------------------------------------------------


def adversarial_step(
    generator: Any, discriminator: Any, g_optimizer: Any, d_optimizer: Any, scaler: Any, factor: float = 1.0
) -> None:
    noise = torch.ones(2, 4)
    d_optimizer.zero_grad()
    scaler.scale(discriminator(generator(noise).detach()).mean() * factor).backward()
    scaler.step(d_optimizer)
    g_optimizer.zero_grad()
    scaler.scale(discriminator(generator(noise)).mean()).backward()
    scaler.step(g_optimizer)
    scaler.update()


def test_optimizers_that_are_there_at_the_start_are_one_run(automatic: Automatic) -> None:
    """A generator and its discriminator: one run, a step is one round, skips are each optimizer's own."""
    generator, discriminator = torch.nn.Linear(4, 4), net()
    d_optimizer = torch.optim.SGD(discriminator.parameters(), 0.1)
    g_optimizer = torch.optim.Adam(generator.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor in (1.0, float("inf"), 1.0):
        adversarial_step(generator, discriminator, g_optimizer, d_optimizer, scaler, factor)
    (recorded,) = automatic.read()
    assert recorded.series("opt.steps", optimizer="Adam") == {0: 1.0, 1: 2.0, 2: 3.0}
    assert recorded.series("opt.steps", optimizer="SGD") == {0: 1.0, 1: 1.0, 2: 2.0}
    assert [event.where for event in recorded.kinds("skip")] == [["SGD"]]
    names = recorded.facts["parameters"]["names"]
    assert sorted(names) == sorted(["Linear.weight", "Linear.bias", *(f"Sequential.{name}" for name in LAYERS)])


def test_trainings_one_after_the_other_are_runs_of_their_own(automatic: Automatic) -> None:
    """Each ends as finished when the next begins, and then nothing keeps its model."""
    seen: list[weakref.ref[torch.nn.Module]] = []
    for _ in range(3):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        seen.append(weakref.ref(model))
        train(model, optimizer, steps=4)
        gc.collect()
        assert [ref() is not None for ref in seen] == [False] * (len(seen) - 1) + [True]
    recorded = automatic.read()
    assert [run.start.name for run in recorded if run.start] == ["program", "program-2", "program-3"]
    assert [(run.end.outcome, run.end.step) for run in recorded if run.end] == [("finished", 3)] * 3
    assert all(sorted(run.series("grad.norm")) == [0, 1, 2, 3] for run in recorded)


def test_a_second_optimizer_for_the_same_model_begins_a_run_of_its_own(automatic: Automatic) -> None:
    """A second stage: the call by which it is noticed takes the first run's hook off the very model that is called."""
    model = net()
    for make in (torch.optim.SGD, torch.optim.Adam):
        train(model, make(model.parameters(), 0.1), steps=3)
    recorded = automatic.read()
    assert [(run.end.outcome, run.end.step) for run in recorded if run.end] == [("finished", 2)] * 2
    assert [run.facts["optimizers"][0]["class"] for run in recorded] == ["SGD", "Adam"]
    assert all(sorted(run.series("samples")) == [0] for run in recorded)


def test_a_training_whose_objects_are_gone_is_over(automatic: Automatic) -> None:
    """A function that trains and returns leaves nothing in memory: the run ends with it."""

    def training() -> weakref.ref[torch.nn.Module]:
        model = net()
        train(model, torch.optim.Adam(model.parameters(), 0.1))
        return weakref.ref(model)

    model = training()
    gc.collect()  # notices
    gc.collect()  # what the run's end let go of
    assert model() is None
    (recorded,) = automatic.read()
    assert recorded.end is not None
    assert (recorded.end.outcome, recorded.end.step) == ("finished", 1)


def test_a_training_goes_on_while_anything_holds_its_optimizer(automatic: Automatic) -> None:
    """Collections of garbage between its steps end nothing."""
    holder = {}

    def prepare() -> None:
        model = net()
        holder["training"] = model, torch.optim.Adam(model.parameters(), 0.1)

    prepare()
    for _ in range(4):
        train(*holder["training"], steps=1)
        gc.collect()
    (recorded,) = automatic.read()
    assert sorted(recorded.series("grad.norm")) == [0, 1, 2, 3]


def test_trainings_prepared_together_and_run_in_turn_are_runs_of_their_own(automatic: Automatic) -> None:
    """Their models are not called in the first attempt of the one before."""
    prepared = []
    for _ in range(3):
        model = net()
        prepared.append((model, torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")))
    for model, optimizer, scaler in prepared:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(optimizer)
            scaler.update()
    recorded = automatic.read()
    assert len(recorded) == 3
    for run in recorded:
        steps = {s for series in run.declared.values() if series.name == "opt.steps" for s in run.points[series.sid]}
        assert steps == {0, 1, 2}


def test_optimizers_that_take_turns_become_one_run(automatic: Automatic) -> None:
    """One made later, when the first had already stepped: the third run has both, and no newcomer ends it."""
    generator, discriminator = torch.nn.Linear(4, 4), net()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    d_optimizer = torch.optim.SGD(discriminator.parameters(), 0.1)
    scaler.scale(discriminator(torch.ones(2, 4)).mean()).backward()
    scaler.step(d_optimizer)
    scaler.update()
    g_optimizer = torch.optim.Adam(generator.parameters(), 0.1)
    for _ in range(4):
        adversarial_step(generator, discriminator, g_optimizer, d_optimizer, scaler)
    inner = net()
    train(inner, torch.optim.SGD(inner.parameters(), 0.1))
    adversarial_step(generator, discriminator, g_optimizer, d_optimizer, scaler)
    recorded = automatic.read()
    last = recorded[-1]
    assert {optimizer["class"] for optimizer in last.facts["optimizers"]} == {"SGD", "Adam"}
    assert len(last.series("opt.steps", optimizer="Adam")) >= 4
    assert len(recorded) <= 3


def test_inner_loops_without_end_do_not_become_runs_without_end(
    automatic: Automatic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond a number of trainings no further run is begun, and that is said once."""
    monkeypatch.setattr(auto, "MAX_RUNS", 3)
    for _ in range(6):
        model = net()
        train(model, torch.optim.SGD(model.parameters(), 0.1), steps=1)
    assert len(automatic.read()) == 3
    assert len([record for record in caplog.records if "further ones are not watched" in record.message]) == 1


def test_what_the_program_watches_itself_is_left_alone(automatic: Automatic, tmp_path: Path) -> None:
    """One run, the program's own; and after it was finished, nothing."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")
    with halfscope.watch(model, optimizer, scaler, mode="offline", directory=tmp_path / "own"):
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(optimizer)
            scaler.update()
    train(model, optimizer)
    assert automatic.read() == []
    (own,) = read_journal(tmp_path / "own")
    assert sorted(own.series("opt.steps")) == [0, 1]


# ---- being no bother ----------------------------------------------------------------------------


def test_a_forked_child_is_not_watched(automatic: Automatic) -> None:
    """Data loaders' workers and the like: the run stays the parent's."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, steps=1)
    child = os.fork()
    if child == 0:
        other = net()
        train(other, torch.optim.SGD(other.parameters(), 0.1))
        train(model, optimizer)
        os._exit(0)
    os.waitpid(child, 0)
    train(model, optimizer, steps=1)
    (recorded,) = automatic.read()
    assert sorted(recorded.series("grad.norm")) == [0, 1]


def test_nothing_is_left_behind(automatic: Automatic) -> None:
    """Classes, hooks for all modules and optimizers, and callbacks are as they were."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")
    unused = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(model)).backward()
    scaler.step(optimizer)
    scaler.update()
    automatic.read()
    assert not hasattr(torch.optim.Optimizer.__init__, "__wrapped__")
    assert not hasattr(torch.amp.GradScaler.__init__, "__wrapped__")
    assert type(scaler) is type(unused) is torch.amp.GradScaler
    assert not torch.nn.modules.module._has_any_global_hook()
    assert not optimizer._optimizer_step_pre_hooks
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not [callback for callback in gc.callbacks if "halfscope" in repr(callback)]


@pytest.mark.parametrize("part", ["launcher", "models"])
def test_a_failure_of_ours_is_a_warning_and_no_more(
    automatic: Automatic,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    part: str,
) -> None:
    """It is tried once, and the program trains on as if it were not watched; its end says that the failure was ours."""

    def fail(*_: Any) -> None:
        raise RuntimeError("something of ours")

    calls = []
    owner, name = (auto.roots, "find_models") if part == "models" else (auto, "Launcher")
    monkeypatch.setattr(owner, name, lambda *given: (calls.append(given), fail()))
    model = net()
    train(model, torch.optim.SGD(model.parameters(), 0.1))
    assert automatic.read() == []
    assert len([record for record in caplog.records if "something of ours" in record.message]) == 1
    assert len(calls) == 1
    assert "failed to watch it (RuntimeError: something of ours)" in capsys.readouterr().err
