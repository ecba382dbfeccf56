"""The hooks of one run, and what they gather: the mediator between torch and the reporter.

Owns every handle that is set on the user's objects. Each hook is a few microseconds: it moves the step clock and
notes values into the current attempt. What they mean is the reporter's.
Invariant: gradients are read where the table in docs/design.md says, and after `detach` nothing of ours is left behind.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from halfscope.guard import Guard
from halfscope.instrument import clipping, forward, precision
from halfscope.instrument import scaler as scaler_hooks
from halfscope.instrument.adopt import calling_scaler
from halfscope.instrument.attempt import Attempt, GradientReading, OptimizerAttempt, Point, ScalerAttempt, Value
from halfscope.instrument.device import Slot
from halfscope.instrument.origin import BackwardOrder
from halfscope.instrument.report import Reporter
from halfscope.instrument.rings import Rings
from halfscope.instrument.scaler_calls import ScalerCalls
from halfscope.instrument.watched import WatchedOptimizer, WatchedScaler
from halfscope.probes import gradients
from halfscope.record.clock import Phase, StepClock

BATCH_ATTEMPTS = 16
BATCH_NS = 20_000_000
"""Quiet attempts are told together, at the latest after 20 ms: in one go it costs half as much as one by one."""
ADOPTION_CHECKS = 16
"""In how many of an optimizer's first steps it is looked who calls it."""


_COMPARED = ("unscale", "clip")
"""Points where the user's own `clip_grad_norm_` follows: there the norm is the same to the last bit."""


