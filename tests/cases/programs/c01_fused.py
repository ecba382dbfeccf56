"""An infinite loss at every step under a fused optimizer, whose kernel withholds every update."""

import torch
from support import autocast, digest, grad_scaler, report

model = torch.nn.Linear(4, 1)
before = digest(model)
optimizer = torch.optim.Adam(model.parameters(), 0.1, fused=True)
scaler = grad_scaler(init_scale=8.0)
for _ in range(6):
    optimizer.zero_grad()
    with autocast():
        output = model(torch.ones(2, 4))
    scaler.scale((output.float() * float("inf")).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
report(digest(model) == before, scale=scaler.get_scale(), weights=digest(model))
