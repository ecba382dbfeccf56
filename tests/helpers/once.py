"""What all processes of a test session share as files: made by one of them, once.

Invariant: nobody sees a folder that is half made.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path


def made_once(folder: Path, key: str, make: Callable[[Path], None]) -> Path:
    """`folder`/`key`, made by `make` where nobody has made it yet; others wait for whoever does."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / f"{key}.done"
    if not done.exists():
        with (folder / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(folder / key)
                done.touch()
    return folder / key
