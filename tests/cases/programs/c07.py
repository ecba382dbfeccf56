"""The first steps are skipped, the scheduler is not: the schedule runs ahead of the optimizer."""

import warnings

import torch
from support import autocast, grad_scaler, report

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
scaler = grad_scaler()
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
num_steps = 0


def count(*_: object) -> None:
    global num_steps
    num_steps += 1


optimizer.register_step_post_hook(count)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(10):
        optimizer.zero_grad()
        with autocast():
            output = model(torch.ones(2, 4))
        scaler.scale((output.float() * 40).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
warned = any("lr_scheduler.step()" in str(warning.message) for warning in caught)
report(
    warned and num_steps < 10,
    optimizer_steps=num_steps,
    scheduler_steps=scheduler.last_epoch,
    lr_actual=optimizer.param_groups[0]["lr"],
    lr_if_synced=1e-6 * 0.5**num_steps,
    warned=warned,
)
