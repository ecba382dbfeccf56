"""Names of models, optimizers, scalers and parameters, and the objects behind wrappers.

Invariant: a parameter has one canonical name (no `module.`, `_orig_mod.` and their like), shared ones the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

T = TypeVar("T")

_WRAPPER_PARTS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def canonical(name: str, model: torch.nn.Module) -> str:
    """`name` without the parts that wrappers add.

    `module` alone may be the user's own attribute: it is dropped only where the wrapper's class adds it.
    """
    kept: list[str] = []
    at: Any = model
    for part in name.split("."):
        if not (part in _WRAPPER_PARTS and (part != "module" or _wraps(at))):
            kept.append(part)
        at = getattr(at, part, None)
    return ".".join(kept)


def _wraps(module: Any) -> bool:
    return type(module).__module__.startswith(
        ("torch.nn.parallel", "torch.distributed", "deepspeed", "apex", "torch.optim.swa")
    )


def parameter_names(models: Mapping[str, torch.nn.Module]) -> dict[int, str]:
    """id of each parameter to its canonical name, in registration order.

    With more than one model the model's own name comes first.
    """
    names: dict[int, str] = {}
    for model_name, model in models.items():
        prefix = f"{model_name}." if len(models) > 1 else ""
        for name, parameter in model.named_parameters():
            names.setdefault(id(parameter), prefix + canonical(name, model))
    return names


def name_models(model: Any) -> dict[str, torch.nn.Module]:
    """The argument `model` as name to module.

    Raises:
        TypeError: something that is no module.
    """
    if isinstance(model, torch.nn.Module) and not isinstance(model, (torch.nn.ModuleList, torch.nn.ModuleDict)):
        return {"model": model}
    models = _named(model, "model", "torch.nn.Module", lambda item, at: str(at))
    for name, item in models.items():
        if not isinstance(item, torch.nn.Module):
            raise TypeError(
                f"model {name!r} is {type(item).__name__}; expected a torch.nn.Module, or a list or dict of them: "
                "watch(model, optimizer, scaler)"
            )
    return models


def name_optimizers(optimizer: Any) -> dict[str, torch.optim.Optimizer]:
    """The argument `optimizer` as name to optimizer, wrappers taken off.

    Raises:
        TypeError: something that is no optimizer.
    """
    items = _named(
        optimizer, "optimizer", "torch.optim.Optimizer", lambda item, at: type(unwrap_optimizer(item)).__name__
    )
    optimizers: dict[str, torch.optim.Optimizer] = {}
    for name, item in items.items():
        inner = unwrap_optimizer(item)
        if not isinstance(inner, torch.optim.Optimizer):
            raise TypeError(
                f"optimizer {name!r} is {type(item).__name__}; expected a torch.optim.Optimizer, or a list or dict of "
                "them: watch(model, optimizer, scaler)"
            )
        optimizers[name] = inner
    return optimizers


def name_scalers(scaler: Any) -> dict[str, Any]:
    """The argument `scaler` as name to scaler; None and empty give none.

    Raises:
        TypeError: something that does not scale.
    """
    if scaler is None:
        return {}
    scalers = _named(scaler, "scaler", "torch.amp.GradScaler", lambda item, at: type(item).__name__, may_be_empty=True)
    for name, item in scalers.items():
        if not isinstance(item, torch.amp.GradScaler):
            raise TypeError(
                f"scaler {name!r} is {type(item).__name__}; expected a torch.amp.GradScaler (or a subclass), a list or "
                "dict of them, or None where there is none"
            )
    return scalers


def unwrap_optimizer(optimizer: Any, depth: int = 8) -> Any:
    """The optimizer behind Accelerate's `.optimizer` and Lightning's `._optimizer`, however deep."""
    for attribute in ("_optimizer", "optimizer"):
        inner = getattr(optimizer, attribute, None)
        if inner is None or inner is optimizer or not depth:
            continue
        found = unwrap_optimizer(inner, depth - 1)
        if isinstance(found, torch.optim.Optimizer):
            return found
    return optimizer


def _named(value: Any, what: str, expected: str, default: Any, *, may_be_empty: bool = False) -> dict[str, Any]:
    items: dict[str, Any] = {}
    if isinstance(value, (Mapping, torch.nn.ModuleDict)):
        items = {str(key): item for key, item in value.items()}
    elif isinstance(value, (Sequence, torch.nn.ModuleList)) and not isinstance(value, str):
        items = dict(_unique((default(item, at), item) for at, item in enumerate(value)))
    else:
        return {default(value, 0): value}
    if not items and not may_be_empty:
        raise TypeError(f"{what} is empty; expected a {expected}, or a list or dict of them")
    seen: dict[int, str] = {}
    for name, item in items.items():
        if id(item) in seen:
            raise ValueError(f"{what} {seen[id(item)]!r} and {name!r} are the same object; give it once")
        seen[id(item)] = name
    return items


def _unique(pairs: Iterator[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    taken: dict[str, int] = {}
    for name, item in pairs:
        count = taken[name] = taken.get(name, 0) + 1
        yield (name if count == 1 else f"{name}-{count}"), item
