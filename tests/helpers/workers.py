"""Runs what one process has collected in several forks of it: `pytest -p tests.helpers.workers --workers 3`.

To load torch and the server, to rewrite the assertions of some three hundred files and to collect what is in them takes
twenty seconds of processor time, thirty in a clean clone. Workers that are forked afterwards do not each do so.

A worker takes file by file, so that fixtures of a module are made once. Each knows its number by `WORKER` in the
environment, and has a folder of its own for temporary files. Invariant: every collected test is reported once, by the
worker that ran it or, where a worker died or left before it, as failed; none outlives the session.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import itertools
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

WORKER = "HALFSCOPE_TEST_WORKER"
PATIENCE_S = 60.0
"""For a worker's fixtures to end when the session is over."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=1, metavar="N", help="processes that run tests side by side")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    if options.workers < 2 or options.collectonly or session.testsfailed:
        return None
    files = [list(items) for _, items in itertools.groupby(session.items, key=lambda item: item.path)]
    _Workers(session, files, min(options.workers, len(files))).run()
    return True


@dataclass
class _Worker:
    """A fork, as the process that reports for it sees it."""

    pid: int
    ended: int
    """A descriptor that can be read when the process is over: what it has started may hold its end of a pipe longer."""
    said: Connection
    at: pytest.Item | None = None
    """What it runs."""


class _Workers:
    """All forks."""

    def __init__(self, session: pytest.Session, files: Sequence[Sequence[pytest.Item]], count: int) -> None:
        self._session, self._hook = session, session.config.hook
        self._missing = {item.nodeid: item for item in session.items}
        self._tasks = _numbers(len(files))
        self._workers: list[_Worker] = []
        base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        gc.collect()
        gc.freeze()  # what was collected is not looked through by every collection of garbage of every test
        for number in range(count):
            ours, theirs = Pipe(duplex=False)
            pid = os.fork()
            if pid == 0:
                for connection in (ours, *(worker.said for worker in self._workers)):
                    connection.close()
                folder = base / f"worker{number}"
                folder.mkdir(mode=0o700)
                session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
                os.environ[WORKER] = str(number)
                _work(session, files, self._tasks, theirs)
            theirs.close()
            self._workers.append(_Worker(pid, os.pidfd_open(pid), ours))

    def run(self) -> None:
        """To the end of all.

        Raises:
            pytest.Session.Failed: as many have failed as are allowed to.
            pytest.Session.Interrupted: it was asked for.
        """
        session = self._session
        try:
            while self._workers:
                wait([speaker for worker in self._workers for speaker in (worker.said, worker.ended)])
                for worker in self._workers.copy():
                    self._attend(worker)
                if session.shouldfail or session.shouldstop:
                    while os.read(self._tasks, 1 << 16):  # each ends the test it is at
                        pass
        finally:
            self._end()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        for item in list(self._missing.values()):
            self._failed(item, "no worker ran it: the one that had taken its file was over before")

    def _attend(self, worker: _Worker) -> None:
        """Takes what a worker has said; when it is over, all of it has been said."""
        over = bool(wait([worker.ended], 0))
        with contextlib.suppress(EOFError):
            while worker.said.poll():
                self._hear(worker, *worker.said.recv())
        if not over:
            return
        self._workers.remove(worker)
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        os.close(worker.ended)
        if code != 0:
            why = f"its worker ended by {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
            if worker.at is not None:
                self._failed(worker.at, why)
            else:
                self._session.shouldfail = f"between two tests, or after all: {why}"

    def _hear(self, worker: _Worker, kind: str, given: Any) -> None:
        match kind:
            case "begun":
                worker.at = self._missing[given]
                self._hook.pytest_runtest_logstart(nodeid=given, location=worker.at.location)
            case "report":
                report = self._hook.pytest_report_from_serializable(config=self._session.config, data=given)
                self._hook.pytest_runtest_logreport(report=report)
            case "ended":
                item, worker.at = self._missing.pop(given), None
                self._hook.pytest_runtest_logfinish(nodeid=given, location=item.location)
            case "warning":
                self._hook.pytest_warning_recorded.call_historic(kwargs=given)
            case "error":
                sys.stderr.write(given)

    def _failed(self, item: pytest.Item, why: str) -> None:
        self._missing.pop(item.nodeid, None)
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self._hook.pytest_runtest_logreport(report=report)

    def _end(self) -> None:
        """Those that still run are interrupted, as this process was, and their fixtures end."""
        deadline_s = time.monotonic() + PATIENCE_S
        for worker in self._workers:
            os.kill(worker.pid, signal.SIGINT)
            worker.said.close()
        for worker in self._workers:
            if not wait([worker.ended], max(0.0, deadline_s - time.monotonic())):
                os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
            os.close(worker.ended)
        os.close(self._tasks)


def _numbers(count: int) -> int:
    """A pipe from which each number below `count` is read once, whoever reads, two bytes each; then its end."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(number.to_bytes(2, "little") for number in range(count)))
    os.close(writing)
    return reading


# ---- in a fork ---------------------------------------------------------------------------------------------------


class _Telling:
    """Tells the reporting process what happens here."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._connection.send(("begun", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._connection.send(("ended", nodeid))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if when != "runtest":  # those of before the fork come again to who is registered after it
            return
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        told = warnings.WarningMessage(UserWarning(text), UserWarning, warning_message.filename, warning_message.lineno)
        given = {"warning_message": told, "when": when, "nodeid": nodeid, "location": location}
        self._connection.send(("warning", given))


class _NoReporter:
    """What plugins write to in a process whose tests another one reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._tw = pytest.TerminalReporter(config, sys.stderr)._tw


def _work(session: pytest.Session, files: Sequence[Sequence[pytest.Item]], tasks: int, connection: Connection) -> None:
    """The rest of this process's life."""
    code = 1
    try:
        atexit._clear()  # what was registered before the fork is the other process's to do
        plugins = session.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(_NoReporter(session.config), "terminalreporter")
        plugins.register(_Telling(session.config, connection))
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()  # it writes to a file that all forks have in common
        capture.start_global_capturing()
        capture.suspend_global_capture()
        try:
            _run(session, _items(files, tasks))
        finally:
            session._setupstate.teardown_exact(None)
        code = 0
    except BaseException:
        connection.send(("error", traceback.format_exc()))
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        connection.close()
        os._exit(code)


def _items(files: Sequence[Sequence[pytest.Item]], tasks: int) -> Iterator[pytest.Item]:
    while number := os.read(tasks, 2):
        yield from files[int.from_bytes(number, "little")]


def _run(session: pytest.Session, items: Iterator[pytest.Item]) -> None:
    """Looks ahead by one: what both need stays."""
    item = next(items, None)
    while item is not None and not (session.shouldfail or session.shouldstop):
        following = next(items, None)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following
