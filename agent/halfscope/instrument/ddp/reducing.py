"""What DistributedDataParallel does where no communication hook is registered, as a communication hook.

Its reducer divides each gradient by the number of ranks and adds up; where a hook is registered it does neither. A hook
cannot be taken off again, so this one stays for the life of the model, and without an observer it is all that is left.
Invariant: bit for bit what the reducer would have given, with one collective for each bucket as ever, and ranks with
this hook and ranks without one fit together.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from halfscope.probes import communication
from halfscope.probes.communication import OVERFLOWS_AT

Future = torch.futures.Future


class Note(Protocol):
    """What was noted of one bucket."""

    wants_norm: bool
    """It has not been measured yet, because who divides it reads it anyway: `measured` is to be called."""

    def measured(self, norm: float, divisor: int) -> None:
        """Its L2 norm before it was divided, in float32. Must not raise."""

    def reduced(self, result: torch.Tensor) -> None:
        """Its reduction is over. Called in whatever thread completes it; must not raise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    """What a hook rounds a bucket to before it is sent."""

    dtype: torch.dtype
    divides_first: bool = False
    """By the number of ranks."""

    def overflows_at(self, num_ranks: int) -> float:
        """Magnitude from which on an element of a bucket is infinite when it is sent."""
        return OVERFLOWS_AT[self.dtype] * (num_ranks if self.divides_first else 1)


Observe = Callable[[Any, Compression | None, bool], Note | None]
"""Called with a bucket that is ready, what it is rounded to (None where it is sent as it is, or nobody knows), and
whether the caller is going to divide it; must not raise."""
BLOCK_ELEMENTS = 1 << 16
"""Of a bucket that is measured and divided without the compiled helper: what has been read is still in the cache when
it is written."""


class DefaultReduction:
    """The hook of one model."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.observe: Observe | None = None
        self._model = weakref.ref(model)  # which holds the reducer, which holds this
        self._storages: dict[int, int] | None = None
        """By parameter, where its gradient lay when it was complete; only of models whose gradients may lie in the
        bucket, and whose number of ranks is no power of two: there the reducer divides in one case and multiplies by
        the inverse in the other, which may differ in the last bit."""
        self._has_complex = any(parameter.is_complex() for parameter in model.parameters())
        self._is_simple = not self._has_complex and not model.gradient_as_bucket_view
        """Every dense bucket is multiplied by the inverse as a whole."""
        if model.gradient_as_bucket_view:
            self._storages = {}
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(_StorageHook(self._storages))  # type: ignore[no-untyped-call]

    def __call__(self, state: object, bucket: Any) -> Future[torch.Tensor]:
        observe = self.observe
        note = None if observe is None else observe(bucket, None, self._is_simple)
        model = self._model()
        assert model is not None, "a reducer runs only while its model lives"
        group = model.process_group
        buffer = bucket.buffer()
        divisor = _divisor(model, group.size())
        if note is not None and note.wants_norm:
            note.measured(_norm_and_divide(buffer, divisor), divisor)
        else:
            self._divide(bucket, buffer, divisor)
        future = group.allreduce([buffer]).get_future()
        if note is None:
            return _then(future, _first)

        def done(future: Any) -> torch.Tensor:
            result: torch.Tensor = future.value()[0]
            note.reduced(result)
            return result

        return _then(future, done)

    def _divide(self, bucket: Any, buffer: torch.Tensor, divisor: int) -> None:
        if buffer.layout is not torch.strided:
            buffer.div_(divisor)
        elif not self._has_complex and (self._storages is None or not divisor & (divisor - 1)):
            buffer.mul_(1.0 / divisor)
        else:
            storages = self._storages or {}
            here = buffer.untyped_storage().data_ptr()
            parameters: list[torch.Tensor] = bucket.parameters()
            for parameter, part in zip(parameters, torch.split(buffer, lengths(parameters)), strict=True):
                # Complex by complex: infinities give other results than part by part.
                grad = torch.view_as_complex(part.view(-1, 2)) if parameter.is_complex() else part
                if storages.pop(id(parameter), None) == here:
                    grad.div_(divisor)
                else:
                    grad.mul_(1.0 / divisor)


class _StorageHook:
    """Notes where a gradient lies, once it is complete and before the reducer takes it. Copies of the parameter get a
    hook that does nothing."""

    def __init__(self, storages: dict[int, int] | None = None) -> None:
        self._storages = storages

    def __call__(self, parameter: torch.Tensor) -> None:
        if self._storages is not None and parameter.grad is not None and parameter.grad.layout is torch.strided:
            self._storages[id(parameter)] = parameter.grad.untyped_storage().data_ptr()


def _norm_and_divide(buffer: torch.Tensor, divisor: int) -> float:
    """L2 norm of a dense bucket in host memory, and then the bucket divided, in one pass over memory."""
    squares = communication.divide(buffer, divisor)
    if squares is not None:
        return math.sqrt(squares)
    norms: list[float] = []
    for block in torch.split(buffer, BLOCK_ELEMENTS):
        norms.append(communication.fast_norm(block))
        block.mul_(1.0 / divisor)
    return math.hypot(*norms)


def lengths(parameters: Sequence[torch.Tensor]) -> list[int]:
    """How many elements of a dense bucket each of its parameters has. Of complex numbers both parts are elements, which
    the bucket's own `gradients()` overlooks."""
    return [parameter.numel() * (2 if parameter.is_complex() else 1) for parameter in parameters]


