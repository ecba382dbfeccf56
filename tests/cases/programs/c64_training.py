"""FSDP2 on one CPU rank, trained: gradients are DTensors at every step."""

import os
import socket

import torch
import torch.distributed as dist
from support import digest, report
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
dist.init_process_group("gloo", rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
norms = []
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    grads = [parameter.grad.to_local().double().flatten() for parameter in model.parameters()]
    norms.append(torch.cat(grads).norm().item())
    optimizer.step()
weights = digest(model)
dist.destroy_process_group()
report(True, norms=norms, weights=weights)
