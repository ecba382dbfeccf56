"""One parameter's gradient becomes infinite before clipping, without a scaler: the step is applied to all."""

import torch
from support import digest, report

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    if step == 2:
        model[1].bias.grad[2] = float("inf")
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
report(model[1].bias.isnan().any(), last_norm=norm.item(), weights=digest(model))
