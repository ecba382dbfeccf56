"""`halfscope run` as it is typed: options, real trainings in processes of their own, torchrun."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from halfscope.launch import command

from tests.agent.instrument.conftest import Recorded, read_journal
from tests.helpers.preloaded import Preloaded

TRAINING = """
import argparse
import os
import sys

assert "torch" not in sys.modules
os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, as it must be

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--fail", action="store_true")


def main() -> None:
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    batches = DataLoader(TensorDataset(torch.randn(4 * arguments.steps, 4)), 4, num_workers=1)
    for step, (batch,) in enumerate(batches):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(batch).float().pow(2).mean()
        scaler.scale(loss * (1e3 if step == 0 else 1e-3)).backward()
        scaler.step(optimizer)
        scaler.update()
    print("done", scaler.get_scale(), torch.get_num_threads(), os.environ.get("WORLD_SIZE"))
    if arguments.fail:
        raise RuntimeError("out of luck")


if __name__ == "__main__":
    main()
"""


def prepare(folder: Path) -> dict[str, str]:
    """Writes the program; returns the environment to run it in."""
    (folder / "train.py").write_text(TRAINING, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HALFSCOPE_")}
    return environment | {"HALFSCOPE_HOME": str(folder / "home"), "HALFSCOPE_MODE": "offline"}


def start(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=prepare(folder), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0 or not check, done.stderr
    return done


def without_torch(program: str) -> str:
    """What says and raises the same at the same lines: what plain Python makes of it is what is to be seen."""
    lines = ["" if line.startswith(("import torch", "from torch")) else line for line in program.split("\n")]
    first = lines.index("    torch.manual_seed(0)")
    last = next(at for at, line in enumerate(lines) if line.startswith('    print("done"'))
    return "\n".join(
        [*lines[:first], *[""] * (last - first), '    print("done", 2.0**23, 1, None)', *lines[last + 1 :]]
    )


def recorded(folder: Path) -> Recorded:
    (found,) = read_journal(folder / "home" / "journals")
    return found


@pytest.mark.slow
def test_a_training_is_watched_to_its_end_and_its_output_is_its_own(tmp_path: Path) -> None:
    """From the first step, a skip, to the exception it ends with; its traceback shows its own frames alone."""
    options = ("--project", "digits", "--name=first", "--tag", "a", "--tag", "b", "--every", "1")
    watched = start(tmp_path, "-m", "halfscope", "run", *options, "train.py", "--steps", "5", "--fail", check=False)
    (tmp_path / "train.py").write_text(without_torch(TRAINING), encoding="utf-8")
    plain = subprocess.run(
        [sys.executable, "train.py", "--fail"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (watched.returncode, watched.stdout, watched.stderr) == (1, plain.stdout, plain.stderr)
    assert "RuntimeError: out of luck" in plain.stderr
    run = recorded(tmp_path)
    assert run.start is not None
    assert (run.start.project, run.start.name, run.start.tags) == ("digits", "first", ["a", "b"])
    assert run.series("amp.scale")[0] == 2.0**24
    assert run.kinds("skip")[0].step == 0
    assert run.end is not None
    assert (run.end.outcome, run.end.step, run.end.error_type) == ("exception", 4, "RuntimeError")


ENDS = """
import sys
import threading

import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-2)


def train() -> None:
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