class Watcher:
    """Sets the hooks, keeps the current attempt, and hands each one to the reporter when it closes."""

    def __init__(
        self,
        *,
        models: Mapping[str, torch.nn.Module],
        optimizers: Sequence[WatchedOptimizer],
        scalers: Sequence[WatchedScaler],
        reporter: Reporter,
        guard: Guard,
        start_step: int,
        every: int,
    ) -> None:
        self.models, self.optimizers, self.scalers = models, list(optimizers), list(scalers)
        self.reporter, self.guard, self.every = reporter, guard, every
        self.clock = StepClock(start_step, self._close)
        self.rings = Rings(sum(len(watched.parameters()) for watched in optimizers))
        self.attempt = self._new_attempt()
        self._queue: deque[Attempt] = deque()
        """Closed attempts whose values are still on the way."""
        self.by_id = {id(watched.optimizer): watched for watched in optimizers}
        self._awaited_scalers = {scaler.index for scaler in scalers}
        """Those that were updated in the last attempt: with one scaler for each of several optimizers, the attempt is
        over when all of them were."""
        self.inside_scaler_step: torch.optim.Optimizer | None = None
        self._pending_samples = 0
        self._forward_counted = False
        self._last_completed_ns: int | None = None
        self._last_own_ns = 0
        self._drained_ns = 0
        self._first_told = False
        self._settled_in = self._bytes_told = False
        self._forward_handle: Any = None
        self._forward_seen = False
        self._adoption_checks = [0] * len(optimizers)
        self._handles: list[Any] = []
        self._autocast_seen: set[torch.dtype] = set()
        self._first_forward_handles: list[Any] = []
        self.order = BackwardOrder(guard.wrap("step clock", self._backward))
        self.read_gradients = guard.wrap("gradients", self._read_gradients_now)
        self._read_clipped = guard.wrap("gradients", self._read_clipped_now)
        self.read_rates = guard.wrap("learning rate", self._read_rates_now)
        self._clip_listener = guard.wrap("clipping", self._before_clipping)
        self._judge = guard.wrap("events", reporter.judge)
        self._judge_loss = guard.wrap("events", reporter.judge_loss)
        self._emit = guard.wrap("rows", reporter.emit)
        self._tell_first = guard.wrap("facts", reporter.first_attempt)
        self._closure_done = guard.wrap("gradients", self._after_closure)

    # ---- setting and removing hooks ------------------------------------------------------------

    def attach(self) -> None:
        """Sets every hook."""
        for watched in self.optimizers:
            self._handles.append(
                watched.optimizer.register_step_pre_hook(_pre_hook(self.guard.wrap("optimizer", self._before_step)))
            )
            self._handles.append(
                watched.optimizer.register_step_post_hook(_post_hook(self.guard.wrap("optimizer", self._after_step)))
            )
            for parameter in watched.parameters()[:1]:
                self.guard.wrap("device", self.rings.prepare)(parameter.device)
        for scaler in self.scalers:
            self._attach_scaler(scaler)
        clipping.listen(self._clip_listener)
        self.guard.wrap("step clock", self._attach_backward)()
        self.guard.wrap("forward", self._attach_forward)()

    def detach(self) -> None:
        """Removes every hook; what the user's objects were before, they are again."""
        for handle in (*self._handles, *self._first_forward_handles):
            handle.remove()
        if self._forward_handle is not None:
            self._forward_handle.remove()
        self._handles.clear()
        self._first_forward_handles.clear()
        for scaler in self.scalers:
            scaler_hooks.detach(scaler.scaler)
        clipping.unlisten(self._clip_listener)
        self.order.detach()

    def _attach_scaler(self, scaler: WatchedScaler) -> None:
        scaler_hooks.attach(scaler.scaler, ScalerCalls(self, scaler))

    def _attach_backward(self) -> None:
        self.order.attach(parameter for watched in self.optimizers for parameter in watched.parameters())

    def _attach_forward(self) -> None:
        seen = self.guard.wrap("forward", self._forward)
        first = next(iter(self.models.values()))
        self._forward_handle = first.register_forward_pre_hook(forward.ForwardHook(seen), with_kwargs=True)
        inside = self.guard.wrap("precision", self._forward_inside)
        for module in first.modules():
            # Autocast may be entered inside the model's own forward: look from within, once.
            if module is not first and not isinstance(module, torch.jit.ScriptModule):
                hook = forward.ForwardHook(inside)
                self._first_forward_handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    # ---- forward and backward ------------------------------------------------------------------

    def _forward(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.is_grad_enabled():
            return
        if not self._first_told:
            self._forward_inside(module, args, kwargs)
        if not self._forward_counted:
            # Several passes before one backward (two views, a discriminator) are one batch.
            self._forward_counted = True
            self._pending_samples += forward.leading_size(args, kwargs) or 0

    def _forward_inside(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._first_told:
            return
        self._forward_seen = True
        parameter = next(module.parameters(), None)
        dtype = precision.autocast_dtype("cpu" if parameter is None else parameter.device.type)
        if dtype is not None:
            self._autocast_seen.add(dtype)
        self._last_completed_ns = self._last_completed_ns or time.perf_counter_ns()

    def _backward(self) -> None:
        self._forward_counted = False
        if self.clock.phase is not Phase.OPEN:
            self.clock.begin()
        elif not self.scalers:
            # Gradients go on growing after a clipping function was seen: what was read then is not the step's gradient.
            for part in self.attempt.optimizers:
                if part.reading is not None and part.reading.point == "clip" and not part.num_calls:
                    part.reading = None

    # ---- optimizer -----------------------------------------------------------------------------

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        watched = self.by_id[id(optimizer)]
        if self.inside_scaler_step is not optimizer and self._adoption_checks[watched.index] < ADOPTION_CHECKS:
            self._adoption_checks[watched.index] += 1
            self._adopt_caller(optimizer)
        part = self._part_for_work(watched)
        part.num_calls += 1
        if part.reading is not None and (part.user_unscaled or part.reading.point == "clip"):
            if part.num_calls == 1:
                self._read_clipped(watched, part)
            return None
        grad_scale = getattr(optimizer, "grad_scale", None)
        if grad_scale is not None:
            self.read_gradients(watched, "scaled_step", "no", grad_scale)
            return None
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if callable(closure) and self.inside_scaler_step is None:
            return self._with_closure(watched, closure, args, kwargs)
        if part.reading is None or part.num_calls > 1:
            self.read_gradients(watched, "step", "maybe", None)
        return None

    def _with_closure(
        self, watched: WatchedOptimizer, closure: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        done = self._closure_done
        first = True

        def watched_closure() -> Any:
            nonlocal first
            result = closure()
            if first:  # LBFGS calls it many times; the first gradient is the one at the weights the step starts from
                first = False
                done(watched)
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched_closure}
        return (args[0], watched_closure, *args[2:]), kwargs

    def _after_closure(self, watched: WatchedOptimizer) -> None:
        part = self.attempt.optimizers[watched.index]
        if part.reading is not None and part.reading.point == "clip":
            self._read_clipped(watched, part)
        else:
            self.read_gradients(watched, "closure", "maybe", None)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        watched = self.by_id[id(optimizer)]
        part = self.attempt.optimizers[watched.index]
        if self.inside_scaler_step is optimizer:
            return  # after_step of the scaler knows more
        part.num_applied += 1
        groups = optimizer.param_groups
        if len(groups) == 1 and groups[0].get("lr") is watched.last_rate:
            part.learning_rates = watched.last_rates
        else:
            self.read_rates(watched, part)
        if watched.index == 0 and not (self.scalers and self._scaler_at_work()):
            self.complete()

    def scaler_begins(self, index: int) -> None:
        """A scaler starts work. Where it was updated in the open attempt, the others are not used in that one."""
        if self.clock.phase is Phase.OPEN and self.attempt.scalers[index].updated:
            self.complete()

    def scaler_updated(self, index: int) -> None:
        """An attempt is over when every scaler that took part in the last one has been updated."""
        self.attempt.scalers[index].updated = True
        if all(self.attempt.scalers[awaited].updated for awaited in self._awaited_scalers):
            self.complete()

    def _scaler_at_work(self) -> bool:
        return any(scaler.touched for scaler in self.attempt.scalers)

    def _adopt_caller(self, optimizer: torch.optim.Optimizer) -> None:
        scaler = calling_scaler(optimizer)
        if scaler is None or any(known.scaler is scaler for known in self.scalers):
            return
        watched = WatchedScaler(len(self.scalers), type(scaler).__name__, scaler, labelled=bool(self.scalers))
        self.scalers.append(watched)
        self.attempt.scalers.append(ScalerAttempt(touched=True))
        self._attach_scaler(watched)
        self.reporter.adopted(self.clock.step, watched, self.by_id[id(optimizer)])
        self.inside_scaler_step = optimizer

    # ---- gradients -----------------------------------------------------------------------------

    def _before_clipping(self, tensors: list[torch.Tensor]) -> None:
        ids = {id(tensor) for tensor in tensors}
        for watched in self.optimizers:
            if any(id(grad) in ids for grad in watched.gradients()):
                part = self._part_for_work(watched)
                if part.reading is None:
                    self.read_gradients(watched, "clip", "no", None)

    def declare_loss(self, loss: Value) -> None:
        """`run.step(loss=)`: the raw loss of the current attempt, which may be complete already."""
        attempt = self.attempt
        attempt.declared_loss = loss
        if isinstance(loss, float) and not math.isfinite(loss):
            attempt.notable = True
            if attempt.judged:
                self._judge_loss(attempt)
            elif self.clock.phase is Phase.COMPLETE:
                self._judge_now(attempt)

    def end(self) -> None:
        """Closes what is complete and tells everything, waiting for devices where it must."""
        self.clock.end()
        self.drain(wait=True)

    @property
    def last_step(self) -> int:
        """The newest attempt that was closed; one less than the first where there was none."""
        return self.clock.step - 1

    def attempt_for_work(self) -> Attempt:
        """The attempt that work done now belongs to."""
        self.clock.begin()
        return self.attempt

    def _part_for_work(self, watched: WatchedOptimizer) -> OptimizerAttempt:
        """Its share of the attempt that a step or clipping of it belongs to.

        Without a backward pass in between, an optimizer that follows the first one (`a.step(); b.step()`) applies the
        same gradients: its step is of the attempt that the first one completed.
        """
        if self.clock.phase is not Phase.COMPLETE or not self._is_due(self.attempt.optimizers[watched.index]):
            self.clock.begin()
        return self.attempt.optimizers[watched.index]

    def _is_due(self, part: OptimizerAttempt) -> bool:
        return not part.num_calls and not part.through_scaler

    def _read_gradients_now(
        self,
        watched: WatchedOptimizer,
        point: Point,
        clipped: Literal["no", "maybe"],
        grad_scale: torch.Tensor | None,
        always: bool = False,
    ) -> None:
        if self.clock.step % self.every and not always:
            return
        grads = watched.gradients()
        if not grads:
            return
        part = self.attempt.optimizers[watched.index]
        on_host = self.rings.on_host
        if on_host(grads[0]) and (grad_scale is None or on_host(grad_scale)):
            divide = 1.0 if grad_scale is None else grad_scale.item()
            found = gradients.read(grads, divide, exact=point in _COMPARED)
            if found is not None:
                parameters: Sequence[int] = ()
                if found.nonfinite:
                    parameters = watched.with_gradient()
                    self.attempt.notable = True
                part.reading = GradientReading(point, clipped, parameters, found.norm, found.nonfinite)
            return
        divide_by = 1.0 if grad_scale is None else self.rings.value(grad_scale)
        part.reading = GradientReading(
            point,
            clipped,
            watched.with_gradient(),
            layer_norms=self._capture(grads),
            divide_by=divide_by,
        )

    def _read_clipped_now(self, watched: WatchedOptimizer, part: OptimizerAttempt) -> None:
        grads = watched.gradients()
        if not grads or self.clock.step % self.every:
            return
        if self.rings.on_host(grads[0]):
            found_inf = getattr(watched.optimizer, "found_inf", None)
            if found_inf is not None and found_inf.item():
                return  # a fused step that is going to do nothing
            found = gradients.read(grads, exact=True)
            part.norm_clipped = None if found is None else found.norm
        else:
            part.clipped_norms = [slot for _, slot in self._capture(grads)]

    def _capture(self, grads: Sequence[torch.Tensor]) -> list[tuple[Sequence[int], Slot]]:
        by_device: dict[torch.device, list[int]] = {}
        for at, grad in enumerate(grads):
            by_device.setdefault(grad.device, []).append(at)
        captured: list[tuple[Sequence[int], Slot]] = []
        for positions in by_device.values():
            norms = gradients.capture([grads[at] for at in positions])
            slot = None if norms is None else self.rings.put(norms)
            if slot is not None:
                captured.append((positions, slot))
        return captured

    def _read_rates_now(self, watched: WatchedOptimizer, part: OptimizerAttempt) -> None:
        groups = watched.optimizer.param_groups
        part.learning_rates = [self._rate(group.get("lr")) for group in groups]
        rate = groups[0].get("lr")
        if isinstance(rate, float):  # the very object: the same one next time is the same rate
            watched.last_rate, watched.last_rates = rate, part.learning_rates

    def _rate(self, rate: Any) -> Value:
        if isinstance(rate, torch.Tensor):
            return self.rings.value(rate)
        return None if rate is None else float(rate)

    # ---- attempts ------------------------------------------------------------------------------

    def complete(self) -> None:
        """The attempt's update is over."""
        self.clock.complete()
        attempt = self.attempt
        self._awaited_scalers = {at for at, scaler in enumerate(attempt.scalers) if scaler.updated}
        attempt.step = self.clock.step
        attempt.completed_ns = time.perf_counter_ns()
        attempt.completed_us = time.time_ns() // 1000
        attempt.inferred_samples = self._pending_samples
        self._pending_samples, self._forward_counted = 0, False
        if not self._settled_in:
            self._settle_in(attempt)
        if attempt.notable:
            self._judge_now(attempt)

    def _judge_now(self, attempt: Attempt) -> None:
        if self.rings.used or any(self._is_due(part) for part in self.attempt.optimizers):
            return  # not before its values have arrived, nor while another optimizer may step in it
        self.drain()
        if not self._queue and not attempt.judged:
            self._judge(attempt)

    def _settle_in(self, attempt: Attempt) -> None:
        if not self._first_told:
            self._first_told = True
            self.order.settle()
            for handle in self._first_forward_handles:
                handle.remove()
            self._first_forward_handles.clear()
            self._tell_first(self._autocast_seen, tuple(self.order.order), forward_seen=self._forward_seen)
        if any(part.num_calls for part in attempt.optimizers):
            # An optimizer that steps after the first one has no state yet: its bytes are told at the next attempt.
            self._settled_in = self._bytes_told or not any(self._is_due(part) for part in attempt.optimizers)
            self._bytes_told = True
            self.reporter.training_bytes()

    def _close(self, step: int) -> None:
        attempt = self.attempt
        attempt.own_ns = self.guard.own_ns
        self.attempt = self._new_attempt()
        if self.rings.used:
            attempt.pending = True
            attempt.flights = self.rings.seal()
        if attempt.samples is not None and self._forward_handle is not None and self._first_told:
            # The user declares samples: nothing is to be inferred, and the model is called without a hook again.
            self._forward_handle.remove()
            self._forward_handle = None
        self._queue.append(attempt)
        due = attempt.completed_ns - self._drained_ns >= BATCH_NS
        if attempt.notable or due or len(self._queue) >= BATCH_ATTEMPTS:
            self._drained_ns = attempt.completed_ns
            self.drain()

    def drain(self, *, wait: bool = False) -> None:
        """Hands on the closed attempts whose values have arrived, in order.

        Args:
            wait: for those that have not: only at the end of a run.
        """
        while self._queue and (wait or self._queue[0].arrived()):
            attempt = self._queue.popleft()
            for flight in attempt.flights:
                if wait:
                    flight.event.synchronize()
            self._time(attempt)
            self._emit(attempt)
            for flight in attempt.flights:
                flight.land()

    def _time(self, attempt: Attempt) -> None:
        if self._last_completed_ns is not None:
            attempt.step_s = (attempt.completed_ns - self._last_completed_ns) / 1e9
            if attempt.step_s > 0:
                attempt.cost_share = (attempt.own_ns - self._last_own_ns) / 1e9 / attempt.step_s
        self._last_completed_ns, self._last_own_ns = attempt.completed_ns, attempt.own_ns

    def _new_attempt(self) -> Attempt:
        return Attempt([OptimizerAttempt() for _ in self.optimizers], [ScalerAttempt() for _ in self.scalers])


def _pre_hook(call: Callable[..., Any]) -> Callable[..., Any]:
    def halfscope_before_step(optimizer: Any, args: Any, kwargs: Any) -> Any:
        return None if torch.compiler.is_compiling() else call(optimizer, args, kwargs)

    return halfscope_before_step


def _post_hook(call: Callable[..., Any]) -> Callable[..., Any]:
    def halfscope_after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not torch.compiler.is_compiling():
            call(optimizer, args, kwargs)

    return halfscope_after_step
