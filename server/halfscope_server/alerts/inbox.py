"""What waits to be evaluated: handed over by whoever commits, taken by the thread that evaluates.

Must not evaluate, nor ask the store. Invariant: handing over never waits for evaluation, and takes bounded memory: what
does not fit in is dropped, and its run is named, so that it is read from the store instead.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from halfscope_server.store.types import Applied
from halfscope_server.store.updates import Brought

QUEUE_BYTES = 64 * 1024 * 1024
"""Of records that wait."""


@dataclass(slots=True, kw_only=True)
class Taken:
    """Everything that waited."""

    brought: dict[str, dict[str, list[Brought]]] = field(default_factory=dict)
    """By run and stream, in order."""
    hinted: set[str] = field(default_factory=set)
    """Runs to be read."""
    are_rules_stale: bool = False


class Inbox:
    """See the module. Methods for any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = Taken(are_rules_stale=True)
        self._is_woken = False
        self.is_closed = False
        self.takes_records = False
        """Whether anybody here evaluates; else whoever does will read the store."""
        self.num_bytes = 0
        self.num_overflows = 0

    def put(self, applied: Iterable[Applied]) -> None:
        """A group commit brought something."""
        with self._changed:
            for one in applied:
                if one.brought is None:
                    self._waiting.hinted.add(one.run_id)
                elif self.takes_records and self.num_bytes < QUEUE_BYTES:
                    streams = self._waiting.brought.setdefault(one.run_id, {})
                    streams.setdefault(one.stream, []).append(one.brought)
                    self.num_bytes += one.brought.num_bytes
                elif self.takes_records:
                    self.num_overflows += 1
                    self._waiting.hinted.add(one.run_id)
            self._wake()

    def hint(self, run_ids: Collection[str]) -> None:
        """Something of these runs is to be read."""
        with self._changed:
            self._waiting.hinted.update(run_ids)
            self._wake()

    def note_rules(self) -> None:
        """A rule is different."""
        with self._changed:
            self._waiting.are_rules_stale = True
            self._wake()

    def take(self) -> Taken:
        """Everything that waits."""
        with self._changed:
            taken, self._waiting = self._waiting, Taken()
            self.num_bytes, self._is_woken = 0, False
        return taken

    def wait(self, least_s: float, most_s: float) -> bool:
        """Wait at least so long, then for something to come.

        Returns:
            False: closed.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.is_closed, least_s):
                self._changed.wait_for(lambda: self.is_closed or self._is_woken, most_s)
            return not self.is_closed

    def close(self) -> None:
        """Wake whoever waits, for the last time."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        self._is_woken = True
        self._changed.notify_all()
