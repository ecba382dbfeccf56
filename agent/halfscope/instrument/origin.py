"""Where a non-finite gradient began.

The order in which parameters get their gradients is recorded once, in the first backward pass; the layer nearest to
the loss among the non-finite ones is where a backward overflow started.
Invariant: with a non-finite loss backward order says nothing (the head's gradient is non-finite whatever overflowed
before it), and no layer is named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from halfscope.instrument.watched import WatchedOptimizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where it began, as far as is known."""

    origin: str
    """`backward`, or `forward, not yet localised`, or `unknown`."""
    layer: str = ""


def find(nonfinite: Collection[str], order: Iterable[str], loss_finite: bool | None) -> Origin:
    """Names the layer in which the backward pass became non-finite.

    Args:
        nonfinite: layers with a non-finite gradient.
        order: layers as the backward pass reaches them, the loss's end first.
        loss_finite: of the raw loss; None where it is not known.
    """
    if loss_finite is False:
        return Origin(origin="forward, not yet localised")
    for layer in order:
        if layer in nonfinite:
            return Origin(origin="backward", layer=layer)
    return Origin(origin="unknown")


class BackwardOrder:
    """Records in which order parameters are reached, then keeps one of the hooks as the sign that a backward runs."""

    def __init__(self, on_backward: Callable[[torch.Tensor], Any]) -> None:
        """
        Args:
            on_backward: called once or more in each backward pass with a parameter; must not raise.
        """
        self.order: dict[int, None] = {}
        """ids of parameters, first reached first; empty until a backward pass was seen."""
        self.complete = False
        self._on_backward = on_backward
        self._handles: dict[int, Any] = {}
        self._parameters: dict[int, torch.Tensor] = {}
        self._lazy: list[torch.Tensor] = []
        """Parameters without a shape before the first forward pass: they take no hook until then."""

    def attach(self, parameters: Iterable[torch.Tensor]) -> None:
        """Sets a hook on each parameter that takes gradients; after a `detach`, where the order is known, on one."""
        kept = next(iter(self.order)) if self.complete else None
        for parameter in parameters:
            if is_lazy(parameter):
                self._lazy.append(parameter)
            elif parameter.requires_grad and parameter.is_leaf and id(parameter) not in self._handles:
                if kept is None:
                    self._set(parameter, self._reached)
                elif id(parameter) == kept:
                    self._set(parameter, self._on_backward)

    def settle(self) -> None:
        """After the first attempt: the order is known, and one hook (of the parameter reached first) is enough."""
        if self._lazy:  # have a shape now: the order is recorded in the next pass, with them
            late, self._lazy = self._lazy, []
            self.order.clear()
            self.attach(parameter for parameter in late if not is_lazy(parameter))
        if self.complete or not self.order:
            return
        self.complete = True
        first = next(iter(self.order))
        parameter = self._parameters[first]
        for key in tuple(self._handles):
            self._remove(key)
        self._set(parameter, self._on_backward)

    def is_lost(self, optimizers: Iterable[WatchedOptimizer]) -> bool:
        """Whether the parameter whose hook was kept takes no gradients any more, or is in no optimizer. Then its hook
        is off, and `attach` begins anew."""
        if not self.complete:
            return False
        for kept in self._parameters.values():
            if kept.requires_grad and any(kept is p for watched in optimizers for p in watched.leaves()):
                return False
        self.detach()
        self.complete = False
        self.order.clear()
        return True

    def detach(self) -> None:
        """Takes every hook off."""
        for key in tuple(self._handles):
            self._remove(key)

    def _reached(self, parameter: torch.Tensor) -> None:
        if not torch.compiler.is_compiling():
            self.order.setdefault(id(parameter))
        self._on_backward(parameter)

    def _set(self, parameter: torch.Tensor, hook: Callable[[torch.Tensor], Any]) -> None:
        register: Any = parameter.register_post_accumulate_grad_hook
        self._parameters[id(parameter)] = parameter
        self._handles[id(parameter)] = register(hook)

    def _remove(self, key: int) -> None:
        parameter = self._parameters.pop(key)
        self._handles.pop(key).remove()
        hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
        if hooks is not None and not hooks:
            parameter._post_accumulate_grad_hooks = None  # type: ignore[assignment]
