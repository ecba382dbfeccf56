"""`run.on_alert` in real trainings: who goes wrong is told at once, who is healthy never."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import halfscope
import pytest
import torch
from halfscope.alerts import Alert

Net = Callable[[], torch.nn.Sequential]
X = torch.ones(2, 4)


def amp_step(run: Any, model: Any, optimizer: Any, scaler: Any, factor: float = 1.0) -> None:
    optimizer.zero_grad()
    loss = model(X).float().pow(2).sum() * factor
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    run.step(loss=loss.detach())


def test_nan_that_reaches_the_weights_stops_a_training(watching: Any, net: Net) -> None:
    """The step after which the weights are bad is the last one, and the run ends with the exception's name."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run = watching(model, optimizer)
    seen: list[Alert] = []

    def stop(alert: Alert) -> None:
        seen.append(alert)
        raise halfscope.StopTraining(f"{alert.text} at step {alert.step}")

    run.on_alert(stop)
    done = 0

    def train() -> None:
        nonlocal done
        for step in range(10):
            optimizer.zero_grad()
            loss = model(X).pow(2).sum() * (math.nan if step == 4 else 1.0)
            loss.backward()
            optimizer.step()
            run.step(loss=loss.item())
            done += 1

    with (
        pytest.raises(halfscope.StopTraining, match=r"NaN or Inf was applied: gradients of 4 layers .* at step 4"),
        run,
    ):
        train()
    assert done == 4
    assert seen[0].kind == "nonfinite_applied"
    assert list(seen[0].where) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    end = watching.read().end
    assert (end.outcome, end.error_type) == ("exception", "StopTraining")


def test_healthy_settling_and_probes_call_nobody(watching: Any, net: Net) -> None:
    """A scale that settles and then probes every 50 steps raises nothing in 400 steps."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    # A finite loss whose gradients overflow above 2^12: settles from 2^16, then probes once per interval.
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=50)
    run = watching(model, optimizer, scaler)
    found: list[Alert] = []
    run.on_alert(found.append)
    num_skips = 0
    for _ in range(400):
        scale = scaler.get_scale()
        num_skips += scale > 2.0**12
        amp_step(run, model, optimizer, scaler, 1e36 if scale > 2.0**12 else 1.0)
    assert num_skips > 8
    assert found == []


def test_a_streak_and_a_collapse_are_told_when_they_begin(watching: Any, net: Net) -> None:
    """Gradients that stay infinite: one alert for the streak, one when the scale passes 1, none after."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    run = watching(model, optimizer, scaler)
    found: list[Alert] = []
    run.on_alert(found.append)
    for _ in range(5):
        amp_step(run, model, optimizer, scaler)
    for _ in range(12):
        amp_step(run, model, optimizer, scaler, math.inf)
    kinds = [(alert.kind, alert.step) for alert in found]
    # The scale is 8 at step 5 and halves at each step: 0.5 after step 8.
    assert kinds.count(("scale_collapse", 8)) == 1
    assert [kind for kind, _ in kinds].count("skip_streak") == 1
    assert len(kinds) == 2
    assert found[0].step <= 8


def test_run_log_calls_back_too(watching: Any, net: Net) -> None:
    """A training that logs instead of calling `run.step` is told as well."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    run = watching(model, optimizer)
    found: list[Alert] = []
    run.on_alert(found.append)
    model(X).pow(2).sum().mul(math.nan).backward()
    optimizer.step()
    assert found == []
    run.log(anything=1.0)
    assert [alert.kind for alert in found] == ["nonfinite_applied"]


def test_a_run_that_is_switched_off_or_over_takes_callbacks(
    watching: Any, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In mode `disabled`, and after the end, `on_alert` does nothing."""
    monkeypatch.setenv("HALFSCOPE_MODE", "disabled")
    model = net()
    run = halfscope.watch(model, torch.optim.SGD(model.parameters(), 0.1))
    run.on_alert(print)
    run.step(loss=math.nan)
    run.finish()
    run.on_alert(print)
