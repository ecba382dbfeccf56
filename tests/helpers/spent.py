"""Says at the end what the tests of each folder cost in processor time: `pytest -p tests.helpers.spent`.

Unlike wall time it hardly hangs on what else runs. Counted are the process that runs a test and the programs that this
has waited for meanwhile; not databases, browsers, and what is forked from another process.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Generator

import pytest

SHOWN_FROM_S = 5.0
PROPERTY = "processor_s"
"""Of each report: a worker's come to the process that prints."""

_last_s = 0.0
_by_folder: Counter[str] = Counter()


def _spent_s() -> float:
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited_for.ru_utime + waited_for.ru_stime


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart() -> None:
    global _last_s
    _last_s = _spent_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    global _last_s
    report = yield
    since_s, _last_s = _last_s, _spent_s()
    report.user_properties.append((PROPERTY, _last_s - since_s))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder = report.nodeid.partition("::")[0].rpartition("/")[0]
    _by_folder[folder] += sum(value for name, value in report.user_properties if name == PROPERTY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("processor seconds of tests by folder")
    shown = [(folder, spent_s) for folder, spent_s in _by_folder.most_common() if spent_s >= SHOWN_FROM_S]
    for folder, spent_s in shown:
        terminalreporter.write_line(f"{spent_s:7.1f} s  {folder}")
    rest_s = _by_folder.total() - sum(spent_s for _, spent_s in shown)
    terminalreporter.write_line(f"{rest_s:7.1f} s  in all others")
