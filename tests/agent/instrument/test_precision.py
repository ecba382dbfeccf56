"""Precision labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from halfscope.instrument import precision

F32, F16, B16 = torch.float32, torch.float16, torch.bfloat16


@pytest.mark.parametrize(
    ("autocast", "stored", "tf32", "label"),
    [
        (set(), {F32}, False, "FP32"),
        (set(), {F32}, True, "TF32"),
        ({F16}, {F32}, False, "FP16-AMP"),
        ({B16}, {F32}, True, "BF16-AMP"),
        (set(), {F16}, False, "FP16"),
        (set(), {B16}, False, "BF16"),
        ({B16}, {B16}, False, "BF16"),
        ({F16}, {B16}, False, "mixed"),
        ({F16, B16}, {F32}, False, "mixed"),
        (set(), {F32, B16}, False, "mixed"),
        (set(), set(), False, "FP32"),
    ],
)
def test_the_label_follows_autocast_and_parameters(autocast: Any, stored: Any, tf32: bool, label: str) -> None:
    """Every combination that has a name of its own, and mixtures."""
    assert precision.label(autocast, stored, tf32=tf32) == label


class AutocastsInside(torch.nn.Module):
    """Enters autocast in its own forward, where a look from outside sees nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=B16):
            return self.layer(inputs)


@pytest.mark.parametrize(
    ("make", "dtype", "label"),
    [
        (lambda: torch.nn.Linear(4, 1), None, "FP32"),
        (lambda: torch.nn.Linear(4, 1), B16, "BF16-AMP"),
        (lambda: torch.nn.Linear(4, 1), F16, "FP16-AMP"),
        (lambda: torch.nn.Linear(4, 1).bfloat16(), None, "BF16"),
        (AutocastsInside, None, "BF16-AMP"),
    ],
)
def test_the_first_forward_pass_tells(
    watching: Any, make: Callable[[], torch.nn.Module], dtype: torch.dtype | None, label: str
) -> None:
    """Autocast around the model or inside it, or none."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    inputs = torch.ones(2, 4).to(next(model.parameters()).dtype)
    for _ in range(2):
        with torch.autocast("cpu", dtype=dtype or B16, enabled=dtype is not None):
            output = model(inputs)
        output.float().sum().backward()
        optimizer.step()
    recorded = watching.read()
    assert (recorded.facts["precision"], recorded.facts["precision_source"]) == (label, "seen")


def test_a_given_label_wins(watching: Any, net: Any) -> None:
    """The user knows better than any look from outside."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer, precision="mixed")
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    recorded = watching.read()
    assert (recorded.facts["precision"], recorded.facts["precision_source"]) == ("mixed", "given")


def test_without_a_forward_pass_a_scaler_stands_for_fp16(watching: Any) -> None:
    """A model whose call cannot be seen: the label says that it is inferred."""
    weight = torch.nn.Parameter(torch.ones(2))
    model = torch.nn.Module()
    model.weight = weight
    optimizer = torch.optim.SGD([weight], 0.01)
    scaler = torch.amp.GradScaler("cpu")
    watching(model, optimizer, scaler)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    recorded = watching.read()
    assert (recorded.facts["precision"], recorded.facts["precision_source"]) == ("FP16-AMP", "inferred")
