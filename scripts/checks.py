"""Runs every check of the project in groups, prints how long each took, and says at the end what failed.

    python scripts/checks.py             all groups
    python scripts/checks.py lint types  only these

Invariant: exits 0 only when every group it was asked for ran and passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
NPM = shutil.which("npm") or str(BIN / "npm")
PYTEST = [str(BIN / "python"), "-m", "pytest", "-q", "--durations=12", "--durations-min=1.0"]

GROUPS: dict[str, list[list[str]]] = {
    "lint": [[str(BIN / "ruff"), "check", "."], [str(BIN / "ruff"), "format", "--check", "."]],
    "imports": [[str(BIN / "lint-imports")]],
    "web": [[NPM, "--prefix", "web", "run", "check"]],
    "types": [[str(BIN / "mypy")]],
    "python": [[*PYTEST, "-n", "2", "--dist", "loadfile", "-m", "not browser"]],
    "browser": [[*PYTEST, "-n", "2", "--dist", "loadfile", "-m", "browser", "tests/e2e"]],
}


def main() -> int:
    chosen = sys.argv[1:] or list(GROUPS)
    if unknown := [name for name in chosen if name not in GROUPS]:
        sys.exit(f"no such group: {', '.join(unknown)}; there are: {', '.join(GROUPS)}")
    # One thread per process: two workers share two cores, and oversubscribed BLAS threads make everything slower.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    # mypy has one thread and takes a minute on a fresh clone: it runs beside the groups before it.
    mypy = subprocess.Popen(
        GROUPS["types"][0], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) if "types" in chosen else None  # fmt: skip
    began = time.monotonic()
    results: list[tuple[str, float, bool]] = []
    for number, name in enumerate(chosen, start=1):
        print(f"\n=== [{number}/{len(chosen)}] {name}", flush=True)
        at = time.monotonic()
        if name == "types" and mypy is not None:
            print(mypy.communicate()[0], end="", flush=True)
            results.append((name, time.monotonic() - began, mypy.returncode == 0))  # at most so long
            continue
        passed = all(
            subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=False).returncode == 0
            for command in GROUPS[name]
        )
        results.append((name, time.monotonic() - at, passed))
    print("\n=== groups, slowest first")
    for name, took, passed in sorted(results, key=lambda row: -row[1]):
        print(f"{took:7.1f} s  {name:8} {'passed' if passed else 'FAILED'}")
    failed = sum(not passed for _, _, passed in results)
    print(f"groups: {len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
