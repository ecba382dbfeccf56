"""NaN on rank 1 alone: after the reduction rank 0 has a finite loss and NaN gradients."""

import math
import os
import socket
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from support import grad_scaler, report
from torch.nn.parallel import DistributedDataParallel


def work(rank: int, port: int, results: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = grad_scaler(init_scale=256.0)
    loss = model(torch.ones(2, 4) * (float("nan") if rank else 1.0)).sum()
    scaler.scale(loss).backward()
    has_nan = model.module.weight.grad.isnan().any().item()
    scaler.step(optimizer)
    scaler.update()
    results.put((rank, loss.item(), has_nan, scaler.get_scale()))
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=work, args=(rank, port, queue)) for rank in (0, 1)]
    for process in processes:
        process.start()
    ranks = sorted(queue.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    report(
        math.isfinite(ranks[0][1]) and ranks[0][2] and math.isnan(ranks[1][1]),
        rank_loss_gradnan_scale=ranks,
        origin_rank=1,
    )
