"""One infinite gradient and `clip_grad_norm_`: every parameter's gradient is spoiled."""

import torch
from support import report

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)
model[1].bias.grad[2] = float("inf")
bad = [name for name, parameter in model.named_parameters() if not parameter.grad.isfinite().all()]
norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
report(
    bad == ["1.bias"],
    bad_before=bad,
    total_norm=norm.item(),
    nan_after=[name for name, parameter in model.named_parameters() if parameter.grad.isnan().any()],
    zeroed_after=[name for name, parameter in model.named_parameters() if (parameter.grad == 0).any()],
)
