"""What watching costs a training with long steps (`gpt`, `gpt_fp32`, `cnn`), in bounded time: few steps.

Every step is either sketched or not. So each kind is measured by itself, in turns of few steps, and `default` is put
together from both by the interval that the budget chooses for just these costs: no turn has to hold a whole interval.
A round is unwatched, unsketched, sketched, unwatched, and the next one runs backwards: what drifts cancels in a pair of
rounds, and the mean is over pairs, without a tenth at each end. The attempt that watched steps leave open is closed
within their turn; the last twentieth of a second is written to the journal behind it. One training serves both kinds,
so that where its memory lies is the same; what is measured without the compiled helper has its own. The unwatched turns
of a round against each other are the noise (`again`).
Invariant: `ratio_error` is the standard error of the mean of as many pairs as there were.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tests.bench import workloads
from tests.bench.agent import Arm, without_helper
from tests.bench.agent import watched as watching
from tests.bench.intervals import NEVER, SKETCHED, UNSKETCHED, UNWATCHED, chosen_interval
from tests.bench.report import Bench, Measurement, middle, middle_error, paired, say
from tests.bench.server_process import Server, serving

SETTLING_STEPS = 3
MIN_PAIRS = 3
TURN_S = 0.3
"""Roughly how long a turn is; at least one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn, per step."""

    wall_s: float
    cpu_s: float
    """Processor time of the whole training process: threads of the agent included, the sender not."""
    own_s: float
    """By the agent's own clock."""


