"""What watching costs where Lightning or Hugging Face's Trainer own the loop: whole trainings with the callback and
without, in turns, one training thread.

Each turn is a training of its own, of the small GPT in FP32; timed are its steps after the first, which settle both.
Every round gives one ratio, watched to unwatched; printed is the median. A second unwatched turn of each round, against
the first, is the noise of the measurement itself.
Invariant: the order of turns is reversed every other round, and each turn holds as many timed steps as lie between two
sketches by default, or a multiple of that.
"""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from tests.bench import workloads
from tests.bench.report import Bench, Measurement, say
from tests.bench.server_process import serving

NUM_FIRST, NUM_TIMED = 12, 20
"""The interval of sketches is judged after the first ten steps."""
BUDGET_S, MAX_ROUNDS, MIN_ROUNDS = 45.0, 9, 3
Train = Callable[[bool, int, int], float]
"""Watched or not, first steps, timed steps: seconds for the timed ones."""


def _gpt() -> workloads.Gpt:
    torch.manual_seed(0)
    return workloads.Gpt(num_layers=6, width=256, num_heads=8, num_tokens=128, vocabulary=2048)


def _text() -> torch.Tensor:
    return torch.randint(0, 2048, (4, 129), generator=torch.Generator().manual_seed(0))


def _loss(model: torch.nn.Module, text_BT: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(text_BT[:, :-1]).flatten(0, 1), text_BT[:, 1:].flatten())


def lightning() -> Train:
    """Trainings by Lightning."""
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
        def __init__(self, num_first: int) -> None:
            self.num_first, self.began_s, self.ended_s = num_first, 0.0, 0.0

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == self.num_first:
                self.began_s = time.perf_counter()
            self.ended_s = time.perf_counter()

    def train(is_watched: bool, num_first: int, num_timed: int) -> float:
        clock = Clock(num_first)
        callbacks = [clock, *([HalfscopeCallback(project="bench", name="lightning")] if is_watched else [])]
        batches = torch.utils.data.DataLoader([_text()] * (num_first + num_timed + 1), batch_size=None)
        Trainer(
            accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=callbacks,
        ).fit(Module(), batches)  # fmt: skip
        return clock.ended_s - clock.began_s

    return train


def trainer() -> Train:
    """Trainings by Hugging Face's Trainer."""
    from halfscope.integrations.transformers import HalfscopeCallback
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = _gpt()

        def forward(self, text: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": _loss(self.gpt, text)}

    class Clock(TrainerCallback):
        def __init__(self, num_first: int) -> None:
            self.num_first, self.began_s, self.ended_s = num_first, 0.0, 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **found: Any) -> None:
            if state.global_step == self.num_first:
                self.began_s = time.perf_counter()
            self.ended_s = time.perf_counter()

    def train(is_watched: bool, num_first: int, num_timed: int) -> float:
        clock = Clock(num_first)
        callbacks = [clock, *([HalfscopeCallback(project="bench", name="trainer")] if is_watched else [])]
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder, per_device_train_batch_size=4, max_steps=num_first + num_timed + 1, use_cpu=True,
                report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no",
            )  # fmt: skip
            rows = [{"text": row} for row in _text()] * (num_first + num_timed + 1)
            Trainer(Model(), arguments, train_dataset=rows, callbacks=callbacks).train()
        return clock.ended_s - clock.began_s

    return train


def _measure(name: str, make: Callable[[], Train], quick: bool) -> Iterator[Measurement]:
    torch.set_num_threads(1)
    num_first, num_timed = (1, 2) if quick else (NUM_FIRST, NUM_TIMED)
    seconds: dict[str, list[float]] = {"unwatched": [], "watched": [], "again": []}
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the frameworks' own, of few workers and the like
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halfscope-bench-")))
        server = stack.enter_context(serving())
        variables = {
            "HALFSCOPE_TOKEN": server.token, "HALFSCOPE_SERVER": server.url, "HALFSCOPE_DIR": str(folder),
        }  # fmt: skip
        os.environ.update(variables)
        stack.callback(lambda: [os.environ.pop(key, None) for key in variables])
        train = make()
        began_s = time.perf_counter()
        for number in range(2 if quick else MAX_ROUNDS):
            for turn in seconds if number % 2 == 0 else reversed(seconds):
                seconds[turn].append(train(turn == "watched", num_first, num_timed))
            used_s = time.perf_counter() - began_s
            if number + 1 >= MIN_ROUNDS and used_s + used_s / (number + 1) > BUDGET_S:
                break
    base = seconds["unwatched"]
    say(f"agent.{name}: {len(base)} rounds of 3 trainings of {num_timed} timed steps")
    step_ms = statistics.median(base) / num_timed * 1e3
    yield Measurement(name=f"agent.{name}.unwatched.step_ms", value=step_ms, unit="ms")
    for turn, label in (("again", "again"), ("watched", "default")):
        ratio = statistics.median(one / other for one, other in zip(seconds[turn], base, strict=True))
        yield Measurement(name=f"agent.{name}.{label}.ratio", value=ratio, unit="ratio")


def _bench(name: str, make: Callable[[], Train]) -> Bench:
    names = [f"agent.{name}.{what}" for what in ("unwatched.step_ms", "again.ratio", "default.ratio")]
    return Bench(names=names, run=lambda quick: _measure(name, make, quick))


BENCHES = [_bench("lightning", lightning), _bench("trainer", trainer)]
