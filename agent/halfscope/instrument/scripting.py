"""Letting a watched model be scripted.

`torch.jit.script` compiles the hooks it finds on a module, and ours are not of the kind that it can compile. So one
function of `torch.jit._recursive`, which `script` looks up when it runs, is replaced by one that takes ours aside for
the time of the call. Shared by all runs of the process.
Invariant: the function is torch's own again when the last run has ended, and hooks of others are left alone.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.jit._recursive as recursive

from halfscope.instrument.forward import ForwardHook

_GLOBAL = "create_script_module"
_num_users = 0
_original: Any = None
_wrapper: Any = None


def hide_hooks() -> None:
    """From now on models with hooks of ours can be scripted."""
    global _num_users, _original, _wrapper
    _num_users += 1
    original = getattr(recursive, _GLOBAL, None)
    if _num_users > 1 or original is None or original is _wrapper:
        return
    _original = original

    @functools.wraps(original)
    def create_script_module(nn_module: Any, *args: Any, **kwargs: Any) -> Any:
        aside = _take_aside(nn_module)
        try:
            return original(nn_module, *args, **kwargs)
        finally:
            for hooks, ours in aside:
                hooks.update(ours)

    _wrapper = create_script_module
    setattr(recursive, _GLOBAL, create_script_module)


def show_hooks() -> None:
    """Ends one `hide_hooks`."""
    global _num_users, _original, _wrapper
    _num_users -= 1
    # Somebody may have replaced it after us; then ours stays beneath, and hides nothing when there is nothing.
    if not _num_users and _wrapper is not None and getattr(recursive, _GLOBAL) is _wrapper:
        setattr(recursive, _GLOBAL, _original)
        _original = _wrapper = None


def _take_aside(root: Any) -> list[tuple[dict[int, Any], dict[int, Any]]]:
    """Our hooks on a model and all of its modules, taken out."""
    aside = []
    for module in root.modules() if isinstance(root, torch.nn.Module) else ():
        hooks = module.__dict__.get("_forward_pre_hooks") or {}
        ours = {key: hook for key, hook in hooks.items() if isinstance(hook, ForwardHook)}
        if ours:
            for key in ours:
                del hooks[key]
            aside.append((hooks, ours))
    return aside