def _then(future: Any, done: Callable[[Any], torch.Tensor]) -> Future[torch.Tensor]:
    following: Future[torch.Tensor] = future.then(done)
    return following


def _first(future: Any) -> torch.Tensor:
    result: torch.Tensor = future.value()[0]
    return result


# ---- registering ------------------------------------------------------------------------------------

_registered: weakref.WeakKeyDictionary[DistributedDataParallel, DefaultReduction] = weakref.WeakKeyDictionary()


def default_of(model: DistributedDataParallel) -> DefaultReduction | None:
    """The hook that was registered with a model before; it outlives the run that it was registered for."""
    return _registered.get(model)


def register(model: DistributedDataParallel) -> DefaultReduction:
    """Registers the hook.

    Not by the model's own method, which would keep it in the model: a copy or a pickle of that takes nothing of ours.

    Raises:
        RuntimeError: the model has a hook.
    """
    hook = DefaultReduction(model)
    dist._register_comm_hook(model.reducer, None, hook)
    _registered[model] = hook
    listen_to_forwards()
    return hook


# ---- forward passes, and join() -----------------------------------------------------------------------

told_of_forwards: list[Callable[[Any], Any]] = []
"""Called with whatever begins its forward pass within DistributedDataParallel, or another that can be joined; must not
raise."""

_still_training: weakref.WeakKeyDictionary[DistributedDataParallel, Any] = weakref.WeakKeyDictionary()
"""Within `join(divide_by_initial_world_size=False)`: what counts the ranks that take part in the current step."""


def is_joining(model: Any) -> bool:
    """Whether a model trains within `join()`, where some ranks may have no data left."""
    return bool(model._join_config.enable)


def _divisor(model: DistributedDataParallel, num_ranks: int) -> int:
    work = _still_training.get(model) if _still_training else None
    if work is None or not is_joining(model) or model._divide_by_initial_world_size:
        return num_ranks
    # The reducer has waited for it when the first gradient was there, as it does without a hook.
    return int(work.get_future().value()[0].item())


def listen_to_forwards() -> None:
    """The count of ranks that have not joined is known to the reducer alone: it is taken where it comes from. The same
    place is passed by each forward pass of each model."""
    notify = Join.notify_join_context
    if getattr(notify, "halfscope", False):
        return

    def notify_join_context(joinable: Any) -> Any:
        work = notify(joinable)
        if work is None:
            if _still_training:
                _still_training.pop(joinable, None)
        elif joinable in _registered:
            _still_training[joinable] = work
        if not torch.compiler.is_compiling() and told_of_forwards:
            for tell in tuple(told_of_forwards):
                tell(joinable)
        return work

    notify_join_context.halfscope = True  # type: ignore[attr-defined]
    Join.notify_join_context = staticmethod(notify_join_context)
