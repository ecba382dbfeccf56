"""A parameter that is FP16 itself under a GradScaler: `unscale_` raises."""

import torch
from support import FP16, autocast, grad_scaler, report

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.PReLU().half(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = grad_scaler()
error = None
with autocast():
    loss = model[2](model[1](model[0](torch.ones(2, 4)).half()).float()).sum()
scaler.scale(loss).backward()
try:
    scaler.unscale_(optimizer)
except ValueError as raised:
    error = str(raised)
report(
    error and "unscale FP16" in error,
    error=error,
    fp16_params=[name for name, parameter in model.named_parameters() if parameter.dtype == FP16],
)
