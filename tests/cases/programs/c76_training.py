"""The same model plain, in DDP, compiled, and compiled in DDP: trained, its layers have the same names."""

import os
import socket

import torch
import torch.distributed as dist
from support import digest, report
from torch.nn.parallel import DistributedDataParallel

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
dist.init_process_group("gloo", rank=0, world_size=1)


def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))


weights = {}
for kind in ("plain", "ddp", "dp", "compiled", "compiled_ddp"):
    model = net()
    if "ddp" in kind:
        model = DistributedDataParallel(model)
    if kind == "dp":
        model = torch.nn.DataParallel(model)
    if "compiled" in kind:
        model = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
    weights[kind] = digest(*model.parameters())
dist.destroy_process_group()
report(len(set(weights.values())) == 1, weights=weights)
