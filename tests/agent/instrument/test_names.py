"""Names of parameters, optimizers and scalers."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from halfscope.instrument import names


class Wrapped(torch.nn.Module):
    """A user's module with an attribute that happens to be called `module`."""

    def __init__(self) -> None:
        super().__init__()
        self.module = torch.nn.Linear(2, 1)


def test_a_users_own_module_attribute_stays_in_the_name() -> None:
    """Only a wrapper's `module.` is taken off."""
    model = Wrapped()
    assert set(names.parameter_names({"model": model}).values()) == {"module.weight", "module.bias"}
    parallel = torch.nn.DataParallel(model)
    assert set(names.parameter_names({"model": parallel}).values()) == {"module.weight", "module.bias"}
    plain = torch.nn.DataParallel(torch.nn.Linear(2, 1))
    assert set(names.parameter_names({"model": plain}).values()) == {"weight", "bias"}


def test_compile_and_averaging_leave_no_trace_in_names() -> None:
    """`_orig_mod.` and the copy's `module.`."""
    compiled = torch.compile(torch.nn.Sequential(torch.nn.Linear(2, 1)), backend="eager")
    assert set(names.parameter_names({"model": compiled}).values()) == {"0.weight", "0.bias"}
    averaged = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(2, 1))
    assert set(names.parameter_names({"model": averaged}).values()) == {"weight", "bias"}


def test_several_models_put_their_name_first_and_shared_parameters_keep_the_first() -> None:
    """A discriminator that shares a layer with the generator."""
    shared = torch.nn.Linear(2, 2, bias=False)
    models = {"g": torch.nn.Sequential(shared), "d": torch.nn.Sequential(shared, torch.nn.Linear(2, 1, bias=False))}
    assert list(names.parameter_names(models).values()) == ["g.0.weight", "d.1.weight"]


def test_wrapped_optimizers_are_unwrapped() -> None:
    """Accelerate keeps the real one in `.optimizer`, Lightning in `._optimizer`."""
    real = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), 0.1)
    for wrapper in (types.SimpleNamespace(optimizer=real), types.SimpleNamespace(_optimizer=real)):
        assert names.name_optimizers(wrapper) == {"SGD": real}
    assert names.name_optimizers(types.SimpleNamespace(optimizer=types.SimpleNamespace(_optimizer=real)))["SGD"] is real


def test_optimizers_of_one_class_are_told_apart() -> None:
    """By number in a list, by the user's own names in a dict."""
    made = [torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), 0.1) for _ in range(2)]
    assert list(names.name_optimizers(made)) == ["SGD", "SGD-2"]
    assert list(names.name_optimizers({"g": made[0], "d": made[1]})) == ["g", "d"]


@pytest.mark.parametrize("container", [list, torch.nn.ModuleList])
def test_models_in_lists_are_numbered(container: Any) -> None:
    """A ModuleList is several models."""
    found = names.name_models(container([torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)]))
    assert list(found) == ["0", "1"]
