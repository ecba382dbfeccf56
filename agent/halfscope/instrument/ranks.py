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
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from halfscope import config
from halfscope.config import whole
from halfscope.record import jobs
from halfscope.wire.messages import FIRST_TIMED_ATTEMPT

log = logging.getLogger("halfscope")

FIRST_US = 1_577_836_800_000_000
"""2020, from which attempts of a run whose id was given are counted in microseconds: JavaScript's numbers hold them."""
MAX_AHEAD_US = 86_400_000_000
"""By which a clock of another node may be ahead of ours."""
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
        attempt=_num_restarts(),
        source=source,
    )


def _num_restarts() -> int:
    """By torchrun's agent; else by SLURM, which puts a job back into its queue under the same number."""
    is_elastic = "TORCHELASTIC_RESTART_COUNT" in os.environ
    return whole("TORCHELASTIC_RESTART_COUNT" if is_elastic else "SLURM_RESTART_COUNT", 0)


def attempt_at(time_us: int) -> int:
    """The attempt of a training that begins at a time, of a run that may have begun elsewhere: no machine knows what
    others have recorded, so the order of their clocks is the order of the attempts. Whoever makes a run's id is its
    attempt 0. Two of the very same microsecond are told apart by the server."""
    return max(FIRST_TIMED_ATTEMPT, min(time_us - FIRST_US, (1 << 53) - 1_000_000))


def job_attempt(place: Place, directory: Path) -> int | None:
    """The same of a job of several ranks: when it began is part of the id that they would share, and a launcher's
    restarts count on from there. None where they cannot come to one."""
    number = _next_number()
    shared = _from_launcher(directory, number) or _from_store(number)  # an id made of a job's name holds no time
    if shared is None:
        # SLURM tells whole seconds; jobs that begin in the same one have numbers of their own.
        began_us = whole("SLURM_JOB_START_TIME", 0) * 1_000_000 + whole("SLURM_JOB_ID", 0) % 1_000_000
    else:
        began_us = config.time_us_of(shared)
    if not FIRST_US < began_us <= time.time_ns() // 1000 + MAX_AHEAD_US:
        return None
    return place.attempt + attempt_at(began_us)


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
    if place.world_size == 1:
        return None
    number = _next_number()
    found = _from_launcher(directory, number) or _from_store(number, _from_slurm(number)) or _from_job(number)
    if found is None:
        log.warning(
            "halfscope: this is rank %d of %d, and nothing tells which run the others are in, so it has a run of its "
            "own. Call halfscope.watch after torch.distributed.init_process_group, or set HALFSCOPE_RUN_ID to the "
            "same 16 characters on all ranks, as %s.",
            place.rank, place.world_size, config.new_run_id(),
        )  # fmt: skip
    return found


def _next_number() -> int:
    global _num_shared
    _num_shared += 1
    return _num_shared - 1


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
    job = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return _from_slurm(number) or (_hashed(f"elastic {job} {number}") if len(job) >= SHORTEST_JOB_ID else None)


def _from_slurm(number: int) -> str | None:
    """By the step of a job, which keeps its number when it is put back into the queue; clusters without a name are told
    apart by whose job it is and from where. torchrun's agents count their own restarts only, so under them a job that
    is put back is another one."""
    env = os.environ
    if not (env.get("SLURM_JOB_ID") and env.get("SLURM_STEP_ID", "").isdecimal()):
        return None
    names = ["CLUSTER_NAME", "JOB_USER", "SUBMIT_DIR", "JOB_ID", "STEP_ID"]
    names += ["JOB_START_TIME"] if "TORCHELASTIC_RESTART_COUNT" in env else []
    return _hashed(f"slurm {[env.get(f'SLURM_{name}') for name in names]} {number}")


def _hashed(name: str) -> str:
    digest = hashlib.blake2b(name.encode()).digest()
    return config.run_id_of(int.from_bytes(digest[4:10]), int.from_bytes(digest[:4]))


def _checked(run_id: str) -> str | None:
    return run_id if config.is_run_id(run_id) else None


def _count_anew() -> None:
    global _num_shared
    _num_shared = 0


os.register_at_fork(after_in_child=_count_anew)  # a forked process trains for itself
