"""A program for every rank: ways of cutting a model, unwatched and watched, from the same start.

Told of each way by `give`: losses and the gradients that one process would have had, whether watching changed a bit,
and the collectives of both trainings. The rest is in `tests/helpers/distributed.py`.
"""

# mypy: ignore-errors
# ruff: noqa: F821  (rank, world_size, give: of the prelude)

import os
import warnings
from collections import OrderedDict

import halfscope
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

warnings.simplefilter("ignore")  # of torch, about what is to come
os.environ.pop("HALFSCOPE_RUN_ID", None)
STEPS = 3
INF_AT = 1


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(5)
        self.a = torch.nn.Linear(5, 8)
        self.b = torch.nn.Linear(8, 5)

    def forward(self, x):
        return self.b(torch.tanh(self.a(self.norm(x))))


def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(Block(), Block(), torch.nn.Linear(5, 1))


def batch(step, of):
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(10 * step + of))


def alone(ranks, steps=STEPS):
    """What one process has: gradients by name of each step, with the mean over the batches of some ranks."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for step in range(steps):
        grads = []
        for of in ranks:
            optimizer.zero_grad()
            model(batch(step, of)).square().sum().backward()
            grads.append({name: p.grad.clone() for name, p in model.named_parameters()})
        for name, p in model.named_parameters():
            p.grad = sum(each[name] for each in grads) / len(grads)
        found.append({name: p.grad.clone() for name, p in model.named_parameters()})
        optimizer.step()
    return found


def compared(name, training):
    group = dist.group.WORLD
    found = []
    for is_watched in (False, True):
        began = group._get_sequence_number_for_group()
        losses, weights, run = training(name if is_watched else None)
        num_collectives = group._get_sequence_number_for_group() - began
        if run is not None:
            run.finish()
        failures = [] if run is None else list(run._guard.failures)
        found.append((losses, [w.detach().clone() for w in weights], num_collectives, failures))
    (losses, weights, num_collectives, _), watched = found
    return {
        "same": losses == watched[0] and all(one.equal(other) for one, other in zip(weights, watched[1], strict=True)),
        "unwatched": num_collectives,
        "watched": watched[2],
        "failures": watched[3],
    }


def fsdp1(name, *, use_orig_params, strategy=ShardingStrategy.FULL_SHARD, overflows=False):
    model = FullyShardedDataParallel(
        net(), use_orig_params=use_orig_params, device_id=torch.device("cpu"), sharding_strategy=strategy,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = ShardedGradScaler(device="cpu", init_scale=1024.0)
    run = halfscope.watch(model, optimizer, scaler, name=name, every=1) if name else None
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch(step, rank)).square().sum()
        if overflows and step == INF_AT and rank == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, list(model.parameters()), run


def tensor_parallel(name, *, adds_up=True):
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))

    def cut(path, module, mesh):
        cuts = {"a": {"weight": Shard(0), "bias": Shard(0)}, "b": {"weight": Shard(1)}}.get(path.rpartition(".")[2], {})
        for key, p in list(module.named_parameters(recurse=False)):
            cut_p = distribute_tensor(p.detach(), mesh, [cuts.get(key, Replicate())])
            module.register_parameter(key, torch.nn.Parameter(cut_p))

    model = distribute_module(
        net(), mesh, cut,
        input_fn=lambda module, inputs, mesh: DTensor.from_local(inputs[0], mesh, [Replicate()]),
        output_fn=lambda module, output, mesh: output.full_tensor(),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = halfscope.watch(model, optimizer, name=name, every=1) if name else None
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch(step, 0)).square().sum()
        loss.backward()
        for p in model.parameters() if adds_up else ():
            p.grad = p.grad.redistribute(mesh, p.placements)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        optimizer.step()
        if run is not None:
            norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
            NORMS.setdefault(name, []).append(norm.item())
        losses.append(loss.item())
    return losses, [p.to_local() for p in model.parameters()], run


def on_rank_0_alone(name):
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = halfscope.watch(model, optimizer, name=name, every=1) if name and rank == 0 else None
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch(step, rank)).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.to_local() for p in model.parameters()], run


def pipeline(name):
    mine = ("0",) if rank == 0 else ("1", "2")
    model = torch.nn.Sequential(OrderedDict(pair for pair in net().named_children() if pair[0] in mine))
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lambda out, target: out.square().sum(), scale_grads=False)
    run = halfscope.watch(model, optimizer, name=name, every=1) if name else None
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs = batch(step, 0)
        told = []
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=torch.zeros(4, 1), losses=told)
        optimizer.step()
        loss = sum(told).item() if told else None
        if run is not None and loss is not None:
            run.step(loss=loss)
        losses.append(loss)
    return losses, list(model.parameters()), run


NORMS = {}
found = {}
for name, training in {
    "flat": lambda name: fsdp1(name, use_orig_params=False),
    "flat, original parameters": lambda name: fsdp1(name, use_orig_params=True),
    "flat, not sharded": lambda name: fsdp1(name, use_orig_params=False, strategy=ShardingStrategy.NO_SHARD),
    "flat, overflow": lambda name: fsdp1(name, use_orig_params=False, overflows=True),
    "tensor parallel": tensor_parallel,
    "tensor parallel, addends": lambda name: tensor_parallel(name, adds_up=False),
    "pipeline": pipeline,
    "watched on rank 0 alone": on_rank_0_alone,
}.items():
    found[name] = compared(name, training)
give(found=found, norms=NORMS, both=alone((0, 1)), first=alone((0,)))
