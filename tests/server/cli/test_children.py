"""Processes that must not be left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from halfscope_server.cli.children import Children

WAITS = "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    pass\n"
STUBBORN = (
    "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(60)\n"
)
FORKS = "import os, time\nif os.fork():\n    print('ready', flush=True)\ntime.sleep(60)\n"


def _start(children: Children, code: str, *, is_server: bool = False) -> subprocess.Popen[str]:
    process = children.start(
        [sys.executable, "-c", code],
        environment=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        is_server=is_server,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_all_end_when_the_block_is_left_by_an_error() -> None:
    """They are asked to end first, and get to say their last word."""
    processes = []

    def fail() -> None:
        with Children() as children:
            processes.extend([_start(children, WAITS, is_server=True), _start(children, WAITS)])
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert [process.returncode for process in processes] == [0, 0]


def test_one_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing survives the command."""
    monkeypatch.setattr("halfscope_server.cli.children.INTERRUPT_GRACE_S", 0.2)
    with Children() as children:
        process = _start(children, STUBBORN)
    assert process.returncode == -9


def test_what_one_has_started_itself_ends_with_it() -> None:
    """Also where it dies without looking after that."""
    with Children() as children:
        process = _start(children, FORKS)
        assert process.stdout is not None
        kept = os.dup(process.stdout.fileno())
    assert os.read(kept, 1) == b"", "nobody is left who could write"
    os.close(kept)


def test_ctrl_c_of_the_terminal_does_not_reach_them() -> None:
    """Each has its own session, so their end is ours to order."""
    with Children() as children:
        process = _start(children, WAITS)
        assert os.getpgid(process.pid) != os.getpgid(0)


def test_interrupt_while_one_is_started_leaves_it_not_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come at any moment, also between the start of a process and taking note of it."""
    started: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def start_and_interrupt(*arguments: Any, **keywords: Any) -> subprocess.Popen[str]:
        process = real(*arguments, **keywords)
        started.append(process)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr("halfscope_server.cli.children.subprocess.Popen", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt), Children() as children:
        children.start(
            [sys.executable, "-c", WAITS], environment=os.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    assert len(started) == 1
    assert started[0].returncode is not None


def test_handlers_of_signals_are_put_back() -> None:
    """Whoever had them before has them again."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Children():
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] != before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
