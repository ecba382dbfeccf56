"""What a killed run of tests leaves behind is ended, and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from tests.helpers.keeper import MARK
from tests.helpers.killing import wait_until
from tests.helpers.preloaded import Preloaded

ROOT = Path(__file__).resolve().parents[1]
SENDER = "import os, signal, sys; os.fork() and os._exit(0); print(os.getpid(), flush=True); signal.pause()"
DEAF = "import signal; [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)]; "
RUN = f"""
import os, signal, subprocess, sys
from tests.helpers.keeper import keep
keep()
fork = os.fork()
if fork == 0:
    signal.pause()
print(fork)
for code in ({SENDER!r}, {DEAF + SENDER!r}):
    subprocess.run([sys.executable, "-IS", "-c", code], start_new_session=True, check=True)
print("ready", flush=True)
signal.pause()
"""


def test_what_a_killed_run_leaves_is_ended(python: Preloaded, tmp_path: Path) -> None:
    """Daemons in sessions of their own, also one that hears no signal; a fork that goes on does not keep them alive,
    and what another run has started stays."""
    said = tmp_path / "said"
    environ = {name: value for name, value in os.environ.items() if name != MARK}
    other = subprocess.Popen(["sleep", "600"], env={**environ, MARK: "0123"})
    with said.open("wb") as out, contextlib.ExitStack() as left:
        left.callback(other.wait)
        left.callback(other.kill)
        run = python.start(["-c", RUN], stdout=out.fileno(), stderr=out.fileno(), env=environ, cwd=ROOT)
        left.callback(run.kill)
        wait_until(lambda: b"ready" in said.read_bytes(), "a run that does not begin")
        fork, *daemons = (int(word) for word in said.read_text().split() if word.isdecimal())
        left.callback(os.kill, fork, signal.SIGKILL)
        assert len(daemons) == 2
        run.kill()
        assert run.wait(30) == -signal.SIGKILL
        wait_until(lambda: not any(map(_lives, daemons)), "what the run has left goes on")
        assert _lives(fork)
        assert other.poll() is None


def _lives(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
