"""FSDP2 trained on two ranks that a launcher starts: each holds a part, and the norm is that of both."""

import datetime

import torch
import torch.distributed as dist
from support import digest, report
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
model = torch.nn.Linear(4, 4, bias=False)
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
num_collectives = dist.group.WORLD._get_sequence_number_for_group()
norm = model.weight.grad.full_tensor().norm().item()
everybody = [None, None]
dist.all_gather_object(everybody, digest(model))
if dist.get_rank() == 0:
    report(num_collectives > 0, num_collectives=num_collectives, norm=norm, weights=everybody)
dist.barrier()  # whoever leaves first must not take the store with it
dist.destroy_process_group()
