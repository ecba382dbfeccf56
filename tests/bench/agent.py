"""What watching costs the tiny perceptron: watched against unwatched steps of one and the same training, in turns.

Each way of watching has a copy of the training to itself, whose hooks are taken off and set again between turns: two
copies differ by several percent through where their memory lies, which is more than watching costs. Ways are the
default, with journal, sender process and a real server, and the default without the compiled helper.
A turn takes an eighth of a second and is compared with the unwatched ones right before and behind it, for the pace of a
machine wanders over seconds; what is printed is the mean of these differences without a tenth at each end. An unwatched
turn compared in the same way is the noise of the measurement itself, and one whose hooks do nothing but a plain sum of
each gradient is the floor. The last twentieth of a second is written to the journal behind a turn. Where processor time
goes is told apart: the training thread, the other threads of its process, the sender.
Invariant: an `_error` is the standard error of the figure that it is called after.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import halfscope
import torch
from halfscope import native
from halfscope.probes import gradients
from halfscope.record.recorder import Recorder
from halfscope.send import status

from tests.bench import workloads
from tests.bench.intervals import NEVER, SKETCHED, UNSKETCHED, UNWATCHED, chosen_interval, mean
from tests.bench.report import Bench, Measurement, middle, middle_error, say
from tests.bench.server_process import Server, serving

DEFAULT, PLAIN = "default", "plain"
"""`plain`: without the compiled helper; the other has it where it was built, as users do."""
WATCHED, AGAIN, FLOOR = UNSKETCHED, "again", "floor"
CYCLES = {DEFAULT: (WATCHED, AGAIN, WATCHED, FLOOR, WATCHED, SKETCHED), PLAIN: (WATCHED, WATCHED, SKETCHED)}
"""The turns of a round that are not plainly unwatched: of what makes most of a figure's uncertainty there are most."""
SETTLING_STEPS = 110
CHANGE_S = 0.04
"""Untimed steps behind a change."""


@contextmanager
def without_helper() -> Iterator[None]:
    """As where none was built, for a run that begins in here, and while it is in here."""
    absent = {"helper": None, "_squares": None, "_gradient_squares": None, "_gradient_state": None, "IS_QUICK": False}
    with patch.object(native, "helper", None), patch.dict(vars(gradients), absent):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long one workload is measured."""

    make: Callable[[], workloads.Workload]
    turn_s: float
    """Roughly how long one turn takes."""
    budget_s: float
    """All rounds together."""
    arms: tuple[str, ...]
    """Ways of watching."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn, per step."""

    wall_s: float
    cpu_s: float
    """Processor time of the training thread alone: steady on a busy machine, but blind to waiting for other threads."""
    threads_cpu_s: float
    """Of the other threads of the training process."""
    sender_cpu_s: float
    own_s: float
    """By the agent's own clock, of which `halfscope.cost_share` is made."""


