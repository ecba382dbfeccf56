"""Names, places and permissions of what lies below `HALFSCOPE_DIR`.

    <directory>/<run_id>/<stream>/
        lock                       held (flock) by the stream's one writer while it lives
        ship.lock                  held by whoever ships the stream: the node's sender or `halfscope sync`
        offline                    there where the run asked that no sender takes its journal by itself
    ack.json                   what servers have acknowledged (see acks.py)
        <first seq, 20 digits>.seg

Must not import torch or numpy. Invariant: everything made here is readable by its owner alone (0700 and 0600).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SEGMENT_NAME = re.compile(r"^(\d{20})\.seg$")
_RUN_ID = re.compile(r"^[0-9a-z]{1,64}$")
_STREAM = re.compile(r"^[0-9a-f]{1,64}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlace:
    """Where one stream's journal lies."""

    directory: Path
    """`HALFSCOPE_DIR`."""
    run_id: str
    stream: str

    @property
    def path(self) -> Path:
        return self.directory / self.run_id / self.stream

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def ship_lock(self) -> Path:
        return self.path / "ship.lock"

    @property
    def offline_mark(self) -> Path:
        return self.path / "offline"

    @property
    def acks(self) -> Path:
        return self.path / "ack.json"

    def segment(self, first_seq: int) -> Path:
        return self.path / f"{first_seq:020d}.seg"

    def segments(self) -> list[int]:
        """First seqs of the segments on disk, ascending; empty where there is no journal."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return []
        return sorted(int(match[1]) for name in names if (match := _SEGMENT_NAME.match(name)))


def check_ids(run_id: str, stream: str) -> None:
    """Refuse names that would leave the directory.

    Raises:
        ValueError: not the characters that run and stream ids are made of.
    """
    if not _RUN_ID.match(run_id):
        raise ValueError(f"run_id is {run_id!r}; expected 1 to 64 lowercase letters and digits")
    if not _STREAM.match(stream):
        raise ValueError(f"stream is {stream!r}; expected 1 to 64 lowercase hexadecimal digits")


def find_streams(directory: Path) -> Iterator[StreamPlace]:
    """Every stream below a directory, by run and stream id; whatever else lies there is passed over."""
    for run_id in _names(directory):
        if _RUN_ID.match(run_id):
            yield from streams_of(directory, run_id)


def streams_of(directory: Path, run_id: str) -> Iterator[StreamPlace]:
    """Those of one run."""
    for stream in _names(directory / run_id):
        if _STREAM.match(stream):
            yield StreamPlace(directory=directory, run_id=run_id, stream=stream)


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents, each for the owner alone."""
    if path.is_dir():
        return
    if path.parent != path:
        make_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a small file so that a reader sees the old content or the new, never a part."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write until everything is written; a short write is not an error of its own (signals, nearly full disks)."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def try_lock(path: Path) -> int | None:
    """Take a lock that lasts until the descriptor is closed or its process ends.

    Returns:
        The descriptor that holds it, or None where somebody else does.

    Raises:
        OSError: the file cannot be made. A filesystem without locks is no error: the lock is then only a file.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        # ENOLCK, ENOTSUP: some network filesystems know no locks. One writer per stream is then left to the random
        # stream id, which two processes do not share.
        return descriptor
    return descriptor


def is_locked(path: Path) -> bool | None:
    """Whether some process holds the lock; None where that cannot be told (no such file, a filesystem without
    locks)."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _names(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
