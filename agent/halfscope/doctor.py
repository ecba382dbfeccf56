"""`halfscope doctor`: what is there, what is wrong, and how to mend it.

Each check is a function that looks at one thing and returns a `Finding`; none changes anything. Must not import torch
before its own check asks for it. Invariant: a check never raises, so one broken part hides no other.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from halfscope import login, native
from halfscope._version import __version__

MIN_TORCH = (2, 4)
MIN_PYTHON = (3, 11)
LOW_SPACE_BYTES = 1 << 30
NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "fuse.s3fs", "9p"}
)


State = Literal["ok", "info", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    state: State
    topic: str
    found: str
    mend: str = ""
    """What to do; empty when there is nothing to do."""


Check = Callable[[], Finding]


def examine(checks: Iterable[Check]) -> list[Finding]:
    """Every check's finding; one that fails in an unforeseen way is a finding of its own."""
    findings = []
    for check in checks:
        try:
            findings.append(check())
        except Exception as error:  # noqa: BLE001 - a broken installation is what doctor is for: say so, look on
            name = getattr(check, "__name__", "check").removeprefix("check_")
            findings.append(Finding(state="problem", topic=name, found=f"the check itself failed: {error!r}"))
    return findings


def render(findings: Iterable[Finding]) -> str:
    """One line per finding, and under it what to do."""
    marks = {"ok": "ok     ", "info": "info   ", "warning": "warning", "problem": "PROBLEM"}
    lines = []
    for finding in findings:
        lines.append(f"{marks[finding.state]}  {finding.topic}: {finding.found}")
        if finding.mend:
            lines.append(f"         -> {finding.mend}")
    return "\n".join(lines)


def check_python() -> Finding:
    """The interpreter."""
    found = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    if sys.version_info < MIN_PYTHON:
        return Finding(state="problem", topic="python", found=found, mend="halfscope needs Python 3.11 or newer")
    return Finding(state="ok", topic="python", found=found)


def check_versions() -> Finding:
    """The packages that halfscope itself stands on."""
    names = ("numpy", "msgspec", "zstandard", "websockets")
    versions = {name: _version(name) for name in names}
    found = ", ".join(
        [f"halfscope {__version__}", *(f"{name} {version or 'missing'}" for name, version in versions.items())]
    )
    if not all(versions.values()):
        return Finding(state="problem", topic="packages", found=found, mend="pip install --force-reinstall halfscope")
    return Finding(state="ok", topic="packages", found=found)


def check_torch() -> Finding:
    """PyTorch and the device it would train on."""
    if importlib.util.find_spec("torch") is None:
        return Finding(
            state="warning",
            topic="torch",
            found="not installed in this environment; sync, login and the server work without it",
            mend="run `halfscope doctor` with the Python that trains, or install PyTorch (pytorch.org/get-started)",
        )
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding(state="problem", topic="torch", found=f"cannot be imported: {error}", mend="reinstall PyTorch")
    found = f"{torch.__version__}, {_device()}"
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())
    if release < MIN_TORCH:
        return Finding(state="problem", topic="torch", found=found, mend="halfscope needs PyTorch 2.4 or newer")
    return Finding(state="ok", topic="torch", found=found)


def check_helper() -> Finding:
    """The compiled helper of the agent, without which NumPy and PyTorch do its work."""
    if native.helper is not None:
        return Finding(state="ok", topic="compiled helper", found="in use")
    mend = "optional: python -m halfscope.native.build" if native.can_be_built else ""
    found = f"{native.absent_because}; NumPy and PyTorch do its work, the same numbers in more time"
    return Finding(state="info", topic="compiled helper", found=found, mend=mend)


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        name, number = torch.cuda.get_device_name(), torch.cuda.device_count()
        return f"{number} x {name} (compute capability {major}.{minor}, CUDA {torch.version.cuda})"
    if torch.backends.mps.is_available():
        return "Apple MPS"
    return f"CPU only, {torch.get_num_threads()} threads (FP16 autocast works on it and is slow)"


def check_directory(directory: Path) -> Finding:
    """Where journals are written: by whom, on what, with how much room."""
    place = _existing(directory)
    filesystem = filesystem_of(place)
    free_bytes = shutil.disk_usage(place).free
    found = f"{directory} on {filesystem or 'an unknown filesystem'}, {free_bytes / 2**30:.1f} GiB free"
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        return Finding(
            state="problem",
            topic="journals",
            found=f"{found}; cannot be written: {error.strerror}",
            mend="set HALFSCOPE_DIR to a folder that this user may write",
        )
    if free_bytes < LOW_SPACE_BYTES:
        return Finding(
            state="warning", topic="journals", found=found, mend="free some space, or set HALFSCOPE_DIR to another disk"
        )
    if filesystem in NETWORK_FILESYSTEMS:
        return Finding(
            state="info",
            topic="journals",
            found=f"{found}; journals are safe on a network filesystem, a local disk is faster",
            mend="optional: set HALFSCOPE_DIR to a local disk",
        )
    return Finding(state="ok", topic="journals", found=found)


