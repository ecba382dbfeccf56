"""Wrappers change the names of parameters: a comparison by raw names finds nothing in common."""

import os
import socket

import torch
import torch.distributed as dist
from support import report
from torch.nn.parallel import DistributedDataParallel

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
dist.init_process_group("gloo", rank=0, world_size=1)


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))


wrapped = {
    "plain": net(),
    "ddp": DistributedDataParallel(net()),
    "dp": torch.nn.DataParallel(net()),
    "compiled": torch.compile(net()),
    "compiled_ddp": torch.compile(DistributedDataParallel(net())),
}
names = {kind: [name for name, _ in model.named_parameters()] for kind, model in wrapped.items()}
dist.destroy_process_group()
common = set(names["plain"]).intersection(*map(set, names.values()))
stripped = {
    kind: [name.replace("_orig_mod.", "").replace("module.", "") for name in found] for kind, found in names.items()
}
report(
    not common and all(found == names["plain"] for found in stripped.values()),
    names=names,
    common=len(common),
    after_strip_equal=True,
)
