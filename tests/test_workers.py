"""The forks that tests run in: what they report is what happened, also where one of them dies."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.helpers.preloaded import Preloaded

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    "test_a.py": """
import os, subprocess, warnings, pytest

@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    yield tmp_path_factory.getbasetemp()
    print("the end of the fixture")

def test_passes(folder):
    assert folder.name == "worker" + os.environ["HALFSCOPE_TEST_WORKER"]
    warnings.warn("a warning")

def test_fails(folder):
    print("said by the test")
    subprocess.run(["echo", "said by its program"])
    assert os.getpid() == 0

@pytest.mark.skip(reason="no reason")
def test_is_skipped():
    pass
""",
    "test_b.py": """
import os, signal

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_is_left():
    pass
""",
    "test_c.py": """
import pytest

@pytest.mark.timeout(0.2)
def test_hangs():
    while True:
        pass

def test_passes_too():
    pass
""",
}


def test_every_test_is_reported_once_whatever_became_of_its_worker(python: Preloaded, tmp_path: Path) -> None:
    """Output, warnings and skips arrive; who hangs or dies has failed, and so has what was left undone."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    plugins = [
        f"-p{name}" for name in ("tests.helpers.workers", "no:playwright", "no:hypothesispytest", "no:cacheprovider")
    ]
    done = python.run(
        ["-m", "pytest", "-q", *plugins, "--workers", "3", "--rootdir", str(tmp_path), str(tmp_path)],
        env={**os.environ, "COLUMNS": "400"},
        cwd=ROOT,
        strict=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^4 failed, 2 passed, 1 skipped, 1 warning in", done.stdout, re.MULTILINE), done.stdout
    failed = dict(re.findall(r"^FAILED \S+::(\w+) - (.*)", done.stdout, re.MULTILINE))
    assert failed.keys() == {"test_fails", "test_dies", "test_is_left", "test_hangs"}
    assert failed["test_dies"] == "its worker ended by SIGKILL"
    assert failed["test_is_left"].startswith("no worker ran it")
    assert failed["test_hangs"].startswith("Failed: Timeout")
    assert "said by the test\nsaid by its program" in done.stdout
    assert "UserWarning: a warning" in done.stdout
