"""Healthy trainings, as an agent would record them, without training anything.

The scaler is PyTorch's: it halves on an overflow, doubles after so many clean steps in a row. Skips are classified by
the agent's own classifier. Gradients are drawn, then rounded to FP16 under the scale as autocast would have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from halfscope.instrument.skips import SkipClassifier
from halfscope.sketch import of_array

from tests.helpers.journals import as_moments, moments_of
from tests.helpers.records import Labels, Records, Row

LAYERS = tuple(f"block.{at}.weight" for at in range(6))
ELEMENTS = 2048
FP16_LOG2 = 16.0
BEGAN_US = 1_700_000_000_000_000


@dataclass
class GradScaler:
    """torch.amp.GradScaler, as far as its numbers go."""

    scale: float = 65536.0
    growth_interval: int = 2000
    tracker: int = 0

    def update(self, found_inf: bool) -> None:
        if found_inf:
            self.scale, self.tracker = self.scale / 2, 0
            return
        self.tracker += 1
        if self.tracker == self.growth_interval:
            self.scale, self.tracker = self.scale * 2, 0


@dataclass
class Training:
    """One of them; `records` makes it."""

    precision: str = "FP16-AMP"
    num_steps: int = 20_000
    optimizers: tuple[str, ...] = ("",)
    init_scale: float = 65536.0
    growth_interval: int = 2000
    largest_log2: float = 3.0
    """Of a usual step's largest gradient."""
    noise: float = 0.2
    """Of the loss, from batch to batch."""
    seed: int = 1

    def records(self) -> Records:
        rng = np.random.default_rng(self.seed)
        scaler = GradScaler(self.init_scale, self.growth_interval) if self.precision == "FP16-AMP" else None
        classifiers = [SkipClassifier(self.init_scale) for _ in self.optimizers]
        applied = [0] * len(self.optimizers)
        rows, time_us = [], BEGAN_US
        for step in range(self.num_steps):
            step_s = self._step_s(step, rng)
            time_us += int(step_s * 1e6)
            row = Row(step, time_us)
            row.values["loss", ()] = self._loss(step, rng)
            if step:
                row.values["time.step_s", ()] = step_s
                row.values["throughput.samples_per_s", ()] = 64 / step_s
            if step % 10 == 0:
                row.values["input.absmax", ()] = float(rng.normal(3.0, 0.2))
            if step % 500 == 499:
                accuracy = 0.97 * (1 - math.exp(-step / 2000)) + rng.normal(0.0, 0.01)
                row.values["val/accuracy", ()] = float(accuracy)
            self._step(row, scaler, classifiers, applied, rng)
            if step % 100 == 0:
                row.frames.append(self._frame(row, rng))
                row.changes.append(self._changes(row))
            rows.append(row)
        return Records(rows, ended="finished")

    def _step_s(self, step: int, rng: np.random.Generator) -> float:
        """A slow start, then some jitter, and a validation every 500 steps."""
        usual = 0.02 * math.exp(rng.normal(0.0, 0.06))
        return usual + (0.5 if step < 5 else 0.0) + (20.0 if step % 500 == 0 and step else 0.0)

    def _loss(self, step: int, rng: np.random.Generator) -> float:
        """Falls by a factor of a hundred, and noise stays in proportion."""
        level = 2.3 * math.exp(-step / 2500) + 0.02
        if len(self.optimizers) > 1:  # two players: no fall, but a slow give and take
            level = 1.9 + 0.15 * math.sin(step / 240)
        return level * math.exp(rng.normal(0.0, self.noise))

    def _step(
        self,
        row: Row,
        scaler: GradScaler | None,
        classifiers: list[SkipClassifier],
        applied: list[int],
        rng: np.random.Generator,
    ) -> None:
        before = None if scaler is None else scaler.scale
        skipped_any = False
        for at, name in enumerate(self.optimizers):
            labels: Labels = (("optimizer", name),) if name else ()
            fall = row.step / self.num_steps  # gradients become smaller as the training goes on
            largest = self.largest_log2 - fall + rng.normal(0.0, 0.25)
            skipped = before is not None and math.log2(before) + largest >= FP16_LOG2
            norm = math.inf if skipped else 2.0 ** (largest - 1)
            if before is not None:
                row.values["amp.skipped", labels] = float(skipped)
                verdict = classifiers[at].observe(step=row.step, skipped=skipped, scale=before, loss_finite=True)
                if verdict.skip is not None:
                    row.events.append(("skip", "info", {"class": verdict.skip, "optimizer": name, "scale": before}))
            applied[at] += not skipped
            skipped_any |= skipped
            row.values["opt.steps", labels] = float(applied[at])
            row.values["grad.norm", labels] = norm
        if scaler is not None and before is not None:
            scaler.update(skipped_any)
            row.values["amp.scale", ()], row.values["amp.scale_next", ()] = before, scaler.scale
            row.values["amp.growth_tracker", ()] = float(scaler.tracker)

    def _frame(self, row: Row, rng: np.random.Generator):  # type: ignore[no-untyped-def]  # as of `as_moments`
        """Layers of different sizes of gradients, half of them behind a ReLU whose zeros come and go."""
        scale = row.values.get(("amp.scale", ()), math.nan)
        sketches = {}
        for at in range(len(LAYERS)):
            values = rng.normal(0.0, 2.0 ** (-2 * at - 1), ELEMENTS).astype(np.float32)
            if at % 2:
                values[rng.random(ELEMENTS) < 0.5 + 0.1 * rng.random()] = 0.0
            if math.isfinite(scale):
                with np.errstate(over="ignore"):
                    values = (values * scale).astype(np.float16).astype(np.float32) / np.float32(scale)
            sketches[at] = (of_array(values), scale)
        return as_moments([(row.step, row.time_us)], [moments_of(sketches, range(len(LAYERS)))]), LAYERS

    def _changes(self, row: Row):  # type: ignore[no-untyped-def]
        """A few weights of each layer stay as they are, more of the later ones."""
        scale = row.values.get(("amp.scale", ()), math.nan)
        sketches = {}
        for at in range(len(LAYERS)):
            change = np.full(64, 1e-4, np.float32)
            change[: at + row.step // 100 % 2] = 0.0
            sketches[at] = (of_array(change), scale)
        return as_moments([(row.step, row.time_us)], [moments_of(sketches, range(len(LAYERS)))]), LAYERS
