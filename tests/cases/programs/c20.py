"""A GradScaler with BF16 autocast: work for nothing, and the scale climbs."""

import torch
from support import BF16, autocast, grad_scaler, report

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.0)
scaler = grad_scaler(growth_interval=5)
skips = 0
for _ in range(50):
    optimizer.zero_grad()
    before = scaler.get_scale()
    with autocast(BF16):
        output = model(torch.ones(2, 4))
    scaler.scale(output.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    skips += scaler.get_scale() < before

half_model = torch.nn.Linear(4, 1).to(BF16)
half_optimizer = torch.optim.SGD(half_model.parameters(), 0.0)
half_scaler = grad_scaler()
error = None
half_scaler.scale(half_model(torch.ones(2, 4, dtype=BF16)).float().sum()).backward()
try:
    half_scaler.step(half_optimizer)
except Exception as raised:
    error = f"{type(raised).__name__}: {raised}"[:120]
report(
    skips == 0 and scaler.get_scale() > 65536,
    skips=skips,
    scale=scaler.get_scale(),
    bf16_param_step_error_on_cpu=error,
)
