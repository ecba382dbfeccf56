"""Seeing that torch.nn.utils clips, before it does.

Replaces two globals of the module `torch.nn.utils.clip_grad` that its public functions look up when they run, so that
`from torch.nn.utils import clip_grad_norm_` made earlier is seen too. Shared by all runs of the process.
Invariant: the globals are torch's own again when the last listener has gone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.utils.clip_grad as clip_module

Listener = Callable[[list[torch.Tensor]], Any]
"""Given the gradients about to be clipped; must not raise."""

_GLOBALS = ("_get_total_norm", "_group_tensors_by_device_and_dtype")
"""First called by clip_grad_norm_, and first called by clip_grad_value_ (of every torch since 2.4)."""

MAX_FRAMES = 12

_listeners: list[Listener] = []
_originals: dict[str, Callable[..., Any]] = {}
_wrappers: dict[str, Callable[..., Any]] = {}


def listen(listener: Listener) -> None:
    """Calls `listener` whenever gradients are about to be clipped."""
    _listeners.append(listener)
    if len(_listeners) == 1:
        _install()


def unlisten(listener: Listener) -> None:
    """Ends `listen`."""
    if listener in _listeners:
        _listeners.remove(listener)
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
    for name in _GLOBALS:
        original = getattr(clip_module, name, None)
        if original is not None and _wrappers.get(name) is not original:
            _originals[name], _wrappers[name] = original, _wrapped(original)
            setattr(clip_module, name, _wrappers[name])


def _uninstall() -> None:
    for name in tuple(_wrappers):
        # Somebody may have replaced it after us; then ours stays beneath, and tells nobody.
        if getattr(clip_module, name) is _wrappers[name]:
            setattr(clip_module, name, _originals.pop(name))
            del _wrappers[name]


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    def clipping(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not _listeners:
            return original(tensors, *args, **kwargs)
        if not isinstance(tensors, (list, torch.Tensor)):
            tensors = list(tensors)  # a generator can be read once
        found = list(_tensors(tensors))
        if found:
            told: list[Listener] = []
            # One that is told may be what makes another listen: to this call already.
            while fresh := [listener for listener in _listeners if listener not in told]:
                for listener in fresh:
                    told.append(listener)
                    listener(found)
        return original(tensors, *args, **kwargs)

    return clipping


def _tensors(value: torch.Tensor | Iterable[Any]) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        return
    for item in value:
        yield from [item] if isinstance(item, torch.Tensor) else item
