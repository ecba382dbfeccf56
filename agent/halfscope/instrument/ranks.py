"""Who this process is among several that train together, and the id of the run that they share.

Owns what is read of torch.distributed, of launchers and of the device mesh. Invariant: no collective and nothing that
waits for another rank: a rank that watches alone, or never, holds nobody up. Where ranks cannot find a common id each
gets its own, and a notice says what to set.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from halfscope import config
from halfscope.config import whole
from halfscope.record import jobs

log = logging.getLogger("halfscope")

STORE_WAIT_S = 5.0
"""The store answers within milliseconds, or whoever keeps it is gone."""
SHORTEST_JOB_ID = 8
"""`--rdzv-id=100` is not the name of one job but of all that were started by the same line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One process among those of a job."""

    rank: int = 0
    local_rank: int = 0
    """Number of the process on its node."""
    world_size: int = 1
    attempt: int = 0
    """How often the launcher has started the job again."""
    source: str = "alone"
    """Who told: `process group`, `launcher`, `slurm`; or nobody."""


def find() -> Place:
    """Asks torch.distributed, or the environment where it is not initialised."""
    env = os.environ
    local = whole("LOCAL_RANK", whole("SLURM_LOCALID", -1))
    if is_joined():
        rank, world_size, source = torch.distributed.get_rank(), torch.distributed.get_world_size(), "process group"
    elif env.get("RANK", "").isdecimal() and whole("WORLD_SIZE", 0) > 0:
        rank, world_size, source = whole("RANK", 0), whole("WORLD_SIZE", 1), "launcher"
    elif env.get("MASTER_ADDR") and whole("SLURM_NTASKS", 1) > 1 and env.get("SLURM_STEP_ID", "").isdecimal():
        # Without an address to meet at, tasks of a step are as likely trainings of their own.
        rank, world_size, source = whole("SLURM_PROCID", 0), whole("SLURM_NTASKS", 1), "slurm"
    else:
        return Place()
    return Place(
        rank=rank,
        local_rank=local if local >= 0 else rank,
        world_size=world_size,
        attempt=whole("TORCHELASTIC_RESTART_COUNT", 0),
        source=source,
    )


def num_starts(directory: Path, run_id: str) -> int:
    """How often a run of one process was started before: how many streams of it this machine has."""
    try:
        return sum(1 for entry in os.scandir(directory / run_id) if entry.is_dir())
    except OSError:
        return 0


def is_joined() -> bool:
    """Whether there is a process group."""
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def mesh_of(parameters: Iterable[torch.Tensor]) -> dict[str, list[int]]:
    """This rank's place in the dimensions of the device meshes that parameters are sharded over."""
    found: dict[str, list[int]] = {}
    seen: set[int] = set()
    for parameter in parameters:
        mesh: Any = getattr(parameter, "device_mesh", None)
        if mesh is None or id(mesh) in seen:
            continue
        seen.add(id(mesh))
        coordinate = mesh.get_coordinate()
        for at, position in enumerate(coordinate or ()):
            found.setdefault(dimension(mesh, at), [int(position), int(mesh.size(at))])
    return found


def pipeline_place(models: Iterable[torch.nn.Module]) -> dict[str, list[int]]:
    """This rank's place in torch's pipeline, where one of its stages runs a model; looks through all objects once."""
    loaded: Any = sys.modules.get("torch.distributed.pipelining.stage")
    if loaded is None:  # nobody can have made a stage
        return {}
    wanted = set(map(id, models))
    for found in gc.get_objects():
        # By type(), not isinstance(): a proxy's `__class__` may run code.
        if issubclass(type(found), loaded._PipelineStageBase) and id(found.submod) in wanted:
            return {"pp": [int(found.group_rank), int(found.group_size)]}
    return {}


def dimension(mesh: Any, at: int) -> str:
    """Name of a dimension of a mesh."""
    names = mesh.mesh_dim_names
    return str(names[at]) if names else f"dim{at}"


# ---- the run that ranks share --------------------------------------------------------------------

_num_shared = 0
"""Ids that this process has shared: the first `watch` of each rank is of one run, the second of another."""


