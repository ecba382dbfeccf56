"""A dynamic loss scaler with a floor, which says what it does: good steps first, then NaN until the job ends itself."""

import halfscope
import torch
from c55 import FlooredScaler
from support import digest, report

BAD_FROM = 5
scaler = FlooredScaler()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
run = halfscope.watch(model, optimizer, every=1)
died = None
for step in range(100):
    optimizer.zero_grad()
    shift = 5.0 if step >= BAD_FROM else -5.0
    loss = torch.sqrt(torch.tanh(model(torch.ones(1, 4))) - shift).sum()
    (loss * scaler.scale).backward()
    scale = scaler.scale
    grads = [parameter.grad for parameter in model.parameters()]
    is_bad = not all(grad.isfinite().all() for grad in grads)
    try:
        if is_bad:
            scaler.overflowed()
        else:
            for grad in grads:
                grad.div_(scale)
            optimizer.step()
    except RuntimeError:
        died = step
    run.step(loss=loss)
    run.report_scaler("floored", scale=scale, skipped=is_bad, scale_next=scaler.scale, min_scale=1.0)
    if died is not None:
        break
run.finish()
report(died is not None, died_at_step=died, bad_from=BAD_FROM, weights=digest(model))
