"""Gradients that never overflow, here because they are zero: the scale grows without limit."""

import math

import torch
from support import grad_scaler, report

model = torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.0)
scaler = grad_scaler(growth_interval=1)
scales = []
for _ in range(300):
    optimizer.zero_grad()
    loss = (model(torch.zeros(1, 5)) * 0).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
report(
    scales[-1] > 1e30,
    final_scale=scales[-1],
    is_inf=math.isinf(scales[-1]),
    steps_to_plateau=scales.index(max(scales)),
)
