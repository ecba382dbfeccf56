"""Rank 0 alone asks for the norm of a sharded gradient: that is a collective, and it waits for ever."""

import datetime
import math
import os
import socket
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from support import report
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

PATIENCE_S = 2.0


def work(rank: int, port: int, results: Any, over: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=PATIENCE_S))
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    model(torch.ones(2, 4)).sum().backward()
    grad = model.weight.grad
    outcome = ""
    if rank == 0:
        try:
            outcome = f"value {grad.norm().full_tensor().item()}"
        except Exception:
            outcome = "stuck"
        over.set()
    results.put((rank, grad.to_local().pow(2).sum().item(), outcome))
    over.wait(60)
    results.close()
    results.join_thread()
    os._exit(0)  # what was begun is never over


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("fork")
    queue, over = context.Queue(), context.Event()
    processes = [context.Process(target=work, args=(rank, port, queue, over)) for rank in (0, 1)]
    for process in processes:
        process.start()
    ranks = sorted(queue.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    report(ranks[0][2] == "stuck", ranks=ranks, right_norm=math.sqrt(ranks[0][1] + ranks[1][1]))
