"""What watching costs: watched against unwatched steps of one and the same training, in turns, one training thread.

Each way of watching has a copy of the training to itself, whose hooks are taken off and set again between turns: two
copies differ by several percent through where their memory lies, which is more than watching costs. Ways are the
default, with journal, sender process and a real server, and where it matters mode="offline", a sketch of all
gradients at every step, and both without the compiled helper.
Each round gives one ratio per copy, watched to unwatched; what is printed is the median over rounds. A second unwatched
turn of the default's copy, against the first, is the noise of the measurement itself.
Invariant: the order of turns is reversed every other round, and a turn by default holds as many steps as lie between
two sketches, or a multiple of that: so each has its share of them, and the median is not of turns without any.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import halfscope
import torch
from halfscope import native
from halfscope.probes import gradients

from tests.bench import workloads
from tests.bench.report import Bench, Measurement, say
from tests.bench.server_process import Server, serving

DEFAULT, OFFLINE, EVERY_STEP = "default", "offline", "every_step"
PLAIN, PLAIN_EVERY_STEP = "plain", "plain_every_step"
"""Without the compiled helper; the other ways have it where it was built, as users do."""
SETTLED_AFTER_STEPS = 110
SETTLED_AFTER_S = 60.0
"""The interval of sketches is widened after the first ten; what comes before is the start of a run, not its cost."""
CHANGE_S = 0.3
"""Untimed steps behind a change: journal and sender are at work, or have ended theirs, when the clock starts."""


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
    min_rounds: int = 5
    max_rounds: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn, per step."""

    wall_s: float
    cpu_s: float
    """Processor time of the training thread alone: steady on a busy machine, but blind to waiting for other threads."""
    own_s: float
    """By the agent's own clock, of which `halfscope.cost_share` is made."""


@dataclass(slots=True, kw_only=True)
class Arm:
    """One training, and the run that watches it in turns."""

    work: workloads.Workload
    run: halfscope.Run
    is_plain: bool
    """Without the compiled helper."""
    unwatched: list[Turn] = field(default_factory=list)
    watched: list[Turn] = field(default_factory=list)
    again: list[Turn] = field(default_factory=list)

    def turn(self, is_watched: bool, num_steps: int, change_s: float) -> Turn:
        """Some steps with the hooks set, or without any."""
        with without_helper() if self.is_plain else nullcontext():
            return self._turn(is_watched, num_steps, change_s)

    def _turn(self, is_watched: bool, num_steps: int, change_s: float) -> Turn:
        watcher, guard = self.run._watcher, self.run._guard
        assert watcher is not None
        assert guard is not None
        update = self.watched_update if is_watched else self.work.update
        if is_watched:
            watcher.attach()
        until_s = time.perf_counter() + change_s
        update()
        while time.perf_counter() < until_s:
            update()
        own_ns, cpu_s, wall_s = guard.own_ns, time.thread_time(), time.perf_counter()
        for _ in range(num_steps):
            update()
        wall_s, cpu_s, own_ns = time.perf_counter() - wall_s, time.thread_time() - cpu_s, guard.own_ns - own_ns
        if is_watched:
            watcher.detach()
        return Turn(wall_s=wall_s / num_steps, cpu_s=cpu_s / num_steps, own_s=own_ns / 1e9 / num_steps)

    def watched_update(self) -> None:
        """One step as a user's loop has it."""
        self.run.step(loss=self.work.update(), samples=self.work.samples)

    @property
    def sketch_every(self) -> int:
        """The interval of sketches in force."""
        assert self.run._watcher is not None
        return self.run._watcher.sketches.interval.value


PLANS: dict[str, Plan] = {
    # A turn of half a second holds several writes of the journal (50 ms) and frames of the sender (200 ms).
    "mlp": Plan(make=workloads.mlp, block_s=0.5, budget_s=90.0, arms=(OFFLINE, DEFAULT, PLAIN)),
    "gpt": Plan(make=workloads.gpt, block_s=1.0, budget_s=150.0, arms=(DEFAULT, EVERY_STEP, PLAIN_EVERY_STEP)),
    "gpt_fp32": Plan(
        make=workloads.gpt_fp32, block_s=1.0, budget_s=110.0, arms=(DEFAULT, EVERY_STEP, PLAIN_EVERY_STEP)
    ),
    "cnn": Plan(make=workloads.cnn, block_s=1.0, budget_s=110.0, arms=(DEFAULT, EVERY_STEP, PLAIN_EVERY_STEP)),
}


def _names(workload: str) -> list[str]:
    return [
        f"agent.{workload}.unwatched.step_ms",
        f"agent.{workload}.again.ratio",
        *(
            f"agent.{workload}.{arm}.{what}"
            for arm in PLANS[workload].arms
            for what in ("ratio", "extra_us", "extra_cpu_us", "own_share")
        ),
    ]


