"""What trackers and debug tools cost beside halfscope, in an environment of their own; asked for by tests.bench.peers.

    python -m tests.bench.peers_inside FOLDER cost WORKLOAD=BUDGET_S ...
    python -m tests.bench.peers_inside FOLDER spikes

writes what it found to `FOLDER/found.json`. All tools watch one and the same training, in turns: two trainings differ
through where their memory lies by more than some of these tools cost. A round is unwatched, two tools, unwatched, two
tools, ...; every other one runs backwards, and each turn is held against the unwatched ones next to it. What a tool
leaves to do when its turn is over is done off the clock, as far as it can be asked to.
Each tool is used as its documentation has it: five numbers a step for trackers, histograms of all gradients every ten
steps, debug tools with their defaults. Must not import the server.
Invariant: nobody here talks to another machine; what tries to is refused.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from tests.bench import workloads

UNWATCHED = "unwatched"
HISTOGRAMS_EVERY = 10
SETTLE_S = 0.2
"""Untimed steps at the beginning of each turn, at least one: what the turn before left to other threads and processes
is done by then."""
TURN_S = 0.5
"""Roughly how long a turn is."""
NEVER = 1_000_000_007
"""As an interval: no step is sketched, or traced."""


class Arm:
    """One way of watching a training."""

    every = 1
    """A turn holds a multiple of so many steps."""

    def __init__(self, work: workloads.Workload, folder: Path) -> None:
        self.work = work
        folder.mkdir()

    def on(self) -> None:
        """Its turn begins."""

    def update(self, step: int) -> None:
        """One step of the training, watched."""
        raise NotImplementedError

    def off(self) -> None:
        """Its turn is over, what it left to do is done."""

    def close(self) -> None:
        """No further turn."""


def five(loss: torch.Tensor, step: int) -> dict[str, float]:
    """What a training loop usually tells a tracker."""
    return {"loss": float(loss.detach()), "lr": 1e-4, "scale": 65536.0, "norm": 0.5, "epoch": step / 1000}


class TensorBoard(Arm):
    """Five scalars a step."""

    def __init__(self, work: workloads.Workload, folder: Path) -> None:
        super().__init__(work, folder)
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder))

    def update(self, step: int) -> None:
        for name, value in five(self.work.update(), step).items():
            self.writer.add_scalar(name, value, step)

    def off(self) -> None:
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class TensorBoardHistograms(TensorBoard):
    """The loss, and every ten steps a histogram of each gradient."""

    every = HISTOGRAMS_EVERY

    def update(self, step: int) -> None:
        self.writer.add_scalar("loss", float(self.work.update().detach()), step)
        if step % HISTOGRAMS_EVERY == 0:
            for name, parameter in self.work.model.named_parameters():
                self.writer.add_histogram(name, parameter.grad, step)


class Wandb(Arm):
    """Five scalars a step, offline. A process has one run, which ends with it."""

    def __init__(self, work: workloads.Workload, folder: Path) -> None:
        super().__init__(work, folder)
        import wandb

        self.run = wandb.run or wandb.init(project="bench", mode="offline", dir=folder)

    def update(self, step: int) -> None:
        self.run.log(five(self.work.update(), step))


class WandbWatch(Wandb):
    """The loss, and `watch` of all gradients every ten steps."""

    every = HISTOGRAMS_EVERY

    def on(self) -> None:
        self.run.watch(self.work.model, log="gradients", log_freq=HISTOGRAMS_EVERY)

    def update(self, step: int) -> None:
        self.run.log({"loss": float(self.work.update().detach())})

    def off(self) -> None:
        self.run.unwatch(self.work.model)


class Trackio(Arm):
    """Five scalars a step."""

    def __init__(self, work: workloads.Workload, folder: Path) -> None:
        super().__init__(work, folder)
        import trackio

        self.trackio = trackio
        trackio.init(project="bench", embed=False)

    def update(self, step: int) -> None:
        self.trackio.log(five(self.work.update(), step))

    def close(self) -> None:
        self.trackio.finish()


class Mlflow(Arm):
    """Five scalars a step, into SQLite."""

    synchronous = True

    def __init__(self, work: workloads.Workload, folder: Path) -> None:
        super().__init__(work, folder)
        import mlflow

        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        self.client = mlflow.MlflowClient()
        self.mlflow, self.uri = mlflow, mlflow.get_tracking_uri()
        self.experiment = mlflow.create_experiment("bench", artifact_location=str(folder))
        self.run_id = self.client.create_run(self.experiment).info.run_id

    def on(self) -> None:
        self.mlflow.set_tracking_uri(self.uri)

    def update(self, step: int) -> None:
        values = five(self.work.update(), step)
        self.mlflow.log_metrics(values, step=step, run_id=self.run_id, synchronous=self.synchronous)

    def off(self) -> None:
        if not self.synchronous:
            self.mlflow.flush_async_logging()


class MlflowAsync(Mlflow):
    """The same by its own thread."""

    synchronous = False


class DebugUnderflowOverflow(Arm):
    """Hugging Face's, which looks at weights, inputs and outputs of every module at every step."""

    def __init__(self, work: workloads.Workload, folder: Path) -> None:
        super().__init__(work, folder)
        from transformers.debug_utils import DebugUnderflowOverflow as Debug

        before = {module: set(module._forward_hooks) for module in work.model.modules()}
        self.debug = Debug(work.model)
        # It offers no way to take its hooks off.
        self.hooks = [
            (module, key, module._forward_hooks.pop(key))
            for module, known in before.items()
            for key in [key for key in module._forward_hooks if key not in known]
        ]

    def on(self) -> None:
        for module, key, hook in self.hooks:
            module._forward_hooks[key] = hook

    def update(self, step: int) -> None:
        self.work.update()

    def off(self) -> None:
        for module, key, _ in self.hooks:
            del module._forward_hooks[key]


