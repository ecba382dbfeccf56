"""Compiles the helper: when halfscope is installed (hatch_build.py), or by `python -m halfscope.native.build`.

Standard library only: an installation loads it from its file, before there is a package. Invariant: no failure raises;
what an earlier build left is replaced in one go, or taken away.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER / "helper.c"
FILE_NAME = "_helper.abi3.so"
COMPILE_S = 120
OPTIONS = ("-O3", "-fPIC", "-shared", "-ffp-contract=off")
"""Not -march=native: what is built here may run elsewhere. The source asks the processor itself."""
MAX_SAID = 2000


def compile_helper(target: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Builds the helper anew; returns why that could not be done, or nothing.

    Args:
        environ: where `CC` names a compiler, and HALFSCOPE_NO_NATIVE=1 says that there is to be none.
    """
    try:
        target.unlink(missing_ok=True)
        if environ.get("HALFSCOPE_NO_NATIVE") == "1":
            return "HALFSCOPE_NO_NATIVE=1"
        if os.name != "posix":
            return f"there is no build of it for {sys.platform}"
        compiler = environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), "")
        if not compiler:
            return "no C compiler was found"
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder, FILE_NAME)
            subprocess.run(_command(compiler, built), check=True, capture_output=True, timeout=COMPILE_S)
            built.replace(target)
    except subprocess.CalledProcessError as error:
        return f"{error}\n{error.stderr.decode(errors='replace')[-MAX_SAID:]}".strip()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


def _command(compiler: str, target: Path) -> list[str]:
    undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    include = sysconfig.get_path("include")
    return [*shlex.split(compiler), *OPTIONS, *undefined, f"-I{include}", str(SOURCE), "-o", str(target), "-lm"]


def main() -> int:
    """Builds it where it is looked for; the exit status."""
    problem = compile_helper(FOLDER / FILE_NAME)
    print(f"halfscope goes on without the compiled helper: {problem}" if problem else f"built {FOLDER / FILE_NAME}")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