@contextmanager
def floor_hooks(work: workloads.Workload) -> Iterator[None]:
    """A forward hook and one behind the optimizer's step that do nothing, and one before it that has torch read each
    gradient once: what cannot be had for less from Python, whatever is then made of the numbers."""
    parameters = list(work.model.parameters())

    def read_all(*_: object) -> None:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.sum()

    handles = (
        work.model.register_forward_pre_hook(lambda module, args: None),
        work.optimizer.register_step_pre_hook(read_all),
        work.optimizer.register_step_post_hook(lambda optimizer, args, kwargs: None),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(slots=True, kw_only=True)
class Arm:
    """One training, and the run that watches it in turns."""

    work: workloads.Workload
    run: halfscope.Run
    folder: Path
    """Of its journal."""
    is_plain: bool
    """Without the compiled helper."""
    found: dict[str, list[tuple[Turn, Turn]]] = field(default_factory=dict)
    """By kind each turn, and the mean of the unwatched ones around it."""

    def helper(self) -> AbstractContextManager[None]:
        """In which its steps are made."""
        return without_helper() if self.is_plain else nullcontext()

    def round(self, kinds: Sequence[str], num_steps: int, change_s: float) -> None:
        """A turn of each kind, between unwatched ones."""
        before = self.turn(UNWATCHED, num_steps, change_s)
        for kind in kinds:
            found, behind = (self.turn(each, num_steps, change_s) for each in (kind, UNWATCHED))
            self.found.setdefault(kind, []).append((found, mean(before, behind)))
            before = behind

    def turn(self, kind: str, num_steps: int, change_s: float) -> Turn:
        """Some steps with the hooks set, or those of the floor, or without any."""
        with self.helper(), floor_hooks(self.work) if kind == FLOOR else nullcontext():
            return self._turn(kind, num_steps, change_s)

    def _turn(self, kind: str, num_steps: int, change_s: float) -> Turn:
        watcher, recorder = self.run._watcher, self.run._recorder
        assert watcher is not None
        assert isinstance(recorder, Recorder)
        is_watched = kind in (UNSKETCHED, SKETCHED)
        update = self.watched_update if is_watched else self.work.update
        if is_watched:
            watcher.sketches.interval.value = 1 if kind == SKETCHED else NEVER
            watcher.attach()
        until_s = time.perf_counter() + change_s
        update()
        while time.perf_counter() < until_s:
            update()
        began = self._clocks()
        for _ in range(num_steps):
            update()
        wall_s, thread_s, process_s, sender_s, own_s = (
            (after - before) / num_steps for after, before in zip(self._clocks(), began, strict=True)
        )
        if is_watched:
            recorder.flush()
            watcher.detach()
        return Turn(
            wall_s=wall_s, cpu_s=thread_s, threads_cpu_s=process_s - thread_s, sender_cpu_s=sender_s, own_s=own_s
        )

    def _clocks(self) -> tuple[float, float, float, float, float]:
        watcher = self.run._watcher
        assert watcher is not None
        wall_s, sender_s = time.perf_counter(), cpu_s_of(status(self.folder).pid)
        return wall_s, time.thread_time(), time.process_time(), sender_s, watcher.own_ns / 1e9

    def watched_update(self) -> None:
        """One step as a user's loop has it."""
        self.run.step(loss=self.work.update(), samples=self.work.samples)


PLANS: dict[str, Plan] = {
    "mlp": Plan(make=workloads.mlp, turn_s=0.12, budget_s=270.0, arms=(DEFAULT, PLAIN)),
}
WHATS = {
    "sketch_every": "steps", "ratio": "ratio", "threads_cpu_us": "us", "sender_cpu_us": "us", "own_share": "share",
}  # fmt: skip
EXTRAS = ("extra_us", "extra_us_error", "extra_cpu_us", "extra_cpu_us_error")


def _names(workload: str) -> list[str]:
    return [
        f"agent.{workload}.unwatched.step_ms",
        *(f"agent.{workload}.{name}.{what}" for name in (AGAIN, FLOOR) for what in EXTRAS),
        *(f"agent.{workload}.{arm}.{what}" for arm in PLANS[workload].arms for what in (*WHATS, *EXTRAS)),
    ]


def cpu_s_of(pid: int) -> float:
    """Processor time of all threads of a process so far; 0 where there is none."""
    total_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat") if pid else ():
        with suppress(OSError):  # a thread that has ended meanwhile
            total_ns += int(path.read_text().split()[0])
    return total_ns / 1e9


def _more(pairs: Sequence[tuple[Turn, Turn]], what: Callable[[Turn], float]) -> tuple[float, float]:
    """What turns take more than the unwatched ones around them, and by how much that is uncertain."""
    found = [what(turn) - what(around) for turn, around in pairs]
    return middle(found), middle_error(found)


def _wall_us(turn: Turn) -> float:
    return turn.wall_s * 1e6


def _cpu_us(turn: Turn) -> float:
    return turn.cpu_s * 1e6


def _extras(pairs: Sequence[tuple[Turn, Turn]]) -> dict[str, float]:
    return dict(zip(EXTRAS, (*_more(pairs, _wall_us), *_more(pairs, _cpu_us)), strict=True))


def _measure(workload: str, quick: bool) -> Iterator[Measurement]:
    plan = PLANS[workload]
    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halfscope-bench-")))
        server = stack.enter_context(serving())
        arms = _arms(plan, stack, folder, server)
        _rounds(workload, plan, arms, quick=quick)
    default = arms[DEFAULT].found
    step_s = middle([around.wall_s for _, around in default[WATCHED]])
    yield Measurement(name=f"agent.{workload}.unwatched.step_ms", value=step_s * 1e3, unit="ms")
    found = {
        AGAIN: _extras(default[AGAIN]),
        FLOOR: _extras(default[FLOOR]),
        **{name: _of_arm(arm, step_s) for name, arm in arms.items()},
    }
    for name, values in found.items():
        for what, value in values.items():
            yield Measurement(name=f"agent.{workload}.{name}.{what}", value=value, unit=WHATS.get(what, "us"))


def _of_arm(arm: Arm, step_s: float) -> dict[str, float]:
    plain, sketched = arm.found[WATCHED], arm.found[SKETCHED]
    own = [middle([turn.own_s for turn, _ in pairs]) for pairs in (plain, sketched)]
    extras = [_extras(pairs) for pairs in (plain, sketched)]
    every = chosen_interval(step_s, max(own[1] - own[0], (extras[1]["extra_cpu_us"] - extras[0]["extra_cpu_us"]) / 1e6))

    def mixed(of: Sequence[float]) -> float:
        return of[0] + (of[1] - of[0]) / every

    found = {what: mixed([each[what] for each in extras]) for what in EXTRAS}
    for what in EXTRAS[1::2]:
        found[what] = math.hypot(extras[0][what] * (1 - 1 / every), extras[1][what] / every)
    return {
        "sketch_every": float(every),
        "ratio": 1 + found["extra_us"] / step_s / 1e6,
        "threads_cpu_us": mixed(
            [_more(pairs, lambda turn: turn.threads_cpu_s)[0] * 1e6 for pairs in (plain, sketched)]
        ),
        "sender_cpu_us": mixed([_more(pairs, lambda turn: turn.sender_cpu_s)[0] * 1e6 for pairs in (plain, sketched)]),
        "own_share": mixed(own) / step_s,
        **found,
    }


def _arms(plan: Plan, stack: ExitStack, folder: Path, server: Server) -> dict[str, Arm]:
    os.environ["HALFSCOPE_TOKEN"] = server.token
    stack.callback(os.environ.pop, "HALFSCOPE_TOKEN", None)
    return {
        name: watched(plan.make, stack, folder / name, server, is_plain=name == PLAIN, every=1) for name in plan.arms
    }


def watched(
    make: Callable[[], workloads.Workload],
    stack: ExitStack,
    folder: Path,
    server: Server,
    *,
    is_plain: bool,
    every: int | None = None,
) -> Arm:
    """A training of its own, and a run that watches it until the stack is left."""
    work = make()
    with without_helper() if is_plain else nullcontext():
        run = halfscope.watch(
            work.model,
            work.optimizer,
            project="bench",
            name=folder.name,
            every=every,
            server=server.url,
            directory=folder,
        )
    stack.callback(run.finish)
    return Arm(work=work, run=run, folder=folder, is_plain=is_plain)


def _rounds(workload: str, plan: Plan, arms: dict[str, Arm], *, quick: bool) -> None:
    """Every turn of every arm."""
    for arm in arms.values():
        _settle(arm, quick=quick)
    change_s = 0.0 if quick else CHANGE_S
    step_s = arms[DEFAULT].turn(UNWATCHED, 2 if quick else 50, change_s).wall_s
    num_steps = 5 if quick else max(1, round(plan.turn_s / step_s))
    num_turns = sum(1 + 2 * len(CYCLES[name]) for name in arms)
    round_s = num_turns * (num_steps * step_s + change_s)
    num_rounds = 1 if quick else max(1, round(plan.budget_s / round_s))
    say(
        f"agent.{workload}: {num_rounds} rounds of {num_turns} turns of {num_steps} steps, about "
        f"{num_rounds * round_s:.0f} s"
    )
    for _ in range(num_rounds):
        for name, arm in arms.items():
            arm.round(CYCLES[name], num_steps, change_s)


def _settle(arm: Arm, *, quick: bool) -> None:
    """The first steps of a run, and then its hooks are off."""
    with arm.helper():
        for _ in range(2 if quick else SETTLING_STEPS):
            arm.watched_update()
    assert arm.run._watcher is not None
    arm.run._watcher.detach()


def _bench(workload: str) -> Bench:
    return Bench(names=_names(workload), run=lambda quick: _measure(workload, quick))


BENCHES = [_bench(workload) for workload in PLANS]
