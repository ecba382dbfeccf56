"""Real loops around an Accelerator, step by step against what the loop itself reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from halfscope.integrations.accelerate import watch

from tests.agent.integrations.conftest import Seen, assert_same, norm_of, only

pytestmark = pytest.mark.filterwarnings("ignore")

NUM_BATCHES = 10


def accelerator_for(precision: str, **options: Any) -> Accelerator:
    """With FP16 as on a GPU: on a CPU `mixed_precision="fp16"` alone quietly trains in FP32."""
    made = Accelerator(mixed_precision={"fp32": "no"}.get(precision, precision), cpu=True, **options)
    if precision == "fp16":
        made.native_amp, made.scaler = True, torch.amp.GradScaler("cpu", init_scale=2.0**18, growth_interval=3)
    return made


@pytest.fixture(autouse=True)
def fresh_state() -> None:
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def net() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    found = [
        (torch.randn(4, 6, generator=generator), torch.randn(4, 2, generator=generator)) for _ in range(NUM_BATCHES)
    ]
    found[NUM_BATCHES // 2][0].mul_(3e4)  # overflows FP16
    return found


def loop(
    accelerator: Accelerator,
    clipping: float | None,
    begin: Callable[..., Any] = lambda accelerator: None,
    fused: bool = False,
) -> tuple[list[Seen], torch.nn.Module]:
    """A loop as Accelerate's own guide has it."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=fused)
    loader = torch.utils.data.DataLoader(batches(), batch_size=None)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    begin(accelerator)
    seen: list[Seen] = []
    losses: list[float] = []
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            loss = (model(inputs).float() - targets).pow(2).mean()
            losses.append(float(loss))
            scale = None if accelerator.scaler is None else accelerator.scaler.get_scale()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norm = norm_of(list(model.parameters())) / (scale or 1.0)
                seen.append(Seen(losses, scale, norm, scale is None or norm < float("inf")))
                losses = []
                if clipping is not None:
                    accelerator.clip_grad_norm_(model.parameters(), clipping)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.end_training()
    return seen, model


@pytest.mark.parametrize(
    ("precision", "accumulation", "clipping"), list(itertools.product(["fp32", "fp16", "bf16"], [1, 4], [None, 0.5]))
)
def test_every_step_is_what_the_loop_sees(
    precision: str, accumulation: int, clipping: float | None, journals: Path
) -> None:
    """Scale, skip, applied steps, loss and norm of each step; weights bit for bit those of a loop without us."""
    seen, plain = loop(accelerator_for(precision, gradient_accumulation_steps=accumulation), clipping)
    _, watched = loop(accelerator_for(precision, gradient_accumulation_steps=accumulation), clipping, watch)
    assert [p.tolist() for p in plain.parameters()] == [p.tolist() for p in watched.parameters()]
    assert len(seen) == -(-NUM_BATCHES // accumulation)
    if precision == "fp16":
        assert {each.applied for each in seen} == {True, False}
    recorded = only(journals)
    assert_same(recorded, seen)
    assert recorded.end is not None
    assert recorded.end.outcome == "finished"
    assert recorded.facts["precision"] == {"fp32": "FP32", "fp16": "FP16-AMP", "bf16": "BF16-AMP"}[precision]
    if precision == "fp16":
        skips = recorded.series("amp.skipped")
        assert recorded.series("accelerate/skipped") == skips
    if clipping is not None:
        norms = recorded.series("grad.norm")
        assert recorded.series("accelerate/grad_norm") == pytest.approx(norms, rel=1e-6, nan_ok=True)
