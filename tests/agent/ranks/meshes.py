"""A program for four ranks on a mesh of two dimensions: models that are cut along one and held alike along the other,
and models of which each rank holds other layers than its neighbour.

Told by `give` as of `sharded.py`.
"""

# mypy: ignore-errors
# ruff: noqa: F821  (rank, world_size, give, DDP: of the prelude)

import os
import warnings

import halfscope
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard

warnings.simplefilter("ignore")  # of torch, about what is to come
os.environ.pop("HALFSCOPE_RUN_ID", None)
STEPS = 2
MESH = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))


def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))


class Experts(torch.nn.Module):
    """A layer that all ranks have, and experts of their own: of ranks with odd numbers one more."""

    def __init__(self, of):
        super().__init__()
        torch.manual_seed(4)
        self.shared = DDP(torch.nn.Linear(5, 6))
        torch.manual_seed(10 + of)
        names = [f"expert{of}", *([f"expert{of}b"] if of % 2 else [])]
        self.experts = torch.nn.ModuleDict({name: torch.nn.Linear(6, 2 + of) for name in names})

    def forward(self, x):
        x = torch.tanh(self.shared(x))
        return sum(expert(x).square().sum() for expert in self.experts.values())


def batch(step, of):
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(10 * step + of))


def two_dimensions(name):
    model = fully_shard(net(), mesh=MESH)
    return trained(model, name, lambda out: out.square().sum())


def hybrid(name):
    model = FullyShardedDataParallel(
        net(), device_mesh=MESH, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_id=torch.device("cpu")
    )
    return trained(model, name, lambda out: out.square().sum())


def experts(name):
    return trained(Experts(rank), name, lambda out: out)


def trained(model, name, loss_of):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = halfscope.watch(model, optimizer, name=name, every=1) if name else None
    losses, grads = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(batch(step, rank)))
        loss.backward()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters()} if name == "experts" else {})
        optimizer.step()
        losses.append(loss.item())
    if run is not None:
        run.finish()
    weights = [getattr(p, "to_local", lambda kept=p: kept)().detach().clone() for p in model.parameters()]
    return losses, weights, grads, [] if run is None else list(run._guard.failures)


def whole():
    """What one process has: gradients by name of each step, with the mean over all ranks' batches."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for step in range(STEPS):
        optimizer.zero_grad()
        sum(model(batch(step, of)).square().sum() / 4 for of in range(4)).backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters()})
        optimizer.step()
    return found


found = {}
group = dist.group.WORLD
for name, training in {"two dimensions": two_dimensions, "hybrid": hybrid, "experts": experts}.items():
    began = group._get_sequence_number_for_group()
    unwatched = training("")
    between = group._get_sequence_number_for_group()
    watched = training(name)
    ended = group._get_sequence_number_for_group()
    found[name] = {
        "same": unwatched[0] == watched[0] and all(a.equal(b) for a, b in zip(unwatched[1], watched[1], strict=True)),
        "added": (ended - between) - (between - began),
        "failures": watched[3],
        "grads": watched[2],
    }
give(found=found, whole=whole())
