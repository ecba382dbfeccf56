"""The runs of one callback, one after the other, and the micro-batches of their steps.

Must not import torch nor a framework when it is imported.
Invariant: what a framework says of a micro-batch goes to the very attempt that its backward pass belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from halfscope import config as configuration
from halfscope.guard import Guard
from halfscope.integrations.base import Launching, WatchOptions, without_base
from halfscope.record.clock import COMPLETE, FRESH

if TYPE_CHECKING:
    from halfscope.instrument.attempt import Attempt
    from halfscope.instrument.run import Run

P = ParamSpec("P")
R = TypeVar("R")


class Trainings:
    """Begins and ends runs, and tells them of losses, samples and other numbers."""

    def __init__(self, options: WatchOptions) -> None:
        """
        Args:
            options: arguments of `watch`.

        Raises:
            TypeError, ValueError: one that cannot be taken.
        """
        configuration.resolve(**options)
        self.options = options
        self.launching: Launching | None = None
        """Set by `halfscope run`, which then begins the runs."""
        self.follows_launching = False
        """It begins none by itself: its run is whichever `halfscope run` has begun."""
        self.before_end: Callable[[], object] = lambda: None
        """Tells what is left to be told."""
        self._own_run: Run | None = None
        self._guard = Guard(lambda probe, error: None)
        self._num_runs = 0
        self._attempt: Attempt | None = None
        self._total: Any = None
        self._num_losses = 0

    @property
    def run(self) -> Run | None:
        """The run that is on."""
        if self.follows_launching and self.launching is not None:
            return self.launching.current()
        return self._own_run

    def hook(self, function: Callable[P, R]) -> Callable[P, R | None]:
        """A function that the framework calls: nothing that it raises reaches the training."""
        return self._guard.wrap("integration", function, keep=True)

    def begin(
        self,
        model: Any,
        optimizers: Any,
        scaler: Any,
        *,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        start_step: int = 0,
        precision: str | None = None,
    ) -> Run:
        """A training begins. The one before, where its end was not seen, is over.

        Args:
            name: what to call the run where nobody else names it.
            config: settings of the framework; what the user gave goes before them.
            start_step: likewise.
            precision: likewise, for a framework that torch cannot be asked about.
        """
        self.end("superseded")
        options: dict[str, Any] = {**self.options, "config": {**(config or {}), **(self.options.get("config") or {})}}
        options["start_step"] = (not self._num_runs and options.get("start_step")) or start_step
        if precision is not None:
            options["precision"] = options.get("precision") or precision
        if self.launching is not None:
            run = self.launching.begin(model, optimizers, scaler, **options)
        else:
            from halfscope.instrument.entry import watch

            name = options.get("name") or os.environ.get("HALFSCOPE_NAME") or name
            if self._num_runs:
                # Each training is a run of its own; the id that was given is the first one's.
                options["run_id"] = configuration.new_run_id()
                name = f"{name}-{self._num_runs + 1}" if name else None
            options["name"] = name
            run = watch(model, optimizers, scaler, **options)
        self._own_run = run
        self._num_runs += 1
        self._attempt = None
        return run

    def end(self, outcome: str = "finished", error: BaseException | None = None) -> None:
        """The training is over."""
        if self.run is not None:
            self.before_end()
        run, self._own_run = self._own_run, None
        if run is not None:
            run.end(outcome, error)

    @property
    def next_step(self) -> int | None:
        """Number of the attempt that comes next; None where no run is on."""
        watcher = None if self.run is None else self.run._watcher
        if watcher is None:
            return None
        if watcher.backward_seen:
            watcher.after_backward()
        return watcher.clock.step + (watcher.clock.phase is COMPLETE)

    @property
    def is_complete(self) -> bool:
        """Whether the newest attempt's update is over and the next one has not begun."""
        watcher = None if self.run is None else self.run._watcher
        if watcher is None:
            return False
        watcher.catch_up()
        return not watcher.backward_seen and watcher.clock.phase is COMPLETE

    def micro_batch(
        self, loss: Any = None, *, divided_by: int | None = None, samples: int | None = None, tokens: int | None = None
    ) -> None:
        """A micro-batch's backward pass is over, and perhaps the step after it.

        Args:
            loss: of this micro-batch, detached, as it was propagated back but for the loss scale; None where it is not
                known. The step's loss is their sum.
            divided_by: the number of batches that the framework divided it by. A step at the end of an epoch may have
                fewer: its loss is the mean over those it has.
            samples: in this micro-batch.
            tokens: likewise.
        """
        run = self.run
        watcher = None if run is None else run._watcher
        if run is None or watcher is None:
            return
        if watcher.backward_seen:
            watcher.after_backward()
        if watcher.clock.phase is FRESH:
            return  # nothing was propagated back: this batch is in no step
        attempt = watcher.attempt
        if attempt is not self._attempt:
            self._attempt, self._total, self._num_losses = attempt, None, 0
        if loss is not None:
            self._total = loss if self._total is None else self._total + loss
            self._num_losses += 1
            factor = 1.0 if divided_by is None else divided_by / self._num_losses
            loss = self._total if factor == 1.0 else self._total * factor
        run.step(loss=loss, samples=samples, tokens=tokens)


class WatchingCallback:
    """What callbacks have in common whose framework calls them in every training. Each is a subclass, and of its
    framework's own callback, too (`with_base`)."""

    _trainings: Trainings

    @property
    def run(self) -> Run | None:
        """The run of the training that is on."""
        return self._trainings.run

    def __reduce__(self) -> tuple[Any, ...]:
        # For a copy, or for another process that is to train: made anew, without the run.
        return partial(without_base(type(self)), **self._trainings.options), ()

    def _gives_way(self, callbacks: Iterable[Any]) -> bool:
        """Whether `halfscope run` brought this one to a training that has one of the program's own."""
        if self._trainings.launching is None:
            return False
        plain = without_base(type(self))
        return any(isinstance(each, plain) and each is not self for each in callbacks)

    @classmethod
    def brought(cls, callbacks: Iterable[Any], launching: Launching) -> Self | None:
        """One for a training that `halfscope run` has seen; None where it has one already."""
        if any(isinstance(each, cls) for each in callbacks):
            return None
        callback = cls()
        callback._trainings.launching = launching
        return callback


def named_apart(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Other numbers of the framework; what has the name of a series of ours gets a prefix, texts are left out."""
    from halfscope.probes.catalog import specs

    own = specs()
    return {
        f"{prefix}/{name}" if name in own else name: value
        for name, value in values.items()
        if not isinstance(value, (str, bytes)) and value is not None
    }
