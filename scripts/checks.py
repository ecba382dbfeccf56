"""Runs every check of the project in groups, prints how long each took, and says at the end what failed.

    python scripts/checks.py             all groups
    python scripts/checks.py lint types  only these

Three groups run at a time, the longest of them early: what one waits for is the others' time. Lines carry their group.
What they train, and the process that has loaded torch for all who train, they have in common.
Invariant: exits 0 only when every group it was asked for ran and passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
NPM = shutil.which("npm") or str(BIN / "npm")
PYTEST = [str(BIN / "python"), "-m", "pytest", "-q", "--durations=12", "--durations-min=1.0"]
NUM_AT_ONCE = 3

INTEGRATIONS = "tests/agent/integrations"
"""They load what trainings are written with: for each process of `python`, and in none of its tests, that is half a
minute for nothing. A group of their own, so that nobody waits for one process at the end."""

# In the order in which they begin.
GROUPS: dict[str, list[list[str]]] = {
    "lint": [[str(BIN / "ruff"), "check", "."], [str(BIN / "ruff"), "format", "--check", "."]],
    "imports": [[str(BIN / "lint-imports")]],
    # Three processes: a third of the time each waits, for trainings, servers and databases. tests/conftest.py puts
    # files with slow tests first.
    "python": [
        [
            *(*PYTEST, "-p", "tests.helpers.workers", "--workers", "3", "-p", "no:playwright"),
            *("--ignore", "tests/e2e", "--ignore", INTEGRATIONS),
        ],
    ],
    "browser": [[*PYTEST, "tests/e2e"]],
    "types": [[str(BIN / "mypy")]],
    "integrations": [[*PYTEST, "-p", "no:playwright", INTEGRATIONS]],
    "web": [[NPM, "--prefix", "web", "run", "check"]],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a group went."""

    name: str
    took_s: float
    passed: bool


def prepare(folder: Path) -> None:
    """The environment of all groups. One thread per process: oversubscribed BLAS threads make everything slower.

    Args:
        folder: where groups that train find what another has trained already.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["TRITON_INTERPRET"] = "1"  # as tests/conftest.py has it; torch, where it is loaded first, asks once
    os.environ["HALFSCOPE_TEST_RECORDINGS"] = str(folder / "recordings")


def preloaded(folder: Path) -> AbstractContextManager[Mapping[str, str]]:
    """What tests fork their programs from, and the variables by which they find it; see tests/helpers/preloaded.py."""
    sys.path.insert(0, str(ROOT))
    from tests.helpers.preloaded import shared

    return shared(folder)


def run(name: str) -> Result:
    """Runs the commands of a group until one fails; what they write is printed by line, behind the group's name."""
    began_s = time.monotonic()
    for command in GROUPS[name]:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(f"{name:12} | {line}")
            sys.stdout.flush()
        if process.wait() != 0:
            break
    took_s = time.monotonic() - began_s
    passed = process.returncode == 0
    print(f"{name:12} | {'passed' if passed else 'FAILED'} after {took_s:.0f} s", flush=True)
    return Result(name=name, took_s=took_s, passed=passed)


def main() -> int:
    chosen = [name for name in GROUPS if name in sys.argv[1:]] or list(GROUPS)
    if unknown := [name for name in sys.argv[1:] if name not in GROUPS]:
        sys.exit(f"no such group: {', '.join(unknown)}; there are: {', '.join(GROUPS)}")
    began_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="halfscope-checks-") as folder,
        ThreadPoolExecutor(NUM_AT_ONCE) as pool,
        ExitStack() as stack,
    ):
        prepare(Path(folder))
        if {"python", "browser"} & set(chosen):
            os.environ.update(stack.enter_context(preloaded(Path(folder))))
        results = list(pool.map(run, chosen))
    print(f"\n=== groups, slowest first ({NUM_AT_ONCE} at a time; {time.monotonic() - began_s:.0f} s in all)")
    for result in sorted(results, key=lambda result: -result.took_s):
        print(f"{result.took_s:7.1f} s  {result.name:12} {'passed' if result.passed else 'FAILED'}")
    failed = [result.name for result in results if not result.passed]
    print(f"groups: {len(results) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
