"""Attaching again, as a notebook's cell run twice does, doubles the hooks."""

import torch
from support import report

model = torch.nn.Linear(2, 1)
calls: list[int] = []
for _ in range(5):
    model.register_forward_hook(lambda *_: calls.append(1))
model(torch.ones(1, 2))
report(len(calls) == 5, records_per_step=len(calls), hooks=len(model._forward_hooks), right=1)
