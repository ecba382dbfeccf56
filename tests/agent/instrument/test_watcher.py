"""Hooks that are taken off and set again on one run, as the measurement of their cost does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Net = Callable[[], torch.nn.Sequential]


@pytest.mark.parametrize("has_scaler", [False, True])
def test_hooks_can_be_taken_off_and_set_again(watching: Any, net: Net, has_scaler: bool) -> None:
    """Steps in between are none of the run's, those after it go on counting, and no hook is set twice."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=has_scaler)
    run = watching(model, optimizer, scaler)

    def hooks() -> tuple[int, ...]:
        kept = (module._forward_pre_hooks for module in model.modules())
        return (
            sum(map(len, kept)),
            len(optimizer._optimizer_step_pre_hooks),
            len(optimizer._optimizer_step_post_hooks),
            sum(len(parameter._post_accumulate_grad_hooks or ()) for parameter in model.parameters()),
            int(type(scaler) is not torch.amp.GradScaler),
        )

    def train(value: float) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 4)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            run.log(value=value)

    train(1.0)
    on = hooks()
    assert on == (1, 1, 1, 1, int(has_scaler))
    run._watcher.detach()
    assert hooks() == (0, 0, 0, 0, 0)
    for parameter in model.parameters():
        assert parameter._post_accumulate_grad_hooks is None
    weights = model[0].weight.detach().clone()
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert not torch.equal(weights, model[0].weight)
    run._watcher.attach()
    assert hooks() == on
    train(2.0)
    recorded = watching.read()
    assert recorded.steps() == list(range(6))
    assert recorded.series("value") == dict.fromkeys(range(3), 1.0) | dict.fromkeys(range(3, 6), 2.0)
    assert list(recorded.series("opt.steps").values()) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert list(recorded.series("grad.norm")) == list(range(6))
    assert recorded.kinds("agent_degraded") == []
