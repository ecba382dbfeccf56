"""FSDP2 on one CPU rank: gradients are DTensors, and naive statistics fail on them."""

import os
import socket

import torch
import torch.distributed as dist
from support import report
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
dist.init_process_group("gloo", rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
model(torch.ones(2, 4)).sum().backward()
gradient = model[0].weight.grad
results = {"grad_type": type(gradient).__name__, "local_type": type(gradient.to_local()).__name__}
ACTIONS = {
    "histc": lambda: torch.histc(gradient, 4),
    "numpy": lambda: gradient.numpy(),
    "isfinite_all": lambda: bool(gradient.isfinite().all()),
    "norm": lambda: type(gradient.norm()).__name__,
    "local_norm": lambda: gradient.to_local().norm().item(),
}
for name, action in ACTIONS.items():
    try:
        results[name] = str(action())[:60]
    except Exception as error:
        results[name] = f"{type(error).__name__}: {str(error)[:70]}"
dist.destroy_process_group()
report(results["grad_type"] == "DTensor" and any("Error" in value for value in results.values()), **results)
