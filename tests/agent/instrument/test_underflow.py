"""Underflow of real FP16 trainings, as it is worked out from what was recorded, against an FP32 backward pass of the
same step and batch: elements that are zero in FP16 and nonzero in FP32, as a share of the nonzero ones.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from halfscope.sketch import DEFAULT_SCALE, excess_zero_share, stack, structural_zeros
from torch import nn

STEPS_EACH = 6
SCALES_LOG2 = (16, 8, 0, -4)
ONE_POINT = 0.01


def reported(recorded: Any, *, first_step: int = 0) -> dict[str, dict[int, float]]:
    """Layer to step to the share of elements lost, as on the pages: excess zeros of a run that computes in FP16."""
    steps = sorted(step for step in recorded.frames if step >= first_step)
    result: dict[str, dict[int, float]] = {}
    for layer in recorded.layers.values():
        cells = [recorded.frames[step][layer.name] for step in steps]
        sketch, scale = stack([cell.sketch for cell in cells]), np.array([cell.scale for cell in cells])
        floor = sketch.subnormal(scale) + sketch.flushed(scale)
        baseline = structural_zeros(
            zeros=sketch.zeros, n=sketch.n, nonzero=sketch.nonzero, near_floor=floor, scale=scale
        )  # fmt: skip
        result[layer.name] = dict(zip(steps, excess_zero_share(sketch.zeros, sketch.n, baseline).tolist(), strict=True))
    return result


def lost(model: nn.Module, exact: dict[str, torch.Tensor]) -> dict[str, float]:
    """What is zero in this model's gradients and nonzero in the FP32 ones, as a share of the nonzero ones."""
    shares = {}
    for name, parameter in model.named_parameters():
        alive = exact[name] != 0
        gone = alive & (parameter.grad == 0)
        shares[name] = gone.sum().item() / alive.sum().item() if alive.any() else math.nan
    return shares


class Forced:
    """A training in FP16 whose loss scale is forced, with an FP32 backward pass beside each step."""

    def __init__(self, model: nn.Module, batch: Callable[[], torch.Tensor], factor: float) -> None:
        self.model, self.batch, self.factor = model, batch, factor
        self.optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=10**6)
        self.truth: list[dict[str, float]] = []

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return model(batch).float().square().mean() * self.factor

    def train(self, scales_log2: tuple[int, ...]) -> None:
        self.scaler._init_scale = 2.0 ** scales_log2[0]
        for scale_log2 in scales_log2:
            for _ in range(STEPS_EACH):
                if self.scaler._scale is not None:
                    self.scaler._scale.fill_(2.0**scale_log2)
                self.step(2.0**scale_log2)

    def step(self, scale: float) -> None:
        batch = self.batch()
        twin = copy.deepcopy(self.model)
        twin.zero_grad()
        self.loss(twin, batch).backward()
        exact = {name: parameter.grad for name, parameter in twin.named_parameters()}
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = self.loss(self.model, batch)
        scaled = self.scaler.scale(loss)
        assert scaled.item() == pytest.approx(loss.item() * scale)
        scaled.backward()
        self.truth.append(lost(self.model, exact))
        self.scaler.step(self.optimizer)
        self.scaler.update()


def relu_net() -> nn.Sequential:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 8))
    with torch.no_grad():
        model[0].bias[:12] = -50.0  # units that are never alive: zeros that no scale brings back
    return model


@pytest.mark.parametrize("factor", [6e-3, 2e-2])
def test_the_share_lost_at_each_forced_scale_is_the_true_one(watching: Any, factor: float) -> None:
    """To one percentage point, layer by layer and step by step, with dead ReLU units in every layer's zeros."""
    training = Forced(relu_net(), lambda: torch.randn(256, 24), factor)
    watching(training.model, training.optimizer, training.scaler, every=1)
    training.train(SCALES_LOG2)
    recorded = watching.read()
    found = reported(recorded)
    losses = 0
    for name, shares in found.items():
        assert len(shares) == STEPS_EACH * len(SCALES_LOG2)
        for step, share in shares.items():
            assert share == pytest.approx(training.truth[step][name], abs=ONE_POINT), (name, step)
            losses += training.truth[step][name] > 0.05
    assert losses > 10
    assert recorded.frames[0]["0.weight"].sketch.zeros > 12 * 24 - 1


@pytest.mark.parametrize("scale_log2", [0, -4])
def test_without_a_frame_with_room_the_share_is_unknown(watching: Any, scale_log2: int) -> None:
    """A run that begins at the forced scale never shows which zeros are structural."""
    training = Forced(relu_net(), lambda: torch.randn(32, 24), 3e-5)
    watching(training.model, training.optimizer, training.scaler, every=1)
    training.train((scale_log2,))
    found = reported(watching.read(), first_step=1)
    assert all(math.isnan(share) for name in ("0.weight", "2.weight") for share in found[name].values())


def test_a_layer_flushed_whole_is_said_to_be_flushed_whole(watching: Any) -> None:
    """Its share is 1, and an event names it once."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.early, self.late = nn.Linear(16, 16), nn.Linear(16, 4)
            self.gate = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.late(torch.tanh(self.early(x)) * self.gate + x)

    torch.manual_seed(0)
    model = Gated()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    watching(model, optimizer, scaler, every=1)
    for step in range(12):
        model.gate = 2.0**-40 if step >= 6 else 1.0
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(8, 16)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    recorded = watching.read()
    found = reported(recorded)
    for step in range(12):
        assert found["early.weight"][step] == (1.0 if step >= 6 else 0.0)
        assert found["late.weight"][step] == pytest.approx(0.0, abs=ONE_POINT)
    (event,) = recorded.kinds("layer_flushed")
    assert (event.step, event.severity) == (6, "warning")
    assert sorted(event.where) == ["early.bias", "early.weight"]
    assert event.attributes == {"num_layers": 2, "scale": 256.0}


def sparse_embedding() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(200, 16), nn.Flatten(), nn.Linear(64, 8))
    return model, lambda: torch.randint(0, 200, (8, 4))


def dying_relu() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    return relu_net(), lambda: torch.randn(4, 24)


@pytest.mark.parametrize("make", [sparse_embedding, dying_relu])
def test_zeros_of_relu_and_of_embeddings_are_no_underflow_in_fp32(watching: Any, make: Callable[[], Any]) -> None:
    """Whatever of their gradients is zero, nothing of it would be lost at the default scale."""
    model, batch = make()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    watching(model, optimizer, every=1)
    for _ in range(10):
        optimizer.zero_grad()
        model(batch()).square().mean().backward()
        optimizer.step()
    recorded = watching.read()
    for frame in recorded.frames.values():
        for found in frame.values():
            assert found.sketch.would_flush_share(DEFAULT_SCALE) < 1e-3
    assert recorded.frames[5][next(iter(recorded.frames[5]))].sketch.zeros > 0
    assert recorded.kinds("layer_flushed") == []


@pytest.mark.parametrize("make", [sparse_embedding, dying_relu])
def test_zeros_that_change_from_batch_to_batch_are_no_underflow_in_fp16(watching: Any, make: Callable[[], Any]) -> None:
    """At a scale with room a different part of the layer is zero in every batch, and nothing is lost."""
    model, batch = make()
    training = Forced(model, batch, 1.0)
    watching(training.model, training.optimizer, training.scaler, every=1)
    training.train((16, 14, 12))
    for shares in reported(watching.read()).values():
        assert max(shares.values()) <= ONE_POINT
