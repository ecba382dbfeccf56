"""`halfscope.wrap_comm_hook`: somebody's communication hook, and what goes in and comes out of it.

Invariant: without a run the wrapped hook alone is called, and the reducer waits for its very future.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from halfscope.instrument.ddp.reducing import Compression, Observe

Hook = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]

_FP16, _BF16 = Compression(dtype=torch.float16), Compression(dtype=torch.bfloat16)
_COMPRESSIONS = {
    "fp16_compress_hook": _FP16,
    "fp16_compress_wrapper.<locals>.fp16_compress_wrapper_hook": _FP16,
    "bf16_compress_hook": _BF16,
    "bf16_compress_wrapper.<locals>.bf16_compress_wrapper_hook": _BF16,
}
"""Of torch's hooks, those that round the bucket as it is, before they divide it."""
_TORCHS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"


class WatchedHook:
    """A communication hook whose buckets a run can look at."""

    __name__: str
    __qualname__: str

    def __init__(self, hook: Hook, compression: Compression | None = None, name: str = "") -> None:
        """
        Args:
            compression: what it does to the bucket before that is sent, where it is known.
            name: what it is called; by default as the hook is.
        """
        functools.update_wrapper(self, hook)
        own = getattr(hook, "__qualname__", type(hook).__qualname__)
        self.__name__, self.__qualname__ = name or getattr(hook, "__name__", own), name or own
        if name:
            # The model checks annotations, and takes no texts for them.
            self.__signature__ = inspect.signature(hook, eval_str=True)
        self.hook, self.compression, self._name = hook, compression, name
        self.observers: dict[int, Observe] = {}
        """By id of each parameter of the models that it is registered with."""

    def __call__(self, state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        observe = self._observer(bucket) if self.observers else None
        note = None if observe is None else observe(bucket, self.compression, False)
        future = self.hook(state, bucket)
        if note is None:
            return future

        def done(future: Any) -> torch.Tensor:
            result: torch.Tensor = future.value()
            note.reduced(result)
            return result

        return future.then(done)

    def _observer(self, bucket: Any) -> Observe | None:
        return self.observers.get(id(bucket.parameters()[0]))

    def __reduce__(self) -> tuple[Any, ...]:
        return WatchedHook, (self.hook, self.compression, self._name)


def wrap_comm_hook(hook: Hook) -> WatchedHook:
    """A communication hook that halfscope can look into: `model.register_comm_hook(state, wrap_comm_hook(hook))`.

    Gradients are what they are with the hook alone. Of torch's own hooks that compress to half precision it is known
    from which magnitude on an element becomes infinite by that.

    Args:
        hook: as `DistributedDataParallel.register_comm_hook` takes it.

    Raises:
        TypeError: something that cannot be called.
    """
    if isinstance(hook, WatchedHook):
        return hook
    if not callable(hook):
        raise TypeError(
            f"wrap_comm_hook was given {type(hook).__name__}; expected a communication hook, a function of (state, "
            "bucket) as DistributedDataParallel.register_comm_hook takes it"
        )
    is_torchs = getattr(hook, "__module__", "") == _TORCHS
    return WatchedHook(hook, _COMPRESSIONS.get(getattr(hook, "__qualname__", "")) if is_torchs else None)
