"""Trainings on several ranks, each a process of its own, and what each of them recorded.

    job = train(python, tmp_path, '''
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        run = halfscope.watch(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4) * (rank + 1)).sum().backward()
            optimizer.step()
        give(weight=model.module.weight.detach())
    ''')
    assert job.recorded[1].series("grad.norm") and job.given[0]["weight"].equal(job.given[1]["weight"])

Ranks are forks of the preloaded process (`train`), or of a `torchrun` that is such a fork itself (`torchrun`):
what it reads, how it starts, watches, ends and restarts its ranks is its own; only where it would execute Python it
forks. Both cost half a second of processor time a rank. Invariant: a job that hangs is killed and told as one, and no
rank outlives the call.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from halfscope.config import new_run_id

from tests.helpers.ports import free_port
from tests.helpers.preloaded import Forked, Preloaded
from tests.helpers.recorded import Recorded, read_journal

TIMEOUT_S = 60.0

PRELUDE = """\
import datetime, os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
import halfscope

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
torch.manual_seed(0)


def give(**values):
    path = os.path.join(os.environ["TEST_GIVEN"], f"{rank}.pt")
    given = torch.load(path, weights_only=False) if os.path.exists(path) else {}
    torch.save({**given, **values}, path + ".new")
    os.replace(path + ".new", path)


def join(**options):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20), **options)
"""
"""What a program finds: its rank, DDP, and `give`, whose arguments become `job.given[rank]`."""

JOIN = "join()\n"
LEAVE = "\ndist.destroy_process_group()\n"

_TORCHRUN = """\
import atexit, gc, os, shutil, signal, subprocess, sys, threading
import torch.distributed.run
import torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler as handler
from tests.helpers import preloaded


class Forked(subprocess.Popen):
    # Where Python is to be executed, this process forks, and the fork runs what Python would.
    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags,
                       shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *rest):
        self.pid = os.fork()
        if self.pid == 0:
            become(args, env, c2pwrite, errwrite)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def become(args, env, out, err):
    code = 1
    try:
        os.setsid()
        for target, fd in ((1, out), (2, err)):
            if fd != -1:
                os.dup2(fd, target)
        gc.freeze()
        os.closerange(3, 256)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        atexit._clear()
        os.environ.clear()
        os.environ.update(env)
        program, *rest = args
        preloaded._run(rest[1:] if program == sys.executable else [shutil.which(program), *rest])  # without its -u
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


handler.Popen = Forked
torch.distributed.run.main(sys.argv[1:])
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A training that has ended, or that is on (`start`)."""

    folder: Path
    codes: Sequence[int]
    """Exit code of each rank; of torchrun, its own alone."""
    outputs: Sequence[str]
    """What each rank wrote; of torchrun, what all of them wrote."""

    @property
    def journals(self) -> Path:
        return self.folder / "journals"

    @property
    def recorded(self) -> list[Recorded]:
        """The streams of all ranks, by rank, then by attempt, then by start."""
        streams = read_journal(self.journals)
        return sorted(streams, key=lambda one: (one.info.rank, one.info.attempt, one.info.started_us))

    @property
    def by_name(self) -> dict[str, list[Recorded]]:
        """The same by name of the run."""
        found: dict[str, list[Recorded]] = {}
        for recorded in self.recorded:
            assert recorded.start is not None
            found.setdefault(recorded.start.name, []).append(recorded)
        return found

    @property
    def given(self) -> dict[int, dict[str, Any]]:
        """What each rank's program gave by `give`."""
        found = {int(path.stem): path for path in (self.folder / "given").glob("*.pt")}
        return {rank: torch.load(path, weights_only=False) for rank, path in sorted(found.items())}


