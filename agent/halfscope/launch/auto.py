"""Watching whatever trains: runs that begin by themselves when a program's optimizers go to work.

Owns the waiting: which optimizers and scalers there are, and the sign by which a training begins. That is the first of
these: a module that owns an optimizer's parameters is called with gradients on; a scaler scales; a clipping function is
called; an optimizer steps. Then it calls `watch`, and lets the call that is going on be seen by what `watch` has set.

What is one run:
- the optimizers that exist when a training begins are one run, all of them;
- optimizers made later begin a new run when they go to work, and the earlier one ends as finished: several trainings
  one after the other are several runs, and none keeps the memory of the one before;
- an optimizer whose model is not called in the first attempt, but later, was prepared for a training of its own: it
  begins a new run;
- an optimizer of an ended run that works again takes turns with the present ones: they are one run from then on, which
  no newcomer ends;
- a copied or unpickled optimizer begins a run only where none is on.
What the program gives to `halfscope.watch` itself is left alone.

Invariant: until a training begins nothing is set on its objects but a scaler's observer; and nothing of ours raises
into the program.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from halfscope import config as configuration
from halfscope.guard import Guard
from halfscope.instrument import clipping, entry, forward, names
from halfscope.instrument import scaler as scaler_hooks
from halfscope.instrument.forward import ForwardHook
from halfscope.instrument.run import Run
from halfscope.launch import inside, roots
from halfscope.launch.births import Kind
from halfscope.launch.herald import Herald

logger = logging.getLogger("halfscope")

MAX_RUNS = 64
"""More trainings than this in one process are taken for the inner loops of another: no further run is begun."""


@dataclass(slots=True)
class _Training:
    """A run that is on, and what it is of."""

    run: Run
    optimizers: list[weakref.ref[torch.optim.Optimizer]]
    own_references: list[int]
    """How many references to each optimizer are the watch's."""
    takes_turns: bool
    waiting: list[_Late] = field(default_factory=list)
    """Of its models that no call had reached when it began."""

    def alive(self) -> list[torch.optim.Optimizer]:
        return [optimizer for ref in self.optimizers if (optimizer := ref()) is not None]

    def dropped(self) -> bool:
        """Whether the program has let go of all its optimizers: nothing but the watch holds them."""
        return all(
            # Beside the watch's references: the local variable here, and the argument.
            (optimizer := ref()) is None or sys.getrefcount(optimizer) - 2 <= own
            for ref, own in zip(self.optimizers, self.own_references, strict=True)
        )


