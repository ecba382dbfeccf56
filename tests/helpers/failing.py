"""The k-th call of something fails, for k = 1, 2, 3 ... until a scenario passes without meeting it.

    for fault in every_failure():
        with fault.in_calls(os, "write", of=in_folder(tmp_path), error=OSError(errno.ENOSPC, "full")):
            scenario()
        if not fault.happened:
            break

Must not import what it tests. Invariant: exactly one call fails in a round, and the last round has none that does.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

MAX_ROUNDS = 2000


class Fault:
    """One call that fails."""

    def __init__(self, number: int) -> None:
        self.number = number
        """Counted from 1."""
        self.num_calls = 0
        self._lock = threading.Lock()

    @property
    def happened(self) -> bool:
        return self.num_calls >= self.number

    def is_now(self) -> bool:
        """Count a call; True for the one that fails."""
        with self._lock:
            self.num_calls += 1
            return self.num_calls == self.number

    @contextlib.contextmanager
    def in_calls(
        self,
        owner: Any,
        name: str,
        *,
        error: Exception,
        of: Callable[..., bool] = lambda *_: True,
        before: Callable[..., object] = lambda *_: None,
        is_after: bool = False,
    ) -> Iterator[None]:
        """Lets the call fail.

        Args:
            of: which calls count, by their arguments.
            before: what the failing call does all the same.
            is_after: the call does its work, and then fails.
        """
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not of(*args) or not self.is_now():
                return original(*args, **kwargs)
            before(*args)
            if is_after:
                original(*args, **kwargs)
            raise error

        with mock.patch.object(owner, name, call):
            yield


def every_failure() -> Iterator[Fault]:
    """Faults at the first call, the second, and so on; the caller stops at the first that did not happen."""
    for number in range(1, MAX_ROUNDS):
        yield Fault(number)
    raise AssertionError(f"{MAX_ROUNDS} rounds, and still calls that fail")


def in_folder(folder: Path) -> Callable[..., bool]:
    """For calls whose first argument is a path or an open file below a folder."""

    def is_in(target: object, *_: object) -> bool:
        if isinstance(target, int):
            with contextlib.suppress(OSError):
                return os.readlink(f"/proc/self/fd/{target}").startswith(str(folder))
            return False
        return isinstance(target, str | os.PathLike) and os.fspath(target).startswith(str(folder))

    return is_in
