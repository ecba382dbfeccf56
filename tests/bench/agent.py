"""What watching costs the tiny perceptron: watched against unwatched steps of one and the same training, in turns.

Each way of watching has a copy of the training to itself, whose hooks are taken off and set again between turns: two
copies differ by several percent through where their memory lies, which is more than watching costs. Ways are the
default, with journal, sender process and a real server, and the default without the compiled helper.
The order of turns is reversed every other round, so that drift cancels in the mean of two neighbours; what is printed
is the median over those, and its standard error. A second unwatched turn of the default's copy, against the first, is
the noise of the measurement itself, and a turn whose hooks do nothing but a plain sum of each gradient is the floor.
Where processor time goes is told apart: the training thread, the other threads of its process, the sender.
Invariant: a turn holds as many steps as lie between two sketches, or a multiple of that: so each has its share of them,
and the median is not of turns without any.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import halfscope
import torch
from halfscope import native
from halfscope.probes import gradients
from halfscope.send import status

from tests.bench import workloads
from tests.bench.report import Bench, Measurement, error, paired, say
from tests.bench.server_process import Server, serving

DEFAULT, PLAIN = "default", "plain"
"""`plain`: without the compiled helper; the other has it where it was built, as users do."""
SETTLED_AFTER_STEPS = 110
SETTLED_AFTER_S = 60.0
"""The interval of sketches is widened after the first ten; what comes before is the start of a run, not its cost."""
CHANGE_S = 0.6
"""Untimed steps behind a change: journal and sender (a frame every half second) are at work, or have ended theirs, when
the clock starts."""


@contextmanager
def without_helper() -> Iterator[None]:
    """As where none was built. A run that begins in here does not use it for norms, and sketches none by it in here."""
    was = native.helper, gradients._squares, gradients.IS_QUICK
    native.helper, gradients._squares, gradients.IS_QUICK = None, None, False
    try:
        yield
    finally:
        native.helper, gradients._squares, gradients.IS_QUICK = was


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long one workload is measured."""

    make: Callable[[], workloads.Workload]
    block_s: float
    """Roughly how long one turn takes, at least."""
    budget_s: float
    """All rounds together; at least `min_rounds` are run whatever it says."""
    arms: tuple[str, ...]
    """Ways of watching."""
    min_rounds: int = 6
    max_rounds: int = 200


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
    unwatched: list[Turn] = field(default_factory=list)
    watched: list[Turn] = field(default_factory=list)
    again: list[Turn] = field(default_factory=list)
    floor: list[Turn] = field(default_factory=list)
    """With hooks that any watcher needs, which read each gradient once and do nothing else."""

    def helper(self) -> AbstractContextManager[None]:
        """In which its steps are made."""
        return without_helper() if self.is_plain else nullcontext()

    def turn(self, into: list[Turn], num_steps: int, change_s: float) -> Turn:
        """Some steps with the hooks set, or those of the floor, or without any; noted where it belongs."""
        with self.helper(), floor_hooks(self.work) if into is self.floor else nullcontext():
            into.append(self._turn(into is self.watched, num_steps, change_s))
        return into[-1]

    def _turn(self, is_watched: bool, num_steps: int, change_s: float) -> Turn:
        watcher = self.run._watcher
        assert watcher is not None
        update = self.watched_update if is_watched else self.work.update
        if is_watched:
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

    @property
    def sketch_every(self) -> int:
        """The interval of sketches in force."""
        assert self.run._watcher is not None
        return self.run._watcher.sketches.interval.value


PLANS: dict[str, Plan] = {
    # A turn holds some writes of the journal (50 ms) and a frame of the sender; many short ones tell more than few long
    # ones, for the machine's pace wanders over seconds.
    "mlp": Plan(make=workloads.mlp, block_s=0.6, budget_s=300.0, arms=(DEFAULT, PLAIN)),
}
WHATS = ("ratio", "threads_cpu_us", "sender_cpu_us", "own_share")
EXTRAS = ("extra_us", "extra_us_error", "extra_cpu_us", "extra_cpu_us_error")


def _names(workload: str) -> list[str]:
    return [
        f"agent.{workload}.unwatched.step_ms",
        *(f"agent.{workload}.{name}.{what}" for name in ("again", "floor") for what in EXTRAS),
        *(f"agent.{workload}.{arm}.{what}" for arm in PLANS[workload].arms for what in (*WHATS, *EXTRAS)),
    ]


def cpu_s_of(pid: int) -> float:
    """Processor time of all threads of a process so far; 0 where there is none."""
    total_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat") if pid else ():
        with suppress(OSError):  # a thread that has ended meanwhile
            total_ns += int(path.read_text().split()[0])
    return total_ns / 1e9


