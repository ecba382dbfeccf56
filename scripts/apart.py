"""Environments beside `.venv` that share its torch: other versions of the frameworks, and what halfscope is measured
against. Standard library only.

    .venv/bin/python scripts/apart.py build/apart/NAME "lightning==2.4.0" ...    makes one, prints its Python

torch is linked and halfscope read from this folder, so neither is fetched nor built again. All else is installed from
the package index, by uv where it can be had and by pip elsewhere, and nothing of `.venv` can be seen beside it.
Invariant: an environment is complete for what was asked, or made anew; of `.venv` nothing is changed (it may get uv).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = "uv>=0.9"


def environment(folder: Path, requirements: Sequence[str]) -> Path:
    """Its Python, after making it where it is not there as asked.

    Args:
        requirements: as an installer takes them. What halfscope itself needs is there anyway; `halfscope[EXTRA]` adds
            that of an extra.
    """
    wanted = _with_our_own(["halfscope[]", *requirements])
    torch = metadata.distribution("torch")
    key = hashlib.sha256("\n".join([*wanted, torch.version, sys.version, Path(__file__).read_text()]).encode())
    stamp, python = folder / "complete", folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == key.hexdigest():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    _link(torch, Path(next(folder.glob("lib/python*/site-packages"))))
    _install(python, [*wanted, f"torch=={torch.version}"])
    stamp.write_text(key.hexdigest())
    return python


def _with_our_own(requirements: Sequence[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = []
    for item in requirements:
        if extras := re.fullmatch(r"halfscope\[(.*)\]", item):
            parts = [project["optional-dependencies"][extra] for extra in extras[1].split(",") if extra]
            found += _with_our_own([each for part in parts for each in part]) if parts else project["dependencies"]
        else:
            found.append(item)
    return found


def _link(torch: metadata.Distribution, site: Path) -> None:
    """What installers take for torch being there; halfscope is this folder's."""
    for name in sorted({path.parts[0] for path in torch.files or () if path.parts[0] not in ("..", "__pycache__")}):
        source = Path(str(torch.locate_file(name)))
        if source.suffix == ".dist-info":  # as a folder of its own: a link is not looked at
            shutil.copytree(source, site / name)
        else:
            (site / name).symlink_to(source)
    (site / "halfscope.pth").write_text(f"{ROOT / 'agent'}\n{ROOT / 'server'}\n", encoding="utf-8")


def _install(python: Path, wanted: Sequence[str]) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        subprocess.run([*pip, "install", "--quiet", UV], capture_output=True, check=False)
    if uv.exists():
        _run(str(uv), "pip", "install", "--quiet", "--python", str(python), *wanted)
    else:
        _run(*pip, "--python", str(python), "install", "--quiet", "--no-compile", *wanted)


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"this command ended with {done.returncode}: {' '.join(command)}\n{done.stdout}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("expected: apart.py FOLDER [REQUIREMENT ...]")
    os.chdir(ROOT)
    print(environment(Path(sys.argv[1]).resolve(), sys.argv[2:]))
