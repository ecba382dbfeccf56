"""One NaN in the data, for which mixed precision gets the blame."""

import torch
from support import autocast, grad_scaler, report

data = torch.randn(64, 4)
data[37, 2] = float("nan")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
scaler = grad_scaler(init_scale=256.0)
events = []
for epoch in range(2):
    for at in range(8):
        batch = data[at * 8 : at * 8 + 8]
        optimizer.zero_grad()
        with autocast():
            loss = model(batch).float().pow(2).mean()
        before = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < before:
            row = int(batch.isnan().any(1).nonzero()[0])
            events.append({"epoch": epoch, "batch": at, "input_nan": int(batch.isnan().sum()), "row": row})
with torch.no_grad():
    same_in_fp32 = model(data).isnan().any().item()
report(
    [event["batch"] for event in events] == [4, 4],
    events=events,
    same_in_fp32=same_in_fp32,
    params_finite=bool(model.weight.isfinite().all()),
)
