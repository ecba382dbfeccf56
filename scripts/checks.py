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
PYTEST = [
    *(str(BIN / "python"), "-m", "pytest", "-q", "-p", "tests.helpers.spent"),
    *("--durations=12", "--durations-min=1.0"),
]
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


BUDGETS_S = {"python": 640, "browser": 110, "integrations": 50, "types": 60, "web": 40}
"""Processor seconds of a group, without the programs that tests fork from a shared process; on two cores of an EPYC of
2021. A slower machine needs more for the same, so what is over its budget is told and nothing fails."""
FAR_OVER = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a group went."""

    name: str
    took_s: float
    processor_s: float
    """Of its processes and all that they have waited for; servers left to themselves are not among them."""
    passed: bool

    @property
    def warning(self) -> str:
        """What to say of it where it has become dearer than it may."""
        budget_s = BUDGETS_S.get(self.name, 10)
        if self.processor_s <= FAR_OVER * budget_s:
            return ""
        return (
            f"warning: {self.name} took {self.processor_s:.0f} s of processor time where {budget_s} s were expected: "
            "on a machine as fast as others, a test has become dear (its folder is in the lines of the group above)"
        )


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
    began_s, processor_s = time.monotonic(), 0.0
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
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        processor_s += usage.ru_utime + usage.ru_stime
        if process.returncode != 0:
            break
    took_s = time.monotonic() - began_s
    passed = process.returncode == 0
    print(f"{name:12} | {'passed' if passed else 'FAILED'} after {took_s:.0f} s", flush=True)
    return Result(name=name, took_s=took_s, processor_s=processor_s, passed=passed)


def busy() -> tuple[float, float]:
    """Seconds that all processors of the machine together have worked, and have been there; zeros off Linux."""
    try:
        ticks = [int(number) for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0.0, 0.0
    user, nice, system, idle, waiting, irq, softirq, stolen = (count / os.sysconf("SC_CLK_TCK") for count in ticks)
    worked = user + nice + system + irq + softirq
    return worked, worked + idle + waiting + stolen


def main() -> int:
    chosen = [name for name in GROUPS if name in sys.argv[1:]] or list(GROUPS)
    if unknown := [name for name in sys.argv[1:] if name not in GROUPS]:
        sys.exit(f"no such group: {', '.join(unknown)}; there are: {', '.join(GROUPS)}")
    began_s, (worked_s, there_s) = time.monotonic(), busy()
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
        words = "passed" if result.passed else "FAILED"
        print(f"{result.took_s:7.1f} s  {result.name:12} {words}  {result.processor_s:7.1f} s of processor time")
    worked_s, there_s = (now - before for now, before in zip(busy(), (worked_s, there_s), strict=True))
    if there_s > 0:
        print(f"the machine's processors worked {worked_s:.0f} of {there_s:.0f} s")
    for warning in filter(None, (result.warning for result in results)):
        print(warning)
    failed = [result.name for result in results if not result.passed]
    print(f"groups: {len(results) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
