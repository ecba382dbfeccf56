"""What watching costs where Lightning or Hugging Face's Trainer own the loop: one training of each, of a small GPT in
FP32, whose callback and hooks are set and taken off in turns; one training thread.

A round is unwatched, twice as many steps of one kind, unwatched: what drifts evenly cancels within it. Kinds are steps
without a sketch, with one, and unwatched again, which is the noise of the measurement itself; `default` is put together
from the first two by the interval that the budget chooses for just these costs. Behind each change a step goes by
untimed. Of each kind the mean over rounds is printed, without a tenth at each end.
Invariant: `ratio_error` is the standard error of that: a mark closer than twice that is not shown.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from tests.bench import workloads
from tests.bench.intervals import NEVER, SKETCHED, UNSKETCHED, UNWATCHED, chosen_interval, mean
from tests.bench.large import Turn
from tests.bench.report import Bench, Measurement, middle, middle_error, say
from tests.bench.server_process import serving

VOCABULARY = 1024
"""With four layers of width 128, a step of a tenth of a second: the pace of a machine wanders over seconds, so many
short rounds tell more than few long ones."""
NUM_FIRST, NUM_TIMED = 12, 1
"""Steps before the first round, and of a round's first and last turn."""
BUDGET_S = 200.0
CYCLE = (UNSKETCHED, UNWATCHED, UNSKETCHED, SKETCHED)
"""What the rounds are of: of what makes most of `default`'s uncertainty there are most."""
Course = Generator[None, None, None]
"""Resumed by the training at the beginning of each of its steps; over when the training is to stop."""
Train = Callable[["Rounds"], None]


class Rounds:
    """One training's turns."""

    def __init__(self, quick: bool) -> None:
        self.callback: Any = None
        """The one of halfscope's; it has begun its run when the first step begins."""
        self.switch: Callable[[bool], None] = lambda is_on: None
        """Gives it to the framework, or takes it away."""
        self.num_timed, self.budget_s = (1, 0.0) if quick else (NUM_TIMED, BUDGET_S)
        self.num_first = 2 if quick else NUM_FIRST
        self.found: list[tuple[str, Turn, Turn]] = []
        """Of each round: its kind, the turn of that, and the unwatched steps around it."""

    def course(self) -> Course:
        """All of it."""
        for _ in range(self.num_first):
            yield
        self._off()
        until_s = time.perf_counter() + self.budget_s
        for number in itertools.count():
            kind = CYCLE[number % len(CYCLE)]
            before = yield from self._turn(UNWATCHED, self.num_timed)
            middle = yield from self._turn(kind, 2 * self.num_timed)
            behind = yield from self._turn(UNWATCHED, self.num_timed)
            self.found.append((kind, middle, mean(before, behind)))
            if number + 1 >= len(CYCLE) and time.perf_counter() > until_s:
                return

    def _turn(self, kind: str, num_steps: int) -> Generator[None, None, Turn]:
        if kind != UNWATCHED:
            self._on(kind)
        yield
        began = self._clocks()
        for _ in range(num_steps):
            yield
        wall_s, cpu_s, own_s = ((now - then) / num_steps for now, then in zip(self._clocks(), began, strict=True))
        if kind != UNWATCHED:
            self._off()
        return Turn(wall_s=wall_s, cpu_s=cpu_s, own_s=own_s)

    def _on(self, kind: str) -> None:
        watcher = self.callback.run._watcher
        watcher.sketches.interval.value = 1 if kind == SKETCHED else NEVER
        watcher.attach()
        self.switch(True)

    def _off(self) -> None:
        self.switch(False)
        run = self.callback.run
        run._watcher.end()
        run._recorder.flush()
        run._watcher.detach()

    def _clocks(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), self.callback.run._watcher.own_ns / 1e9

    def shares(self, kind: str, what: Callable[[Turn], float]) -> list[float]:
        """What each round of a kind takes more than its unwatched steps, as a share of them."""
        return [what(turn) / what(around) - 1 for found, turn, around in self.found if found == kind]


def _gpt() -> workloads.Gpt:
    torch.manual_seed(0)
    return workloads.Gpt(num_layers=4, width=128, num_heads=4, num_tokens=128, vocabulary=VOCABULARY)


def _text() -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (4, 129), generator=torch.Generator().manual_seed(0))


def _loss(model: torch.nn.Module, text_BT: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(text_BT[:, :-1]).flatten(0, 1), text_BT[:, 1:].flatten())


def lightning(rounds: Rounds) -> None:
    """A training by Lightning."""
    from halfscope.integrations.lightning import HalfscopeCallback
    from lightning.pytorch import Callback, LightningModule, Trainer

    for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = _gpt()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return _loss(self.gpt, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    class Clock(Callback):
        course = rounds.course()

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            if next(self.course, self) is self:
                trainer.should_stop = True

    def switch(is_on: bool) -> None:
        (trainer.callbacks.append if is_on else trainer.callbacks.remove)(rounds.callback)

    rounds.callback, rounds.switch = HalfscopeCallback(project="bench", name="lightning"), switch
    trainer = Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Clock(), rounds.callback],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader([_text()] * 100_000, batch_size=None))


