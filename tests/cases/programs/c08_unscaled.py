"""A fused optimizer whose gradients the program unscales and clips itself: the kernel still skips on its own."""

import torch
from support import autocast, digest, grad_scaler, report

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True)
scaler = grad_scaler(init_scale=1024.0)
norms = []
for factor in (1.0, 1e6, 1.0):
    optimizer.zero_grad()
    with autocast():
        output = model(torch.ones(2, 4))
    scaler.scale((output.float() * factor).sum()).backward()
    scaler.unscale_(optimizer)
    norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    scaler.step(optimizer)
    scaler.update()
report(len(norms) == 3, norms=norms, scale=scaler.get_scale(), weights=digest(model, optimizer))
