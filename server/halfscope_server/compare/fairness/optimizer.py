"""The optimizers and their hyper-parameters, but for the learning rate."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from halfscope_server.compare.fairness.base import ValueCheck, fact, frozen, plain
from halfscope_server.query.view import RunView

NOT_COMPARED = frozenset(
    ["lr", "initial_lr", "fused", "foreach", "capturable", "differentiable", "maximize_speed", "params", "name"]
)
"""Rates have a check of their own; the others change how an update is computed, not what it is."""


def _optimizers(view: RunView) -> Hashable | None:
    found = fact(view, "optimizers")
    if not isinstance(found, list) or not found:
        return None
    return tuple(_one(item) for item in found if isinstance(item, Mapping))


def _one(found: Mapping[str, Any]) -> Hashable:
    groups = found.get("groups")
    settings = (
        tuple(frozen({k: v for k, v in group.items() if k not in NOT_COMPARED}) for group in groups)
        if isinstance(groups, list)
        else ()
    )
    return str(found.get("class", "")), settings


def _tell(value: tuple[tuple[str, tuple[tuple[tuple[str, Any], ...], ...]], ...]) -> str:
    """`AdamW (betas 0.9, 0.999, eps 1e-8 ...)`, of the first group."""
    told = []
    for name, groups in value:
        settings = ", ".join(f"{key} {plain(item)}" for key, item in groups[0] if item is not None) if groups else ""
        told.append(f"{name} ({settings})" if settings else name)
    return "; ".join(told)


CHECK = ValueCheck(
    id="optimizer", title="Optimizer", order=3, read=_optimizers, tell=_tell, confounds=("quality", "speed", "memory")
)
