"""Ranks find out who they are and which run they share, without asking each other."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import halfscope
import pytest
import torch
import torch.distributed as dist
from halfscope import config
from halfscope.instrument import ranks
from halfscope.instrument.ranks import Place
from halfscope.record import jobs

from tests.helpers.distributed import started, train
from tests.helpers.preloaded import Preloaded
from tests.helpers.recorded import read_journal

TRAINING = """
def training(num_steps=2):
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = halfscope.watch(model, optimizer)
    for step in range(num_steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return run
"""
OWN = {"HALFSCOPE_RUN_ID": ""}
"""The helper's own id is taken away: it is to be found."""


def test_ranks_of_one_job_are_one_run_and_each_watch_is_another(python: Preloaded, tmp_path: Path) -> None:
    """Two trainings one after the other give two runs, in order, each with a stream of both ranks; a second job with
    its own process group gives others."""
    program = TRAINING + "training().finish()\ntraining()\n"
    jobs = [train(python, tmp_path / name, program, env=OWN) for name in ("first", "second")]
    ids = []
    for job in jobs:
        by_start = sorted(job.recorded, key=lambda one: one.start.time_us if one.start else 0)
        runs = [{one.run_id for one in by_start[:2]}, {one.run_id for one in by_start[2:]}]
        assert [len(run) for run in runs] == [1, 1]
        assert runs[0] != runs[1]
        assert sorted(one.info.rank for one in by_start[:2]) == [0, 1]
        assert {one.info.world_size for one in by_start} == {2}
        ids += [run.pop() for run in runs]
    assert ids == sorted(ids)
    assert len(set(ids)) == 4


def test_a_restart_by_the_agent_is_the_next_attempt_of_the_same_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Workers of the same agent come to the same ids in the same order, however often they are started."""
    launched = {"TORCHELASTIC_RUN_ID": "none", "GROUP_WORLD_SIZE": "1", "RANK": "1", "WORLD_SIZE": "2"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    ids = []
    for restarts in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        ranks._count_anew()
        place = ranks.find()
        assert place.attempt == int(restarts)
        ids.append([ranks.shared_run_id(place, tmp_path) for _ in range(2)])
    ranks._count_anew()
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2
    assert all(config.is_run_id(str(one)) for one in ids[0])


def test_a_restart_on_several_nodes_is_the_same_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every start has a store of its own; launchers stay, and a node that is new is told by the others."""
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "GROUP_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks, "is_joined", lambda: True)
    place, found = Place(rank=1, world_size=4, source="launcher"), []
    launched = jobs.launcher_of(os.getpid())
    nodes = [dataclasses.replace(launched, started=str(number)) for number in range(3)]
    for names in (nodes[:2], (nodes[0], nodes[2])):
        store = dist.HashStore()
        monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda kept=store: kept)
        for at, node in enumerate(names):
            monkeypatch.setattr(ranks, "_launcher", lambda kept=node: kept)
            monkeypatch.setattr(jobs, "remove_ended", lambda _directory: 0)
            ranks._count_anew()
            found.append(ranks.shared_run_id(place, tmp_path / f"{at}"))
    ranks._count_anew()
    assert len(set(found)) == 1
    assert config.is_run_id(str(found[0]))


