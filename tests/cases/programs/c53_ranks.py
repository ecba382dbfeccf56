"""NaN on rank 1 alone, on two ranks that a launcher starts."""

import datetime
import math

import torch
import torch.distributed as dist
from support import digest, grad_scaler, report
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = grad_scaler(init_scale=256.0)
losses, scales = [], []
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4) * (float("nan") if rank == 1 and step == 2 else 1.0)).sum()
    scaler.scale(loss).backward()
    has_nan = model.module.weight.grad.isnan().any().item()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
    scales.append(scaler.get_scale())
    assert has_nan == (step == 2), "on every rank"
everybody = [None, None]
dist.all_gather_object(everybody, losses)
if rank == 0:
    report(
        math.isfinite(everybody[0][2]) and math.isnan(everybody[1][2]),
        losses=everybody,
        scales=scales,
        weights=digest(model),
    )
dist.barrier()  # whoever leaves first must not take the store with it
dist.destroy_process_group()
