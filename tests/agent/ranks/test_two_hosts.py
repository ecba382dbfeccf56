"""One job on two hosts, each with its own sender, one of which is cut off from the server for a while.

Hosts are network namespaces with names of their own, joined by pairs of virtual interfaces: one for the job's own
traffic, and one from each host to the server. Real: torch.distributed over gloo, journals, one sender a host,
`halfscope serve`. Programs are forks of what has loaded torch, or the server, and enter their namespace first. The
oracle is what each rank printed of its own steps.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from halfscope.config import new_run_id
from halfscope_server.store.store import Store

from tests.helpers.preloaded import Forked, Preloaded, serving

WAIT_S = 60.0

ENTER = """
import ctypes, os, socket, sys

NEW_NETWORK, NEW_HOST_NAME = 0x40000000, 0x04000000  # of <sched.h>
libc = ctypes.CDLL(None, use_errno=True)
namespace = os.open(f"/run/netns/{sys.argv.pop(1)}", os.O_RDONLY)
if libc.setns(namespace, NEW_NETWORK) or libc.unshare(NEW_HOST_NAME):
    raise OSError(ctypes.get_errno(), "entering a namespace")
os.close(namespace)
socket.sethostname(sys.argv.pop(1))
"""
SERVER = """
import runpy

runpy.run_module("halfscope", run_name="__main__", alter_sys=True)
"""
TRAINING = """
import json, os, sys, time
import torch
import torch.distributed as dist
import halfscope

torch.set_num_threads(1)
torch.manual_seed(0)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
run = halfscope.watch(model, optimizer, name="two hosts")
deadline = time.monotonic() + 150
for step in range(100_000):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4) + rank).square().mean()
    loss.backward()
    optimizer.step()
    run.step(loss=loss)
    print(json.dumps([step, loss.item()]), flush=True)
    time.sleep(0.02)
    stop = torch.tensor([float(os.path.exists(sys.argv[1]) or time.monotonic() > deadline)])
    dist.all_reduce(stop)
    if stop.item():
        break