@dataclass(slots=True, kw_only=True)
class Subject:
    """One training, and the turns of each kind: the same number of each in every round, unwatched ones twice."""

    name: str
    arm: Arm
    kinds: tuple[str, ...]
    turns: dict[str, list[Turn]] = field(default_factory=dict)

    def round(self, number: int, num_steps: int) -> None:
        """One turn of each kind, between two unwatched ones."""
        order = [UNWATCHED, *self.kinds, UNWATCHED]
        for kind in order if number % 2 == 0 else reversed(order):
            self.turns.setdefault(kind, []).append(self._turn(kind, num_steps))

    def _turn(self, kind: str, num_steps: int) -> Turn:
        watcher, guard, recorder = self.arm.run._watcher, self.arm.run._guard, self.arm.run._recorder
        assert watcher is not None
        assert guard is not None
        is_watched = kind != UNWATCHED
        update = self.arm.watched_update if is_watched else self.arm.work.update
        if is_watched:
            watcher.sketches.interval.value = 1 if kind == SKETCHED else NEVER
            watcher.attach()
        own_ns, cpu_s, wall_s = guard.own_ns, time.process_time(), time.perf_counter()
        for _ in range(num_steps):
            update()
        if is_watched:
            watcher.end()
        wall_s, cpu_s, own_ns = time.perf_counter() - wall_s, time.process_time() - cpu_s, guard.own_ns - own_ns
        if is_watched:
            recorder.flush()  # type: ignore[union-attr]
            watcher.detach()
        return Turn(wall_s=wall_s / num_steps, cpu_s=cpu_s / num_steps, own_s=own_ns / 1e9 / num_steps)

    def per_pair(self, kind: str, what: Callable[[Turn], float]) -> list[float]:
        """Of each pair of rounds what a kind takes more than unwatched steps, as a share of them."""
        both = self.turns[UNWATCHED]
        base = [(what(both[2 * at]) + what(both[2 * at + 1])) / 2 for at in range(len(both) // 2)]
        shares = [what(turn) / unwatched - 1 for turn, unwatched in zip(self.turns[kind], base, strict=True)]
        return paired(shares)

    def again(self, what: Callable[[Turn], float]) -> list[float]:
        """Likewise of the two unwatched turns: the later in place over the earlier."""
        both = self.turns[UNWATCHED]
        ratios = [what(later) / what(earlier) for earlier, later in zip(both[::2], both[1::2], strict=True)]
        later = [(ratio if at % 2 == 0 else 1 / ratio) - 1 for at, ratio in enumerate(ratios)]
        return paired(later)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one workload is measured."""

    make: Callable[[], workloads.Workload]
    budget_s: float
    """All rounds together, but at least `MIN_PAIRS` pairs."""


PLANS = {
    "gpt": Plan(make=workloads.gpt, budget_s=500.0),
    "gpt_fp32": Plan(make=workloads.gpt_fp32, budget_s=150.0),
    "cnn": Plan(make=workloads.cnn, budget_s=220.0),
}
ARMS = ("default", "every_step", "plain_every_step")
WHATS = ("ratio", "ratio_error", "cpu_ratio", "own_share")


def _names(workload: str) -> list[str]:
    return [
        f"agent.{workload}.unwatched.step_ms",
        *(f"agent.{workload}.again.{what}" for what in WHATS[:3]),
        f"agent.{workload}.default.sketch_every",
        *(f"agent.{workload}.{arm}.{what}" for arm in ARMS for what in WHATS),
    ]


def _measure(workload: str, quick: bool) -> Iterator[Measurement]:
    plan = PLANS[workload]
    torch.set_num_threads(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halfscope-bench-")))
        server = stack.enter_context(serving())
        os.environ["HALFSCOPE_TOKEN"] = server.token
        stack.callback(os.environ.pop, "HALFSCOPE_TOKEN", None)
        helped = Subject(name="helped", arm=_arm(plan, stack, folder, server, False), kinds=(UNSKETCHED, SKETCHED))
        plain = Subject(name="plain", arm=_arm(plan, stack, folder, server, True), kinds=(SKETCHED,))
        _rounds(workload, plan, (helped, plain), quick=quick)
    for what, (value, unit) in _found(helped, plain).items():
        yield Measurement(name=f"agent.{workload}.{what}", value=value, unit=unit)


def _arm(plan: Plan, stack: ExitStack, folder: Path, server: Server, is_plain: bool) -> Arm:
    arm = watching(plan.make, stack, folder / ("plain" if is_plain else "helped"), server, every=1, is_plain=is_plain)
    with arm.helper():
        for _ in range(SETTLING_STEPS):
            arm.watched_update()
    assert arm.run._watcher is not None
    arm.run._watcher.detach()
    return arm


def _rounds(workload: str, plan: Plan, subjects: Sequence[Subject], *, quick: bool) -> None:
    began_s = time.perf_counter()
    subjects[0].arm.work.update()
    step_s = time.perf_counter() - began_s
    num_steps = 1 if quick else max(1, round(TURN_S / step_s))
    num_turns = sum(len(subject.kinds) + 2 for subject in subjects)
    num_pairs = max(MIN_PAIRS, int(plan.budget_s / (2 * num_turns * num_steps * step_s)))
    num_pairs = 1 if quick else min(num_pairs, 100)
    say(
        f"agent.{workload}: {2 * num_pairs} rounds of {num_turns} turns of {num_steps} steps of {step_s:.3g} s, "
        f"about {2 * num_pairs * num_turns * num_steps * step_s:.0f} s"
    )
    for number in range(2 * num_pairs):
        for subject in subjects:
            with without_helper() if subject.arm.is_plain else ExitStack():
                subject.round(number, num_steps)


def _wall(turn: Turn) -> float:
    return turn.wall_s


def _cpu(turn: Turn) -> float:
    return turn.cpu_s


def _found(helped: Subject, plain: Subject) -> dict[str, tuple[float, str]]:
    step_s = statistics.median(map(_wall, helped.turns[UNWATCHED]))
    found: dict[str, tuple[float, str]] = {"unwatched.step_ms": (step_s * 1e3, "ms")}
    found["again.ratio"] = 1 + middle(helped.again(_wall)), "ratio"
    found["again.ratio_error"] = middle_error(helped.again(_wall)), "ratio"
    found["again.cpu_ratio"] = 1 + middle(helped.again(_cpu)), "ratio"
    own = {kind: statistics.median(turn.own_s for turn in helped.turns[kind]) for kind in helped.kinds}
    # What a sketch costs is told by processor time, not by the agent's clock: the journal thread packs it.
    sketch_share = middle(helped.per_pair(SKETCHED, _cpu)) - middle(helped.per_pair(UNSKETCHED, _cpu))
    sketch_s = max(own[SKETCHED] - own[UNSKETCHED], sketch_share * step_s)
    every = chosen_interval(step_s, sketch_s)
    found["default.sketch_every"] = float(every), "steps"
    for name, subject, weight in (
        ("default", helped, 1 / every),
        ("every_step", helped, 1.0),
        ("plain_every_step", plain, 1.0),
    ):
        for what, of in (("ratio", _wall), ("cpu_ratio", _cpu)):
            sketched = subject.per_pair(SKETCHED, of)
            rest = subject.per_pair(UNSKETCHED, of) if weight < 1 else sketched
            mixed = [weight * one + (1 - weight) * other for one, other in zip(sketched, rest, strict=True)]
            found[f"{name}.{what}"] = 1 + middle(mixed), "ratio"
            if what == "ratio":
                found[f"{name}.ratio_error"] = middle_error(mixed), "ratio"
        own_sketched = statistics.median(turn.own_s for turn in subject.turns[SKETCHED])
        own_rest = own[UNSKETCHED] if weight < 1 else own_sketched
        found[f"{name}.own_share"] = (weight * own_sketched + (1 - weight) * own_rest) / step_s, "share"
    return found


def _bench(workload: str) -> Bench:
    return Bench(names=_names(workload), run=lambda quick: _measure(workload, quick))


BENCHES = [_bench(workload) for workload in PLANS]
