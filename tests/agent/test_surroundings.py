"""What a training's surroundings do to it and to us: a server that is dead, workers that load data, PID 1, a pipe."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from halfscope.record.layout import find_streams
from halfscope.record.reader import JournalReader
from halfscope.send import status, sync

from tests.helpers.preloaded import Preloaded
from tests.helpers.recorded import Recorded, read_journal

TRAIN = """
import os, sys, time, torch, halfscope
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
def train(batches):
    for batch in batches:
        model(batch).sum().backward(); optimizer.step()
"""
MAX_END_S = 2.0
"""What the end of a training may take longer for us."""
END = """
import atexit; began = []; atexit.register(lambda: print('took', time.monotonic() - began[0]))
halfscope.watch(model, optimizer, mode={mode!r})
train([torch.ones(2, 4)] * 5)
began.append(time.monotonic())
"""
"""The hook that is registered first runs last."""


class Program:
    """Runs a training against a server, or against none."""

    def __init__(self, python: Preloaded, folder: Path) -> None:
        self._python, self._folder = python, folder
        self.journals = folder / "journals"

    def __call__(self, body: str, *, server: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HALFSCOPE_")}
        env = {**kept, "HALFSCOPE_HOME": str(self._folder / "home"), "HALFSCOPE_DIR": str(self.journals)}
        done = self._python.run(["-c", TRAIN + body], env={**env, "HALFSCOPE_SERVER": server}, timeout_s=100)
        assert not check or done.returncode == 0, done.stderr
        return done

    def read(self) -> Recorded:
        (recorded,) = read_journal(self.journals)
        return recorded


@pytest.fixture
def program(python: Preloaded, tmp_path: Path) -> Iterator[Program]:
    """Its sender is ended with the test: it would go on trying for a quarter of an hour."""
    made = Program(python, tmp_path)
    yield made
    if pid := status(made.journals).pid:
        os.kill(pid, signal.SIGTERM)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("is_silent", [False, True], ids=["nobody listens", "nobody answers"])
def test_the_end_of_a_training_is_not_held_up_by_a_dead_server(
    program: Program, silent_server: str, is_silent: bool
) -> None:
    """Two seconds longer at most than the same program unwatched, and everything is in the journal."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    took_s = {}
    for mode in ("disabled", "online"):
        done = program(END.format(mode=mode), server=silent_server if is_silent else nobody)
        took = re.search(r"took ([0-9.]+)", done.stdout)
        assert took is not None
        took_s[mode] = float(took[1])
    assert took_s["online"] - took_s["disabled"] < MAX_END_S
    recorded = program.read()
    assert recorded.end is not None
    assert (recorded.end.outcome, recorded.steps()) == ("finished", [0, 1, 2, 3, 4])


LONG = pytest.mark.skipif("HALFSCOPE_TEST_LONG" not in os.environ, reason="each worker loads torch anew: `make soak`")


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=LONG)])
def test_workers_that_load_data_are_no_trainings(
    program: Program, silent_server: str, start: str, tmp_path: Path
) -> None:
    """They inherit what `watch` set up, log, and exit; the run is the trainer's, and each step is there once."""
    (tmp_path / "dataset_of_test.py").write_text(
        "import torch\n"
        "class Rows(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 12\n"
        "    def __getitem__(self, at): return torch.full((4,), float(at))\n"
    )
    program(
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from dataset_of_test import Rows\n"
        "run = halfscope.watch(model, optimizer, mode='offline')\n"
        "if __name__ == '__main__':\n"
        f"    loader = torch.utils.data.DataLoader(Rows(), 2, num_workers=2, multiprocessing_context={start!r})\n"
        "    for _ in range(2): train(loader)\n",
        server=silent_server,
    )
    recorded = program.read()
    assert recorded.end is not None
    assert (recorded.end.outcome, recorded.steps()) == ("finished", list(range(12)))


def test_a_training_that_is_the_first_process_of_a_container_loses_nothing(
    program: Program, start_server: Callable[..., Any], model: Any, silent_server: str
) -> None:
    """In a process namespace of its own, whose end takes the sender with it: the journal has what was not shipped."""
    body = (
        "import ctypes\n"
        "if ctypes.CDLL(None, use_errno=True).unshare(0x20000000) != 0: sys.exit(77)\n"
        "child = os.fork()\n"
        "if child:\n"
        "    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "assert os.getpid() == 1\n"
        "halfscope.watch(model, optimizer)\n"
        "train([torch.ones(2, 4)] * 5)\n"
    )
    done = program(body, server=silent_server, check=False)
    if done.returncode == 77:
        pytest.skip("process namespaces are not allowed here")
    assert done.returncode == 0, done.stderr
    recorded = program.read()
    assert recorded.end is not None
    assert (recorded.end.outcome, recorded.steps()) == ("finished", [0, 1, 2, 3, 4])
    (place,) = find_streams(program.journals)
    assert sync(program.journals, start_server().url).num_shipped == 1
    shipped = [payload for _, payload in model.streams[place.run_id, place.stream].payloads]
    with closing(JournalReader(place)) as reader:
        assert shipped == [entry.payload for entry in reader.read(final=True)]
