"""From attempts to rows of numbers.

Invariant: one row per attempt, holding only what was measured in it; what is not known is left out, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from halfscope.instrument.attempt import Attempt, OptimizerAttempt, ScalerAttempt, Value
from halfscope.instrument.facts import FactTeller
from halfscope.instrument.records import Records
from halfscope.instrument.sids import Sids
from halfscope.instrument.watched import WatchedOptimizer, WatchedScaler
from halfscope.probes import memory

Row = list[tuple[int, float]]
KnownRows = tuple[float, int, float, float | None, tuple[int, ...]]
"""What rows were written by last: learning rate, where samples come from, samples and tokens; and the series that a
stretch (native/stretch.h) fills, -1 for those that have no value yet."""
_SOURCES = ("", "inferred", "declared")
MOST_CALM_SERIES = 256
"""Of steps that are written together."""


def likeness(attempt: Attempt) -> tuple[Any, ...] | None:
    """Equal for attempts whose rows hold the same series; None where it has to be written by itself."""
    logged, loss = attempt.logged, attempt.declared_loss
    if (
        not attempt.is_calm
        or attempt.calm_rate is None
        or attempt.cost_share is None
        or attempt.notable
        or attempt.pending
        or attempt.scalers
        or attempt.inputs
        or attempt.reductions
        or not (loss is None or type(loss) is float)
    ):
        return None
    if logged and (len(logged) > MOST_CALM_SERIES or None in logged.values()):
        return None
    batch = attempt.samples, attempt.tokens, attempt.inferred_samples
    return batch, loss is None, attempt.between_s > 0, tuple(logged) if logged else ()


class RowWriter:
    """Writes the rows of one run."""

    def __init__(
        self,
        recorder: Records,
        facts: FactTeller,
        optimizers: Sequence[WatchedOptimizer],
        scalers: Sequence[WatchedScaler],
        *,
        is_first_rank: bool = True,
    ) -> None:
        """
        Args:
            is_first_rank: what all ranks know alike is told at every step; by the others where it changes.
            scalers: the list that grows when a scaler is adopted.
        """
        self._recorder, self._facts = recorder, facts
        self._optimizers, self._scalers = optimizers, scalers
        self._is_first_rank = is_first_rank
        self._shared: dict[int, float] = {}
        """By series, what was last written of what all ranks know."""
        self._run_sids = Sids(recorder, {})
        self._optimizer_sids = [Sids(recorder, watched.labels) for watched in optimizers]
        self._scaler_sids: dict[int, Sids] = {}
        self._rate_sids: dict[tuple[int, int], Sids] = {}
        self._rates: list[Sequence[Value]] = [()] * len(optimizers)
        """Learning rates per group, as last written."""
        self._points: list[str] = [""] * len(optimizers)
        self._samples_source = ""
        self._batch: tuple[float | None, float | None] = (None, None)
        """Samples and tokens, as last written."""

    def write(self, attempt: Attempt, num_steps: Sequence[int], memory_row: Row) -> None:
        """Writes the row of an attempt whose values are all on the host.

        Args:
            num_steps: applied steps of each optimizer, this attempt's included.
            memory_row: what `memory_values` gave, or nothing.
        """
        row: Row = []
        if attempt.scalers:
            for watched, scaler_part in zip(self._scalers, attempt.scalers, strict=False):
                self._scaler_values(row, watched, scaler_part)
        for index, part in enumerate(attempt.optimizers):
            self._optimizer_values(row, index, part, num_steps[index])
        sids, loss, step_s = self._run_sids, attempt.loss, attempt.step_s
        if loss is not None:
            row.append((sids["loss"], loss))
        if step_s > 0:
            row.append((sids["time.step_s"], step_s))
            if attempt.between_s > 0:
                row.append((sids["time.between_s"], attempt.between_s))
            if attempt.cost_share is not None:
                row.append((sids["halfscope.cost_share"], attempt.cost_share))
        if attempt.samples is not None or attempt.inferred_samples or attempt.tokens is not None:
            self._batch_values(row, attempt)
        if memory_row:
            row += memory_row
        if attempt.logged is not None:
            row += [(sid, value) for sid, value in attempt.logged.items() if isinstance(value, float)]
        self._recorder.row(attempt.step, attempt.completed_us, row)

    def write_calm(self, attempts: Sequence[Attempt], num_steps: int) -> bool:
        """Writes the rows of several calm attempts that are alike (`likeness`), column by column.

        Args:
            num_steps: of the only optimizer before them, applied.

        Returns:
            False where there is something to tell that only the ordinary way tells; then nothing was written.
        """
        first = attempts[0]
        optimizer, run, rates = self._optimizer_sids[0], self._run_sids, self._rates[0]
        if self._points[0] != "step" or len(rates) != 1 or "lr" not in self._rate_sids.get((0, 0), ()):
            return False
        samples = first.samples if first.samples is not None else float(first.inferred_samples) or None
        source = "" if samples is None else "inferred" if first.samples is None else "declared"
        if (samples, first.tokens) != self._batch or source != self._samples_source:
            return False
        steps_s = [attempt.step_s for attempt in attempts]
        columns: dict[int, Sequence[float]] = {
            optimizer["grad.norm"]: [attempt.calm_norm or 0.0 for attempt in attempts],
            run["time.step_s"]: steps_s,
            run["halfscope.cost_share"]: [attempt.cost_share or 0.0 for attempt in attempts],
        }
        if first.declared_loss is not None:
            columns[run["loss"]] = [attempt.declared_loss for attempt in attempts]  # type: ignore[misc]
        if first.between_s > 0:
            columns[run["time.between_s"]] = [attempt.between_s for attempt in attempts]
        if self._is_first_rank:
            columns[optimizer["opt.steps"]] = list(map(float, range(num_steps + 1, num_steps + len(attempts) + 1)))
        if samples is not None:
            columns[run["throughput.samples_per_s"]] = [samples / step_s for step_s in steps_s]
        if first.tokens is not None:
            tokens = first.tokens
            columns[run["throughput.tokens_per_s"]] = [tokens / step_s for step_s in steps_s]
        new_rates = [attempt.calm_rate for attempt in attempts]
        if new_rates.count(rates[0]) < len(new_rates):  # type: ignore[arg-type]
            if any(rate == before for rate, before in pairwise([*rates, *new_rates])):
                return False  # it changes now and then
            columns[self._rate_sids[0, 0]["lr"]] = new_rates  # type: ignore[assignment]
            self._rates[0] = (new_rates[-1],)
        if first.logged:
            logged: list[Any] = [attempt.logged.values() for attempt in attempts]  # type: ignore[union-attr]
            columns.update(zip(first.logged, zip(*logged, strict=True), strict=True))
        steps = [attempt.step for attempt in attempts]
        times_us = [attempt.completed_us for attempt in attempts]
        self._recorder.block(steps, times_us, tuple(columns), tuple(columns.values()))
        return True

    def known(self) -> KnownRows | None:
        """What rows of calm steps are made by; None where there is something that only the ordinary way tells."""
        optimizer, run, rates = self._optimizer_sids[0], self._run_sids, self._rates[0]
        samples, tokens = self._batch
        rate_sids: Mapping[str, int] = self._rate_sids.get((0, 0), {})
        if self._points[0] != "step" or len(rates) != 1 or type(rates[0]) is not float or "lr" not in rate_sids:
            return None
        if (samples is None) != (not self._samples_source):
            return None
        series = (
            *(sids.get(name, -1) for sids, name in ((optimizer, "grad.norm"), (run, "time.step_s"))),
            *(run.get(name, -1) for name in ("halfscope.cost_share", "loss", "time.between_s")),
            optimizer.get("opt.steps", -1),
            *(run.get(f"throughput.{what}_per_s", -1) for what in ("samples", "tokens")),
            rate_sids["lr"],
        )
        return rates[0], _SOURCES.index(self._samples_source), samples or 0.0, tokens, series

    def known_rate(self, rate: float) -> None:
        """It was written meanwhile."""
        self._rates[0] = (rate,)

    def memory_values(self, device: torch.device | None, other_load: float | None) -> Row:
        """Memory of the process and of the device it trains on, and the cores that others use."""
        row: Row = [] if other_load is None else [(self._run_sids["host.other_load"], other_load)]
        rss = memory.rss_bytes()
        if rss is not None:
            row.append((self._run_sids["memory.rss_bytes"], float(rss)))
        on_device = None if device is None else memory.device_bytes(device)
        if on_device is not None:
            row.append((self._run_sids["memory.device_allocated_bytes"], float(on_device[0])))
            row.append((self._run_sids["memory.device_peak_bytes"], float(on_device[1])))
        return row

    def _scaler_values(self, row: Row, watched: WatchedScaler, part: ScalerAttempt) -> None:
        sids = self._scaler_sids.get(watched.index)
        if sids is None:
            sids = self._scaler_sids[watched.index] = Sids(self._recorder, watched.labels)
        if isinstance(part.scale, float):
            self._shared_value(row, sids["amp.scale"], part.scale)
        if isinstance(part.scale_next, float):
            self._shared_value(row, sids["amp.scale_next"], part.scale_next)
        if isinstance(part.growth_tracker, float) and self._is_first_rank:
            row.append((sids["amp.growth_tracker"], part.growth_tracker))

    def _optimizer_values(self, row: Row, index: int, part: OptimizerAttempt, num_steps: int) -> None:
        sids, reading, rates = self._optimizer_sids[index], part.reading, part.learning_rates
        if self._is_first_rank:
            row.append((sids["opt.steps"], float(num_steps)))
        if part.through_scaler:
            self._shared_value(row, sids["amp.skipped"], 1.0 if part.skipped else 0.0)
        tells = self._optimizers[index].tells_norm
        if reading is not None and reading.norm is not None and tells:
            row.append((sids["grad.norm"], reading.norm))
            if self._points[index] is not reading.point:
                self._points[index] = reading.point
                self._facts.gradient_point(self._optimizers[index].name, reading.point, reading.clipped)
        if part.norm_clipped is not None and tells:
            row.append((sids["grad.norm_clipped"], part.norm_clipped))
        if rates is not self._rates[index] and rates != self._rates[index]:
            self._rate_values(row, self._optimizers[index], rates)

    def _shared_value(self, row: Row, sid: int, value: float) -> None:
        if self._is_first_rank or self._shared.get(sid) != value:
            row.append((sid, value))
            self._shared[sid] = value

    def _rate_values(self, row: Row, watched: WatchedOptimizer, rates: Sequence[Value]) -> None:
        before = self._rates[watched.index]
        for group, rate in enumerate(rates):
            if isinstance(rate, float) and (group >= len(before) or rate != before[group]):
                sids = self._rate_sids.get((watched.index, group))
                if sids is None:
                    labels = {**watched.labels, "group": str(group)} if len(rates) > 1 else watched.labels
                    sids = self._rate_sids[watched.index, group] = Sids(self._recorder, labels)
                row.append((sids["lr"], rate))
        if rates:
            self._rates[watched.index] = rates

    def _batch_values(self, row: Row, attempt: Attempt) -> None:
        sids, step_s, tokens = self._run_sids, attempt.step_s, attempt.tokens
        samples = attempt.samples
        if samples is None:
            samples = float(attempt.inferred_samples) or None
        if samples is not None:
            if step_s > 0:
                row.append((sids["throughput.samples_per_s"], samples / step_s))
            source = "inferred" if attempt.samples is None else "declared"
            if source != self._samples_source:
                self._samples_source = source
                self._facts.samples_source(source)
        if tokens is not None and step_s > 0:
            row.append((sids["throughput.tokens_per_s"], tokens / step_s))
        if (samples, tokens) != self._batch:
            for name, value, before in zip(("samples", "tokens"), (samples, tokens), self._batch, strict=True):
                if value is not None and value != before:
                    row.append((sids[name], value))
            self._batch = samples, tokens
