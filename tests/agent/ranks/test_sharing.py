"""What each rank tells: replicas once, shards each its own, and what all know alike only where it changes."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from tests.helpers.distributed import train
from tests.helpers.preloaded import Preloaded


def test_of_replicas_the_first_rank_tells_and_the_others_what_changes(python: Preloaded, tmp_path: Path) -> None:
    """Under DDP norms and sketches come from rank 0 alone; rank 1 tells the scale at the first step and at a skip."""
    job = train(
        python,
        tmp_path,
        """
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        run = halfscope.watch(model, optimizer, scaler, every=1)
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4) * (math.inf if step == 2 else 1.0)).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        """.replace("math.inf", "float('inf')"),
    )
    first, second = job.recorded
    assert list(first.series("grad.norm")) == [0, 1, 2, 3]
    assert second.series("grad.norm") == {}
    assert sorted(first.frames) == [0, 1, 2, 3]
    assert second.frames == {}
    assert first.series("amp.scale") == {0: 1024.0, 1: 1024.0, 2: 1024.0, 3: 512.0}
    assert second.series("amp.scale") == {0: 1024.0, 3: 512.0}
    assert second.series("amp.skipped") == {0: 0.0, 2: 1.0, 3: 0.0}
    assert len(second.kinds("skip")) == 1
    assert second.steps() == [0, 1, 2, 3]


def test_weights_that_part_on_one_rank_part_the_checksums(python: Preloaded, tmp_path: Path) -> None:
    """Every rank gives the same number while weights agree, another at each step, and another than the others' from
    the step on before which one rank's weights were changed in one bit."""
    job = train(
        python,
        tmp_path,
        """
        model = DDP(torch.nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        run = halfscope.watch(model, optimizer, every=1)
        for step in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 4) * (rank + 1)).sum().backward()
            if step == 2 and rank == 1:
                with torch.no_grad():
                    model.module.bias.view(torch.int32)[1] ^= 1
            optimizer.step()
        """,
    )
    first, second = (one.series("weights.checksum") for one in job.recorded)
    assert [first[step] == second[step] for step in range(4)] == [True, True, False, False]
    assert len(set(first.values())) == 4


def test_shards_add_up_to_the_whole_and_no_collective_is_added(python: Preloaded, tmp_path: Path) -> None:
    """FSDP2 on two ranks: counts of the parts' sketches are those of the whole gradient, the root of the squares is
    its norm, and the watched training issues as many collectives as the unwatched one, with the same weights."""
    job = train(
        python,
        tmp_path,
        """
        from torch.distributed.fsdp import fully_shard
        calls = []
        class Counting(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                if "c10d" in str(function):
                    calls.append(str(function))
                return function(*args, **(kwargs or {}))
        def training(watched):
            torch.manual_seed(3)
            model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
            fully_shard(model)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            if watched:
                halfscope.watch(model, optimizer, every=1)
            calls.clear()
            wholes = []
            for step in range(2):
                optimizer.zero_grad()
                with Counting():
                    model(torch.ones(2, 5) * (rank + 1)).sum().backward()
                    optimizer.step()
                wholes.append([p.grad.full_tensor().clone() for p in model.parameters()])
            return len(calls), wholes, [p.full_tensor().clone() for p in model.parameters()]
        give(plain=training(False), watched=training(True))
        """,
    )
    given = job.given[0]
    assert given["plain"][0] == given["watched"][0] > 0
    assert all(one.equal(other) for one, other in zip(given["plain"][2], given["watched"][2], strict=True))
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    for rank, recorded in enumerate(job.recorded):
        (name,) = recorded.info.mesh
        assert recorded.info.mesh == {name: [rank, 2]}
        assert {layer.part for layer in recorded.layers.values()} == {f"{name}:{rank}/2"}
        assert recorded.facts["ranks"] == {"source": "process group"}
        assert [layer.shape for layer in recorded.layers.values()] == [[7, 5], [7], [1, 7], [1]]
        assert recorded.kinds("agent_degraded") == []
    for step, grads in enumerate(given["plain"][1]):
        norm = math.sqrt(sum(one.series("grad.norm")[step] ** 2 for one in job.recorded))
        whole = torch.cat([grad.flatten() for grad in grads]).double().norm().item()
        assert abs(norm - whole) <= 1e-6 * whole
        for name, grad in zip(names, grads, strict=True):
            parts = [one.frames[step][name].sketch for one in job.recorded if name in one.frames[step]]
            assert sum(int(part.n) for part in parts) == grad.numel()
            assert abs(sum(float(part.sumsq) for part in parts) - float(grad.double().square().sum())) < 1e-6
