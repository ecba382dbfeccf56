"""Ranks that `torchrun` starts, watches and starts again, from their processes to a server's store.

Real: torchrun with its command line and its agent, ranks over gloo, journals, one sender, `halfscope serve`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from halfscope.send import status
from halfscope_server.store.store import Store
from halfscope_server.store.types import SERVER_STREAM, EventRow

from tests.helpers.distributed import Job, torchrun
from tests.helpers.ports import free_port
from tests.helpers.preloaded import Preloaded
from tests.server.cli.conftest import Served, served

WAIT_S = 90.0
MOST_LOST_S = 0.1
"""Of the last of a rank that is killed."""
MOST_SILENT_S = 10.0
"""From the signal that stops a rank to the event that names it."""

TRAINING = """
import time
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
folder = os.environ["TEST_GIVEN"]


def wait_for(name):
    with open(os.path.join(folder, f"{rank}.pid"), "w") as file:
        file.write(str(os.getpid()))
    deadline = time.monotonic() + 80
    while not os.path.exists(os.path.join(folder, name)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def hold(grad):
    if rank == 1 and attempt == 1 and step == 30:
        wait_for("go on")


model = DDP(torch.nn.Linear(4, 1))
model.module.weight.register_hook(hold)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
clocks = open(os.path.join(folder, f"{rank}.{attempt}.clocks"), "w", buffering=1)
if rank == 1 and attempt == 0:
    with open(os.path.join(folder, "1.pid"), "w") as file:
        file.write(str(os.getpid()))
for step in range(100_000 if attempt == 0 else 40):
    optimizer.zero_grad()
    model(torch.ones(2, 4) * (rank + 1)).square().mean().backward()
    optimizer.step()
    clocks.write(f"{time.time_ns() // 1000}\\n")
    if attempt == 0:
        time.sleep(0.025)
"""
"""The first attempt goes on until it is ended; in the second rank 1 stops within its backward pass of step 30. A line
of the clocks is the system's as soon as it is written: it is there whatever happens to the process."""

STARTING = """
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
dist.barrier()
for step in range(2):
    optimizer.zero_grad()
    DDP(model)(torch.ones(2, 4)).sum().backward()
    optimizer.step()
import time
with open(os.path.join(os.environ["TEST_GIVEN"], f"{rank}.pid"), "w") as file:
    file.write(str(os.getpid()))
deadline = time.monotonic() + 80
while not os.path.exists(os.path.join(os.environ["TEST_GIVEN"], "go on")):
    assert time.monotonic() < deadline
    time.sleep(0.01)
"""


def _wait_until(what: str, is_true: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        said = log.read_text(errors="replace") if log.exists() else ""
        assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}\n{said}"
        time.sleep(0.05)


def _pid(job: Job, rank: int) -> int:
    path = job.folder / "given" / f"{rank}.pid"
    _wait_until(f"rank {rank} has come to its place", path.exists, job.folder / "torchrun.log")
    _wait_until(f"rank {rank} says its number", lambda: path.read_text().isdigit(), job.folder / "torchrun.log")
    found = int(path.read_text())
    path.unlink()
    return found


def _senders(directory: Path) -> list[int]:
    """Sender processes of a journals folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"halfscope.send" in words and os.fsencode(directory) in words:
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("server"), "--port", "0") as running:
        yield running


@pytest.fixture(scope="module")
def store(server: Served) -> Iterator[Store]:
    with contextlib.closing(Store.open(f"sqlite:///{server.home / 'halfscope.db'}", read_only=True)) as opened:
        yield opened


def _environment(server: Served) -> dict[str, str]:
    return {
        "HALFSCOPE_RUN_ID": "",
        "HALFSCOPE_MODE": "online",
        "HALFSCOPE_HOME": str(server.home),
        "HALFSCOPE_SERVER": server.url,
    }


class Restarted:
    """The job that was stopped and killed, and what was seen on the way."""

    def __init__(self, job: Job, store: Store) -> None:
        self.job, self.store = job, store
        self.run_id = ""
        self.senders: list[int] = []
        self.sender = 0
        self.said = ""
        self.frozen_us = 0

    def events(self, kind: str) -> list[EventRow]:
        return [event for event in self.store.events(self.run_id, kinds=(kind,)) if event.stream == SERVER_STREAM]

    def steps(self, rank: int, attempt: int) -> list[int]:
        """Steps of a rank that have their row in the store."""
        for series in self.store.series(self.run_id):
            if series.name == "time.step_s":
                points = self.store.points(self.run_id, series.series_id, rank=rank, attempt=attempt)
                return [int(step) for step in points.step]
        return []

    def clocks_us(self, rank: int, attempt: int) -> list[int]:
        """When each step was over, by the program itself."""
        path = self.job.folder / "given" / f"{rank}.{attempt}.clocks"
        return [int(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def restarted(python: Preloaded, server: Served, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Restarted:
    """Two ranks under `torchrun -m halfscope run`: rank 1 is frozen, killed and started again, and then it stops
    in its own backward pass."""
    folder = tmp_path_factory.mktemp("restarted")
    job = Job(folder=folder, codes=[0], outputs=[])
    found = Restarted(job, store)
    log = folder / "torchrun.log"
    with torchrun(
        python,
        folder,
        TRAINING,
        options=["--max-restarts=1"],
        command=["-m", "halfscope", "run", "--name", "restarted", "{program}"],
        env=_environment(server),
    ) as agent:
        pid = _pid(job, 1)
        _wait_until("the run is there", lambda: bool(store.list_runs()), log)
        (found.run_id,) = [run.run_id for run in store.list_runs()]
        _wait_until("rank 1 is followed", lambda: len(found.steps(1, 0)) > 30, log)
        found.senders, found.sender = _senders(job.journals), status(job.journals).pid
        found.frozen_us = time.time_ns() // 1000
        os.kill(pid, signal.SIGSTOP)
        _wait_until("the frozen rank is named", lambda: len(found.events("rank_stuck")) == 1, log)
        os.kill(pid, signal.SIGKILL)
        _pid(job, 1)
        _wait_until("the rank that holds the others up is named", lambda: len(found.events("rank_stuck")) == 2, log)
        (folder / "given" / "go on").touch()
        assert agent.wait(WAIT_S) == 0, log.read_text(errors="replace")
    found.said = log.read_text(errors="replace")
    _wait_until("all is stored", lambda: min(found.steps(rank, 1)[-1:] for rank in (0, 1)) == [39], log)
    _wait_until("its end is known", lambda: [run.state for run in store.list_runs()] == ["finished"], log)
    return found


def test_a_killed_rank_is_named_and_the_run_goes_on_as_the_next_attempt(restarted: Restarted) -> None:
    """Both attempts are in the record of one run, with all that was measured in them."""
    streams = {(one.rank, one.attempt): one.ended for one in restarted.store.streams(restarted.run_id)}
    assert streams.keys() == {(0, 0), (1, 0), (0, 1), (1, 1)}
    assert streams[1, 0] == "killed"
    assert [(event.rank, event.attempt) for event in restarted.events("run_ended")].count((1, 0)) == 1
    assert {streams[0, 1], streams[1, 1]} == {"finished"}
    first, second = restarted.steps(0, 0), restarted.steps(1, 0)
    assert first == list(range(len(first)))
    assert second == list(range(len(second))), "nothing is missing in between"
    # What belongs to a step may be logged until the next one begins: from then on there is a record of it.
    recorded_us = restarted.clocks_us(1, 0)[1:]
    num_old = sum(restarted.frozen_us - time_us > MOST_LOST_S * 1e6 for time_us in recorded_us)
    assert 30 < num_old <= len(second) <= len(recorded_us) + 1
    assert restarted.steps(0, 1) == restarted.steps(1, 1) == list(range(40))


def test_a_frozen_rank_is_named_within_seconds(restarted: Restarted) -> None:
    """Its process is stopped: it alone does not say where it stands, and the other waits for it."""
    event = restarted.events("rank_stuck")[0]
    assert (event.attempt, event.attributes["ranks"]) == (0, [1])
    assert event.attributes["last_step"] == restarted.steps(1, 0)[-1]
    assert (event.time_us - restarted.frozen_us) / 1e6 <= MOST_SILENT_S


def test_a_rank_that_stops_in_its_own_backward_pass_is_named(restarted: Restarted) -> None:
    """It has completed as many steps as the other, of which several are told at once; the other says that it waits."""
    event = restarted.events("rank_stuck")[1]
    assert (event.attempt, event.attributes["ranks"], event.attributes["last_step"]) == (1, [1], 29)


def test_one_sender_runs_for_all_ranks_and_rank_0_alone_speaks(restarted: Restarted) -> None:
    """Whoever comes first starts it, and it outlives a rank; the run is announced once in each attempt."""
    assert restarted.senders == [restarted.sender]
    assert restarted.said.count("halfscope: watching run restarted") == 2
    assert restarted.said.count("halfscope: ") == 2


def test_four_ranks_that_start_at_once_are_one_run_with_one_sender(
    python: Preloaded, server: Served, store: Store, tmp_path: Path
) -> None:
    """As `torchrun --no-python halfscope run`, without a word of configuration."""
    job = Job(folder=tmp_path, codes=[0], outputs=[])
    log = tmp_path / "torchrun.log"
    before = {run.run_id for run in store.list_runs()}
    with torchrun(
        python,
        tmp_path,
        STARTING,
        num_ranks=4,
        options=["--no-python", f"--master-port={free_port()}"],
        command=["halfscope", "run", "{program}"],
        env=_environment(server),
    ) as agent:
        for rank in range(4):
            _pid(job, rank)
        senders = _senders(job.journals)
        (tmp_path / "given" / "go on").touch()
        assert agent.wait(WAIT_S) == 0, log.read_text(errors="replace")
    assert senders == [status(job.journals).pid]
    (run_id,) = {one.run_id for one in job.recorded}
    assert [(one.info.rank, one.info.local_rank, one.info.world_size, one.info.attempt) for one in job.recorded] == [
        (rank, rank, 4, 0) for rank in range(4)
    ]
    _wait_until("what it left for its ranks is gone", lambda: not list(job.journals.glob(".job-*")), log)
    _wait_until("it is stored", lambda: {run.run_id for run in store.list_runs()} == {*before, run_id}, log)
    assert log.read_text(errors="replace").count("halfscope: ") == 1
