"""`scaler.step` with an optimizer none of whose parameters got a gradient."""

import torch
from support import grad_scaler, report

first, second = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
first_optimizer = torch.optim.SGD(first.parameters(), 0.1)
second_optimizer = torch.optim.SGD(second.parameters(), 0.1)
scaler = grad_scaler()
error = None
scaler.scale(first(torch.ones(1, 2)).sum()).backward()
scaler.step(first_optimizer)
try:
    scaler.step(second_optimizer)
except AssertionError as raised:
    error = str(raised)
report(
    error and "No inf checks" in error,
    error=error,
    params_without_grad=[name for name, parameter in second.named_parameters() if parameter.grad is None],
    any_nonfinite_grad=False,
)