def _measure(workload: str, quick: bool) -> Iterator[Measurement]:
    plan = PLANS[workload]
    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halfscope-bench-")))
        server = stack.enter_context(serving())
        arms = _arms(plan, stack, folder, server)
        _rounds(workload, plan, arms, quick=quick)
    base = arms[DEFAULT].unwatched
    step_ms = statistics.median(turn.wall_s for turn in base) * 1e3
    yield Measurement(name=f"agent.{workload}.unwatched.step_ms", value=step_ms, unit="ms")
    pairs = zip(arms[DEFAULT].again, base, strict=True)
    ratio = statistics.median(again.wall_s / first.wall_s for again, first in pairs)
    yield Measurement(name=f"agent.{workload}.again.ratio", value=ratio, unit="ratio")
    for name, arm in arms.items():
        both = list(zip(arm.watched, arm.unwatched, strict=True))
        found = {
            "ratio": statistics.median(watched.wall_s / other.wall_s for watched, other in both),
            "extra_us": statistics.median(watched.wall_s - other.wall_s for watched, other in both) * 1e6,
            "extra_cpu_us": statistics.median(watched.cpu_s - other.cpu_s for watched, other in both) * 1e6,
            "own_share": statistics.median(watched.own_s / watched.wall_s for watched in arm.watched),
        }
        for what, value in found.items():
            unit = "us" if what.endswith("_us") else what.removeprefix("own_")
            yield Measurement(name=f"agent.{workload}.{name}.{what}", value=value, unit=unit)


def _arms(plan: Plan, stack: ExitStack, folder: Path, server: Server) -> dict[str, Arm]:
    os.environ["HALFSCOPE_TOKEN"] = server.token
    stack.callback(os.environ.pop, "HALFSCOPE_TOKEN", None)
    arms: dict[str, Arm] = {}
    for name in plan.arms:
        work = plan.make()
        is_plain = name in (PLAIN, PLAIN_EVERY_STEP)
        with without_helper() if is_plain else nullcontext():
            run = halfscope.watch(
                work.model,
                work.optimizer,
                project="bench",
                name=name,
                mode="offline" if name == OFFLINE else None,
                every=1 if name in (EVERY_STEP, PLAIN_EVERY_STEP) else None,
                server=server.url,
                directory=folder / name,
            )
        stack.callback(run.finish)
        arms[name] = Arm(work=work, run=run, is_plain=is_plain)
    return arms


def _rounds(workload: str, plan: Plan, arms: dict[str, Arm], *, quick: bool) -> None:
    """Every turn of every arm."""
    for arm in arms.values():
        _settle(arm, quick=quick)
    default, change_s = arms[DEFAULT], 0.0 if quick else CHANGE_S
    step_s = default.turn(False, 2, change_s).wall_s
    num_steps = max(1, round((0.05 if quick else plan.block_s) / step_s))
    if not quick:
        num_steps = -(-num_steps // default.sketch_every) * default.sketch_every
    turns = [(arm, is_watched, into) for arm in arms.values() for is_watched, into in _order(arm, arm is default)]
    round_s = (num_steps * step_s + max(change_s, step_s)) * len(turns)
    num_rounds = 2 if quick else min(plan.max_rounds, max(plan.min_rounds, int(plan.budget_s / round_s)))
    say(
        f"agent.{workload}: {num_rounds} rounds of {len(turns)} turns of {num_steps} steps, a sketch every "
        f"{default.sketch_every}, about {num_rounds * round_s:.0f} s"
    )
    for number in range(num_rounds):
        for arm, is_watched, into in turns if number % 2 == 0 else reversed(turns):
            into.append(arm.turn(is_watched, num_steps, change_s))


def _order(arm: Arm, is_default: bool) -> list[tuple[bool, list[Turn]]]:
    return [(False, arm.unwatched), (True, arm.watched), *([(False, arm.again)] if is_default else [])]


def _settle(arm: Arm, *, quick: bool) -> None:
    """The first steps of a run, and then its hooks are off."""
    until_s = time.perf_counter() + SETTLED_AFTER_S
    with without_helper() if arm.is_plain else nullcontext():
        for _ in range(2 if quick else SETTLED_AFTER_STEPS):
            arm.watched_update()
            if time.perf_counter() > until_s:
                break
    assert arm.run._watcher is not None
    arm.run._watcher.detach()


def _bench(workload: str) -> Bench:
    return Bench(names=_names(workload), run=lambda quick: _measure(workload, quick))


BENCHES = [_bench(workload) for workload in PLANS]
