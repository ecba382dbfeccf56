"""A real `halfscope serve` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from halfscope.__main__ import main

from tests.helpers.preloaded import Forked, serving

START_S = 30.0


def environment_of(home: Path) -> dict[str, str]:
    """This process's own, with a home of its own and nothing else of halfscope's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HALFSCOPE_")}
    return {**kept, "HALFSCOPE_HOME": str(home), "PYTHONWARNINGS": "error"}


def command(home: Path, *arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Runs one `halfscope` command to its end."""
    return serving().run(["-m", "halfscope", *arguments], env=environment_of(home), timeout_s=timeout_s)


@dataclass(slots=True, kw_only=True)
class Served:
    """A running server."""

    process: Forked
    home: Path
    lines: list[str] = field(default_factory=list)
    """What it printed."""

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["url"])

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def stop(self, number: int = signal.SIGINT) -> int:
        """Sends a signal and returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(START_S)


@contextmanager
def served(home: Path, *arguments: str) -> Iterator[Served]:
    """A server of that home, started and stopped."""
    readable, writable = os.pipe()
    command_line = ["-m", "halfscope", "serve", "--no-browser", *arguments]
    process = serving().start(command_line, env=environment_of(home), stdout=writable, stderr=writable)
    os.close(writable)
    server = Served(process=process, home=home)
    output = os.fdopen(readable)
    reader = threading.Thread(target=lambda: server.lines.extend(output))
    reader.start()
    try:
        deadline = time.monotonic() + START_S
        while not any("Ctrl-C" in line for line in server.lines):
            assert process.poll() is None, "".join(server.lines)
            assert time.monotonic() < deadline, "".join(server.lines)
            time.sleep(0.02)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        reader.join()
        output.close()


@pytest.fixture(scope="session")
def run_command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `halfscope` with arguments: `run_command(home, "runs", "--json")`."""
    return command


@pytest.fixture(scope="session")
def environment() -> Callable[[Path], dict[str, str]]:
    """`environment_of`, for a test that starts a process in its own way."""
    return environment_of


@pytest.fixture
def invoke(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Like `run_command`, in this process: a process for each question would cost a second."""

    def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        for name in ("SERVER", "DIR", "DATABASE_URL", "TOKEN", "TOKEN_FILE"):
            monkeypatch.delenv(f"HALFSCOPE_{name}", raising=False)
        monkeypatch.setenv("HALFSCOPE_HOME", str(home))
        code = main(arguments)
        said = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def serve() -> Callable[..., object]:
    """Starts a server: `with serve(home, "--port", "0") as server`."""
    return served


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests that only ask."""
    with served(tmp_path_factory.mktemp("home"), "--port", "0") as running:
        yield running
