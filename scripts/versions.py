"""Runs the tests of Lightning, Transformers and Accelerate with other versions of them than `.venv` has.

    .venv/bin/python scripts/versions.py           all sets
    .venv/bin/python scripts/versions.py lowest    only these

Each set has an environment of its own (scripts/apart.py), so that nothing of another version is seen.
Invariant: exits 0 only when the tests of every set that was asked for ran and passed.
"""

from __future__ import annotations

import os
import subprocess
import sys

from apart import ROOT, environment

SETS = {
    "lowest": ("lightning==2.4.0", "pytorch-lightning==2.4.0", "transformers==4.51.3", "accelerate==1.1.0"),
    "between": ("lightning==2.5.5", "pytorch-lightning==2.5.5", "transformers==4.57.6", "accelerate==1.8.1"),
}
"""`lowest` are those that the integrations ask for; the newest are in `.venv`, where `make test` runs them."""
TOOLS = ("halfscope[server,postgres]", "pytest>=9.2", "pytest-timeout>=2.4", "hypothesis>=6.155")
TESTS = [
    f"tests/agent/integrations/test_{name}.py"
    for name in ("base", "lightning", "transformers", "accelerate", "launched")
]


def main() -> int:
    chosen = sys.argv[1:] or list(SETS)
    if unknown := [name for name in chosen if name not in SETS]:
        sys.exit(f"no such set: {', '.join(unknown)}; there are: {', '.join(SETS)}")
    codes = {}
    for name in chosen:
        print(f"{name}: {', '.join(SETS[name])}", flush=True)
        python = environment(ROOT / "build" / "apart" / name, (*SETS[name], *TOOLS))
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        # The first import of an environment compiles thousands of files, which may take minutes.
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "timeout=900", *TESTS]
        codes[name] = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    failed = [name for name, code in codes.items() if code != 0]
    for name in failed:
        print(f"{name}: pytest ended with {codes[name]}")
    print(f"sets: {len(codes) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