class Launcher:
    """Begins and ends the runs of one program."""

    def __init__(self, options: Mapping[str, Any], default_name: str) -> None:
        """
        Args:
            options: keyword arguments of `watch`, checked.
            default_name: of the runs, where neither options nor environment name them.
        """
        self.num_runs = 0
        self.num_watched_by_program = 0
        """Optimizers that the program gives to `watch` itself, as far as they were met."""
        self.failure: Exception | None = None
        """Why the last run that should have begun did not."""
        self._options = dict(options)
        self._name = self._options.pop("name", None) or os.environ.get("HALFSCOPE_NAME") or default_name
        wrap = Guard(lambda probe, error: None).wrap
        self.made = wrap("halfscope run", self._made, keep=True)
        """Told of each new optimizer, scaler and compiled model."""
        self._begin = wrap("halfscope run", self._begin_now, keep=True)
        self._finish = wrap("halfscope run", self._finish_now, keep=True)
        self._replay = wrap("halfscope run", self._replay_now, keep=True)
        self._ask = wrap("halfscope run", lambda settings, optimizers: settings(optimizers), keep=True)
        self._beginning = self._stopped = self._told_too_many = False
        self._fresh: list[weakref.ref[torch.optim.Optimizer]] = []
        """Made and not yet at work, oldest first."""
        self._settled: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        """By id, those whose steps are no news: of the run that is on, given to `watch`, or left alone."""
        self._former: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        """Of runs of ours that have ended."""
        self._scalers: list[weakref.ref[torch.amp.GradScaler]] = []
        self._served: weakref.WeakSet[torch.amp.GradScaler] = weakref.WeakSet()
        """Scalers that are or were of a run."""
        self._compiled: list[weakref.ref[torch.nn.Module]] = []
        self._training: _Training | None = None
        self._descriptions: list[Callable[[Sequence[torch.optim.Optimizer]], Mapping[str, Any]]] = []
        self._wanted: frozenset[int] = frozenset()
        """ids of the fresh optimizers' parameters."""
        self._strangers: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        """Modules that own none of them."""
        self._signs: list[Any] = []
        """Handles of the hooks by which the next training is noticed."""
        self._thread = threading.get_ident()
        self._step_hook = register_optimizer_step_pre_hook(self._before_step)
        gc.callbacks.append(self._after_collection)
        _after_fork(self)

    def stop(self) -> None:
        """Ends the run that is on and takes everything off."""
        if self._stopped:
            return
        self._stopped = True
        self._finish()
        self._disarm()
        self._step_hook.remove()
        gc.callbacks.remove(self._after_collection)
        for scaler in self._living_scalers():
            scaler_hooks.detach(scaler)

    # ---- who there is --------------------------------------------------------------------------

    def _made(self, kind: Kind, item: Any) -> None:
        if self._stopped:
            return
        if kind == "optimizer":
            self._fresh.append(weakref.ref(item))
            self._arm()
        elif kind == "scaler":
            self._scalers.append(weakref.ref(item))
            self._attach_herald(item)
        else:
            self._compiled.append(weakref.ref(item))
            if self._fresh:
                self._arm()

    def _attach_herald(self, scaler: torch.amp.GradScaler) -> None:
        if scaler.is_enabled() and not scaler_hooks.is_attached(scaler):
            scaler_hooks.attach(scaler, Herald(id(scaler), self._scaler_works))
            weakref.finalize(scaler, inside.forget, id(scaler))

    def _living_scalers(self) -> list[torch.amp.GradScaler]:
        return [scaler for ref in self._scalers if (scaler := ref()) is not None]

    def _newcomers(self) -> list[torch.optim.Optimizer]:
        """Fresh optimizers that are alive and that the program has not given to `watch` itself."""
        found = []
        for ref in self._fresh:
            optimizer = ref()
            if optimizer is None:
                continue
            if inside.is_watched(optimizer):
                self._leave_to_program(optimizer)
            else:
                found.append(optimizer)
        return found

    def _leave_to_program(self, optimizer: torch.optim.Optimizer) -> None:
        self.num_watched_by_program += 1
        self._settle(optimizer)

    def _settle(self, optimizer: torch.optim.Optimizer) -> None:
        key = id(optimizer)
        self._settled[key] = weakref.ref(optimizer, lambda _: self._settled.pop(key, None))

    # ---- signs that a training begins ----------------------------------------------------------

    def _arm(self) -> None:
        """Sets the hooks by which the work of fresh optimizers is noticed; while there are none, nothing is set."""
        self._disarm()
        self._wanted = frozenset(
            id(parameter)
            for ref in self._fresh
            if (optimizer := ref()) is not None
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
        self._compiled = [ref for ref in self._compiled if ref() is not None]
        if self._compiled:
            # torch warns of hooks for all modules when a compiled one is called; so these are looked at one by one.
            for ref in self._compiled:
                if (module := ref()) is not None:
                    hook = ForwardHook(self._before_forward)
                    self._signs.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        else:
            self._signs.append(register_module_forward_pre_hook(self._before_any_forward))
        clipping.listen(self._before_clipping)

    def _disarm(self) -> None:
        for handle in self._signs:
            handle.remove()
        self._signs.clear()
        self._strangers.clear()
        clipping.unlisten(self._before_clipping)

    def _before_any_forward(self, module: torch.nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or module in self._strangers:
            return
        # A hook for all modules is not given the keyword arguments: torch's own frame that calls it has them.
        self._before_forward(module, args, sys._getframe(1).f_locals.get("kwargs") or {})

    def _before_forward(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self._beginning or not torch.is_grad_enabled() or torch._C._get_tracing_state() is not None:
            return
        if not roots.owns_any(module, self._wanted):
            self._strangers.add(module)
        elif self._begin(called=module):
            self._replay(module, args, kwargs)

    def _replay_now(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """The call that is going on began before the run's own hooks were there."""
        for hook in list(module._forward_pre_hooks.values()):
            if isinstance(hook, ForwardHook):
                hook(module, args, kwargs)

    def _before_clipping(self, gradients: list[torch.Tensor], total: torch.Tensor | None = None) -> None:
        if self._beginning:
            return
        # By parameters where they can be seen: another thread may be changing the gradients of its own at this moment.
        given = clipping.parameters()
        clipped = {id(tensor) for tensor in given or gradients}
        if any(
            id(parameter if given else parameter.grad) in clipped
            for ref in self._fresh
            if (optimizer := ref()) is not None
            for group in optimizer.param_groups
            for parameter in group["params"]
        ):
            self._begin()

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if id(optimizer) in self._settled or self._beginning or self._stopped or torch.compiler.is_compiling():
            return
        if inside.is_watched(optimizer):
            self._leave_to_program(optimizer)
            return
        back = optimizer in self._former
        if all(ref() is not optimizer for ref in self._fresh):
            if not back and self._is_on():
                self._settle(optimizer)  # a copy that trains beside what it was copied from
                return
            self._fresh.append(weakref.ref(optimizer))  # unpickled; or it comes back
        self._begin(back=back)

    def _is_on(self) -> bool:
        training = self._training
        return training is not None and not inside.has_ended(training.run) and not training.dropped()

    def _scaler_works(self, scaler_id: int) -> None:
        if not self._beginning:
            self._begin()
            training = self._training
            if training is not None and self._is_on():
                for scaler in self._living_scalers():
                    if id(scaler) == scaler_id:
                        self._take_scaler(training, scaler)  # one that was made after the training had begun

    def _take_scaler(self, training: _Training, scaler: torch.amp.GradScaler) -> None:
        if isinstance(inside.observer_of(id(scaler)), Herald):
            scaler_hooks.detach(scaler)
            self._served.add(scaler)
            ((name, _),) = roots.names([scaler]).items()
            inside.take_scaler(training.run, name, scaler)

    # ---- runs ----------------------------------------------------------------------------------

    def _begin_now(self, called: torch.nn.Module | None = None, *, back: bool = False) -> bool:
        """Begins a run of the fresh optimizers, and of the present ones where one of an ended run is back.

        Returns:
            Whether it did.
        """
        training = self._training
        if training is not None and inside.has_ended(training.run):  # the program's own `watch` took its place
            self._finish_now()
            training = None
        newcomers = self._newcomers()
        if not newcomers or (training is not None and training.takes_turns and not back) or self._too_many():
            return self._leave(newcomers)
        self._beginning = True
        try:
            present = training.alive() if training is not None and back else []
            self._finish_now()
            if training is not None or len(newcomers) > 1:
                del newcomers, training
                gc.collect()  # what the program let go of takes no part, even where it lies in a cycle
                newcomers = self._newcomers()
            self._fresh.clear()
            self._disarm()
            newcomers += [one for one in present if all(one is not other for other in newcomers)]
            for optimizer in newcomers:
                self._settle(optimizer)  # whatever happens now, it is tried once
            if newcomers:
                self._training = self._start(newcomers, called, takes_turns=back)
        except Exception as error:
            self.failure = error
            raise
        finally:
            self._beginning = False
        return bool(newcomers)

    def _too_many(self) -> bool:
        if self.num_runs < MAX_RUNS:
            return False
        if not self._told_too_many:
            self._told_too_many = True
            logger.warning(
                "halfscope: %d trainings were begun in this process; further ones are not watched. Where they are the "
                "inner loops of another training, give that one to halfscope.watch.",
                MAX_RUNS,
            )
        return True

    def _leave(self, optimizers: list[torch.optim.Optimizer]) -> bool:
        """These are not watched."""
        for optimizer in optimizers:
            self._settle(optimizer)
        self._fresh.clear()
        self._disarm()
        return False

    def _start(
        self, optimizers: list[torch.optim.Optimizer], called: torch.nn.Module | None, *, takes_turns: bool
    ) -> _Training:
        wanted = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        found = roots.find_models(wanted, called) or [_holder(optimizers)]
        living = [scaler for scaler in self._living_scalers() if not inside.is_watched(scaler)]
        # One that served an earlier training comes in when it is used, where there is a new one.
        scalers = [scaler for scaler in living if scaler not in self._served] or living
        for scaler in scalers:
            self._served.add(scaler)
            scaler_hooks.detach(scaler)  # from its herald
        # The newest first: where there is no scaler, an attempt ends at the first one's step, and what is made last
        # (a generator after its discriminator or the other way round, an optimizer inside another) steps last.
        ordered = dict(reversed(roots.names(optimizers).items()))
        model = found[0] if len(found) == 1 else roots.names(found)
        settings = {"config": self._described(optimizers)}
        training = self._watch(model, ordered, roots.names(scalers), settings, takes_turns=takes_turns)
        inside.order_is_a_guess(training.run)
        if not takes_turns:
            for model in found:
                if model is not called and len(found) > 1 and forward.takes_hooks(model):
                    training.waiting.append(_Late(self, training, model))
        return training

    def _watch(
        self,
        model: Any,
        optimizers: Mapping[str, torch.optim.Optimizer],
        scalers: Any,
        found: Mapping[str, Any],
        *,
        takes_turns: bool,
    ) -> _Training:
        before = [sys.getrefcount(optimizer) for optimizer in optimizers.values()]
        run = entry.watch(
            model,
            optimizers,
            scalers,
            **{**found, **self._options},
            name=self._name if not self.num_runs else f"{self._name}-{self.num_runs + 1}",
            run_id=self._options.get("run_id") if not self.num_runs else configuration.new_run_id(),
        )
        after = [sys.getrefcount(optimizer) for optimizer in optimizers.values()]
        self.num_runs += 1
        return _Training(
            run=run,
            optimizers=[weakref.ref(optimizer) for optimizer in optimizers.values()],
            own_references=[late - early for early, late in zip(before, after, strict=True)],
            takes_turns=takes_turns,
        )

    def _described(self, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for settings in self._descriptions:
            found.update(self._ask(settings, optimizers) or {})
        return found

    # ---- for integrations ----------------------------------------------------------------------

    def describe(self, settings: Callable[[Sequence[torch.optim.Optimizer]], Mapping[str, Any]]) -> None:
        """Asks for settings whenever a run begins that no framework begins, given the optimizers that it is of."""
        self._descriptions.append(settings)

    def current(self) -> Run | None:
        """The run that is on."""
        return None if self._training is None else self._training.run

    def begin(self, model: Any, optimizer: Any, scaler: Any = None, **found: Any) -> Run:
        """A framework begins a training of these.

        Args:
            found: arguments of `watch` that the framework knows; those of the command line go before them.
        """
        self._beginning = True
        try:
            self._finish_now()
            optimizers, scalers = names.name_optimizers(optimizer), names.name_scalers(scaler)
            for each in optimizers.values():
                self._settle(each)
            for each in scalers.values():
                self._served.add(each)
                scaler_hooks.detach(each)  # from its herald
            self._fresh = [ref for ref in self._fresh if (left := ref()) is not None and id(left) not in self._settled]
            if self._fresh:
                self._arm()
            else:
                self._disarm()
            found = {name: value for name, value in found.items() if name not in ("name", "run_id")}
            if self._too_many():
                return entry.watch(model, optimizers, scalers, mode="disabled")
            self._training = self._watch(model, optimizers, scalers, found, takes_turns=False)
            return self._training.run
        except Exception as error:
            self.failure = error
            raise
        finally:
            self._beginning = False

    def late(self, training: _Training, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """A model of a run is called for the first time."""
        if training is not self._training or not inside.has_attempts(training.run, self._options.get("start_step", 0)):
            return
        waiting = [model, *(late.model() for late in training.waiting if late.handle is not None)]
        wanted = {id(parameter) for each in waiting if each is not None for parameter in each.parameters()}
        own = [
            optimizer
            for optimizer in training.alive()
            if any(id(parameter) in wanted for group in optimizer.param_groups for parameter in group["params"])
        ]
        self._finish()
        for optimizer in own:
            self._former.discard(optimizer)
            self._fresh.append(weakref.ref(optimizer))
        if self._begin(called=model):
            self._replay(model, args, kwargs)

    def _finish_now(self) -> None:
        """Ends the run that is on."""
        training, self._training = self._training, None
        if training is None:
            return
        for late in training.waiting:
            late.take_off()
        ended = inside.has_ended(training.run)  # by the program's own `watch` of the same objects
        training.run.finish()
        for optimizer in training.alive():
            if not ended:
                self._settled.pop(id(optimizer), None)
                self._former.add(optimizer)
        if not self._stopped:
            for scaler in self._living_scalers():
                self._attach_herald(scaler)

    def _after_collection(self, phase: str, info: Mapping[str, int]) -> None:
        training = self._training
        if (
            phase == "stop"
            and training is not None
            and not self._beginning
            and threading.get_ident() == self._thread
            and training.dropped()
        ):
            self._finish()

    def forget(self) -> None:
        """In a forked process nothing is watched: the runs are the parent's."""
        self._stopped = True
        self._training = None
        self._disarm()
        self._step_hook.remove()


def _after_fork(launcher: Launcher) -> None:
    ref = weakref.ref(launcher)  # what is registered here stays for good

    def in_child() -> None:
        if (found := ref()) is not None:
            found.forget()

    os.register_at_fork(after_in_child=in_child)


class _Late:
    """Says once that a model is called, and takes itself off."""

    def __init__(self, launcher: Launcher, training: _Training, model: torch.nn.Module) -> None:
        self._launcher, self._training = launcher, training
        self.model = weakref.ref(model)
        self.handle: Any = model.register_forward_pre_hook(ForwardHook(self._called), with_kwargs=True)

    def take_off(self) -> None:
        if self.handle is not None:
            self.handle.remove()
            self.handle = None

    def _called(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self.handle is not None:
            self.take_off()
            self._launcher.late(self._training, module, args, kwargs)


def _holder(optimizers: list[torch.optim.Optimizer]) -> torch.nn.Module:
    """A module for parameters that are in none."""
    holder = torch.nn.Module()
    loose = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    for name, parameter in roots.names(p for p in loose if isinstance(p, torch.nn.Parameter)).items():
        holder.register_parameter(name.replace(".", "_"), parameter)
    return holder
