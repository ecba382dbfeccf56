"""Scripted and traced modules: which hooks can be set on them at all."""

import warnings
from typing import Any

import torch
from support import report

warnings.simplefilter("ignore")
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
num_calls = 0


def called(*_: object) -> None:
    global num_calls
    num_calls += 1


def module_hook(module: Any, target: Any, name: str) -> int | str:
    global num_calls
    num_calls = 0
    try:
        handle = getattr(target, name)(called)
        module(torch.ones(1, 2, requires_grad=True)).sum().backward()
        handle.remove()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:50]}"
    return num_calls


results: dict[str, dict[str, int | str]] = {}
for kind in ("script", "trace"):
    made = torch.jit.script(model) if kind == "script" else torch.jit.trace(model, torch.ones(1, 2))
    child = made[0] if kind == "script" else getattr(made, "0")
    row = results[kind] = {}
    for name in ("register_forward_hook", "register_full_backward_hook"):
        for where, target in (("root", made), ("child", child)):
            row[f"{where}.{name}"] = module_hook(made, target, name)
    num_calls = 0
    next(made.parameters()).register_post_accumulate_grad_hook(called)
    made(torch.ones(1, 2)).sum().backward()
    row["param_grad_hook"] = num_calls
report(any(value == 0 or isinstance(value, str) for row in results.values() for value in row.values()), **results)
