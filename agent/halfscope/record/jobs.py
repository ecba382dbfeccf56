"""Ids that ranks of one node leave each other: `.job-<launcher>-<number>` in HALFSCOPE_DIR, whoever comes first.

Must not import torch. Invariant: a file is there with all that is in it or not at all, and is removed only when the
process that launched the ranks is gone, so that no restart of theirs finds another id.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from halfscope.record.layout import make_directory

PREFIX = ".job-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """A process that starts ranks, so described that no other one ever fits."""

    host: str
    boot: str
    """Of the machine."""
    space: int
    """In which processes are counted: containers count from 1."""
    pid: int
    started: str

    @property
    def name(self) -> str:
        return hashlib.blake2b(self.words.encode()).hexdigest()[:24]

    @property
    def words(self) -> str:
        """As it stands in the files."""
        return f"{self.host} {self.boot} {self.space} {self.pid} {self.started}"


def launcher_of(pid: int) -> Launcher:
    """
    Raises:
        OSError: there is no such process, or the system tells nothing of it.
    """
    return Launcher(
        host=socket.gethostname(),
        boot=_boot(),
        space=os.stat(f"/proc/{pid}/ns/pid").st_ino,
        pid=pid,
        started=stat(pid)[19],
    )


def stat(pid: int) -> list[str]:
    """Fields of a process from its state on.

    Raises:
        OSError: there is none.
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def left_id(directory: Path, launcher: Launcher, number: int, proposed: str) -> str | None:
    """The id of the launcher's job, which is the proposed one where nobody was faster; None where that cannot be known.

    Args:
        number: of the id, for jobs that have several.
    """
    path = _path(directory, launcher, number)
    own = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        make_directory(directory)
        remove_ended(directory)
        own.write_text(f"{proposed} {launcher.words}")
        with contextlib.suppress(FileExistsError):
            os.link(own, path)
        return path.read_text().split(" ")[0]
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            own.unlink()


def kept_id(directory: Path, launcher: Launcher, number: int) -> str | None:
    """What was left before; None where nothing was."""
    try:
        return _path(directory, launcher, number).read_text().split(" ")[0]
    except OSError:
        return None


def _path(directory: Path, launcher: Launcher, number: int) -> Path:
    return directory / f"{PREFIX}{launcher.name}-{number}"


def remove_ended(directory: Path) -> int:
    """Removes what launchers of this machine have left that are gone, and gives how many that were. Says nothing."""
    num_removed = 0
    with contextlib.suppress(OSError):
        for path in [Path(entry.path) for entry in os.scandir(directory) if entry.name.startswith(PREFIX)]:
            with contextlib.suppress(OSError, ValueError):
                _, host, boot, space, pid, started = path.read_text().split(" ")
                if _is_gone(host, boot, int(space), int(pid), started):
                    path.unlink()
                    num_removed += 1
    return num_removed


def _is_gone(host: str, boot: str, space: int, pid: int, started: str) -> bool:
    if host != socket.gethostname():
        return False
    if boot != _boot():
        return True
    if space != os.stat("/proc/self/ns/pid").st_ino:
        return False  # from here its processes cannot be told apart
    try:
        return stat(pid)[19] != started
    except OSError:
        return True


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