train()
"""


@pytest.mark.parametrize(
    ("ending", "code", "outcome", "message"),
    [
        ("sys.exit(3)", 3, "exception", "3"),
        ("sys.exit('no more data')", 1, "exception", "no more data"),
        ("sys.exit()", 0, "finished", ""),
        ("sys.exit(0)", 0, "finished", ""),
        ("threading.Thread(target=train).start()\nsys.exit(4)", 4, "exception", "4"),
        ("import halfscope\nwith halfscope.watch(model, optimizer):\n    train()\n    sys.exit(0)", 0, "finished", ""),
        ("try:\n    sys.exit(5)\nexcept SystemExit:\n    pass", 0, "finished", ""),
    ],
)
def test_a_run_ends_as_its_program_does(
    tmp_path: Path, python: Preloaded, ending: str, code: int, outcome: str, message: str
) -> None:
    """An exit code other than 0 is a failure, told with the code; what a thread trains after it is still recorded."""
    environment = prepare(tmp_path)
    (tmp_path / "ends.py").write_text(ENDS + ending, encoding="utf-8")
    done = python.run(["-m", "halfscope", "run", "ends.py"], env=environment, cwd=tmp_path, strict=False)
    assert done.returncode == code, done.stderr
    run = read_journal(tmp_path / "home" / "journals")[-1]
    assert run.end is not None
    assert (run.end.outcome, run.end.message, run.end.error_type) == (
        outcome,
        message,
        "SystemExit" if outcome == "exception" else "",
    )
    assert run.end.step == (5 if "Thread" in ending else 2)


@pytest.mark.slow
def test_it_works_under_torchrun(tmp_path: Path, python: Preloaded) -> None:
    """With one process; its run is named after the program. The launcher is a fork of one that has loaded torch."""
    command = str(Path(sys.executable).with_name("halfscope"))
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "--no-python", command)
    environment = prepare(tmp_path)
    done = python.run(
        [*launcher, "run", "--project", "p", "train.py", "--steps", "3"], env=environment, cwd=tmp_path, strict=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "1"  # WORLD_SIZE
    run = recorded(tmp_path)
    assert sorted(run.series("amp.scale")) == [0, 1, 2]
    assert run.start is not None
    assert run.start.name == "train"
    assert run.end is not None
    assert run.end.outcome == "finished"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py", "--lr", "3"], (["train.py"], ["--lr", "3"])),
        (["--project", "p", "train.py", "--project", "q"], (["--project", "p", "train.py"], ["--project", "q"])),
        (["--project=p", "train.py", "-m", "x"], (["--project=p", "train.py"], ["-m", "x"])),
        (["-m", "package.train", "--name", "x"], (["-m", "package.train"], ["--name", "x"])),
        (["-mpackage.train", "y"], (["-mpackage.train"], ["y"])),
        (["--every", "5", "-m", "train", "--", "z"], (["--every", "5", "-m", "train"], ["--", "z"])),
        (["--help"], (["--help"], [])),
        ([], ([], [])),
    ],
)
def test_what_follows_the_program_is_the_programs(words: list[str], expected: tuple[list[str], list[str]]) -> None:
    """Options before it are ours, and all behind it is left as it is."""
    parser = command.describe(argparse.ArgumentParser())
    assert command.split(parser, words) == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no program was given"),
        (["--mode", "onlin", "x.py"], "mode is 'onlin'"),
        (["--every", "0", "x.py"], "every is 0"),
        (["--every", "often", "x.py"], "invalid int value"),
        (["--precision", "FP17", "x.py"], "invalid choice"),
        (["--run-id", "short", "x.py"], "run_id is 'short'"),
        (["--unknown", "x.py"], "unrecognized arguments: --unknown"),
    ],
)
def test_wrong_options_are_told_before_the_program_starts(tmp_path: Path, words: list[str], said: str) -> None:
    """Exit code 2, what was wrong on standard error, and nothing has run."""
    (tmp_path / "x.py").write_text("print('ran')", encoding="utf-8")
    done = start(tmp_path, "-m", "halfscope", "run", *words, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_names_every_option(tmp_path: Path) -> None:
    """And says how it is called."""
    done = start(tmp_path, "-m", "halfscope", "run", "--help")
    assert done.stdout.startswith(f"usage: {command.USAGE}")
    for option in ("--project", "--name", "--tag", "--precision", "--every", "--mode", "--server", "--run-id"):
        assert option in done.stdout
