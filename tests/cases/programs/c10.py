"""Whoever reads `.grad` after the backward pass reads it multiplied by the scale."""

import torch
from support import autocast, grad_scaler, report

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
batch = torch.randn(16, 8)
scaler = grad_scaler()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(batch).pow(2).mean().backward()
reference = model.weight.grad.norm().item()
optimizer.zero_grad()
with autocast():
    output = model(batch)
scaler.scale(output.float().pow(2).mean()).backward()
naive = model.weight.grad.norm().item()
scaler.unscale_(optimizer)
unscaled = model.weight.grad.norm().item()
report(
    abs(naive / unscaled - 65536) < 1,
    fp32_norm=reference,
    naive_logged=naive,
    unscaled=unscaled,
    ratio=naive / unscaled,
    rel_err_vs_fp32=abs(unscaled - reference) / reference,
)
