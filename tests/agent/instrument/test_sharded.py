"""Sharded gradients (FSDP2 on one rank): no collective of ours, and no failure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.preloaded import Preloaded

PROGRAM = """
import torch, torch.distributed as dist, halfscope, sys
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
run = halfscope.watch(model, optimizer)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    norm = torch.cat([p.grad.to_local().double().flatten() for p in model.parameters()]).norm().item()
    optimizer.step()
    run.log(expected=norm)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_sharded_model_gives_the_norm_of_its_local_part(tmp_path: Path, read: Any, python: Preloaded) -> None:
    """DTensor gradients are read as this rank's shard; names, steps and memory are there."""
    env = {**os.environ, "HALFSCOPE_MODE": "offline", "HALFSCOPE_DIR": str(tmp_path / "journals")}
    done = python.run(["-c", PROGRAM, str(tmp_path / "store")], env=env, strict=False, timeout_s=150)
    assert done.returncode == 0, done.stderr
    (recorded,) = read(tmp_path / "journals")
    assert recorded.kinds("agent_degraded") == []
    assert recorded.steps() == [0, 1, 2]
    norms, expected = recorded.series("grad.norm"), recorded.series("expected")
    assert all(abs(norms[step] - expected[step]) < 1e-6 * expected[step] for step in range(3))
    assert recorded.facts["parameters"]["names"] == ["0.weight", "0.bias", "1.weight", "1.bias"]
