"""The wheel, installed alone: what the image does, where no container engine runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 120.0
INSTALLER = ["--installer", "uv"] if Path(sys.executable).with_name("uv").exists() else []
"""Of what the build needs: pip's takes four seconds of processor time more."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release is; with the web app where it has been built, without it where not."""
    folder = tmp_path_factory.mktemp("wheel")
    environment = dict(os.environ)
    if not (ROOT / "web" / "dist" / "index.html").is_file():
        environment["HALFSCOPE_SKIP_WEB"] = "1"
    command = [sys.executable, "-m", "build", "--wheel", *INSTALLER, "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("halfscope-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with the wheel in it; the libraries it needs are borrowed from this one."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    options = ("--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    # A path file adds this environment's folder but does not follow path files inside it: not the editable install.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages" / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin"


@contextmanager
def serving(installed: Path, home: Path) -> Iterator[str]:
    """The address of a server that runs from the installed wheel."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HALFSCOPE_", "PYTHON"))}
    environment["HALFSCOPE_HOME"] = str(home)
    process = subprocess.Popen(
        [installed / "halfscope", "serve", "--no-browser", "--port", "0"],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not (home / "server.json").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.poll() is None, process.communicate()[0]
        yield json.loads((home / "server.json").read_text(encoding="utf-8"))["url"]
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.mark.slow
def test_packages_come_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """In the fresh environment both packages are the installed ones, and importing the agent brings no torch."""
    program = (
        "import sys, halfscope, halfscope_server;"
        "print(halfscope.__file__); print(halfscope_server.__file__); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [installed / "python", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    agent, server, torch_loaded = done.stdout.split()
    assert Path(agent).is_relative_to(installed.parent)
    assert Path(server).is_relative_to(installed.parent)
    assert torch_loaded == "False"


@pytest.mark.slow
def test_installed_wheel_serves(installed: Path, wheel: Path, tmp_path: Path) -> None:
    """The server answers from the wheel alone: its health, and the web app when the wheel holds one."""
    with serving(installed, tmp_path) as url:
        with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
            assert answer.status == 200
        with urllib.request.urlopen(url, timeout=10) as answer:
            html = answer.read().decode()
    assert "halfscope" in html
    if any(name.startswith("halfscope_server/static/") for name in zipfile.ZipFile(wheel).namelist()):
        assert "<script" in html


@pytest.mark.slow
def test_wheel_holds_no_tests_and_no_sources_of_the_web_app(wheel: Path) -> None:
    """What is not needed to run is not shipped."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/", 1)[0] for name in names if ".dist-info/" not in name} == {"halfscope", "halfscope_server"}
    assert not [name for name in names if name.endswith((".ts", ".tsx", "package.json"))]