class NannyTraced(Arm):
    """mixed-precision-nanny, at a step that it looks at."""

    trace_interval = 1

    def __init__(self, work: workloads.Workload, folder: Path) -> None:
        super().__init__(work, folder)
        from mixed_precision_nanny import MixedPrecisionNanny

        self.nanny = MixedPrecisionNanny(
            work.model, trace_interval=self.trace_interval, output_dir=str(folder), verbose=False
        )
        self.nanny._hook_manager.detach()

    def on(self) -> None:
        self.nanny._hook_manager.attach()

    def update(self, step: int) -> None:
        with self.nanny.step(step + 1):
            self.work.update()

    def off(self) -> None:
        self.nanny._hook_manager.detach()
        self.nanny.flush()

    def close(self) -> None:
        self.nanny.close()


class NannyIdle(NannyTraced):
    """At a step between those: 99 of 100 by default."""

    trace_interval = NEVER


class HalfscopeSketched(Arm):
    """halfscope, with journal, sender and server, at a step of which it sketches all gradients."""

    interval = 1
    runs: ClassVar[dict[int, Any]] = {}
    """By id of the model: a training has one run, whatever steps of it are sketched."""

    def __init__(self, work: workloads.Workload, folder: Path) -> None:
        super().__init__(work, folder)
        import halfscope

        if id(work.model) not in self.runs:
            run = halfscope.watch(work.model, work.optimizer, project="bench", directory=folder)
            self.runs[id(work.model)] = run
            assert run._watcher is not None
            run._watcher.detach()
        self.run = self.runs[id(work.model)]
        self.watcher = self.run._watcher

    def on(self) -> None:
        self.watcher.sketches.interval.value = self.interval
        self.watcher.attach()

    def update(self, step: int) -> None:
        self.run.step(loss=self.work.update(), samples=self.work.samples)

    def off(self) -> None:
        self.watcher.end()
        self.run._recorder.flush()
        self.watcher.detach()

    def close(self) -> None:
        self.run.finish()


