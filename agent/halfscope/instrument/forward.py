"""A forward pre-hook that can be pickled and copied away.

A hook sits in the module's own dictionary, so `pickle` and `deepcopy` of the model take it along: what they take of
this one is a do-nothing of the standard library, and the copy needs no halfscope.
Invariant: calls under `torch.compile` and `torch.jit.trace` do nothing, so the hook is traced to nothing and breaks no
graph.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.jit._script import RecursiveScriptModule

_is_compiling = torch.compiler.is_compiling
_tracing_state = torch._C._get_tracing_state


class ForwardHook:
    """Calls `seen(module, args, kwargs)` before each forward pass with gradients."""

    __slots__ = ("__weakref__", "_quick", "_seen")

    def __init__(
        self,
        seen: Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any]], Any],
        quick: Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any]], bool] | None = None,
    ) -> None:
        """
        Args:
            quick: asked first; where it returns True, `seen` is not called.
        """
        self._seen, self._quick = seen, quick

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if kwargs is None:  # taken off by a hook that ran before it in this very call: torch then passes none
            return
        if _is_compiling() or _tracing_state() is not None:
            return
        if self._quick is None or not self._quick(module, args, kwargs):
            self._seen(module, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # nullcontext().__exit__ takes any arguments and returns None: a picklable hook that does nothing.
        return getattr, (contextlib.nullcontext(), "__exit__")


def leading_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Length of the first dimension of the first tensor among the inputs; None where there is none."""
    for value in (*args, *kwargs.values()):
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
        for item in inner:
            if isinstance(item, torch.Tensor):
                return int(item.shape[0]) if item.dim() else None
    return None


def takes_hooks(module: torch.nn.Module) -> bool:
    """Whether hooks can be set on a module; torch refuses them on what `torch.jit.script` makes."""
    return not isinstance(module, RecursiveScriptModule)


def called_in_python(root: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules within a model, each once, that a hook of ours would see called: not those that are compiled or
    scripted. A hook on those says nothing, and taking it off again makes `torch.compile` compile once more."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    compiled: tuple[type, ...] = () if eval_frame is None else (eval_frame.OptimizedModule,)
    seen = {id(root)}
    waiting = [root]
    while waiting:
        module = waiting.pop()
        if isinstance(module, compiled) or module._compiled_call_impl is not None:
            continue
        for child in module.children():
            if id(child) not in seen:
                seen.add(id(child))
                if not isinstance(child, torch.jit.ScriptModule):
                    yield child
                    waiting.append(child)
