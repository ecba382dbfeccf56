"""Hearing of optimizers, scalers, compiled models and frameworks' trainers as they are made.

Replaces `__init__` of three base classes of torch, and of those that integrations name, by a wrapper that calls the
original and then notes the new object. No method that does work is touched, so nothing can be bypassed by a subclass:
each of them calls its base's `__init__`. Objects that are made without it (copied, unpickled) are met when they step.
Must not import torch: the classes are wrapped when the program imports it, in its own time and after it has set what it
wants to set.
Invariant: after `uninstall` the classes are as torch made them.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

Kind = str
"""`optimizer`, `scaler`, `compiled`, or the id of an integration."""

_CLASSES: dict[str, tuple[str, Kind]] = {
    "torch.optim.optimizer": ("Optimizer", "optimizer"),
    "torch.amp.grad_scaler": ("GradScaler", "scaler"),
    "torch._dynamo.eval_frame": ("OptimizedModule", "compiled"),
}


def classes() -> list[type]:
    """Those of the classes that the program has imported."""
    return [getattr(sys.modules[name], owner) for name, (owner, _) in _CLASSES.items() if name in sys.modules]


class Births:
    """Calls `made(kind, object)` for each new one; `made` must not raise."""

    def __init__(self, made: Callable[[Kind, Any], None], more: Mapping[str, tuple[str, Kind]] | None = None) -> None:
        """
        Args:
            more: further classes: a module's name to the class in it and what its objects are.
        """
        self._made = made
        self._classes = {**_CLASSES, **(more or {})}
        self._originals: dict[type, Any] = {}
        self._finder = _AfterImport(dict.fromkeys(self._classes, self._wrap))

    def install(self) -> None:
        """From now on; modules that are imported already at once."""
        for name in self._classes:
            module = sys.modules.get(name)
            if module is not None:
                self._wrap(module)
        sys.meta_path.insert(0, self._finder)

    def uninstall(self) -> None:
        """Gives the classes their own `__init__` back."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        for owner, original in self._originals.items():
            owner.__init__ = original  # type: ignore[misc]
        self._originals.clear()

    def _wrap(self, module: ModuleType) -> None:
        class_name, kind = self._classes[module.__name__]
        owner = getattr(module, class_name, None)
        if owner is None or owner in self._originals:
            return
        original = self._originals[owner] = owner.__init__

        @functools.wraps(original)
        def __init__(self_: Any, *args: Any, **kwargs: Any) -> None:
            original(self_, *args, **kwargs)
            self._made(kind, self_)

        owner.__init__ = __init__


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls back when certain modules have been executed; finds nothing by itself."""

    def __init__(self, then: dict[str, Callable[[ModuleType], None]]) -> None:
        self._then = then
        self._looking: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._then or name in self._looking:
            return None
        self._looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.discard(name)
        if spec is not None and spec.loader is not None:
            self._tell_after(spec.loader, self._then[name])
        return spec

    @staticmethod
    def _tell_after(loader: Any, then: Callable[[ModuleType], None]) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # it is this loader's own method again: what reloads finds it as it was
            execute(module)
            then(module)

        loader.exec_module = exec_module
