"""A program for every rank: each way of using DistributedDataParallel, unwatched and watched, from the same start.

Told of each mode by `give`: whether losses and weights are the same bit for bit, how many collectives each took, and
what of the agent failed. `MODES` chooses by name; the rest is in `tests/helpers/distributed.py`.
"""

# mypy: ignore-errors
# ruff: noqa: F821  (rank, world_size, give, DDP: of the prelude)

import contextlib
import os
import warnings

import halfscope
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

warnings.simplefilter("ignore")  # of torch, about what some modes need not have asked for


class Net(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.a = torch.nn.Linear(5, 7, dtype=dtype)
        self.b = torch.nn.Linear(7, 7, dtype=dtype)
        self.c = torch.nn.Linear(7, 3, dtype=dtype)
        self.dtype = dtype

    def batch(self, generator):
        return torch.randn(4, 5, generator=generator).to(self.dtype) / 3

    def forward(self, x, whole=True):
        x = torch.relu(self.a(x))
        return self.c(self.b(x) if whole else x)


class Sparse(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e = torch.nn.Embedding(9, 4, sparse=True)
        self.l = torch.nn.Linear(4, 2)

    def batch(self, generator):
        return torch.randint(0, 9, (6,), generator=generator)

    def forward(self, x):
        return self.l(self.e(x))


class Conv(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.c = torch.nn.Conv2d(3, 4, 3)
        self.n = torch.nn.BatchNorm2d(4)
        self.to(memory_format=torch.channels_last)

    def batch(self, generator):
        return torch.randn(2, 3, 6, 6, generator=generator).to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.n(self.c(x))


class Complex(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))
        self.l = torch.nn.Linear(3, 2)

    def batch(self, generator):
        return torch.randn(5, 4, generator=generator)

    def forward(self, x):
        return self.l((x.to(torch.complex64) @ self.w).abs())


def train(is_watched, *, net=Net, ddp=None, keep=False, every=1, alternate=False, joined=None, hook=None,
          own_group=False, late=0, finish_at=0, again_at=0, scaled=False, only_rank_0=False):  # fmt: skip
    torch.manual_seed(1)
    inner = net()
    group = OWN_GROUP if own_group else dist.group.WORLD
    model = DDP(inner, process_group=group, **(ddp or {}))
    if hook is not None:
        model.register_comm_hook(None, halfscope.wrap_comm_hook(hook) if is_watched else hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, enabled=scaled)
    generator = torch.Generator().manual_seed(5 + rank)
    runs, losses = [], []

    def watch():
        if is_watched and (rank == 0 or not only_rank_0):
            runs.append(halfscope.watch(model, optimizer, scaler if scaled else None, every=2))

    if not late:
        watch()
    began = group._get_sequence_number_for_group()
    uneven = 0 if joined is None else 2 * rank
    context = contextlib.nullcontext() if joined is None else model.join(divide_by_initial_world_size=joined)
    with context:
        for step in range(5 + uneven):
            if is_watched and step and step in (late, again_at):
                watch()
            if runs and step and step == finish_at:
                runs[-1].finish()
            optimizer.zero_grad(set_to_none=not keep)
            for micro_step in range(every):
                with contextlib.nullcontext() if micro_step == every - 1 else model.no_sync():
                    options = (step % 2 == 0,) if alternate else ()
                    loss = model(inner.batch(generator), *options).float().square().mean()
                    scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    num_collectives = group._get_sequence_number_for_group() - began
    for run in runs:
        run.finish()
    failures = [name for run in runs for name in run._guard.failures]
    return losses, [parameter.detach().clone() for parameter in model.parameters()], num_collectives, failures


def as_bytes(weight):
    return weight.contiguous().view(torch.uint8)


UNUSED, VIEW = {"find_unused_parameters": True}, {"gradient_as_bucket_view": True}
SMALL = {"bucket_cap_mb": 1e-4}
ALL = {
    "plain": {},
    "buckets made anew": {"ddp": SMALL},
    "no_sync": {"every": 3},
    "unused parameters": {"ddp": UNUSED, "alternate": True},
    "static graph": {"ddp": {"static_graph": True, **SMALL}},
    "bucket view": {"ddp": VIEW},
    "bucket view, gradients kept": {"ddp": {**VIEW, **SMALL}, "keep": True},
    "bucket view, no_sync": {"ddp": VIEW, "every": 2, "keep": True},
    "bucket view, unused parameters": {"ddp": {**VIEW, **UNUSED}, "alternate": True, "keep": True},
    "join": {"joined": True},
    "join, divided by who is left": {"joined": False},
    "FP16 parameters": {"net": lambda: Net(torch.float16)},
    "BF16 parameters": {"net": lambda: Net(torch.bfloat16)},
    "FP64 parameters": {"net": lambda: Net(torch.float64)},
    "sparse": {"net": Sparse},
    "channels last": {"net": Conv, "ddp": SMALL},
    "complex": {"net": Complex},
    "complex, bucket view": {"net": Complex, "ddp": VIEW, "keep": True},
    "scaler": {"scaled": True},
    "another group": {"own_group": True},
    "watched late": {"late": 2},
    "watched late, bucket view": {"late": 2, "ddp": VIEW, "keep": True},
    "finished early": {"finish_at": 2},
    "watched twice": {"again_at": 2},
    "watched on one rank alone": {"only_rank_0": True},
    "watched on one rank alone, bucket view": {"only_rank_0": True, "ddp": VIEW, "keep": True},
    "wrapped hook": {"hook": default_hooks.fp16_compress_hook},
    "wrapped wrapper": {"hook": default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)},
}
OWN_GROUP = dist.new_group()
os.environ.pop("HALFSCOPE_RUN_ID", None)  # runs that follow each other, not starts of one
chosen = os.environ["MODES"].split(";") if os.environ["MODES"] else ALL
found = {}
for name in chosen:
    (losses, weights, num_collectives, _), watched = train(False, **ALL[name]), train(True, **ALL[name])
    pairs = zip(map(as_bytes, weights), map(as_bytes, watched[1]), strict=True)
    found[name] = {
        "same": losses == watched[0] and all(one.equal(other) for one, other in pairs),
        "unwatched": num_collectives,
        "watched": watched[2],
        "failures": watched[3],
    }
give(modes=found)
