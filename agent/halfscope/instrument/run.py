"""A run as the user holds it: `step`, `log`, `finish`.

Invariant: nothing here raises into the training but a `StopTraining` that the user's own callback raised, and after
`finish` every call does nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Protocol

import torch
from torch import Tensor

from halfscope.alerts import Alert, Alerts
from halfscope.guard import Guard
from halfscope.instrument import exits, reported
from halfscope.instrument.attempt import Value
from halfscope.instrument.records import Records
from halfscope.instrument.watcher import Watcher
from halfscope.probes.catalog import specs
from halfscope.wire.messages import End

logger = logging.getLogger("halfscope")

MAX_LOGGED_SERIES = 32_768
"""Names that `run.log` takes: half of what a server takes of a stream, which refuses whole rows beyond that."""
MAX_KNOWN_NAMES = 64
"""Sets of names that are remembered as a whole, when they come again."""
_FLOAT = frozenset({float})


class ClosableRecords(Records, Protocol):
    """A recorder with its end."""

    def close(self, end: End | None) -> None: ...


class Run:
    """One watched training. Made by `halfscope.watch`; also a context manager."""

    def __init__(
        self,
        *,
        run_id: str,
        name: str,
        url: str,
        watcher: Watcher | None = None,
        recorder: ClosableRecords | None = None,
        guard: Guard | None = None,
        on_end: Callable[[Run], None] | None = None,
    ) -> None:
        """Use `halfscope.watch`. Without watcher and recorder it is a run in mode `disabled`."""
        self.id = run_id
        self.name = name
        self.url = url
        """Its page."""
        self._watcher, self._recorder, self._guard, self._on_end = watcher, recorder, guard, on_end
        self._alerts: Alerts | None = None
        self._logged_sids: dict[str, int] = {}
        self._known_names: dict[tuple[str, ...], tuple[int, ...]] = {}
        """Of whole calls of `log`, the series of their names."""
        self._died: tuple[int, BaseException] | None = None
        """The exception that ended the thread which trained, and the step it came to."""
        if guard is not None and watcher is not None:
            self._quick_step, self._quick_log = watcher.stretch.annotate, watcher.stretch.log
            self._annotate = guard.wrap("run.step", self._annotate_now, keep=True)
            self._report = guard.wrap("report_scaler", self._report_now, keep=True)
            self._take = guard.wrap("run.log", self._log_now, keep=True)
            # Each value on its own: one that is no number leaves the others in.
            self._log_one = guard.wrap("run.log", self._log_one_now, keep=True)

    def step(
        self,
        loss: float | torch.Tensor | None = None,
        samples: int | None = None,
        tokens: int | None = None,
    ) -> None:
        """Says more about the open or just completed step. Optional.

        Args:
            loss: the raw loss, unscaled; a tensor is read without waiting for its device.
            samples: how many samples went into it; several calls in one step add up.
            tokens: likewise.
        """
        if self._watcher is not None:
            if not self._quick_step(loss, samples, tokens):
                self._annotate(loss, samples, tokens)
            if self._alerts is not None:
                self._alerts.tell()

    def log(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Records other numbers at the current step: `run.log({"val/loss": 0.3})` or `run.log(accuracy=0.9)`.

        Nested mappings give names with prefixes: `{"val": {"loss": 0.3}}` is `val/loss`. A series has one value per
        step: of several the last counts.
        """
        if self._watcher is not None:
            if named or not self._quick_log(values):
                self._take(values, named)
            if self._alerts is not None:
                self._alerts.tell()

    def report_scaler(
        self,
        name: str = "scaler",
        *,
        scale: float | torch.Tensor,
        skipped: bool = False,
        scale_next: float | torch.Tensor | None = None,
        growth_tracker: float | None = None,
        optimizer: str | None = None,
        **settings: Any,
    ) -> None:
        """Says what a loss scaler did that is no GradScaler of torch's, once behind each step.

        Args:
            name: of the scaler.
            scale: the loss scale of this step's backward pass; a tensor is read without waiting for its device.
            skipped: the step was withheld.
            scale_next: the scale of the next step.
            growth_tracker: clean steps in a row.
            optimizer: the one that it scales for, by name; None: all of the run.
            settings: kept with the first report: `growth_interval=`, `hysteresis=`, `min_scale=` and the like.
        """
        if self._watcher is not None:
            self._report(name, scale, bool(skipped), scale_next, growth_tracker, optimizer, settings)
            if self._alerts is not None:
                self._alerts.tell()

    def on_alert(self, callback: Callable[[Alert], object]) -> None:
        """Calls back when NaN or Inf was applied, skips form a streak, the scale falls under 1, the loss is not finite.

        The callback is called within the next `run.step` or `run.log`, in that thread, once for what goes on. It may
        raise `halfscope.StopTraining`, which comes out of that call; any other exception is a warning. No server is
        needed; other rules are judged there alone.
        """
        watcher = self._watcher
        if watcher is None:
            return
        if self._alerts is None:
            self._alerts = Alerts()
            watcher.reporter.listen(self._alerts.hear)
        self._alerts.callbacks.append(callback)

    def finish(self) -> None:
        """Ends the run: takes every hook off and writes what is left. Called at exit by itself."""
        self.end("finished")

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end("finished" if error is None else "exception", error)

    def end(self, outcome: str, error: BaseException | None = None) -> None:
        """Ends the run as `finished`, `exception` or `superseded`; does nothing the second time."""
        watcher, recorder, guard = self._watcher, self._recorder, self._guard
        self._watcher = None
        if watcher is None or recorder is None or guard is None:
            return
        if outcome == "finished" and self._died is not None and self._died[0] == watcher.step:
            outcome, error = "exception", self._died[1]
        if error is not None and not exits.is_failure(error):
            outcome, error = "finished", None
        guard.wrap("end", watcher.end)()
        guard.wrap("detach", watcher.detach)()
        guard.wrap("detach", exits.unregister)(self)
        guard.wrap("end", recorder.close)(
            End(
                outcome=outcome,
                step=watcher.last_step,
                time_us=time.time_ns() // 1000,
                error_type="" if error is None else type(error).__name__,
                message="" if error is None else _message(error),
            )
        )
        if self._on_end is not None:
            guard.wrap("sender", self._on_end)(self)
        guard.stop()

    def thread_died(self, thread: int | None, error: BaseException) -> None:
        """An exception ended a thread. Where it is the one that trains, and none trains on, that is the run's end."""
        watcher = self._watcher
        if watcher is not None and thread == watcher.thread:
            self._died = watcher.step, error

    def __reduce__(self) -> tuple[Any, ...]:
        # Held by something that is copied or saved (a trainer, a module), it must not stop that.
        return partial(Run, run_id=self.id, name=self.name, url=self.url), ()

    def forget(self) -> None:
        """In a forked child: this run is the parent's."""
        if self._watcher is not None:
            self._watcher.stretch.is_on = False
        self._watcher = None
        if self._guard is not None:
            self._guard.stop()

    def _annotate_now(self, loss: float | torch.Tensor | None, samples: int | None, tokens: int | None) -> None:
        watcher = self._watcher
        assert watcher is not None
        if watcher.backward_seen:
            watcher.after_backward()
        watcher.clock.annotate()
        attempt = watcher.attempt
        if samples is not None:
            attempt.samples = (attempt.samples or 0.0) + float(samples)
        if tokens is not None:
            attempt.tokens = (attempt.tokens or 0.0) + float(tokens)
        if loss is not None:
            # Nearly always a tensor of one number, in host memory: as `_value` does, with fewer calls.
            if isinstance(loss, Tensor) and loss.numel() == 1 and watcher.rings.on_host(loss):
                number = loss.item()
                watcher.declare_loss(number if type(number) is float else self._value("loss", loss))
            else:
                watcher.declare_loss(self._value("loss", loss))

    def _report_now(
        self,
        name: str,
        scale: Any,
        skipped: bool,
        scale_next: Any,
        growth_tracker: float | None,
        optimizer: str | None,
        settings: Mapping[str, Any],
    ) -> None:
        assert self._watcher is not None
        report = reported.ScalerReport(
            name=name,
            scale=self._value("scale", scale),
            skipped=skipped,
            scale_next=None if scale_next is None else self._value("scale_next", scale_next),
            growth_tracker=None if growth_tracker is None else float(growth_tracker),
            optimizer=optimizer,
            settings=settings,
        )
        reported.take(self._watcher, report)

    def _log_now(self, values: Mapping[str, Any] | None, named: Mapping[str, Any]) -> None:
        if values is not None and not isinstance(values, Mapping):
            raise TypeError(f"run.log was given {type(values).__name__}; expected a dict of names and numbers")
        assert self._watcher is not None
        if self._watcher.backward_seen:
            self._watcher.after_backward()
        attempt, sids = self._watcher.attempt, self._logged_sids
        if attempt.logged is None:
            attempt.logged = {}
        left = {**(values or {}), **named} if named or values is None else values
        # What is logged at every step are numbers under the same names: with twenty of them each opcode would show.
        names = tuple(left)
        known = self._known_names.get(names)
        if known is not None and _FLOAT.issuperset(map(type, left.values())):
            attempt.logged.update(zip(known, left.values(), strict=True))
            return
        for name, value in _flat("", left):
            self._log_one(name, value)
        if known is None and len(self._known_names) < MAX_KNOWN_NAMES and all(name in sids for name in names):
            self._known_names[names] = tuple(sids[name] for name in names)
            self._watcher.stretch.learn(names, self._known_names[names])

    def _log_one_now(self, name: str, value: Any) -> None:
        watcher = self._watcher
        assert watcher is not None
        number = self._value(name, value)
        if name == "loss":
            watcher.declare_loss(number)
        else:
            attempt = watcher.attempt
            if attempt.logged is None:
                attempt.logged = {}
            attempt.logged[self._sid(name)] = number

    def _sid(self, name: str) -> int:
        sid = self._logged_sids.get(name)
        if sid is None:
            assert self._recorder is not None
            if len(self._logged_sids) >= MAX_LOGGED_SERIES:
                raise ValueError(
                    f"{name[:80]!r} would be series {MAX_LOGGED_SERIES + 1}; keep what counts up (steps, batches, ids) "
                    "out of the names"
                )
            # A name of ours keeps its meaning: the user's series of that name says where it comes from.
            labels = {"source": "log"} if name in specs() else None
            sid = self._logged_sids[name] = self._recorder.declare(name, labels=labels)
        return sid

    def _value(self, name: str, value: Any) -> Value:
        if isinstance(value, float):
            return value
        if isinstance(value, Tensor):
            if value.numel() != 1 or value.is_complex():
                raise ValueError(f"{name} has shape {tuple(value.shape)}; expected one real number, as .mean() gives")
            assert self._watcher is not None
            return self._watcher.rings.one(value)
        if isinstance(value, (str, bytes)):
            raise TypeError(f"{name} is {type(value).__name__}; expected a number (texts go into watch(config=...))")
        return float(value)


def _flat(prefix: str, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        found += _flat(f"{name}/", value) if isinstance(value, Mapping) else [(name, value)]
    return found


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's exception whose own text fails still ends the run as what it is
        return ""
