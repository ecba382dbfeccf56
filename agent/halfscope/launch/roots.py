"""Finding the models that own an optimizer's parameters, and what the program calls its objects.

Looks through the objects that Python's garbage collector knows, once per training and only where the module that is
being called does not own all of them.
Invariant: changes nothing, keeps nothing alive, and touches no attribute of an object that is not a module.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

import torch

MAX_FRAMES = 64


def find_models(wanted: Set[int], called: torch.nn.Module | None) -> list[torch.nn.Module]:
    """The fewest outermost modules that own the wanted parameters; the one that is being called first.

    Args:
        wanted: ids of parameters.
        called: a module that owns some of them and is being called now; None where that is not known.

    Returns:
        Empty where no module owns any of them.
    """
    if called is not None and wanted <= _owned(called):
        return [called]
    roots = _roots(wanted)
    if called is not None and not any(root is called for root in roots):
        roots = [root for root in roots if any(inner is called for inner in root.modules())] + [
            root for root in roots if all(inner is not called for inner in root.modules())
        ] or [called]
    chosen: list[torch.nn.Module] = []
    left = set(wanted)
    owned = [(root, _owned(root)) for root in roots]
    while left:
        # Of two that own the same (a wrapper made for evaluation, say) the one with less beside it.
        root, covers = max(owned, key=lambda pair: (len(pair[1] & left), -len(pair[1])), default=(None, set()))
        if root is None or not covers & left:
            break
        chosen.append(root)
        left -= covers
    if called is not None:
        chosen.sort(key=lambda root: all(inner is not called for inner in root.modules()))
    return chosen


def owns_any(module: torch.nn.Module, wanted: Set[int]) -> bool:
    """Whether one of the wanted parameters is in a module."""
    return any(id(parameter) in wanted for parameter in module.parameters())


def _owned(module: torch.nn.Module) -> set[int]:
    return {id(parameter) for parameter in module.parameters()}


def _roots(wanted: Set[int]) -> list[torch.nn.Module]:
    """Modules that own wanted parameters, directly or not, and are in no other module."""
    # By type(), not isinstance(): a proxy's `__class__` may run code. `issubclass` is asked once per class.
    is_module: dict[type, bool] = {}
    modules: list[torch.nn.Module] = []
    for found in gc.get_objects():
        kind = type(found)
        if kind not in is_module:
            is_module[kind] = issubclass(kind, torch.nn.Module)
        if is_module[kind]:
            modules.append(found)
    parents: dict[int, list[torch.nn.Module]] = {}
    owners: dict[int, torch.nn.Module] = {}
    for module in modules:
        if "_parameters" not in vars(module) and not isinstance(module, torch.jit.ScriptModule):
            continue  # its constructor has not run, or not yet
        for child in module.children():
            parents.setdefault(id(child), []).append(module)
        if any(id(parameter) in wanted for parameter in module.parameters(recurse=False)):
            owners[id(module)] = module
    waiting = list(owners.values())
    while waiting:
        for parent in parents.get(id(waiting.pop()), ()):
            if id(parent) not in owners:
                owners[id(parent)] = parent
                waiting.append(parent)
    return [module for key, module in owners.items() if key not in parents]


def names(items: Iterable[Any]) -> dict[str, Any]:
    """Objects by what the program calls them: a global variable's name, else the class's; in the order given."""
    scopes = list(_scopes())
    named: dict[str, Any] = {}
    for item in items:
        wanted = _variable(item, scopes) or type(item).__name__
        name, count = wanted, 1
        while name in named:
            count += 1
            name = f"{wanted}-{count}"
        named[name] = item
    return named


def _scopes() -> Iterator[dict[str, Any]]:
    """Globals of the frames that are running, each once, and of the program. Not their locals: reading those would keep
    the program's objects alive."""
    seen: set[int] = set()
    frame = sys._getframe(1)
    depth = 0
    while frame is not None and depth < MAX_FRAMES:
        scope = frame.f_globals
        if id(scope) not in seen and not str(scope.get("__name__", "")).startswith(("torch.", "halfscope.")):
            seen.add(id(scope))
            yield scope
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    main = vars(sys.modules["__main__"])
    if id(main) not in seen:
        yield main


def _variable(item: Any, scopes: Sequence[dict[str, Any]]) -> str | None:
    for scope in scopes:
        for name, value in list(scope.items()):
            if value is item and not name.startswith("_"):
                return name
    return None
