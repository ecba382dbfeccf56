"""The optimizers and scalers of a run, with what does not change from step to step.

Invariant: an optimizer's parameters are looked up once and again only when its groups have changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from halfscope.instrument import scaler as scaler_hooks

ADOPTION_CHECKS = 16


class WatchedOptimizer:
    """One optimizer: its parameters, its labels and its size."""

    def __init__(self, index: int, name: str, optimizer: torch.optim.Optimizer, *, labelled: bool) -> None:
        """
        Args:
            labelled: there are several, so its series carry its name.
        """
        self.index = index
        self.name = name
        self.optimizer = optimizer
        self.labels: Mapping[str, str] = {"optimizer": name} if labelled else {}
        self.num_elements = 0
        self.num_unchecked = ADOPTION_CHECKS
        """In how many steps more it is looked who calls it."""
        self.last_rate: float | None = None
        self.last_rates: Sequence[Any] = ()
        self._marks: list[tuple[int, ...]] = []
        """Of each group its size, first and last parameter: what a replaced layer or head changes."""
        self._parameters: list[torch.Tensor] = []

    def parameters(self) -> Sequence[torch.Tensor]:
        """All of its parameters, in the order of its groups."""
        groups = self.optimizer.param_groups
        known = self._parameters
        if len(groups) == 1:
            params = groups[0]["params"]
            if known and len(params) == len(known) and params[0] is known[0] and params[-1] is known[-1]:
                return known
        marks = [
            (len(params), *map(id, (*params[:1], *params[-1:]))) for group in groups if (params := group["params"])
        ]
        if len(groups) == 1 or marks != self._marks:
            self._marks = marks
            self._parameters = [p for group in groups for p in group["params"]]
            self.num_elements = sum(parameter.numel() for parameter in self._parameters)
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        """The gradients that are there, in the order of `parameters`."""
        # From the groups as they are now: what was put into them since is read too.
        return [
            grad
            for group in self.optimizer.param_groups
            for parameter in group["params"]
            if (grad := parameter.grad) is not None
        ]

    def with_gradient(self) -> list[int]:
        """ids of the parameters that `gradients` are of."""
        return [id(parameter) for parameter in self.parameters() if parameter.grad is not None]

    def describe(self) -> dict[str, Any]:
        """The facts about it."""
        defaults = self.optimizer.defaults
        return {
            "name": self.name,
            "class": type(self.optimizer).__name__,
            "fused": bool(defaults.get("fused")),
            "foreach": defaults.get("foreach"),
            "num_tensors": len(self.parameters()),
            "num_parameters": self.num_elements,
            "num_groups": len(self.optimizer.param_groups),
        }


class WatchedScaler:
    """One scaler that is enabled: its labels and its settings."""

    def __init__(self, index: int, name: str, scaler: torch.amp.GradScaler, *, labelled: bool) -> None:
        self.index = index
        self.name = name
        self.scaler = scaler
        self.labels: Mapping[str, str] = {"scaler": name} if labelled else {}
        self.settings = settings(scaler)

    def state(self, optimizer: torch.optim.Optimizer) -> Mapping[str, Any] | None:
        """What it holds of an optimizer between `unscale_` and `update`: its stage and its flags per device.

        Looked up without making an entry: the attribute is a defaultdict.
        """
        states: Mapping[int, Mapping[str, Any]] = self.scaler._per_optimizer_states
        return states.get(id(optimizer))

    def changed_settings(self) -> bool:
        """Whether its settings are others than when last asked."""
        now = settings(self.scaler)
        changed = now != self.settings
        self.settings = now
        return changed


def settings(scaler: torch.amp.GradScaler) -> tuple[float, float, int]:
    """(growth factor, backoff factor, growth interval)."""
    return scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()


def describe_scaler(name: str, scaler: torch.amp.GradScaler) -> dict[str, Any]:
    """The facts about a scaler; a disabled one has no settings."""
    facts = {"name": name, "class": scaler_hooks.plain_class(scaler).__name__, "enabled": scaler.is_enabled()}
    if not scaler.is_enabled():
        return facts
    growth_factor, backoff_factor, growth_interval = settings(scaler)
    return {
        **facts,
        "init_scale": float(scaler._init_scale),
        "growth_factor": growth_factor,
        "backoff_factor": backoff_factor,
        "growth_interval": growth_interval,
    }