run.finish()
dist.destroy_process_group()
"""


class Network:
    """Three namespaces: the server `s` and the hosts `a` and `b`; everything in them is gone when it is closed."""

    def __init__(self) -> None:
        self.prefix = f"hs{uuid.uuid4().hex[:6]}"
        self._processes: list[Forked] = []

    def open(self) -> None:
        """Makes the namespaces and joins them.

        Raises:
            CalledProcessError: this machine does not permit it.
        """
        for name in "sab":
            _run("ip", "netns", "add", self.prefix + name)
            self.inside(name, "ip", "link", "set", "lo", "up")
        for number, (one, other) in enumerate((("a", "s"), ("b", "s"), ("a", "b")), start=1):
            ends = (one + other, other + one)
            self.inside(one, "ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            self.inside(one, "ip", "link", "set", ends[1], "netns", self.prefix + other)
            for place, (name, end) in enumerate(zip((one, other), ends, strict=True), start=1):
                self.inside(name, "ip", "address", "add", f"10.77.{number}.{place}/24", "dev", end)
                self.inside(name, "ip", "link", "set", end, "up")

    def close(self) -> None:
        """Ends what runs inside, senders too, and removes the namespaces."""
        for name in "sab":
            found = subprocess.run(
                ["ip", "netns", "pids", self.prefix + name], capture_output=True, text=True, check=False
            )
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
        for process in self._processes:
            process.wait(10)
        for name in "sab":
            subprocess.run(["ip", "netns", "delete", self.prefix + name], capture_output=True, check=False)

    def inside(self, name: str, *command: str) -> None:
        """Runs a command in a namespace."""
        _run("ip", "netns", "exec", self.prefix + name, *command)

    def start(
        self, name: str, python: Preloaded, program: str, *arguments: str, environment: dict[str, str],
        stdout: IO[str], log: IO[str],
    ) -> Forked:  # fmt: skip
        """Starts a program in a namespace, under a host name of its own."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HALFSCOPE_")}
        process = python.start(
            ["-c", ENTER + program, self.prefix + name, f"node-{name}", *arguments],
            env=kept | environment,
            stdout=stdout.fileno(),
            stderr=log.fileno(),
            strict=False,
        )
        self._processes.append(process)
        return process


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture
def network() -> Iterator[Network]:
    """The namespaces; skips with the reason where they are not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need `ip`, which this machine has not")
    found = Network()
    try:
        try:
            found.open()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.cmd}: {str(error.stderr).strip()}")
        yield found
    finally:
        found.close()


def _wait_until(what: str, is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}"
        time.sleep(0.1)


class Job:
    """The server and one rank on each host."""

    def __init__(self, network: Network, folder: Path, python: Preloaded) -> None:
        self.run_id = new_run_id()
        self.folder = folder
        self._log = (folder / "log.txt").open("w+", encoding="utf-8")
        self.server = network.start(
            "s", serving(), SERVER, "serve", "--no-browser", "--host", "0.0.0.0", "--port", "65504",
            "--allow-host", "10.77.1.2", "--allow-host", "10.77.2.2",
            environment={"HALFSCOPE_HOME": str(folder / "home")}, stdout=self._log, log=self._log,
        )  # fmt: skip
        _wait_until("the server is there", (folder / "home" / "server.json").exists)
        self.ranks = []
        for rank, name in enumerate("ab"):
            environment = {
                "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": "10.77.3.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "ab" if rank == 0 else "ba",
                "HALFSCOPE_RUN_ID": self.run_id,
                "HALFSCOPE_HOME": str(folder / name),
                "HALFSCOPE_SERVER": f"http://10.77.{rank + 1}.2:65504",
                "HALFSCOPE_TOKEN_FILE": str(folder / "home" / "token"),
            }  # fmt: skip
            with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as told:
                rank_program = (name, python, TRAINING, str(folder / "stop"))
                self.ranks.append(network.start(*rank_program, environment=environment, stdout=told, log=self._log))

    def told(self, rank: int) -> list[tuple[int, float]]:
        """What a rank printed of its steps."""
        lines = (self.folder / f"{'ab'[rank]}.jsonl").read_text(encoding="utf-8").splitlines()
        return [(step, value) for step, value in map(json.loads, lines)]

    def log(self) -> str:
        """What everybody wrote to standard error, its end."""
        self._log.flush()
        return (self.folder / "log.txt").read_text(encoding="utf-8")[-3000:]

    def close(self) -> None:
        self._log.close()


def _stored(store: Store, run_id: str, rank: int) -> list[tuple[int, float]]:
    """Losses of a rank by step, as they arrived in the store."""
    found = [series for series in store.series(run_id) if series.name == "loss"]
    if not found:
        return []
    points = store.points(run_id, found[0].series_id, rank=rank)
    return list(zip(points.step.tolist(), points.value.tolist(), strict=True))


@pytest.mark.slow
def test_a_host_that_was_cut_off_ends_with_complete_data(network: Network, tmp_path: Path, python: Preloaded) -> None:
    """The job goes on while one host cannot reach the server; what it measured meanwhile arrives when it can."""
    with (
        contextlib.closing(Job(network, tmp_path, python)) as job,
        contextlib.closing(Store.open(f"sqlite:///{tmp_path / 'home' / 'halfscope.db'}", read_only=True)) as store,
    ):

        def last(rank: int) -> int:
            return max((step for step, _ in _stored(store, job.run_id, rank)), default=-1)

        try:
            _wait_until("both ranks are live", lambda: min(last(0), last(1)) > 10)
            network.inside("b", "ip", "link", "set", "bs", "down")
            cut_at = len(job.told(1))
            _wait_until("rank 0 is followed alone", lambda: last(0) > cut_at + 60)
            behind = last(1)
            assert behind < cut_at + 30, "nothing of rank 1 came after the cut but what was under way"
            assert len(job.told(1)) > cut_at + 50, "and it trained on all the same"
            network.inside("b", "ip", "link", "set", "bs", "up")
            _wait_until("rank 1 is back", lambda: last(1) > behind + 60)
            (tmp_path / "stop").touch()
            assert [process.wait(WAIT_S) for process in job.ranks] == [0, 0]
            ends = [job.told(rank)[-1][0] for rank in (0, 1)]
            _wait_until("all of both is stored", lambda: [last(0), last(1)] == ends)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{job.log()}") from error
        for rank in (0, 1):
            assert _stored(store, job.run_id, rank) == job.told(rank), "each step once, bit for bit"
        assert {stream.rank: stream.host for stream in store.streams(job.run_id) if stream.world_size == 2} == {
            0: "node-a",
            1: "node-b",
        }