class HalfscopeUnsketched(HalfscopeSketched):
    """At a step between those."""

    interval = NEVER


ARMS: dict[str, type[Arm]] = {
    "tensorboard": TensorBoard,
    "tensorboard_histograms": TensorBoardHistograms,
    "wandb": Wandb,
    "wandb_watch": WandbWatch,
    "trackio": Trackio,
    "mlflow": Mlflow,
    "mlflow_async": MlflowAsync,
    "debug_underflow_overflow": DebugUnderflowOverflow,
    "nanny_idle": NannyIdle,
    "nanny_traced": NannyTraced,
    "halfscope_unsketched": HalfscopeUnsketched,
    "halfscope_sketched": HalfscopeSketched,
}


def small_gpt() -> workloads.Workload:
    """The GPT of the other benches in small and in FP32: a round of all tools is to take seconds on any machine."""
    torch.manual_seed(0)
    model = workloads.Gpt(num_layers=4, width=128, num_heads=4, num_tokens=64, vocabulary=512)
    text_BT = torch.randint(0, 512, (4, 65))

    def loss() -> torch.Tensor:
        logits_BTV = model(text_BT[:, :-1])
        return torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), text_BT[:, 1:].flatten())

    return workloads._workload(model, loss, samples=4)


def cnn() -> workloads.Workload:
    """That of the other benches, but that nothing is done in place: some tools' hooks cannot bear that."""
    work = workloads.cnn()
    for module in work.model.modules():
        if isinstance(module, torch.nn.ReLU):
            module.inplace = False
    return work


WORKLOADS: dict[str, Callable[[], workloads.Workload]] = {"mlp": workloads.mlp, "gpt": small_gpt, "cnn": cnn}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn, per step."""

    wall_s: float
    cpu_s: float
    """Processor time of this process; other processes of a tool are not in it."""


@dataclass(slots=True, kw_only=True)
class Course:
    """All turns of one training."""

    work: workloads.Workload
    arms: dict[str, Arm] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Tools that could not be used with this training, and what they said."""
    num_steps: dict[str, int] = field(default_factory=dict)
    step: int = 0

    def begin(self, folder: Path, kinds: Mapping[str, type[Arm]]) -> None:
        """Makes every tool and tries it; how long its turns are follows from that."""
        self.work.update()
        self.num_steps[UNWATCHED] = self._length(1, self.turn(UNWATCHED, 3).wall_s)
        for name, kind in kinds.items():
            try:
                arm = self.arms[name] = kind(self.work, folder / name)
                self.num_steps[name] = self._length(arm.every, self.turn(name, arm.every).wall_s)
            except Exception as error:
                self.failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                if (broken := self.arms.pop(name, None)) is not None:
                    with suppress(Exception):
                        broken.off()

    @staticmethod
    def _length(every: int, step_s: float) -> int:
        return max(1, round(TURN_S / step_s / every)) * every

    def turn(self, name: str, num_steps: int) -> Turn:
        """Some steps, behind some untimed ones."""
        arm = self.arms.get(name)
        if arm is not None:
            arm.on()
        until_s = time.perf_counter() + SETTLE_S
        self._update(arm)
        while time.perf_counter() < until_s:
            self._update(arm)
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(num_steps):
            self._update(arm)
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        if arm is not None:
            arm.off()
        return Turn(wall_s=wall_s / num_steps, cpu_s=cpu_s / num_steps)

    def _update(self, arm: Arm | None) -> None:
        if arm is None:
            self.work.update()
        else:
            arm.update(self.step)
            self.step += 1

    def round(self, number: int) -> list[tuple[str, Turn]]:
        """Every tool's turn, in the order in which they were."""
        order = sequence(list(self.arms))
        if number % 2:
            order.reverse()
        return [(name, self.turn(name, self.num_steps[name])) for name in order]


