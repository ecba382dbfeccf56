"""Results computed once and kept while what they were computed from stays.

Must not import anything of the project. Invariant: a key is computed by one thread at a time, and by one at all unless
it was dropped for want of room.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

T = TypeVar("T")

MAX_MEMORIES = 512
"""Results kept in one: a finished run never changes, and a viewer can drag its window to ever new places."""


class Memo:
    """Each key computed once, also when several threads ask at the same time; the least used go first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return cast(T, self._values[key])
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                if key in self._values:
                    return cast(T, self._values[key])
            value = compute()
            with self._lock:
                self._values[key] = value
                self._locks.pop(key, None)
                while len(self._values) > MAX_MEMORIES:
                    self._values.popitem(last=False)
            return value
