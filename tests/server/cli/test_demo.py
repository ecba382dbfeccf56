"""`halfscope demo`, whole: a server, five real trainings, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from halfscope_server.cli import demo
from halfscope_server.cli.children import Children
from halfscope_server.settings import Settings

from tests.helpers.preloaded import Preloaded

NAMES = ("fp32-cnn", "fp16-cnn", "fp32-transformer", "fp16-transformer", "fp16-troubled")
TIMEOUT_S = 170.0


# The command as it is typed, but that its trainings are forks of one process, which has loaded torch.
TRAINED_BY = """
import sys
from halfscope_server.cli import demo

demo.TRAINER = (sys.argv.pop(1), *demo.TRAINER[1:])
sys.argv[0] = "halfscope"
from halfscope.__main__ import main

main()
"""


@contextmanager
def _demo(home: Path, *arguments: str, trainer: str | None = None) -> Iterator[subprocess.Popen[str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HALFSCOPE_")}
    how = ["-m", "halfscope"] if trainer is None else ["-c", TRAINED_BY, trainer]
    process = subprocess.Popen(
        [sys.executable, *how, "demo", "--no-browser", "--port", "0", *arguments],
        env={**kept, "HALFSCOPE_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _processes_of(home: Path) -> list[str]:
    """Command lines of living processes whose halfscope home this is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"HALFSCOPE_HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
        except OSError:
            continue
    return [line for line in found if line]


@pytest.mark.slow
def test_headless_demo_trains_everything_and_says_what_was_recorded(tmp_path: Path, python: Preloaded) -> None:
    """The link first, then where each run stands, then one line per run out of the server."""
    with (
        python.executable() as trainer,
        _demo(tmp_path, "--headless", "--steps", "2", trainer=trainer) as process,
    ):
        said, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, said
    lines = said.splitlines()
    assert re.search(r"http://127\.0\.0\.1:\d+/#code=[\w-]{43}$", lines[0])
    recorded = lines[lines.index("Recorded:") + 1 :]
    assert [line.split()[0] for line in recorded] == list(NAMES)
    for line in recorded:
        assert ("FP16-AMP" if "fp16" in line.split()[0] else "FP32") in line
        assert "2 steps" in line
        assert "Finished" in line
    assert "\x1b" not in said


@pytest.mark.slow
def test_ctrl_c_stops_everything(tmp_path: Path) -> None:
    """Server and trainings; the sender, which outlives trainings on purpose, ends by itself when all is shipped."""
    with _demo(tmp_path) as process:
        assert process.stdout is not None
        assert "#code=" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    deadline = time.monotonic() + 30
    while (left := [line for line in _processes_of(tmp_path) if "halfscope.send" not in line]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert left == []
    assert not (tmp_path / "server.json").exists()


SAYS_ENDS = """
import json, sys

server = sys.stdin.readline().strip()
sys.stderr.write("the last word")
sys.stderr.flush()
told = {"step": 1, "total": 2, "loss": float("nan"), "accuracy": 0.5}
for line in (
    "what a library says", {"run": "good", **told}, {"run": "raised", "error": "ValueError: " + server},
    {"run": "raised", "code": 1}, {"run": "killed", "code": -9}, {"run": "good", "code": 0},
):
    print(line if isinstance(line, str) else json.dumps(line), flush=True)
sys.exit(3)
"""


def test_runs_that_fail_are_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their own word where they have one, else the last line of what the process wrote; one that said nothing of its
    end ended with that process."""
    monkeypatch.setattr(demo, "TRAINER", (sys.executable, "-c", SAYS_ENDS))
    with Children() as children:
        trainer = demo._Trainer(Settings(home=tmp_path), children, ["good", "raised", "killed", "mute"], steps=None)
        failed = trainer.train("http://there")
    assert failed == [
        "raised ended with code 1: ValueError: http://there",
        "killed ended with code -9: the last word",
        "mute ended with code 3: the last word",
    ]
    assert re.search(r"good .*step 1/2 +loss NaN +accuracy 50.0% +done", capsys.readouterr().out)