def filesystem_of(path: Path) -> str:
    """Type of the filesystem that holds a path (`ext4`, `nfs4`, ...), or empty where the system does not tell."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in mounts:
        _, point, filesystem = line.split(" ")[:3]
        point = point.replace("\\040", " ")
        if path.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, filesystem
    return kind


def check_sender(directory: Path) -> Finding:
    """What waits to be shipped, and whether somebody ships it."""
    from halfscope.record.acks import read_acks
    from halfscope.record.layout import find_streams, is_locked
    from halfscope.send import status

    streams = [place for place in find_streams(directory) if place.segments()]
    settled = [
        place for place in streams if any(bool(ack.ended) or ack.gone for ack in read_acks(place.acks).servers.values())
    ]
    num_waiting = len(streams) - len(settled)
    num_live = sum(bool(is_locked(place.lock)) for place in streams)
    sender = status(directory)
    found = f"{num_waiting} of {len(streams)} journals not wholly shipped, {num_live} being written"
    if sender.state == "none":
        if num_waiting == 0:
            return Finding(state="ok", topic="sender", found=f"{found}; no sender runs, none is needed")
        mend = f"start a server here (`halfscope serve` picks them up), or ship them: halfscope sync {directory}"
        return Finding(state="warning", topic="sender", found=f"{found}; no sender runs", mend=mend)
    found += f"; sender (pid {sender.pid}) {sender.state}" + (f" to {sender.url}" if sender.url else "")
    if sender.state == "unauthorized":
        return Finding(state="problem", topic="sender", found=found, mend=f"halfscope login {sender.url}")
    if sender.state in ("unreachable", "refused"):
        found += f": {sender.message}" if sender.message else ""
        return Finding(state="warning", topic="sender", found=found, mend="it keeps trying; see `server` below")
    return Finding(state="ok", topic="sender", found=found)


def check_secrets(home: Path) -> Finding:
    """Whether tokens can be read by other users of this machine."""
    found = [path.name for path in (home / "token", home / "credentials.json") if path.exists()]
    exposed = [name for name in found if is_readable_by_others(home / name)]
    if exposed:
        paths = " ".join(str(home / name) for name in exposed)
        return Finding(
            state="problem",
            topic="tokens",
            found=f"{' and '.join(exposed)} can be read by others",
            mend=f"chmod 600 {paths}",
        )
    return Finding(state="ok", topic="tokens", found=f"{', '.join(found) or 'none yet'} in {home}")


def check_server(address: str, token: str) -> Finding:
    """Whether the server answers and knows the token."""
    health = login.ask(address, "/healthz", timeout_s=5)
    if health.status == 0:
        return Finding(
            state="warning",
            topic="server",
            found=f"nothing answers at {address} ({health.reason}); trainings go on and their journals wait",
            mend="start one with `halfscope serve`, or name another with HALFSCOPE_SERVER or `halfscope login URL`",
        )
    if "ok" not in health.body:
        return Finding(
            state="problem",
            topic="server",
            found=f"what answers at {address} is no halfscope server",
            mend="name the right address with HALFSCOPE_SERVER or `halfscope login URL`",
        )
    if not health.body["ok"]:
        parts = f"database: {health.body.get('database')}, writer: {health.body.get('writer')}"
        return Finding(
            state="problem", topic="server", found=f"{address} is unwell: {parts}", mend="see the server's log"
        )
    answer = login.ask(address, "/api/v1/server", token, timeout_s=5)
    if answer.status != 200:
        reason = "does not accept the token found here" if token else "wants a token, and none was found here"
        return Finding(
            state="problem",
            topic="server",
            found=f"{address} {reason}",
            mend=f"get a token from whoever runs it, then: halfscope login {address}",
        )
    version = str(answer.body.get("version", ""))
    if version.split(".")[:2] != __version__.split(".")[:2]:
        return Finding(
            state="info",
            topic="server",
            found=f"{address} runs halfscope {version}, this is {__version__}; they speak to each other",
        )
    return Finding(state="ok", topic="server", found=f"{address} answers, halfscope {version}, token accepted")


def _existing(path: Path) -> Path:
    """The path itself, or the nearest parent that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path.resolve()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def is_readable_by_others(path: Path) -> bool:
    """Whether a file with a secret can be read by other users."""
    try:
        return os.name == "posix" and bool(path.stat().st_mode & 0o077)
    except OSError:
        return False
