"""Jobs of many ranks, rank by rank as their agents tell them, for browser tests and pictures.

Must not start a training. Invariant: the same job has the same numbers, and what is wrong is where it was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

NUM_BUCKETS = 4
BUCKET_BYTES = 25 * 2**20
STEP_S = 0.5
"""Of a large model."""


def write_job(
    trainers: Any,
    server: Any,
    run_id: str,
    *,
    num_ranks: int,
    ranks_per_node: int = 8,
    num_steps: int = 240,
    name: str = "",
    slow: Mapping[int, float] | None = None,
    overflowing: Mapping[int, range] | None = None,
    ended: Mapping[int, str] | None = None,
) -> list[Any]:
    """A job under DistributedDataParallel; its trainers, one a rank.

    Args:
        slow: rank to seconds that it takes longer, from the middle of the job on.
        overflowing: rank to steps in which its own gradient is not finite: all ranks skip them.
        ended: rank to how it ended.
    """
    slow, overflowing, ended = slow or {}, overflowing or {}, ended or {}
    steps = np.arange(num_steps)
    skipped = sorted({step for some in overflowing.values() for step in some})
    busy = np.stack([_busy(steps, rank, slow.get(rank, 0.0)) for rank in range(num_ranks)])
    step_s = busy.max(axis=0) + 0.05
    job = []
    for rank in range(num_ranks):
        trainer = trainers.Trainer(
            server,
            run_id,
            name=name or run_id,
            project="ranks",
            steps_per_s=1 / STEP_S,
            began_s_ago=num_steps * STEP_S,
            rank=rank,
            world_size=num_ranks,
            local_rank=rank % ranks_per_node,
            host=f"node{rank // ranks_per_node:03d}",
        )
        _tell(trainer, rank, steps, busy[rank], step_s, own=overflowing.get(rank, range(0)), skipped=skipped)
        if rank in ended:
            trainer.end(ended[rank], num_steps - 1)
        trainer.send()
        job.append(trainer)
    return job


def _busy(steps: np.ndarray[Any, Any], rank: int, extra_s: float) -> np.ndarray[Any, Any]:
    noise = np.random.default_rng(rank)
    return 0.4 + noise.gamma(2, 0.004, steps.size) + extra_s * (steps >= steps.size // 2)


def _tell(
    trainer: Any,
    rank: int,
    steps: np.ndarray[Any, Any],
    busy: np.ndarray[Any, Any],
    step_s: np.ndarray[Any, Any],
    *,
    own: range,
    skipped: list[int],
) -> None:
    noise = np.random.default_rng(10_000 + rank)
    is_own, is_skipped = np.isin(steps, own), np.isin(steps, skipped)
    trainer.points(
        "loss", steps, 2.3 * np.exp(-steps / 150) + 0.3 + noise.normal(0, 0.05, steps.size), reduction="mean"
    )
    trainer.points("time.step_s", steps, step_s, unit="s", reduction="max")
    trainer.points("rank.busy_s", steps, busy, unit="s", reduction="max")
    trainer.points("comm.wait_s", steps, step_s - busy, unit="s", reduction="max")
    norm = np.where(is_own, np.inf, np.exp(noise.normal(-1, 0.3, steps.size)))
    trainer.points("grad.norm_local", steps, norm, unit="norm", reduction="max")
    trainer.points("grad.nonfinite_local", steps, is_own * 3.0, reduction="sum")
    memory = 40e9 + 2e9 * (rank % 8 == 0) + 1e7 * np.sqrt(steps)
    trainer.points("memory.device_allocated_bytes", steps, memory, unit="bytes", reduction="sum")
    for bucket in range(NUM_BUCKETS):
        took = 0.01 * (bucket + 1) + noise.gamma(2, 0.001, steps.size)
        trainer.points("comm.time_s", steps, took, unit="s", reduction="max", bucket=str(bucket))
        size = BUCKET_BYTES / (1 + bucket)
        trainer.points("comm.bytes", steps[:1], size, unit="bytes", kind="state", reduction="max", bucket=str(bucket))
    told = steps if rank == 0 else np.unique(np.concatenate([[0], skipped, np.array(skipped, int) + 1])).astype(int)
    told = told[told < steps.size]
    trainer.points("amp.scale", told, _scale(steps, is_skipped)[told], kind="state")
    trainer.points("amp.skipped", told, is_skipped[told].astype(float), kind="flag")
    for step in own:
        trainer.event("rank_origin", step, "warning", ["block.2.mlp.fc1.weight", "block.1.mlp.fc2.weight"], rank=rank)


def _scale(steps: np.ndarray[Any, Any], is_skipped: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Halved by every skip, as of the step after."""
    before = np.cumsum(is_skipped) - is_skipped
    return np.asarray(2.0 ** (16 - before))
