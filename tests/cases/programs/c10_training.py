"""The gradient that is read multiplied by the scale, in a training whose steps are carried through."""

import torch
from support import autocast, digest, grad_scaler, report

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
batch = torch.randn(16, 8)
scaler = grad_scaler()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
naive, unscaled = [], []
for _ in range(2):
    optimizer.zero_grad()
    with autocast():
        output = model(batch)
    scaler.scale(output.float().pow(2).mean()).backward()
    naive.append(model.weight.grad.norm().item())
    scaler.unscale_(optimizer)
    unscaled.append(model.weight.grad.norm().item())
    scaler.step(optimizer)
    scaler.update()
report(naive[0] / unscaled[0] > 60000, naive=naive, unscaled=unscaled, weights=digest(model))
