"""Everything that is told of a run: facts, events and rows, in order.

Composes the tellers; the watcher speaks to this alone. Invariant: each attempt is judged once and gives exactly one
row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch

from halfscope.guard import Guard
from halfscope.instrument.attempt import Attempt
from halfscope.instrument.facts import FactTeller
from halfscope.instrument.feeding import InputTeller
from halfscope.instrument.frames import FrameWriter
from halfscope.instrument.judge import Judge
from halfscope.instrument.records import Records
from halfscope.instrument.resolve import resolve
from halfscope.instrument.rows import KnownRows, Row, RowWriter, likeness
from halfscope.instrument.sketching import SketchTaker
from halfscope.instrument.watched import WatchedOptimizer, WatchedScaler
from halfscope.probes import memory
from halfscope.probes.host import OtherLoad


class Reporter:
    """Tells one run to the recorder."""

    def __init__(
        self,
        recorder: Records,
        guard: Guard,
        facts: FactTeller,
        sketches: SketchTaker,
        *,
        names: Mapping[int, str],
        optimizers: Sequence[WatchedOptimizer],
        scalers: Sequence[WatchedScaler],
        is_first_rank: bool = True,
    ) -> None:
        """
        Args:
            sketches: takes what is written here.
            names: id of a parameter to its canonical name.
            scalers: the enabled ones.
            is_first_rank: of several that train together.
        """
        self.facts = facts
        self._recorder, self._names = recorder, names
        self._scalers = list(scalers)
        self._judge = Judge(recorder, names=names, optimizers=optimizers, scalers=self._scalers)
        self._rows = RowWriter(recorder, facts, optimizers, self._scalers, is_first_rank=is_first_rank)
        self._tell_inputs = guard.wrap("inputs", InputTeller(recorder).tell)
        self._write_frames = guard.wrap("sketches", FrameWriter(recorder, sketches).write)
        self._memory_values = guard.wrap("memory", self._rows.memory_values)
        self._tell_weights = guard.wrap("fingerprint of the weights", facts.arrived)
        self._other_load = guard.wrap("other load", OtherLoad().cores)
        self._training_bytes = guard.wrap("memory", facts.memory)
        self.tell_reductions: Callable[[Attempt], Any] = _nothing
        """Tells what ranks did with their gradients; must not raise."""
        self._memory_read_ns = -math.inf

    def first_attempt(self, autocast: Collection[torch.dtype], order: Sequence[int], *, forward_seen: bool) -> None:
        """The first attempt is complete.

        Args:
            autocast: half types that its forward pass ran autocast in.
            order: ids of parameters as its backward pass reached them.
        """
        self._judge.order = tuple(self._names[key] for key in order if key in self._names)
        self.facts.first_attempt(autocast, forward_seen=forward_seen)
        if self._judge.order:
            self.facts.parameters_order(self._judge.order[::-1])

    def adopted(self, step: int, scaler: WatchedScaler, optimizer: WatchedOptimizer | None) -> None:
        """A scaler that was not given is watched from now on, because it steps this optimizer where that is said."""
        self._scalers.append(scaler)
        self.facts.adopted(step, scaler, optimizer)

    def scale_was_set(self, step: int, scaler: WatchedScaler) -> None:
        """`update(new_scale)` was called between two attempts."""
        self._recorder.event("scale_set", step, attributes={"scaler": scaler.name})

    def training_bytes(self) -> None:
        """An optimizer has stepped: gradients are still there, and its state exists now."""
        self._training_bytes()

    def listen(self, hear: Callable[..., None]) -> None:
        """Call with every event of an attempt, as it is told to the recorder."""
        self._judge.hear = hear

    def judge(self, attempt: Attempt) -> None:
        """Tells the events of a completed attempt whose values are on the host."""
        self._judge.attempt(attempt)

    def judge_loss(self, attempt: Attempt) -> None:
        """The loss of an attempt that was judged has become known."""
        self._judge.loss(attempt)

    def emit(self, attempts: Sequence[Attempt]) -> None:
        """Writes the rows of closed attempts whose values have arrived, and their events where that is still to do."""
        memory_row = self._memory_row(attempts[0].completed_ns)
        if memory_row or len(attempts) == 1:
            self._emit_each(attempts[:1], memory_row)
            attempts = attempts[1:]
        judge = self._judge
        for like, group in groupby(attempts, likeness):
            alike = list(group)
            is_calm = like is not None and len(alike) > 1 and judge.is_calm
            if is_calm and self._rows.write_calm(alike, judge.num_steps[0]):
                judge.num_steps[0] += len(alike)
            else:
                self._emit_each(alike, [])

    @property
    def num_steps(self) -> int:
        """Applied steps of the first optimizer, as far as they were told."""
        return self._judge.num_steps[0]

    def known_rows(self) -> KnownRows | None:
        """What rows of calm steps are made by; None where it takes the ordinary way."""
        return self._rows.known() if self._judge.is_calm else None

    def rows(self, now_ns: int, steps: bytes, times_us: bytes, sids: Sequence[int], columns: Sequence[bytes]) -> None:
        """Writes the rows of calm steps, column by column.

        Args:
            now_ns: when the last of them was complete.
            steps: int64, as this machine has them; times likewise.
            columns: of each series float64.
        """
        numbers, times = memoryview(steps).cast("q"), memoryview(times_us).cast("q")
        self._recorder.block(numbers, times, tuple(sids), [memoryview(column).cast("d") for column in columns])
        self._judge.num_steps[0] += len(numbers)
        memory_row = self._memory_row(now_ns)
        if memory_row:
            self._recorder.row(numbers[-1], times[-1], memory_row)

    def rows_ended(self, rate: float) -> None:
        """Steps are told by their attempts again.

        Args:
            rate: the learning rate as it was last written.
        """
        self._rows.known_rate(rate)

    def _emit_each(self, attempts: Sequence[Attempt], memory_row: Row) -> None:
        judge, write, num_steps = self._judge, self._rows.write, self._judge.num_steps
        for attempt in attempts:
            late = attempt.pending
            if late:
                resolve(attempt)
                self._tell_weights()
            if attempt.judged:
                judge.loss(attempt)
            else:
                judge.attempt(attempt)
            if attempt.inputs:
                self._tell_inputs(attempt)
            if attempt.reductions:
                self.tell_reductions(attempt)
            if attempt.is_sketched or late:
                self._write_frames(attempt)
            write(attempt, num_steps, memory_row)
            memory_row = []

    def _memory_row(self, now_ns: int) -> Row:
        if now_ns - self._memory_read_ns < memory.INTERVAL_S * 1e9:
            return []
        self._memory_read_ns = now_ns
        return self._memory_values(self.facts.device, self._other_load()) or []


def _nothing(attempt: Attempt) -> None:
    """A run whose gradients are not reduced."""