def shared_run_id(place: Place, directory: Path) -> str | None:
    """An id that all ranks of a job come to, each by itself; None where this process trains alone, or cannot know.

    A job that is started again by its launcher comes to the same ids in the same order.

    Args:
        directory: where journals are written.
    """
    global _num_shared
    if place.world_size == 1:
        return None
    number = _num_shared
    _num_shared += 1
    found = _from_launcher(directory, number) or _from_store(number) or _from_job(number)
    if found is None:
        log.warning(
            "halfscope: this is rank %d of %d, and nothing tells which run the others are in, so it has a run of its "
            "own. Call halfscope.watch after torch.distributed.init_process_group, or set HALFSCOPE_RUN_ID to the "
            "same 16 characters on all ranks, as %s.",
            place.rank, place.world_size, config.new_run_id(),
        )  # fmt: skip
    return found


def _from_launcher(directory: Path, number: int) -> str | None:
    """Ranks on one node have a launching process in common: whoever comes first leaves the id in a file. On several
    nodes the store tells it first, which is another one after a restart; the launchers are the same."""
    launcher = _launcher() if "TORCHELASTIC_RUN_ID" in os.environ else None
    if launcher is None:
        return None
    if whole("GROUP_WORLD_SIZE", 0) == 1:
        proposed: str | None = config.new_run_id()
    else:
        kept = jobs.kept_id(directory, launcher, number)
        told = _from_store(number, kept)  # a node that is new asks there
        proposed = kept or told
    found = None if proposed is None else jobs.left_id(directory, launcher, number, proposed)
    return None if found is None else _checked(found)


def _launcher() -> jobs.Launcher | None:
    """torchrun's agent."""
    pid = os.getppid()
    with contextlib.suppress(OSError):
        # A shell or a script between it and this process has the agent's variables, the agent itself has not.
        while b"\0TORCHELASTIC_RUN_ID=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
            pid = int(jobs.stat(pid)[1])
        return jobs.launcher_of(pid)
    return None


def _from_store(number: int, proposed: str | None = None) -> str | None:
    """The process group's store takes the first proposal, and tells it to whoever comes later."""
    if not is_joined():
        return None
    answers: list[str | None] = []

    def ask() -> None:
        with contextlib.suppress(Exception):
            store: Any = torch.distributed.distributed_c10d._get_default_store()
            while isinstance(store, torch.distributed.PrefixStore):
                store = store.underlying_store  # the prefix changes with each restart
            said = store.compare_set(f"halfscope/run/{number}", "", proposed or config.new_run_id())
            answers.append(_checked(said.decode()))

    asking = threading.Thread(target=ask, name="halfscope-store", daemon=True)
    asking.start()
    asking.join(STORE_WAIT_S)
    return answers[0] if answers else None


def _from_job(number: int) -> str | None:
    """A scheduler's or a launcher's own name of the job."""
    env = os.environ
    started_s = whole("SLURM_JOB_START_TIME", 0)
    if env.get("SLURM_JOB_ID") and started_s and env.get("SLURM_STEP_ID"):
        name = f"slurm {env.get('SLURM_CLUSTER_NAME')} {env['SLURM_JOB_ID']} {env['SLURM_STEP_ID']}"
        return _hashed(f"{name} {number}", started_s * 1000 + number)
    job = env.get("TORCHELASTIC_RUN_ID", "none")
    if len(job) >= SHORTEST_JOB_ID:
        return _hashed(f"elastic {job} {number}", None)
    return None


def _hashed(name: str, time_ms: int | None) -> str:
    """
    Args:
        time_ms: when the job was started, which is the front of the id; None where ranks do not know it alike.
    """
    digest = hashlib.blake2b(name.encode()).digest()
    return config.run_id_of(int.from_bytes(digest[4:10]) if time_ms is None else time_ms, int.from_bytes(digest[:4]))


def _checked(run_id: str) -> str | None:
    return run_id if config.is_run_id(run_id) else None


def _count_anew() -> None:
    global _num_shared
    _num_shared = 0


os.register_at_fork(after_in_child=_count_anew)  # a forked process trains for itself
