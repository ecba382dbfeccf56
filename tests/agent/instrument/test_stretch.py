"""Stretches of calm steps: what begins and ends one, and what it holds meanwhile."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import halfscope
import pytest
import torch
from halfscope import native

from tests.agent.instrument.conftest import Watching

pytestmark = pytest.mark.skipif(
    not hasattr(native.helper, "Stretch"), reason=f"no stretches here: the helper is {native.absent_because or 'older'}"
)


class Training:
    """A tiny network that is watched, as far as the first stretch."""

    def __init__(self, watching: Watching) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.run = watching(self.model, self.optimizer, every=1000)
        self.num_steps = 0
        while not self.is_on:
            self.step()
            assert self.num_steps < 100

    @property
    def is_on(self) -> bool:
        return bool(self.watcher.stretch.is_on)

    @property
    def watcher(self) -> Any:
        return self.run._watcher

    def step(self, batch: torch.Tensor | None = None) -> None:
        self.optimizer.zero_grad()
        loss = self.model(torch.randn(6, 4) if batch is None else batch).square().mean()
        loss.backward()
        self.optimizer.step()
        self.run.step(loss=loss, samples=6)
        self.num_steps += 1

    def again(self) -> None:
        """Goes on until a stretch is on."""
        for _ in range(100):
            self.step()
            if self.is_on:
                return
        raise AssertionError("no other stretch began")


@pytest.fixture
def training(watching: Watching) -> Training:
    return Training(watching)


def test_more_rows_than_there_is_room_for_are_told_in_between(training: Training, watching: Watching) -> None:
    """Hundreds of steps in a row, each with its row, in order."""
    for _ in range(300):
        training.step()
    assert training.is_on
    recorded = watching.read()
    assert recorded.steps() == list(range(training.num_steps))
    assert list(recorded.series("opt.steps").values()) == [step + 1.0 for step in range(training.num_steps)]


def test_numbers_that_are_logged_stay_in_the_stretch(training: Training, watching: Watching) -> None:
    """Floats, whole numbers and tensors under names that came before, whoever made the strings; the last value of a
    step counts, and two calls of one step are one row."""
    training.run.log({"a": 1.0, "b": 2.0})
    training.run.log({"c": 0.0})
    training.again()
    for at in range(20):
        training.step()
        training.run.log({"".join(["a"]): at, "b": torch.tensor(at + 0.5)})
        training.run.log({"c": -0.0})
        training.run.log({"a": at + 0.25, "b": math.nan})
        assert training.is_on
    recorded = watching.read()
    last = training.num_steps - 1
    assert list(recorded.series("a").items())[-20:] == [(last - 19 + at, at + 0.25) for at in range(20)]
    assert all(math.isnan(value) for value in list(recorded.series("b").values())[-20:])
    assert [math.copysign(1, value) for value in recorded.series("c").values()][-20:] == [-1.0] * 20


@pytest.mark.parametrize(
    "ask",
    [
        lambda training: training.run.log({"new": 1.0}),
        lambda training: training.run.log(a=1.0),
        lambda training: training.run.log({"deep": {"er": 1.0}}),
        lambda training: training.run.step(loss=math.inf),
        lambda training: training.run.step(samples=7),
        lambda training: training.run.report_scaler(scale=2.0),
        lambda training: torch.nn.utils.clip_grad_norm_(training.model.parameters(), 1.0),
        lambda training: training.optimizer.step(lambda: None),
        lambda training: training.optimizer.step(),
        lambda training: training.watcher.detach(),
        lambda training: training.watcher.take_scaler("late", torch.amp.GradScaler("cpu")),
    ],
)
def test_what_is_out_of_the_ordinary_ends_it(
    training: Training, watching: Watching, ask: Callable[[Training], Any]
) -> None:
    """And every step until then has its row."""
    for _ in range(5):
        training.step()
    assert training.watcher.step == training.num_steps - 1
    ask(training)
    if training.is_on:  # told when the step is over
        training.step()
    assert not training.is_on
    assert training.watcher.clock.step == training.watcher.step
    recorded = watching.read()
    assert set(recorded.series("grad.norm")) >= set(range(training.num_steps))
    assert recorded.kinds("agent_degraded") == []


def test_a_failure_of_ours_is_told_at_its_step(training: Training, watching: Watching) -> None:
    """Where nobody has asked for the clock, which stands still in a stretch."""
    for _ in range(5):
        training.step()
    training.run.log("no mapping")
    assert training.is_on
    (event,) = watching.read().kinds("agent_degraded")
    assert (event.step, event.attributes["probe"]) == (training.num_steps - 1, "run.log")


def test_a_gradient_that_is_not_finite_is_told_at_its_step(training: Training, watching: Watching) -> None:
    """With the batch that it came of, which only a stretch has held."""
    for _ in range(5):
        training.step()
    batch = torch.randn(6, 4)
    batch[3, 1] = math.inf
    training.step(batch)
    recorded = watching.read()
    assert [event.step for event in recorded.kinds("nonfinite_applied")] == [training.num_steps - 1]
    (bad,) = recorded.kinds("input_nonfinite")
    assert (bad.step, bad.attributes["first_row"]) == (training.num_steps - 1, 3)


def test_no_batch_is_kept_alive(training: Training) -> None:
    """Not that of the step, nor of the one before."""
    batches = []
    for _ in range(4):
        batch = torch.randn(6, 4)
        batches.append(weakref.ref(batch))
        training.step(batch)
    del batch
    assert training.is_on
    assert [ref() for ref in batches] == [None] * 4


def test_a_forked_child_records_nothing(training: Training, watching: Watching) -> None:
    """It trains on with the hooks that it inherited, and its parent's rows are the parent's alone."""
    training.step()
    stretch = training.watcher.stretch
    child = os.fork()
    if not child:
        training.step()
        os._exit(int(stretch.is_on))
    assert os.waitpid(child, 0)[1] == 0
    training.step()
    assert watching.read().steps() == list(range(training.num_steps))


def test_steps_of_another_thread_go_the_ordinary_way_once(training: Training, watching: Watching) -> None:
    """The thread that trains is known again afterwards."""
    thread = threading.Thread(target=training.step)
    thread.start()
    thread.join()
    assert training.watcher.thread == thread.ident
    training.again()
    assert watching.read().steps() == list(range(training.num_steps))


def test_the_cost_holds_what_is_spent_in_the_helper(training: Training, watching: Watching) -> None:
    """The shares of all steps add up to what the watcher says."""
    for _ in range(30):
        training.step()
    assert training.is_on
    assert training.watcher.own_ns - training.watcher.guard.own_ns > 30 * 1000
    spent_s = training.watcher.own_ns / 1e9
    recorded = watching.read()
    shares, took_s = recorded.series("halfscope.cost_share"), recorded.series("time.step_s")
    assert sum(share * took_s[step] for step, share in shares.items()) == pytest.approx(spent_s, rel=0.05)


def test_wrong_arguments_are_refused() -> None:
    """By its own functions, which nobody else calls; a refused start begins nothing."""
    stretch = native.helper.Stretch()
    for call in (stretch.begin, stretch.end, stretch.forward, stretch.annotate, stretch.learn, stretch.start):
        with pytest.raises(TypeError):
            call(1)
    assert stretch.take() is None
    assert stretch.log({}) is stretch.begin(1, 2, 3) is False
    assert not stretch.is_on


def test_two_runs_have_stretches_of_their_own(watching: Watching, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Steps of one are no steps of the other."""
    one, other = Training(watching), Training(Watching(tmp_path_factory.mktemp("other")))
    for _ in range(10):
        one.step()
    assert (one.watcher.step, other.watcher.step) == (one.num_steps - 1, other.num_steps - 1)
    assert isinstance(other.run, halfscope.Run)
    other.run.finish()
