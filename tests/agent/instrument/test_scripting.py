"""A watched model can be scripted and traced."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.jit._recursive as recursive

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

Net = Callable[[], torch.nn.Sequential]


@pytest.mark.parametrize("when", ["before the first step", "later"])
def test_a_watched_model_can_be_scripted(watching: Any, net: Net, when: str) -> None:
    """Its hooks are not compiled, it goes on being watched, and the scripted one has none."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    batch = torch.ones(2, 4)
    for step in range(2):
        if step == (when == "later"):
            scripted = torch.jit.script(model)
            assert scripted(batch).tolist() == model(batch).tolist()
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    recorded = watching.read()
    assert sorted(recorded.series("grad.norm")) == [0, 1]
    assert recorded.facts["samples_source"] == "inferred"


def test_hooks_of_others_are_still_compiled(watching: Any, net: Net) -> None:
    """What torch says of a hook that it cannot compile, it says with us too."""
    model = net()
    watching(model, torch.optim.SGD(model.parameters(), 0.1))
    model.register_forward_pre_hook(lambda *_: None)
    with pytest.raises(Exception, match="Expected a single top-level function"):
        torch.jit.script(model)


def test_tracing_a_watched_model_warns_of_nothing_of_ours(watching: Any, net: Net) -> None:
    """The hooks do nothing while torch.jit.trace runs the model."""
    model = net()
    watching(model, torch.optim.SGD(model.parameters(), 0.1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.jit.trace(model, torch.ones(2, 4))
    assert not [warning for warning in caught if issubclass(warning.category, torch.jit.TracerWarning)]


def test_torch_has_its_function_back_after_the_last_run(watching: Any, net: Net) -> None:
    """However many runs there were."""
    original = recursive.create_script_module
    runs = []
    for _ in range(2):
        model = net()
        runs.append(watching(model, torch.optim.SGD(model.parameters(), 0.1)))
    assert recursive.create_script_module is not original
    runs[0].finish()
    assert recursive.create_script_module is not original
    runs[1].finish()
    assert recursive.create_script_module is original
