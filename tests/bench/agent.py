"""What watching costs: watched against unwatched steps of the same training, in turns, one training thread.

Copies of one training take turns in blocks of steps: unwatched, unwatched again (the noise of the measurement itself),
watched with mode="offline", watched as by default, with journal, sender process and a real server, and where a sketch
of all gradients is no small matter, likewise with one at every step.
Each round gives one ratio per copy to the unwatched block of the same round; what is printed is the median over rounds.
Invariant: the order of turns is reversed every other round, so that no copy always follows the same other.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import halfscope
import torch

from tests.bench import workloads
from tests.bench.report import Bench, Measurement, say
from tests.bench.server_process import Server, serving

ARMS = ("unwatched", "again", "offline", "default")
EVERY_STEP = "every_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long one workload is measured."""

    make: Callable[[], workloads.Workload]
    block_s: float
    """Roughly how long one copy's turn takes."""
    budget_s: float
    """All rounds together; at least `min_rounds` are run whatever it says."""
    min_rounds: int = 7
    max_rounds: int = 200
    every_step: bool = False
    """Measure a copy that is sketched at every step, too."""

    @property
    def arms(self) -> tuple[str, ...]:
        return (*ARMS, EVERY_STEP) if self.every_step else ARMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One copy's turn, per step."""

    wall_s: float
    cpu_s: float
    """Processor time of the training thread alone: steady on a busy machine, but blind to waiting for other threads."""


PLANS: dict[str, Plan] = {
    # A turn of half a second holds several writes of the journal (50 ms) and frames of the sender (200 ms).
    "mlp": Plan(make=workloads.mlp, block_s=0.5, budget_s=90.0),
    "gpt": Plan(make=workloads.gpt, block_s=1.0, budget_s=150.0, every_step=True),
    "gpt_fp32": Plan(make=workloads.gpt_fp32, block_s=1.0, budget_s=110.0, every_step=True),
    "cnn": Plan(make=workloads.cnn, block_s=1.0, budget_s=110.0, every_step=True),
}


def _names(workload: str) -> list[str]:
    return [
        f"agent.{workload}.unwatched.step_ms",
        f"agent.{workload}.again.ratio",
        *(
            f"agent.{workload}.{arm}.{what}"
            for arm in PLANS[workload].arms[2:]
            for what in ("ratio", "extra_us", "extra_cpu_us")
        ),
    ]


def _measure(workload: str, quick: bool) -> Iterator[Measurement]:
    plan = PLANS[workload]
    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halfscope-bench-")))
        server = stack.enter_context(serving())
        updates = _arms(plan, stack, folder, server)
        times = _rounds(workload, plan, updates, quick=quick)
    base = times["unwatched"]
    step_ms = statistics.median(turn.wall_s for turn in base) * 1e3
    yield Measurement(name=f"agent.{workload}.unwatched.step_ms", value=step_ms, unit="ms")
    for arm in plan.arms[1:]:
        pairs = list(zip(times[arm], base, strict=True))
        ratio = statistics.median(mine.wall_s / other.wall_s for mine, other in pairs)
        yield Measurement(name=f"agent.{workload}.{arm}.ratio", value=ratio, unit="ratio")
        if arm != "again":
            extra_s = statistics.median(mine.wall_s - other.wall_s for mine, other in pairs)
            yield Measurement(name=f"agent.{workload}.{arm}.extra_us", value=extra_s * 1e6, unit="us")
            extra_s = statistics.median(mine.cpu_s - other.cpu_s for mine, other in pairs)
            yield Measurement(name=f"agent.{workload}.{arm}.extra_cpu_us", value=extra_s * 1e6, unit="us")


def _arms(plan: Plan, stack: ExitStack, folder: Path, server: Server) -> dict[str, Callable[[], object]]:
    """One training step of each copy."""
    os.environ["HALFSCOPE_TOKEN"] = server.token
    stack.callback(os.environ.pop, "HALFSCOPE_TOKEN", None)
    updates: dict[str, Callable[[], object]] = {}
    for arm in plan.arms:
        work = plan.make()
        if arm in ("unwatched", "again"):
            updates[arm] = work.update
            continue
        run = halfscope.watch(
            work.model,
            work.optimizer,
            project="bench",
            name=arm,
            mode="offline" if arm == "offline" else None,
            every=1 if arm == EVERY_STEP else None,
            server=server.url,
            directory=folder / arm,
        )
        stack.callback(run.finish)
        updates[arm] = _watched(work, run)
    return updates


def _watched(work: workloads.Workload, run: halfscope.Run) -> Callable[[], object]:
    def update() -> None:
        run.step(loss=work.update(), samples=work.samples)

    return update


def _rounds(
    workload: str, plan: Plan, updates: dict[str, Callable[[], object]], *, quick: bool
) -> dict[str, list[Turn]]:
    """Every turn, by copy."""
    for update in updates.values():
        _turn(update, 2)
    step_s = _turn(updates["unwatched"], 2).wall_s
    num_steps = max(1, round((0.05 if quick else plan.block_s) / step_s))
    round_s = num_steps * step_s * len(updates)
    num_rounds = 2 if quick else min(plan.max_rounds, max(plan.min_rounds, int(plan.budget_s / round_s)))
    say(
        f"agent.{workload}: {num_rounds} rounds of {len(updates)} turns of {num_steps} steps, "
        f"about {num_rounds * round_s:.0f} s"
    )
    times: dict[str, list[Turn]] = {arm: [] for arm in updates}
    for number in range(num_rounds):
        for arm in plan.arms if number % 2 == 0 else reversed(plan.arms):
            times[arm].append(_turn(updates[arm], num_steps))
    return times


def _turn(update: Callable[[], object], num_steps: int) -> Turn:
    cpu_s, wall_s = time.thread_time(), time.perf_counter()
    for _ in range(num_steps):
        update()
    return Turn(wall_s=(time.perf_counter() - wall_s) / num_steps, cpu_s=(time.thread_time() - cpu_s) / num_steps)


def _bench(workload: str) -> Bench:
    return Bench(names=_names(workload), run=lambda quick: _measure(workload, quick))


BENCHES = [_bench(workload) for workload in PLANS]
