"""One overflowing batch poisons BatchNorm's running statistics: training recovers, evaluation is NaN for ever."""

import math

import torch
from support import autocast, grad_scaler, report

model = torch.nn.Sequential(
    torch.nn.Conv1d(3, 8, 3, padding=1),
    torch.nn.ReLU(),
    torch.nn.BatchNorm1d(8),
    torch.nn.Flatten(),
    torch.nn.Linear(80, 1),
)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
scaler = grad_scaler(init_scale=8.0)
losses = []
for step in range(12):
    batch = torch.rand(4, 3, 10) * (3e5 if step == 5 else 1.0)
    optimizer.zero_grad()
    with autocast():
        loss = model(batch).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
model.eval()
with torch.no_grad(), autocast():
    evaluated = model(torch.rand(4, 3, 10)).float()
bad = [name for name, buffer in model.named_buffers() if not buffer.isfinite().all()]
finite = all(parameter.isfinite().all() for parameter in model.parameters())
report(
    bad and finite and not evaluated.isfinite().all() and math.isfinite(losses[-1]),
    train_loss=[round(loss, 3) if math.isfinite(loss) else loss for loss in losses],
    bad_buffers=bad,
    params_finite=finite,
    eval_nan_frac=evaluated.isnan().float().mean(),
    scale=scaler.get_scale(),
)
