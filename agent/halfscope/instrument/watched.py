"""The optimizers and scalers of a run, with what does not change from step to step.

Invariant: parameters are looked up in the optimizer's groups whenever they are needed: users put others into them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from halfscope.instrument import conditions
from halfscope.instrument import scaler as scaler_hooks
from halfscope.instrument.reported import ReportedScaler
from halfscope.instrument.sharing import Share, is_addend
from halfscope.probes.stored import num_elements

if TYPE_CHECKING:
    from halfscope.instrument.flat import FlatUnit

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
        self.num_unchecked = ADOPTION_CHECKS
        """In how many steps more it is looked who calls it."""
        self.quiet: frozenset[int] = frozenset()
        """ids of parameters that another rank tells, where this one tells others."""
        self.tells = True
        """Some of its parameters are this rank's to tell."""
        self.is_meshed = self.has_addends = False
        """Some of its parameters lie on a mesh of devices; some gradients are sums that nobody has added up yet."""
        self.everywhere: list[torch.Tensor] = []
        """Parameters that all ranks of the job hold alike, as they should."""
        self.units: Mapping[int, FlatUnit] = {}
        """By id, flat parameters among its own, for which their pieces stand."""
        self._sizes: Mapping[int, int] = {}
        """By id, of parameters that hold less than the whole."""
        self.last_rate: float | None = None
        self.last_rates: Sequence[Any] = ()

    def parameters(self) -> list[torch.Tensor]:
        """All of its parameters as they are now, in the order of its groups."""
        return [one for group in self.optimizer.param_groups for one in self.pieces(group["params"])]

    def leaves(self) -> list[torch.Tensor]:
        """What its parameters are to autograd."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def pieces(self, parameters: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Parameters, and for flat ones among them their pieces as they are now."""
        if not self.units:
            return parameters
        found: list[torch.Tensor] = []
        for parameter in parameters:
            unit = self.units.get(id(parameter))
            found += [parameter] if unit is None else unit.now()
        return found

    def gradients(self) -> list[torch.Tensor]:
        """The gradients that are there, in the order of `parameters`."""
        if self.quiet or self.units or self.is_meshed:
            return [parameter.grad for parameter in self.parameters_with_gradient() if parameter.grad is not None]
        # From the groups as they are now: what was put into them since is read too.
        return [
            grad
            for group in self.optimizer.param_groups
            for parameter in group["params"]
            if (grad := parameter.grad) is not None
        ]

    def parameters_with_gradient(self) -> list[torch.Tensor]:
        """The parameters that `gradients` are of."""
        found, quiet = [one for one in self.parameters() if one.grad is not None], self.quiet
        if self.is_meshed:
            whole = [one for one in found if one.grad is not None and not is_addend(one.grad)]
            self.has_addends, found = len(whole) < len(found), whole
        return [one for one in found if id(one) not in quiet] if quiet else found

    def with_gradient(self) -> list[int]:
        """ids of the parameters that `gradients` are of."""
        return list(map(id, self.parameters_with_gradient()))

    def share(self, share_of: Callable[[torch.Tensor], Share]) -> None:
        """Sets which parameters are this rank's to tell; where none is, all are still read, for what is seen here."""
        shares = [(parameter, share_of(parameter)) for parameter in self.parameters()]
        quiet = frozenset(id(parameter) for parameter, share in shares if not share.tells)
        self._sizes = {id(one): math.prod(share.shape) for one, share in shares if share.shape is not None}
        self.everywhere = [parameter for parameter, share in shares if share.is_everywhere]
        self.is_meshed = any(hasattr(parameter, "device_mesh") for parameter, _ in shares)
        self.tells = not shares or any(share.tells for _, share in shares)
        self.quiet = quiet if self.tells else frozenset()

    @property
    def tells_norm(self) -> bool:
        """Whether the norm of what this rank tells is the norm of its part of all of them."""
        return self.tells and not self.has_addends

    def describe(self) -> dict[str, Any]:
        """The facts about it."""
        defaults, parameters = self.optimizer.defaults, self.parameters()
        return {
            "name": self.name,
            "class": type(self.optimizer).__name__,
            "fused": bool(defaults.get("fused")),
            "foreach": defaults.get("foreach"),
            "num_tensors": len(parameters),
            "num_parameters": sum(self._sizes.get(id(parameter), num_elements(parameter)) for parameter in parameters),
            "num_groups": len(self.optimizer.param_groups),
            "groups": conditions.hyperparameters(self.optimizer),
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
    if isinstance(scaler, ReportedScaler):
        return scaler.describe(name)
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
