"""Looking at the buckets of DistributedDataParallel: those of all its models in one run.

Owns which hook of a model is looked through, and what is measured when a bucket is ready. What becomes of it is the
teller's. Invariant: a model whose user registers a communication hook before the first forward pass has that one, and
after `detach` every hook does the reduction alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from halfscope.guard import Guard
from halfscope.instrument.attempt import Attempt
from halfscope.instrument.ddp import noting
from halfscope.instrument.ddp.noting import BucketNote, Clock, DeviceSample, Layout, Moment, Reduction, Sample
from halfscope.instrument.ddp.reducing import (
    Compression,
    Note,
    Observe,
    default_of,
    is_joining,
    listen_to_forwards,
    register,
    told_of_forwards,
)
from halfscope.instrument.ddp.wrapping import WatchedHook
from halfscope.instrument.interval import SketchInterval
from halfscope.instrument.rings import Rings
from halfscope.kernels.events import ArrivalEvent
from halfscope.probes import communication
from halfscope.probes.gradients import byte_size
from halfscope.record.clock import StepClock

BUCKETS_PER_MODEL = 1000
"""Numbers of buckets in the stream: those of a further model begin at the next thousand."""
_current_graph_task: Callable[[], int] = torch._C._current_graph_task_id


class Work(Protocol):
    """The part of the watcher that is needed."""

    rings: Rings
    clock: StepClock

    def attempt_for_work(self) -> Attempt: ...


def make_timer() -> Moment:
    """Of the current device."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class ReducedModel:
    """One model, and what is known of its hook and buckets."""

    def __init__(self, index: int, name: str, model: DistributedDataParallel) -> None:
        self.index, self.name, self.model = index, name, model
        self.hook = ""
        """Name of the user's communication hook."""
        self.compression: Compression | None = None
        self.unwatched_because = ""
        self.is_hooked = False
        self.layouts: dict[int, Layout] = {}
        self.layout_version: tuple[int, bool] = (0, False)
        self.is_news = False
        """Its layouts are others than those that were told."""
        self.current: Reduction | None = None
        self.reduces_again = False
        """More than once in one attempt, so that gradients hold what an earlier reduction gave."""
        self.most_per_layer = noting.ELEMENTS_PER_LAYER
        self.clock: Clock | None = None
        self.ranks: Sequence[int] = ()
        """That reduce it together, in the whole job's numbers. The group may be gone when something is told."""
        self.is_first = False
        """This one is the first of them: it tells what is the same for all."""
        self._wrapped: WatchedHook | None = None

    def hook_up(self, observe: Observe) -> None:
        """Registers a hook, or finds the one that is there. Once: a hook cannot be taken off."""
        self.is_hooked = True
        known = default_of(self.model)
        if known is not None:
            known.observe = observe
            return
        if self.model._use_python_reducer:
            self.unwatched_because = "compiled autograd reduces without hooks"
            return
        if any(hasattr(parameter, "_in_backward_optimizers") for parameter in self.model.parameters()):
            # By a hook that torch is yet to register.
            self.unwatched_because = "optimizers run within the backward pass"
            return
        hooks = [hook for hook, _ in self.model._comm_hooks]
        if hooks:
            self.hook = str(getattr(hooks[-1], "__qualname__", type(hooks[-1]).__qualname__))
            if isinstance(hooks[-1], WatchedHook):
                self._wrapped, self.compression = hooks[-1], hooks[-1].compression
                for parameter in self.model.parameters():
                    self._wrapped.observers[id(parameter)] = observe
            else:
                self.unwatched_because = "not wrapped"
            return
        try:
            register(self.model).observe = observe
        except RuntimeError:
            # One of those that are built into the reducer: it is not kept in the model.
            data: Any = self.model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
            self.hook = str(data.get("comm_hook", "?"))
            self.unwatched_because = "built into the reducer"

    def let_go(self) -> None:
        """The run is over, or its hooks are to be off for a while: the reduction goes on by itself."""
        known = default_of(self.model)
        if known is not None:
            known.observe = None
        if self._wrapped is not None:
            for parameter in self.model.parameters():
                self._wrapped.observers.pop(id(parameter), None)
        self.is_hooked, self._wrapped, self.current = False, None, None

    def layout(self, bucket: Any, index: int, names: Mapping[int, str]) -> Layout:
        """The layers of a bucket, looked up anew where the reducer has made other buckets."""
        version = id(self.model.reducer), bool(self.model._has_rebuilt_buckets)
        if version != self.layout_version:
            self.layout_version = version
            self.layouts.clear()
        found = self.layouts.get(index)
        if found is None:
            if not self.layouts:
                trained = sum(parameter.requires_grad for parameter in self.model.parameters())
                self.most_per_layer = max(1, min(noting.ELEMENTS_PER_LAYER, noting.MAX_ELEMENTS // max(trained, 1)))
            labels = [names.get(id(parameter), "?") for parameter in bucket.parameters()]
            number = self.index * BUCKETS_PER_MODEL + index
            found = self.layouts[index] = Layout(bucket, number, labels, self.most_per_layer)
            self.is_news = True
        return found


class ReductionWatch:
    """The models of one run whose gradients are reduced, as far as they can be looked at."""

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        names: Mapping[int, str],
        interval: SketchInterval,
        guard: Guard,
        *,
        make_timer: Callable[[], Moment] = make_timer,
        make_event: Callable[[torch.device], Any] = ArrivalEvent,
        pinned: bool = True,
    ) -> None:
        """
        Args:
            names: id of a parameter to its canonical name.
            interval: of how many steps elements are compared over ranks.
            make_timer: a point of time on a device.
            make_event: how the arrival of elements from a device is known.
            pinned: page-locked host memory; only such copies are asynchronous.
        """
        self.models: list[ReducedModel] = []
        self._names, self._interval, self._guard = names, interval, guard
        self._make_timer, self._make_event, self._pinned = make_timer, make_event, pinned
        self._given = models
        self._work: Work | None = None
        self.tell_hooks: Callable[[int], Any] = lambda step: None
        """Told the step at which the hooks of all models are known; must not raise."""
        self.share: Callable[[Sequence[torch.nn.Module]], Any] = lambda replicas: None
        """Told of models whose parameters several ranks hold alike; must not raise."""
        self._entered = guard.hook("communication", self._adopt, torch.compiler.is_compiling)
        self._strangers: weakref.WeakSet[Any] = weakref.WeakSet()
        """That have nothing to do with the run's models."""
        self._is_settled = False
        for name, model in models.items():
            for module in model.modules():
                if isinstance(module, DistributedDataParallel):
                    self._add(name, module)

    def attach(self, work: Work) -> None:
        """The run's hooks are on."""
        self._work = work
        listen_to_forwards()
        told_of_forwards.append(self._entered)
        for reduced in self.models:
            if default_of(reduced.model) is not None:
                self._hook_up(reduced)

    def forward_seen(self) -> None:
        """A forward pass with gradients has begun: what hook a model has is decided now."""
        if self._work is None:
            return
        around = DistributedDataParallel._active_ddp_module
        if around is not None:
            self._adopt(around)
        for reduced in self.models:
            if not reduced.is_hooked:
                self._hook_up(reduced)

    def settle(self) -> None:
        """The first step is over. A compiled model may have had it without a forward pass that was seen."""
        self.forward_seen()
        self._is_settled = True
        if self.models and self._work is not None:
            self.tell_hooks(self._work.clock.step)

    def detach(self) -> None:
        """The run's hooks are off."""
        self._work = None
        if self._entered in told_of_forwards:
            told_of_forwards.remove(self._entered)
        for reduced in self.models:
            reduced.let_go()

    def _add(self, name: str, model: DistributedDataParallel) -> None:
        self.models.append(ReducedModel(len(self.models), name, model))

    def _adopt(self, model: Any) -> None:
        """A model's forward pass begins. It may have been put around a given one since, or in another one's place."""
        if any(reduced.model is model for reduced in self.models) or model in self._strangers:
            return
        ours = set(map(id, model.parameters())) if isinstance(model, DistributedDataParallel) else set()
        named = ((name, map(id, given.parameters())) for name, given in self._given.items())
        name = next((name for name, theirs in named if not ours.isdisjoint(theirs)), None)
        if name is None:
            self._strangers.add(model)
            return
        self.share([model])
        for at, reduced in enumerate(self.models):
            if set(map(id, reduced.model.parameters())) == ours:  # which is not used any more, and need not be kept
                reduced.let_go()
                self.models[at] = ReducedModel(at, name, model)
                self._hook_up(self.models[at])
                break
        else:
            self._add(name, model)
            self._hook_up(self.models[-1])
        if self._is_settled and self._work is not None:
            self.tell_hooks(self._work.clock.step)

    def _hook_up(self, reduced: ReducedModel) -> None:
        ready = self._guard.hook("communication", partial(self._ready, reduced), torch.compiler.is_compiling)
        reduced.hook_up(ready)

    # ---- a bucket is ready -----------------------------------------------------------------------

    def _ready(
        self, reduced: ReducedModel, bucket: Any, compression: Compression | None, is_divided: bool
    ) -> Note | None:
        work = self._work
        if work is None or _current_graph_task() == -1:
            return None  # of a rank that has joined, whose zeros keep the others company
        index = bucket.index()
        buffer = bucket.buffer()
        if buffer.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        if index == 0:
            reduced.current = self._begin(work, reduced, buffer)
        reduction = reduced.current
        if reduction is None:
            return None
        layout = reduced.layout(bucket, index, self._names)
        note = BucketNote(reduction, layout, byte_size(buffer), reduction.clock.now())
        if is_divided and layout.places is not None and work.rings.on_host(buffer):
            note.wants_norm, note.buffer = True, buffer
        elif work.rings.on_host(buffer):
            self._measure(reduction, layout, buffer, compression)
        else:
            self._capture(reduction, layout, buffer, compression)
        if reduction.is_sampled and layout.places is not None:
            note.sample = self._sample(work, layout.places, buffer)
        reduction.buckets.append(note)
        if bucket.is_last():
            reduction.is_complete = True
            reduced.current = None
        return note

    def _begin(self, work: Work, reduced: ReducedModel, buffer: torch.Tensor) -> Reduction:
        attempt = work.attempt_for_work()
        if reduced.clock is None:
            reduced.clock = Clock(None if work.rings.on_host(buffer) else self._make_timer)
            reduced.ranks = dist.get_process_group_ranks(reduced.model.process_group)
            reduced.is_first = reduced.model.process_group.rank() == 0
        earlier = [each for each in attempt.reductions if each.model == reduced.index]
        reduced.reduces_again |= bool(earlier)
        reduction = Reduction(
            reduced.index,
            reduced.ranks,
            reduced.clock,
            work.rings,
            partial(self._guard.caught, "communication"),
            checks_result=reduced.reduces_again,
            # A rank that has joined gives nothing of its own: the others could not be compared.
            is_sampled=self._interval.is_due(work.clock.step) and not is_joining(reduced.model),
        )
        attempt.reductions = (*attempt.reductions, reduction)
        return reduction

    def _measure(
        self, reduction: Reduction, layout: Layout, buffer: torch.Tensor, compression: Compression | None
    ) -> None:
        found = communication.read(buffer, partial(layout.parts, buffer))
        if found is None:
            reduction.is_measured = False
            return
        reduction.norms.append(found.norm)
        reduction.nonfinite += [layout.names[at] for at in found.nonfinite]
        if compression is not None:
            limit = compression.overflows_at(reduction.num_ranks)
            if not found.norm < limit:  # no element is larger than the norm of all
                large = communication.too_large(layout.parts(buffer), limit)
                reduction.too_large += [layout.names[at] for at in large if at not in found.nonfinite]

    def _capture(
        self, reduction: Reduction, layout: Layout, buffer: torch.Tensor, compression: Compression | None
    ) -> None:
        grads = layout.parts(buffer)
        captured = reduction.rings.norms(grads)
        reduction.layer_norms += [(layout, positions, slot) for positions, slot in captured]
        reduction.is_measured &= sum(len(positions) for positions, _ in captured) == len(grads)
        if compression is not None and buffer.layout is torch.strided:
            slot = reduction.rings.put(communication.largest(grads))
            if slot is not None:
                reduction.largest.append((layout, slot, compression.overflows_at(reduction.num_ranks)))

    def _sample(self, work: Work, places: torch.Tensor, buffer: torch.Tensor) -> Sample:
        if work.rings.on_host(buffer):
            sample = Sample(places)
        else:
            sample = DeviceSample(places, self._make_event(buffer.device), pinned=self._pinned)
            attempt = work.attempt_for_work()
            attempt.sketch_flights = (*attempt.sketch_flights, sample)
        sample.take_local(buffer)
        return sample