def _median(values: Sequence[float]) -> float:
    """Of the means of neighbouring rounds, of which one ran backwards."""
    return statistics.median(paired(values))


def _extras(turns: Sequence[Turn], base: Sequence[Turn]) -> dict[str, float]:
    """What turns take more than others of the same rounds, and by how much that is uncertain."""
    both = list(zip(turns, base, strict=True))
    wall_us = [(one.wall_s - other.wall_s) * 1e6 for one, other in both]
    cpu_us = [(one.cpu_s - other.cpu_s) * 1e6 for one, other in both]
    found = (_median(wall_us), error(paired(wall_us)), _median(cpu_us), error(paired(cpu_us)))
    return dict(zip(EXTRAS, found, strict=True))


def _measure(workload: str, quick: bool) -> Iterator[Measurement]:
    plan = PLANS[workload]
    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halfscope-bench-")))
        server = stack.enter_context(serving())
        arms = _arms(plan, stack, folder, server)
        _rounds(workload, plan, arms, quick=quick)
    default = arms[DEFAULT]
    step_ms = statistics.median(turn.wall_s for turn in default.unwatched) * 1e3
    yield Measurement(name=f"agent.{workload}.unwatched.step_ms", value=step_ms, unit="ms")
    found = {
        "again": _extras(default.again, default.unwatched),
        "floor": _extras(default.floor, default.unwatched),
        **{name: _of_arm(arm) for name, arm in arms.items()},
    }
    for name, values in found.items():
        for what, value in values.items():
            unit = "us" if "_us" in what else what.removeprefix("own_")
            yield Measurement(name=f"agent.{workload}.{name}.{what}", value=value, unit=unit)


def _of_arm(arm: Arm) -> dict[str, float]:
    both = list(zip(arm.watched, arm.unwatched, strict=True))
    return {
        "ratio": _median([watched.wall_s / other.wall_s for watched, other in both]),
        "threads_cpu_us": _median([watched.threads_cpu_s - other.threads_cpu_s for watched, other in both]) * 1e6,
        "sender_cpu_us": _median([watched.sender_cpu_s - other.sender_cpu_s for watched, other in both]) * 1e6,
        "own_share": _median([watched.own_s / watched.wall_s for watched in arm.watched]),
        **_extras(arm.watched, arm.unwatched),
    }


def _arms(plan: Plan, stack: ExitStack, folder: Path, server: Server) -> dict[str, Arm]:
    os.environ["HALFSCOPE_TOKEN"] = server.token
    stack.callback(os.environ.pop, "HALFSCOPE_TOKEN", None)
    return {name: watched(plan.make, stack, folder / name, server, is_plain=name == PLAIN) for name in plan.arms}


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
    default, change_s = arms[DEFAULT], 0.0 if quick else CHANGE_S
    step_s = default.turn([], 2, change_s).wall_s
    num_steps = max(1, round((0.05 if quick else plan.block_s) / step_s))
    if not quick:
        num_steps = -(-num_steps // default.sketch_every) * default.sketch_every
    turns = [(arm, into) for arm in arms.values() for into in _order(arm, arm is default)]
    round_s = (num_steps * step_s + max(change_s, step_s)) * len(turns)
    num_rounds = 2 if quick else min(plan.max_rounds, max(plan.min_rounds, int(plan.budget_s / round_s))) // 2 * 2
    say(
        f"agent.{workload}: {num_rounds} rounds of {len(turns)} turns of {num_steps} steps, a sketch every "
        f"{default.sketch_every}, about {num_rounds * round_s:.0f} s"
    )
    for number in range(num_rounds):
        for arm, into in turns if number % 2 == 0 else reversed(turns):
            arm.turn(into, num_steps, change_s)


def _order(arm: Arm, is_default: bool) -> list[list[Turn]]:
    return [arm.unwatched, arm.watched, *([arm.again, arm.floor] if is_default else [])]


def _settle(arm: Arm, *, quick: bool) -> None:
    """The first steps of a run, and then its hooks are off."""
    until_s = time.perf_counter() + SETTLED_AFTER_S
    with arm.helper():
        for _ in range(2 if quick else SETTLED_AFTER_STEPS):
            arm.watched_update()
            if time.perf_counter() > until_s:
                break
    assert arm.run._watcher is not None
    arm.run._watcher.detach()


def _bench(workload: str) -> Bench:
    return Bench(names=_names(workload), run=lambda quick: _measure(workload, quick))


BENCHES = [_bench(workload) for workload in PLANS]
