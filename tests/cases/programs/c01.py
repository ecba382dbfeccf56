"""A loss that is NaN whatever the scale is: the scale halves at every step until it is exactly 0."""

import torch
from support import autocast, grad_scaler, report

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = grad_scaler()
before = model.weight.detach().clone()
scales = []
for _ in range(200):
    optimizer.zero_grad()
    with autocast():
        output = model(torch.ones(2, 4))
    loss = torch.sqrt(output.float() - 1e3).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
changed = not torch.equal(before, model.weight)
zero = next((step for step, scale in enumerate(scales) if scale == 0), None)
report(
    zero is not None and not changed,
    scale_after_first=scales[0],
    first_step_below_1=next((step for step, scale in enumerate(scales) if scale < 1), None),
    first_step_zero=zero,
    optimizer_steps_done=0,
    weights_changed=changed,
)
