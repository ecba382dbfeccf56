"""The hooks of one run, and what they gather: the mediator between torch and the reporter.

Owns every handle that is set on the user's objects. Each hook is a few microseconds: it moves the step clock and
notes values into the current attempt. What they mean is the reporter's.
Invariant: gradients are read where the table in docs/design.md says, and after `detach` nothing of ours is left behind.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal

import torch

from halfscope.guard import Guard
from halfscope.instrument import clipping, forward, precision, scripting
from halfscope.instrument import scaler as scaler_hooks
from halfscope.instrument.adopt import calling_scaler
from halfscope.instrument.attempt import Attempt, OptimizerAttempt, Point, ScalerAttempt, Value
from halfscope.instrument.calm import CalmSteps
from halfscope.instrument.closed import ClosedAttempts
from halfscope.instrument.feeding import InputWatch
from halfscope.instrument.origin import BackwardOrder
from halfscope.instrument.reading import GradientReader
from halfscope.instrument.report import Reporter
from halfscope.instrument.rings import Rings
from halfscope.instrument.scaler_calls import ScalerCalls
from halfscope.instrument.sketching import SketchTaker
from halfscope.instrument.stretch import Stretches
from halfscope.instrument.updating import UpdateTaker
from halfscope.instrument.watched import WatchedOptimizer, WatchedScaler
from halfscope.record.clock import COMPLETE, OPEN, StepClock

if TYPE_CHECKING:
    from halfscope.instrument.ddp.watching import ReductionWatch

is_compiling = torch.compiler.is_dynamo_compiling
"""What else `is_compiling` is true for, exports, runs no optimizer and no backward pass; this one asks less."""
is_grad_enabled = torch.is_grad_enabled


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
        sketches: SketchTaker,
        updates: UpdateTaker,
        inputs: InputWatch,
        start_step: int,
        reductions: ReductionWatch | None = None,
    ) -> None:
        self.models, self.optimizers, self.scalers = models, list(optimizers), list(scalers)
        self.reporter, self.guard = reporter, guard
        self.clock = StepClock(start_step, self._close)
        num_gradients = sum(len(watched.parameters()) for watched in optimizers)
        self.rings = Rings(num_gradients if reductions is None else 2 * num_gradients)
        self.attempt = self._new_attempt()
        self.closed = ClosedAttempts(guard.wrap("rows", reporter.emit))
        self.by_id = {id(watched.optimizer): watched for watched in optimizers}
        self._awaited_scalers = {scaler.index for scaler in scalers}
        """Those that were updated in the last attempt: with one scaler for each of several optimizers, the attempt is
        over when all of them were."""
        self.thread = get_ident()
        """The one that trains: it completed the last attempt."""
        self._first = 0
        """The optimizer whose step ends an attempt where there is no scaler: the first one given."""
        self.first_is_a_guess = False
        """Nobody gave them in an order: where the first one never steps, another takes its place."""
        self.inside_scaler_step: torch.optim.Optimizer | None = None
        self.infers_samples = True
        self.pending_samples = 0
        self.forward_counted = False
        self._first_told = self.times_idleness = False
        self._settled_in = self._bytes_told = False
        self._forward_handle: Any = None
        self._forward_seen = False
        self._handles: list[Any] = []
        self._autocast_seen: set[torch.dtype] = set()
        self._first_forward_handles: list[Any] = []
        self.backward_seen = False
        """A backward pass ran, or a stretch is on, and `after_backward` is still to be called."""
        self.is_followed = False
        """Another thread asks for the clock, which has to be right at every moment."""
        self.order = BackwardOrder(self._backward)
        self.sketches, self.updates, self.inputs = sketches, updates, inputs
        self.reductions = reductions
        sketches.rings = updates.rings = inputs.rings = self.rings
        reader = GradientReader(self.rings, sketches, updates, guard)
        self._read = guard.wrap("gradients", reader.read)
        self._read_clipped = guard.wrap("gradients", reader.read_clipped)
        self._begin_update = guard.wrap("updates", updates.begin_wanted)
        self._finish_update = guard.wrap("updates", updates.finish)
        self.read_rates = guard.wrap("learning rate", self._read_rates_now)
        self._clip_listener = guard.wrap("clipping", self._before_clipping)
        self._handed = reader.handed
        self._after_clipping = guard.wrap("clipping", reader.handed.clipped)
        self._judge = guard.wrap("events", reporter.judge)
        self._judge_loss = guard.wrap("events", reporter.judge_loss)
        self._tell_first = guard.wrap("facts", reporter.first_attempt)
        self.stretches = Stretches(self, is_quick=reader.is_quick)
        self.stretch = self.stretches.now
        self._calm = CalmSteps(self, reader)
        self._closure_done = guard.wrap("gradients", self._after_closure)

    # ---- setting and removing hooks ------------------------------------------------------------

    def attach(self) -> None:
        """Sets every hook; again, where `detach` has taken them off."""
        scripting.hide_hooks()
        for watched in self.optimizers:
            before = self.guard.hook("optimizer", partial(self._before_step, watched), is_compiling)
            after = self.guard.hook("optimizer", partial(self._after_step, watched), is_compiling)
            before = self.stretches.hook(self.stretch.begin, before)
            after = self.stretches.hook(self.stretch.end, after)
            self._handles.append(watched.optimizer.register_step_pre_hook(before))
            self._handles.append(watched.optimizer.register_step_post_hook(after))
            for parameter in watched.parameters()[:1]:
                self.guard.wrap("device", self.rings.prepare)(parameter.device)
            self.guard.wrap("sketches", self.sketches.prepare)(watched)
            self.guard.wrap("updates", self.updates.prepare)(watched)
        for scaler in self.scalers:
            if isinstance(scaler.scaler, torch.amp.GradScaler):  # and not one that is reported
                self._attach_scaler(scaler)
        clipping.listen(self._clip_listener, self._after_clipping)
        if self.reductions is not None:
            self.guard.wrap("communication", self.reductions.attach)(self)
        self.guard.wrap("step clock", self._attach_backward)()
        self.guard.wrap("forward", self._attach_forward)()

    def detach(self) -> None:
        """Removes every hook; what the user's objects were before, they are again."""
        self.catch_up()
        for handle in (*self._handles, *self._first_forward_handles):
            handle.remove()
        if self._forward_handle is not None:
            self._forward_handle.remove()
        self._handles.clear()
        self._first_forward_handles.clear()
        for scaler in self.scalers:
            scaler_hooks.detach(scaler.scaler)
        clipping.unlisten(self._clip_listener)
        if self.reductions is not None:
            self.reductions.detach()
        scripting.show_hooks()
        self.order.detach()

    def _attach_scaler(self, scaler: WatchedScaler) -> None:
        scaler_hooks.attach(scaler.scaler, ScalerCalls(self, scaler))

    def _attach_backward(self) -> None:
        trained = [parameter for watched in self.optimizers for parameter in watched.leaves()]
        reached = {id(parameter): parameter for model in self.models.values() for parameter in model.parameters()}
        if reached and not any(id(parameter) in reached for parameter in trained):
            # Masters of a framework's own, which copies gradients to them: backward passes reach the model's.
            trained += reached.values()
        self.order.attach(trained)

    def _attach_forward(self) -> None:
        seen = self.guard.wrap("forward", self._forward)
        first = next(iter(self.models.values()))
        if not forward.takes_hooks(first):
            return
        hook = forward.ForwardHook(seen, self.stretch.forward if self.stretches.has_helper else None)
        self._forward_handle = first.register_forward_pre_hook(hook, with_kwargs=True)
        if self._first_told:
            return
        inside = self.guard.wrap("precision", self._forward_inside)
        for module in forward.called_in_python(first):
            # Autocast may be entered inside the model's own forward: look from within, once.
            hook = forward.ForwardHook(inside)
            self._first_forward_handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    # ---- forward and backward ------------------------------------------------------------------

    def _forward(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not is_grad_enabled():
            return
        if self.backward_seen:
            self.after_backward()
        step = self.clock.step
        if self.clock.phase is COMPLETE:
            step += 1
            if self.times_idleness and not self.attempt.idle_ns:
                self.attempt.idle_ns = time.perf_counter_ns() - self.attempt.completed_ns
        if not self._first_told:
            self._forward_inside(module, args, kwargs)
        if self.infers_samples and not self.forward_counted:
            # Several passes before one backward (two views, a discriminator) are one batch.
            self.forward_counted = True
            self.pending_samples += forward.leading_size(args, kwargs) or 0
        if not self.inputs.is_useless:
            self.inputs.seen(step, args, kwargs)

    def _forward_inside(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._first_told:
            return
        self._forward_seen = True
        if self.reductions is not None:
            self.guard.wrap("communication", self.reductions.forward_seen)()
        parameter = next(module.parameters(), None)
        dtype = precision.autocast_dtype("cpu" if parameter is None else parameter.device.type)
        if dtype is not None:
            self._autocast_seen.add(dtype)
        # On a device the host runs ahead, or waits for it anywhere: what lies between two steps tells nothing there. Of
        # several models another one's pass may be what lies between.
        self.times_idleness = parameter is not None and parameter.device.type == "cpu" and len(self.models) == 1
        self.closed.training_began(time.perf_counter_ns())

    def _backward(self, parameter: torch.Tensor) -> None:
        # Called from within the backward pass, where nothing is at hand: what it means can wait until somebody asks.
        if not is_compiling():
            self.backward_seen = self.stretch.backward = True

    def after_backward(self) -> None:
        """A backward pass ran since this was last called: work of an attempt. Whoever asks for the current attempt, or
        its phase, calls this first where `backward_seen`."""
        self.catch_up()
        if not self.backward_seen:
            return
        self.backward_seen = self.forward_counted = False
        if self.clock.phase is not OPEN:
            self.clock.begin()
        elif not self.scalers and not self.attempt.is_blank:
            # Gradients go on growing after a clipping function was seen: what was read then is not the step's gradient.
            for part in self.attempt.optimizers:
                if part.reading is not None and part.reading.point == "clip" and not part.num_calls:
                    part.reading = None

    def catch_up(self) -> None:
        """A stretch that is on ends: clock and attempt are as hooks of the ordinary way would have left them."""
        if self.stretch.is_on:
            self.stretches.leave()

    @property
    def step(self) -> int:
        """Number of the current attempt; ends no stretch."""
        return int(self.stretch.step) if self.stretch.is_on else self.clock.step

    @property
    def own_ns(self) -> int:
        """What watching has cost until now, by its own clock."""
        return self.guard.own_ns + int(self.stretch.own_ns)

    # ---- optimizer -----------------------------------------------------------------------------

    def _before_step(
        self, watched: WatchedOptimizer, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        self.catch_up()
        if self._calm.is_possible and not kwargs and len(args) == 1 and self._calm.begin(watched, optimizer):
            return None
        if self.backward_seen:
            self.after_backward()
        if watched.num_unchecked and self.inside_scaler_step is not optimizer:
            watched.num_unchecked -= 1
            self._adopt_caller(watched)
        if self.first_is_a_guess and self._steps_again(watched):
            self._first = watched.index
            self.complete()
        part = self.attempt.optimizers[watched.index] if self.clock.phase is OPEN else self._part_for_work(watched)
        part.num_calls += 1
        reading = part.reading
        if self.updates.wanted:
            self._begin_update(watched, reading)
        if reading is not None and (part.user_unscaled or reading.point == "clip"):
            if part.num_calls == 1:
                self._read_clipped(watched, part)
            return None
        grad_scale = getattr(optimizer, "grad_scale", None)
        if grad_scale is not None:
            self.read_gradients(watched, "scaled_step", "no", grad_scale)
            return None
        if kwargs or len(args) > 1:
            closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
            if callable(closure) and self.inside_scaler_step is None:
                return self._with_closure(watched, closure, args, kwargs)
        if reading is None or part.num_calls > 1:
            self._read(self.attempt, self.clock.step, watched, "step", "maybe")
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
        if self.backward_seen:
            self.after_backward()
        part = self.attempt.optimizers[watched.index]
        if part.reading is not None and part.reading.point == "clip":
            self._begin_update(watched, part.reading)
            self._read_clipped(watched, part)
        else:
            self.read_gradients(watched, "closure", "maybe")

    def _after_step(
        self, watched: WatchedOptimizer, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.catch_up()
        if self._calm.is_possible and self._calm.end(watched, optimizer.param_groups):
            return
        if self.backward_seen:
            self.after_backward()
        part = self.attempt.optimizers[watched.index]
        part.num_returned += 1
        if self.updates.is_waiting:
            self._finish_update(self.attempt, watched, part.reading)
        if self.inside_scaler_step is optimizer:
            return  # after_step of the scaler knows more
        part.num_applied += 1
        groups = optimizer.param_groups
        if len(groups) == 1 and groups[0].get("lr") is watched.last_rate:
            part.learning_rates = watched.last_rates  # the very object: it is the same rate
        else:
            self.read_rates(watched, part)
        if watched.index == self._first and not (self.scalers and self._scaler_at_work()):
            self.first_is_a_guess = False
            self.complete()

    def _steps_again(self, watched: WatchedOptimizer) -> bool:
        """Whether an optimizer that is not the first has stepped in the open attempt already, without a scaler."""
        return (
            watched.index != self._first
            and self.clock.phase is OPEN
            and self.attempt.optimizers[watched.index].num_returned > 0
            and not (self.scalers and self._scaler_at_work())
        )

    def scaler_begins(self, index: int) -> None:
        """A scaler starts work. Where it was updated in the open attempt, the others are not used in that one."""
        if self.clock.phase is OPEN and self.attempt.scalers[index].updated:
            self.complete()

    def scaler_updated(self, index: int) -> None:
        """An attempt is over when every scaler that took part in the last one has been updated."""
        self.attempt.scalers[index].updated = True
        if all(self.attempt.scalers[awaited].updated for awaited in self._awaited_scalers):
            self.complete()

    def _scaler_at_work(self) -> bool:
        return any(scaler.touched for scaler in self.attempt.scalers)

    def _adopt_caller(self, stepped: WatchedOptimizer) -> None:
        scaler = calling_scaler(stepped.optimizer)
        if scaler is None or any(known.scaler is scaler for known in self.scalers):
            return
        watched = WatchedScaler(len(self.scalers), type(scaler).__name__, scaler, labelled=bool(self.scalers))
        self.scalers.append(watched)
        part = ScalerAttempt()
        part.touched = True
        self.attempt.scalers.append(part)
        self._awaited_scalers.add(watched.index)
        if self._is_due(self.attempt.optimizers[stepped.index]):
            self.clock.reopen()  # another scaler's update ended the attempt before this one's came
        self._attach_scaler(watched)
        self.reporter.adopted(self.clock.step, watched, stepped)
        self.inside_scaler_step = stepped.optimizer

    def take_scaler(self, name: str, scaler: torch.amp.GradScaler) -> None:
        """Watches one more scaler, made or used later than those that were given; attempts end at its updates."""
        self.catch_up()
        watched = WatchedScaler(len(self.scalers), name, scaler, labelled=bool(self.scalers))
        self.scalers.append(watched)
        self.attempt.scalers.append(ScalerAttempt())
        self._awaited_scalers = {watched.index}
        self._attach_scaler(watched)
        self.reporter.adopted(self.clock.step, watched, None)

    # ---- gradients -----------------------------------------------------------------------------

    def read_gradients(
        self,
        watched: WatchedOptimizer,
        point: Point,
        clipped: Literal["no", "maybe"],
        grad_scale: torch.Tensor | None = None,
        held_back: bool = False,
    ) -> None:
        """Notes an optimizer's gradients as they are now in the current attempt."""
        self._read(self.attempt, self.clock.step, watched, point, clipped, grad_scale, held_back)

    def _before_clipping(self, tensors: list[torch.Tensor], total: torch.Tensor | None) -> None:
        if get_ident() != self.thread and not self._clips_ours():
            return
        if self.backward_seen:
            self.after_backward()
        ids = {id(tensor) for tensor in tensors}
        if total is not None and not self.rings.on_host(total):
            total = None
        for watched in self.optimizers:
            grads = watched.gradients()
            if any(id(grad) in ids for grad in grads):
                part = self._part_for_work(watched)
                known = self._handed.clips(watched, part, grads, tensors, total)
                if part.reading is None:
                    self._read(self.attempt, self.clock.step, watched, "clip", "no", known=known)

    def _clips_ours(self) -> bool:
        """Asked in another thread than the one that trained last. That one may be in a backward pass, which swaps
        gradients without the interpreter's lock: looking at them now can crash the process."""
        clipped = {id(parameter) for parameter in clipping.parameters()}
        return any(id(leaf) in clipped for watched in self.optimizers for leaf in watched.leaves())

    def declare_loss(self, loss: Value) -> None:
        """`run.step(loss=)`: the raw loss of the current attempt, which may be complete already."""
        attempt = self.attempt
        attempt.declared_loss = loss
        if isinstance(loss, float) and not math.isfinite(loss):
            attempt.notable = True
            if self.clock.phase is COMPLETE:
                self.inputs.look_again(attempt)
            if attempt.judged:
                self._judge_loss(attempt)
            elif self.clock.phase is COMPLETE:
                self.judge_now(attempt)

    def end(self) -> None:
        """Closes what is complete and tells everything, waiting for devices where it must."""
        self.catch_up()
        if self.clock.phase is OPEN and any(scaler.updated for scaler in self.attempt.scalers):
            self.complete()  # a further scaler, which took part in the attempt before, will not come
        self.clock.end()
        self.closed.drain(wait=True)

    @property
    def last_step(self) -> int:
        """The newest attempt that was closed; one less than the first where there was none."""
        return self.clock.step - 1

    def attempt_for_work(self) -> Attempt:
        """The attempt that work done now belongs to."""
        if self.backward_seen:
            self.after_backward()
        self.clock.begin()
        return self.attempt

    def _part_for_work(self, watched: WatchedOptimizer) -> OptimizerAttempt:
        """Its share of the attempt that a step or clipping of it belongs to.

        Without a backward pass in between, an optimizer that follows the first one (`a.step(); b.step()`) applies the
        same gradients: its step is of the attempt that the first one completed.
        """
        phase = self.clock.phase
        if phase is not OPEN and not (phase is COMPLETE and self._is_due(self.attempt.optimizers[watched.index])):
            # No backward pass was seen: the parameter that tells of them may have been frozen or replaced.
            if self.order.is_lost(self.optimizers):
                self._attach_backward()
            self.clock.begin()
        return self.attempt.optimizers[watched.index]

    def _is_due(self, part: OptimizerAttempt) -> bool:
        return not part.num_calls and not part.through_scaler

    def _read_rates_now(self, watched: WatchedOptimizer, part: OptimizerAttempt) -> None:
        groups = watched.optimizer.param_groups
        part.learning_rates = [self._rate(group.get("lr")) for group in groups]
        rate = groups[0].get("lr")
        if isinstance(rate, float):
            watched.last_rate, watched.last_rates = rate, part.learning_rates

    def _rate(self, rate: Any) -> Value:
        if isinstance(rate, torch.Tensor):
            return self.rings.value(rate)
        return None if rate is None else float(rate)

    # ---- attempts ------------------------------------------------------------------------------

    def complete(self) -> None:
        """The attempt's update is over."""
        if self.backward_seen:
            self.after_backward()
        self.clock.complete()
        attempt = self.attempt
        if attempt.scalers:
            self._awaited_scalers = {at for at, scaler in enumerate(attempt.scalers) if scaler.updated}
        self.thread = get_ident()
        attempt.step = self.clock.step
        attempt.completed_ns = time.perf_counter_ns()
        attempt.completed_us = time.time_ns() // 1000
        if self.pending_samples:
            attempt.inferred_samples, self.pending_samples = self.pending_samples, 0
        self.forward_counted = False
        self.inputs.take(attempt, anyway=attempt.notable and attempt.is_bad())
        if attempt.completed_ns >= self.sketches.interval.overdue_ns:
            self.sketches.interval.is_overdue = True
        if not self.order.complete:
            self.order.settle()
        if not self._settled_in:
            self._settle_in(attempt)
        if not self._calm.is_possible:
            self._calm.settle(has_settled=self._settled_in and self.order.complete)
        if attempt.notable:
            self.judge_now(attempt)

    def completed_calmly(self, attempt: Attempt) -> None:
        """As `complete`, of what is left to do when an attempt has settled in and is calm."""
        if self.pending_samples:
            attempt.inferred_samples, self.pending_samples = self.pending_samples, 0
        self.forward_counted = False

    def judge_now(self, attempt: Attempt) -> None:
        if self.rings.used or any(self._is_due(part) for part in self.attempt.optimizers):
            return  # not before its values have arrived, nor while another optimizer may step in it
        self.closed.drain()
        if not self.closed and not attempt.judged:
            self._judge(attempt)

    def _settle_in(self, attempt: Attempt) -> None:
        if not self._first_told:
            self._first_told = True
            for handle in self._first_forward_handles:
                handle.remove()
            self._first_forward_handles.clear()
            if self.reductions is not None:
                self.guard.wrap("communication", self.reductions.settle)()
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
        if self.rings.used or attempt.sketch_flights:
            attempt.pending = True
            attempt.flights = [*self.rings.seal(), *attempt.sketch_flights]
        if attempt.samples is not None and self._first_told:
            self.infers_samples = False  # the user declares them
            if self.inputs.is_useless and self._forward_handle is not None:
                # Nothing is to be looked at either: the model is called without a hook again.
                self._forward_handle.remove()
                self._forward_handle = None
        self.closed.add(attempt)

    def new_attempt(self) -> Attempt:
        """The current attempt is another one from here on."""
        self.attempt = self._new_attempt()
        return self.attempt

    def _new_attempt(self) -> Attempt:
        # Almost always one and none: a comprehension is a call, and this is every step's.
        optimizers = [OptimizerAttempt() for _ in self.optimizers] if len(self.optimizers) > 1 else None
        return Attempt(optimizers, [ScalerAttempt() for _ in self.scalers] if self.scalers else [])
