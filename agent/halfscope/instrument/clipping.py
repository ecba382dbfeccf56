"""Seeing that torch.nn.utils clips, before it does, and what it computes for that.

Replaces globals of the module `torch.nn.utils.clip_grad` that its public functions look up when they run, so that
`from torch.nn.utils import clip_grad_norm_` made earlier is seen too. Shared by all runs of the process.
Invariant: the globals are torch's own again when the last listener has gone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.utils.clip_grad as clip_module

Listener = Callable[[list[torch.Tensor], torch.Tensor | None], Any]
"""Given the gradients about to be clipped, and their L2 norm where torch has just computed it; must not raise."""
Clipped = Callable[[torch.Tensor, Any], Any]
"""Given such a norm, and to which greatest norm those gradients were scaled down by it; must not raise."""

MAX_FRAMES = 12

_listeners: dict[Listener, Clipped | None] = {}
_originals: dict[str, Callable[..., Any]] = {}
_wrappers: dict[str, Callable[..., Any]] = {}


class _Here(threading.local):
    """What is known of the call that is going on in a thread."""

    is_told = False
    """Listeners know of it."""
    total: torch.Tensor | None = None
    """The norm that they were told last."""


_here = _Here()


def listen(listener: Listener, clipped: Clipped | None = None) -> None:
    """Calls `listener` whenever gradients are about to be clipped.

    Args:
        clipped: called when those whose norm it was told were scaled down.
    """
    _listeners[listener] = clipped
    if len(_listeners) == 1:
        _install()


def unlisten(listener: Listener) -> None:
    """Ends `listen`."""
    if listener in _listeners:
        del _listeners[listener]
        if not _listeners:
            _uninstall()


def parameters() -> list[torch.Tensor]:
    """Whose gradients torch's clipping function on the stack was called to clip; none where it was given gradients."""
    frame = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame.f_back is None:
            break
        frame = frame.f_back
        if frame.f_globals.get("__name__") == clip_module.__name__ and "parameters" in frame.f_locals:
            given = frame.f_locals["parameters"]
            return [given] if isinstance(given, torch.Tensor) else list(given) if isinstance(given, list) else []
    return []


def _install() -> None:
    for name, wrapped in _WRAPPED.items():
        original = getattr(clip_module, name, None)
        if original is not None and _wrappers.get(name) is not original:
            _originals[name], _wrappers[name] = original, wrapped(original)
            setattr(clip_module, name, _wrappers[name])


def _uninstall() -> None:
    for name in tuple(_wrappers):
        # Somebody may have replaced it after us; then ours stays beneath, and tells nobody.
        if getattr(clip_module, name) is _wrappers[name]:
            setattr(clip_module, name, _originals.pop(name))
            del _wrappers[name]


def _is_idle() -> bool:
    return torch.compiler.is_compiling() or not _listeners


def _total_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    def computing(tensors: Any, norm_type: Any = 2.0, *args: Any, **kwargs: Any) -> Any:
        if _is_idle():
            return original(tensors, norm_type, *args, **kwargs)
        if not isinstance(tensors, (list, torch.Tensor)):
            tensors = list(tensors)  # a generator can be read once
        total = None
        _here.is_told = True
        try:
            total = original(tensors, norm_type, *args, **kwargs)
            return total
        finally:
            # It changes nothing: what is read behind it is what was there before, also where it raised.
            _here.is_told = False
            _tell(tensors, total if norm_type == 2 else None)

    return computing


def _grouping(original: Callable[..., Any]) -> Callable[..., Any]:
    def grouping(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if not (_here.is_told or _is_idle()):
            _tell(tensors, None)
        return original(tensors, *args, **kwargs)

    return grouping


def _scaling(original: Callable[..., Any]) -> Callable[..., Any]:
    def scaling(parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
        total, _here.total = _here.total, None
        if total is None or total is not total_norm or _is_idle():
            return original(parameters, max_norm, total_norm, *args, **kwargs)
        _here.is_told = True
        try:
            result = original(parameters, max_norm, total_norm, *args, **kwargs)
        finally:
            _here.is_told = False
        for clipped in tuple(_listeners.values()):
            if clipped is not None:
                clipped(total, max_norm)
        return result

    return scaling


_WRAPPED = {
    "_get_total_norm": _total_norm,
    "_clip_grads_with_norm_": _scaling,
    "_group_tensors_by_device_and_dtype": _grouping,
}
"""The first two are called by clip_grad_norm_, one after the other; where torch is too old to have them, it calls the
last one first, as clip_grad_value_ does."""


def _tell(tensors: Any, total: torch.Tensor | None) -> None:
    _here.total = total
    found = list(_tensors(tensors))
    told: list[Listener] = []
    # One that is told may be what makes another listen: to this call already.
    while found and (fresh := [listener for listener in _listeners if listener not in told]):
        for listener in fresh:
            told.append(listener)
            listener(found, total)


def _tensors(value: torch.Tensor | Iterable[Any]) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        return
    for item in value:
        yield from [item] if isinstance(item, torch.Tensor) else item