def test_a_run_that_is_continued_is_the_next_attempt(tmp_path: Path) -> None:
    """A given id may have been begun elsewhere: the time at which this one began is its number."""
    run_id = config.new_run_id()
    before = ranks.attempt_at(time.time_ns() // 1000)
    model = torch.nn.Linear(2, 1)
    run = halfscope.watch(
        model, torch.optim.SGD(model.parameters(), 0.1), run_id=run_id, mode="offline", directory=tmp_path
    )
    run.finish()
    (recorded,) = [one for one in read_journal(tmp_path) if one.start is not None]
    assert before <= recorded.info.attempt <= ranks.attempt_at(time.time_ns() // 1000)
    assert (recorded.info.rank, recorded.info.world_size) == (0, 1)


def test_ranks_that_continue_a_run_are_one_attempt_on_all_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever journals their nodes hold: when their job began tells, also of two that begin in the same millisecond,
    and restarts of its launcher count on."""
    jobs_ids = [config.run_id_of(1_800_000_000_000, 7), config.run_id_of(1_800_000_000_000, 90)]
    found = []
    for shared in jobs_ids:
        monkeypatch.setattr(ranks, "_from_launcher", lambda _directory, _number, shared=shared: shared)
        monkeypatch.setattr(ranks, "time", SimpleNamespace(time_ns=lambda: 1_800_000_100 * 10**9))
        for restarts in range(3):
            numbers = {
                ranks.job_attempt(ranks.Place(rank=rank, world_size=2, attempt=restarts), tmp_path / f"{rank}")
                for rank in range(2)
            }
            found.append(numbers.pop())
            assert numbers == set()
    began = ranks.attempt_at(1_800_000_000 * 10**6)
    assert found == [began + rest + restarts for rest in (7, 90) for restarts in range(3)]
    # An id that a launcher's name was made into holds no time.
    monkeypatch.setattr(ranks, "_from_launcher", lambda *_: config.run_id_of(1, 2))
    assert ranks.job_attempt(ranks.Place(rank=1, world_size=2), tmp_path) is None
    # SLURM tells seconds: two jobs of the same one differ by their numbers.
    monkeypatch.setattr(ranks, "_from_launcher", lambda *_: None)
    monkeypatch.setenv("SLURM_JOB_START_TIME", "1800000000")
    for job in (4_000_123, 4_000_124):
        monkeypatch.setenv("SLURM_JOB_ID", f"{job}")
        assert ranks.job_attempt(ranks.Place(rank=1, world_size=2), tmp_path) == began + job % 1_000_000


def test_a_rank_that_watches_alone_waits_for_nobody(python: Preloaded, tmp_path: Path) -> None:
    """Only one of two ranks calls `watch`, first one and then the other; both train to their end."""
    program = (
        TRAINING
        + """
watch = halfscope.watch
for alone in (0, 1):
    halfscope.watch = watch if rank == alone else lambda *args, **options: None
    run = training()
    if run is not None:
        run.finish()
"""
    )
    recorded = train(python, tmp_path, program, env=OWN).recorded
    assert [(one.info.rank, one.info.world_size) for one in recorded] == [(0, 2), (1, 2)]
    assert all(one.end is not None for one in recorded)
    assert [one.steps() for one in recorded] == [[0, 1], [0, 1]]


def test_without_anything_in_common_each_rank_has_a_run_and_says_what_to_set(python: Preloaded, tmp_path: Path) -> None:
    """A launcher that says nothing of the job, and no process group: rank and size are told all the same."""
    program = """
    model = torch.nn.Linear(4, 1)
    run = halfscope.watch(model, torch.optim.SGD(model.parameters(), 0.1))
    give(id=run.id)
    """
    with started(python, tmp_path, program, env=OWN) as both:
        codes = [one.wait(60) for one in both]
    assert codes == [0, 0]
    outputs = [(tmp_path / f"rank{rank}.log").read_text() for rank in (0, 1)]
    assert all("set HALFSCOPE_RUN_ID to the same" in output for output in outputs)
    assert "this is rank 1 of 2" in outputs[1]


def test_who_it_is_comes_from_the_launcher_where_there_is_no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's variables; SLURM's only where its tasks have an address to meet at; else it is alone."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert ranks.find() == Place()
    slurm = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0"}
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    assert ranks.find() == Place(), "tasks of a step may be trainings of their own"
    monkeypatch.setenv("MASTER_ADDR", "node1")
    assert ranks.find() == Place(rank=5, local_rank=1, world_size=8, source="slurm")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "3")
    assert ranks.find().attempt == 3, "the job was put back into the queue"
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "2"}.items():
        monkeypatch.setenv(name, value)
    assert ranks.find() == Place(rank=3, local_rank=1, world_size=4, attempt=2, source="launcher")


def test_a_job_of_slurm_has_an_id_that_all_its_nodes_come_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From job and step, of whom and where: alike everywhere and when the job is put back, another for another step, a
    second watch or another user's job of that number; with a process group, by its store."""
    slurm = {"CLUSTER_NAME": "", "JOB_USER": "ann", "SUBMIT_DIR": "/home/ann", "JOB_ID": "77", "STEP_ID": "0"}
    for name, value in {**slurm, "JOB_START_TIME": "1700000000"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    place = Place(rank=1, world_size=8, source="slurm")

    def ids(num: int) -> list[str | None]:
        ranks._count_anew()
        return [ranks.shared_run_id(place, tmp_path) for _ in range(num)]

    first = ids(2)
    assert first == ids(2)
    assert len(set(first)) == 2
    assert all(one is not None and config.is_run_id(one) for one in first)
    for name, value in {"SLURM_JOB_START_TIME": "1700009999", "SLURM_RESTART_COUNT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert ids(2) == first, "put back into the queue"
    store = dist.HashStore()
    with monkeypatch.context() as joined:
        joined.setattr(ranks, "is_joined", lambda: True)
        joined.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
        assert ids(2) == first
    for name, value in (("SLURM_STEP_ID", "1"), ("SLURM_JOB_USER", "bob")):
        with monkeypatch.context() as other:
            other.setenv(name, value)
            assert ids(1)[0] not in first
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}.items():
        monkeypatch.setenv(name, value)
    under_torchrun = ids(1)
    monkeypatch.setenv("SLURM_JOB_START_TIME", "1700019999")
    assert ids(1) != under_torchrun, "its agents count their own restarts only"
    ranks._count_anew()


def test_a_store_that_is_gone_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever keeps it does not answer: after some seconds the rank goes on without."""
    silent = threading.Event()

    class Silent:
        def compare_set(self, key: str, expected: str, desired: str) -> bytes:
            silent.wait(30)
            return b""

    monkeypatch.setattr(ranks, "is_joined", lambda: True)
    monkeypatch.setattr(ranks, "STORE_WAIT_S", 0.05)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", Silent)
    assert ranks._from_store(0) is None
    silent.set()


def test_an_id_in_the_store_stays_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first proposal holds, under whatever prefix a restart looks."""
    store = dist.HashStore()
    monkeypatch.setattr(ranks, "is_joined", lambda: True)
    found = []
    for attempt in (0, 0, 1):
        prefixed = dist.PrefixStore(f"worker/attempt_{attempt}", dist.PrefixStore("default_pg", store))
        monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda kept=prefixed: kept)
        found.append(ranks._from_store(0))
    assert len(set(found)) == 1
    assert config.is_run_id(str(found[0]))
    assert ranks._from_store(1) != found[0]