def sequence(names: Sequence[str]) -> list[str]:
    """Unwatched, two tools, unwatched, two tools, ... unwatched."""
    order = [UNWATCHED]
    for pair in (names[at : at + 2] for at in range(0, len(names), 2)):
        order += [*pair, UNWATCHED]
    return order


def against_neighbours(turns: Sequence[tuple[str, Turn]]) -> Iterator[tuple[str, Turn, Turn]]:
    """Each tool's turn, and the mean of the unwatched turns next to it before and behind."""
    places = [at for at, (name, _) in enumerate(turns) if name == UNWATCHED]
    for at, (name, turn) in enumerate(turns):
        if name == UNWATCHED:
            continue
        near = [turns[max(p for p in places if p < at)][1], turns[min(p for p in places if p > at)][1]]
        base = Turn(wall_s=sum(t.wall_s for t in near) / 2, cpu_s=sum(t.cpu_s for t in near) / 2)
        yield name, turn, base


def cost(workload: str, folder: Path, budget_s: float) -> dict[str, Any]:
    """By tool, of each round, the time of a step less that of an unwatched one, as a share of it; and those."""
    torch.set_num_threads(1)
    course = Course(work=WORKLOADS[workload]())
    folder.mkdir()
    course.begin(folder, ARMS)
    shares: dict[str, list[list[float]]] = {name: [] for name in course.arms}
    unwatched_s: list[float] = []
    began_s = time.perf_counter()
    for number in itertools.count():
        turns = course.round(number)
        unwatched_s += [turn.wall_s for name, turn in turns if name == UNWATCHED]
        for name, turn, base in against_neighbours(turns):
            shares[name].append([turn.wall_s / base.wall_s - 1, turn.cpu_s / base.cpu_s - 1])
        used_s = time.perf_counter() - began_s
        if used_s + used_s / (number + 1) > budget_s:
            break
    for arm in course.arms.values():
        arm.close()
    return {"step_s": statistics.median(unwatched_s), "shares": shares, "failed": course.failed, "used_s": used_s}


def spikes(folder: Path) -> dict[str, Any]:
    """A series as TensorBoard's own writer writes it, and the steps of it that its own reader keeps for its page."""
    import numpy as np
    from tensorboard.backend.event_processing.data_ingester import DEFAULT_TENSOR_SIZE_GUIDANCE
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.backend.event_processing.reservoir import Reservoir
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from torch.utils.tensorboard.summary import scalar

    values = np.load(folder / "values.npy")
    began_s = time.perf_counter()
    writer = EventFileWriter(str(folder / "events"))
    for step, value in enumerate(values.tolist()):
        writer.add_event(Event(step=step, wall_time=1e9 + step, summary=scalar("loss", value)))
    writer.close()
    written_s = time.perf_counter()
    # The accumulator behind TensorBoard's page does this with each tag, and takes ten times as long for conversions.
    reservoir = Reservoir(DEFAULT_TENSOR_SIZE_GUIDANCE["scalars"], always_keep_last=True)
    (path,) = (folder / "events").iterdir()
    for event in LegacyEventFileLoader(str(path)).Load():
        for value in event.summary.value:
            reservoir.AddItem(value.tag, event.step)
    kept = reservoir.Items("loss")
    return {"kept": kept, "write_s": written_s - began_s, "read_s": time.perf_counter() - written_s}


def _stay_here(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] not in ("127.0.0.1", "::1"):
        raise ConnectionRefusedError(f"nothing is measured across a network: {arguments[1][0]}")


def main(folder_name: str, what: str, *arguments: str) -> None:
    """Asked for by name."""
    sys.addaudithook(_stay_here)
    folder = Path(folder_name)
    if what == "cost":
        budgets = dict(each.split("=") for each in arguments)
        found: Any = {name: cost(name, folder / name, float(budget_s)) for name, budget_s in budgets.items()}
    else:
        found = spikes(folder)
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