def trainer(rounds: Rounds) -> None:
    """A training by Hugging Face's Trainer."""
    from halfscope.integrations import accelerate
    from halfscope.integrations.transformers import HalfscopeCallback
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = _gpt()

        def forward(self, text: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": _loss(self.gpt, text)}

    class Clock(TrainerCallback):
        course = rounds.course()
        is_over = False

        def on_step_begin(self, args: Any, state: Any, control: Any, **found: Any) -> None:
            self.is_over = next(self.course, self) is self

        def on_step_end(self, args: Any, state: Any, control: Any, **found: Any) -> None:
            control.should_training_stop = self.is_over

    def switch(is_on: bool) -> None:
        callbacks = made.callback_handler.callbacks
        if is_on:
            callbacks.append(rounds.callback)
            accelerate.follow(made.accelerator, rounds.callback._losses)
        else:
            callbacks.remove(rounds.callback)
            accelerate.leave(made.accelerator)

    rounds.callback, rounds.switch = HalfscopeCallback(project="bench", name="trainer"), switch
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=4, max_steps=100_000, use_cpu=True, report_to=[],
            disable_tqdm=True, save_strategy="no", logging_strategy="no",
        )  # fmt: skip
        rows = [{"text": row} for row in _text()] * 1_000
        made = Trainer(Model(), arguments, train_dataset=rows, callbacks=[Clock(), rounds.callback])
        made.train()


def _measure(name: str, train: Train, quick: bool) -> Iterator[Measurement]:
    torch.set_num_threads(1)
    rounds = Rounds(quick)
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the frameworks' own, of few workers and the like
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halfscope-bench-")))
        server = stack.enter_context(serving())
        variables = {
            "HALFSCOPE_TOKEN": server.token, "HALFSCOPE_SERVER": server.url, "HALFSCOPE_DIR": str(folder),
        }  # fmt: skip
        os.environ.update(variables)
        stack.callback(lambda: [os.environ.pop(key, None) for key in variables])
        train(rounds)
        if rounds.callback.run is not None:  # taken away, it was not told that the training is over
            rounds.callback.run.finish()
    say(f"agent.{name}: {len(rounds.found)} rounds of {4 * rounds.num_timed} timed steps")
    for what, (value, unit) in _found(rounds).items():
        yield Measurement(name=f"agent.{name}.{what}", value=value, unit=unit)


def _found(rounds: Rounds) -> dict[str, tuple[float, str]]:
    step_s = statistics.median(around.wall_s for _, _, around in rounds.found)
    own = {
        kind: statistics.median(turn.own_s for found, turn, _ in rounds.found if found == kind)
        for kind in (UNSKETCHED, SKETCHED)
    }
    found: dict[str, tuple[float, str]] = {"unwatched.step_ms": (step_s * 1e3, "ms")}
    middles: dict[tuple[str, str], float] = {}
    errors: dict[str, float] = {}
    for kind in (UNWATCHED, UNSKETCHED, SKETCHED):
        for what, of in (("ratio", _wall), ("cpu_ratio", _cpu)):
            middles[kind, what] = middle(rounds.shares(kind, of))
        errors[kind] = middle_error(rounds.shares(kind, _wall))
    # What a sketch costs is told by processor time, not by the agent's clock: the journal thread packs it.
    sketch_share = middles[SKETCHED, "cpu_ratio"] - middles[UNSKETCHED, "cpu_ratio"]
    every = chosen_interval(step_s, max(own[SKETCHED] - own[UNSKETCHED], sketch_share * step_s))
    weight = 1 / every
    for what in ("ratio", "cpu_ratio"):
        found[f"again.{what}"] = 1 + middles[UNWATCHED, what], "ratio"
    found["again.ratio_error"] = errors[UNWATCHED], "ratio"
    found["default.sketch_every"] = float(every), "steps"
    for what in ("ratio", "cpu_ratio"):
        mixed = weight * middles[SKETCHED, what] + (1 - weight) * middles[UNSKETCHED, what]
        found[f"default.{what}"] = 1 + mixed, "ratio"
    found["default.ratio_error"] = math.hypot(weight * errors[SKETCHED], (1 - weight) * errors[UNSKETCHED]), "ratio"
    found["default.own_share"] = (weight * own[SKETCHED] + (1 - weight) * own[UNSKETCHED]) / step_s, "share"
    return found


def _wall(turn: Turn) -> float:
    return turn.wall_s


def _cpu(turn: Turn) -> float:
    return turn.cpu_s


NAMES = (
    *("unwatched.step_ms", "again.ratio", "again.cpu_ratio", "again.ratio_error", "default.sketch_every"),
    *("default.ratio", "default.cpu_ratio", "default.ratio_error", "default.own_share"),
)


def _bench(name: str, train: Train) -> Bench:
    return Bench(names=[f"agent.{name}.{what}" for what in NAMES], run=lambda quick: _measure(name, train, quick))


BENCHES = [_bench("lightning", lightning), _bench("trainer", trainer)]
