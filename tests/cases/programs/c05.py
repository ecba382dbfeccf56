"""A burst of NaN drives the scale down; afterwards gradients underflow for tens of thousands of steps."""

import math

import torch
from support import autocast, grad_scaler, report

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), 0.0)
scaler = grad_scaler()


def step(*, bad: bool) -> float:
    """Share of zeros in the first layer's gradient."""
    optimizer.zero_grad()
    with autocast():
        output = model(torch.randn(8, 16))
    loss = (output.float() * 2e-8).sum() * (float("nan") if bad else 1.0)
    scaler.scale(loss).backward()
    zeros = (model[0].weight.grad == 0).float().mean().item()
    scaler.step(optimizer)
    scaler.update()
    return zeros


zeros_before = step(bad=False)
for _ in range(16):
    step(bad=True)
scale = scaler.get_scale()
zeros_after = step(bad=False)
report(
    zeros_after > 0.9 and zeros_before < 0.1,
    zero_grad_frac_before=zeros_before,
    scale_after_burst=scale,
    zero_grad_frac_after=zeros_after,
    steps_to_recover=math.log2(65536 / scale) * 2000,
)
