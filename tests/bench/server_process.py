"""A real `halfscope serve` in a process and a home of its own, on a free port of this machine.

Invariant: it ends, and its home is deleted, when the context is left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 180.0
"""On a machine that is busy with other things; a quiet one takes two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where it is and how to be let in."""

    url: str
    token: str
    home: Path
    pid: int


@contextmanager
def serving(home: Path | None = None, **settings: str) -> Iterator[Server]:
    """A server; on a given home it goes on with the database there, and the home is left.

    Args:
        home: None: one of its own.
        settings: environment variables on top.
    """
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-", ignore_cleanup_errors=True) as folder:
        base = Path(folder) if home is None else home
        log_path = base / "server.log"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HALFSCOPE_")}
        environment |= {"HALFSCOPE_HOME": str(base), **settings}
        with log_path.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "halfscope", "serve", "--no-browser", "--port", "0"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield _ready(base, process, log_path)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _ready(home: Path, process: subprocess.Popen[bytes], log_path: Path) -> Server:
    deadline = time.monotonic() + START_S
    announcement = home / "server.json"
    while time.monotonic() < deadline and process.poll() is None:
        try:
            said = json.loads(announcement.read_text())
            if said["pid"] == process.pid:
                token = (home / "token").read_text().strip()
                return Server(url=said["url"], token=token, home=home, pid=process.pid)
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(0.02)
    raise RuntimeError(f"the server did not start within {START_S:g} s; it said:\n{log_path.read_text()[-2000:]}")
