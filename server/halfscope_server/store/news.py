"""Word among server processes on one PostgreSQL of which runs have changed: LISTEN and NOTIFY.

Owns the channel and two threads with a connection each: one tells, one is told. Must not write data. Invariant: nothing
depends on it: a hint that is lost, late or doubled costs a look at the cursors, and no failure here reaches a commit.

Telling is a transaction of its own, after the data's, because NOTIFY takes a lock of the whole cluster while it
commits; and it does not wait for the disk, because a hint that a crash takes away is not missed. What several commits
change while one is told is told together.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec
import sqlalchemy as sa

from halfscope_server.store.engine import Database

log = logging.getLogger(__name__)

CHANNEL = "halfscope_runs"
MAX_PAYLOAD_BYTES = 7_500
"""PostgreSQL takes 7,999 bytes."""
LOOK_S = 0.2
"""How often the listening thread looks whether it should end."""
RETRY_S = 1.0
MAX_RETRY_S = 30.0
"""Between two tries to reach the database, twice as long each time; readers poll meanwhile."""

Heard = Callable[[frozenset[str]], object]


class News:
    """Tells other processes, and hears from them.

    Args:
        database: on PostgreSQL.
        heard: called from a thread of this class with the runs that another process changed; must return at once.
    """

    def __init__(self, database: Database, heard: Heard) -> None:
        self._database = database
        self._heard = heard
        self._me = secrets.token_hex(8)
        self._changed = threading.Condition()
        self._waiting: set[str] = set()
        self._stopping = False
        self.num_failures = 0
        """Times the database could not be reached, or a listener raised; each is in the log."""
        self._threads = [
            threading.Thread(target=self._work, args=(work,), name=f"halfscope-{name}", daemon=True)
            for name, work in (("tell", self._tell), ("hear", self._hear))
        ]

    def start(self) -> None:
        """Start telling and hearing."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both threads; what was not told yet is told before, if that takes no second try."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def tell(self, run_ids: Iterable[str]) -> None:
        """Say that something of these runs was committed. Returns at once, from any thread."""
        with self._changed:
            self._waiting.update(run_ids)
            self._changed.notify_all()

    def _work(self, work: Callable[[sa.Connection], None]) -> None:
        """One thread: works on a connection until told to end, and takes another when that breaks."""
        retry_s = RETRY_S
        while True:
            try:
                with self._database.apart() as connection:
                    retry_s = RETRY_S
                    work(connection)
                return
            except Exception:
                self.num_failures += 1
                log.warning("servers do not hear of each other's new data now; pages look by themselves", exc_info=True)
            with self._changed:
                if self._changed.wait_for(lambda: self._stopping, retry_s):
                    return
            retry_s = min(2 * retry_s, MAX_RETRY_S)

    def _tell(self, connection: sa.Connection) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if not self._waiting:
                    return
                # Gone even where this fails: who asks later finds the newest in the database.
                run_ids, self._waiting = self._waiting, set()
            with connection.begin():
                for payload in payloads(self._me, run_ids):
                    connection.execute(sa.select(sa.func.pg_notify(CHANNEL, payload)))

    def _hear(self, connection: sa.Connection) -> None:
        with connection.begin():
            connection.execute(sa.text(f"LISTEN {CHANNEL}"))
        driver: Any = connection.connection.driver_connection
        while not self._stopping:
            for notice in driver.notifies(timeout=LOOK_S):
                sender, run_ids = msgspec.json.decode(notice.payload, type=tuple[str, list[str]])
                if sender != self._me:
                    self._heard(frozenset(run_ids))


def payloads(sender: str, run_ids: Collection[str]) -> Iterator[str]:
    """What is sent of some runs: few enough in each."""
    part: list[str] = []
    for run_id in sorted(run_ids):
        if len(msgspec.json.encode((sender, [*part, run_id]))) > MAX_PAYLOAD_BYTES:
            yield msgspec.json.encode((sender, part)).decode()
            part = []
        part.append(run_id)
    if part:
        yield msgspec.json.encode((sender, part)).decode()
