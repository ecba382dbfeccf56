"""True FP16 gradients lie above 65504: the scaler settles below 1 and goes on "training"."""

import torch
from support import autocast, grad_scaler, report

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 1e-12)
scaler = grad_scaler()
skips = 0
for _ in range(40):
    optimizer.zero_grad()
    before = scaler.get_scale()
    with autocast():
        output = model(torch.ones(2, 4))
    scaler.scale((output.float() * 1e6).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    skips += scaler.get_scale() < before
report(scaler.get_scale() < 1, final_scale=scaler.get_scale(), skips=skips, true_absmax_dy=1e6, fp16_max=65504)