def train(
    python: Preloaded,
    folder: Path,
    program: str,
    *,
    num_ranks: int = 2,
    env: Mapping[str, str] | None = None,
    may_fail: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Job:
    """Run a program on some ranks to its end, between joining the process group and leaving it.

    Args:
        folder: for journals, outputs and what is given.
        env: beside RANK, WORLD_SIZE and the rest of what a launcher sets; a value may hold `{rank}`. By default runs
            are offline, and of one run id.
        may_fail: ranks may end with another exit code than 0.
    """
    with started(python, folder, JOIN + textwrap.dedent(program) + LEAVE, num_ranks=num_ranks, env=env) as ranks:
        codes = _wait(ranks, timeout_s, folder, at_once=not may_fail)
    job = Job(folder=folder, codes=codes, outputs=_outputs(folder, num_ranks))
    assert may_fail or not any(codes), f"ranks ended with {codes}\n" + "\n".join(job.outputs)
    return job


@contextlib.contextmanager
def started(
    python: Preloaded, folder: Path, program: str, *, num_ranks: int = 2, env: Mapping[str, str] | None = None
) -> Iterator[list[Forked]]:
    """Ranks that are on, by rank; those that still are at the end are killed. The program joins the group itself:
    `join()`."""
    common = _environment(folder, env) | {"MASTER_PORT": str(free_port()), "WORLD_SIZE": str(num_ranks)}
    ranks: list[Forked] = []
    try:
        for rank in range(num_ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(num_ranks)}
            environment = {key: value.replace("{rank}", str(rank)) for key, value in {**own, **common}.items()}
            with _output(folder, rank).open("wb") as output:
                arguments = ["-c", PRELUDE + textwrap.dedent(program)]
                fd = output.fileno()
                ranks.append(python.start(arguments, stdout=fd, stderr=fd, env=environment, strict=False))
        yield ranks
    finally:
        for one in ranks:
            one.kill()
        for one in ranks:
            one.wait(TIMEOUT_S)


@contextlib.contextmanager
def torchrun(
    python: Preloaded,
    folder: Path,
    program: str,
    *,
    num_ranks: int = 2,
    options: Sequence[str] = (),
    command: Sequence[str] = ("{program}",),
    env: Mapping[str, str] | None = None,
) -> Iterator[Forked]:
    """As `started`, by `torchrun`, which reads its own command line and starts ranks again that die; ended with them at
    the end.

    Args:
        options: of torchrun, before the command.
        command: what torchrun runs; `{program}` is the program's file.
    """
    environment = _environment(folder, env)
    path = folder / "program.py"
    path.write_text(PRELUDE + JOIN + textwrap.dedent(program) + LEAVE)
    meeting = [] if any(option.startswith("--master-port") for option in options) else ["--standalone"]
    given = [f"--nproc-per-node={num_ranks}", "--monitor-interval=0.1", *meeting, *options]
    rest = [word.replace("{program}", str(path)) for word in command]
    with tempfile.TemporaryDirectory() as logs, (folder / "torchrun.log").open("wb") as log:
        # Else ranks that are started again may find their predecessors' addresses in the store, and fail.
        environment |= {"TMPDIR": logs, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        fd = log.fileno()
        agent = python.start(["-c", _TORCHRUN, *given, *rest], stdout=fd, stderr=fd, env=environment, strict=False)
        try:
            yield agent
        finally:
            agent.terminate()  # it ends its ranks
            try:
                agent.wait(10.0)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait(TIMEOUT_S)


def _environment(folder: Path, env: Mapping[str, str] | None) -> dict[str, str]:
    (folder / "given").mkdir(parents=True, exist_ok=True)
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "HALFSCOPE_MODE": "offline",
        "HALFSCOPE_DIR": str(folder / "journals"),
        "HALFSCOPE_RUN_ID": new_run_id(),
        "TEST_GIVEN": str(folder / "given"),
        **(env or {}),
    }


def _output(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.log"


def _outputs(folder: Path, num_ranks: int) -> list[str]:
    return [_output(folder, rank).read_text(errors="replace") for rank in range(num_ranks)]


def _wait(ranks: Sequence[Forked], timeout_s: float, folder: Path, *, at_once: bool) -> list[int]:
    """Exit codes. With `at_once` the first rank that fails ends the wait: others may wait for it for long."""
    deadline_s = time.monotonic() + timeout_s
    while any(one.poll() is None for one in ranks) and not (at_once and any(one.returncode for one in ranks)):
        with contextlib.suppress(Exception):
            next(one for one in ranks if one.returncode is None).wait(0.1)
        if time.monotonic() > deadline_s:
            outputs = "\n".join(_outputs(folder, len(ranks)))
            raise AssertionError(f"the job did not end in {timeout_s:g} s\n{outputs}")
    return [one.returncode or 0 for one in ranks]
