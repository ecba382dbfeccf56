"""Which of several servers on one database does what only one may do.

Must not know what that is. Invariant: on SQLite there is one server, and it is the one; elsewhere the one that holds
the lease is, until the lease is over.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfscope_server.store.store import Store

LEASE_S = 15.0
"""After the server that led has died, another goes on when this is over; it asks every third of it."""


class Leader:
    """What one server knows of it. For one thread.

    Args:
        store: of the lease.
        name: of what is done.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name
        self._me = secrets.token_hex(8)
        self._until_us = 0
        self.leads = False
        """As it was last asked."""

    def ask(self, now_us: int) -> bool:
        """Ask, or stay it, where it is time to.

        Returns:
            Whether another server led before, or does now; never on SQLite.
        """
        if self._store.dialect == "sqlite":
            self.leads = True
            return False
        if now_us < self._until_us - int(LEASE_S * 2e6 / 3):
            return False
        led, until_us = self.leads, now_us + int(LEASE_S * 1e6)
        self.leads = self._store.alerts.take_lease(self._name, self._me, until_us, now_us=now_us)
        self._until_us = until_us
        return self.leads != led

    def resign(self, now_us: int) -> None:
        """Let another server go on at once."""
        if self.leads:
            self._store.alerts.take_lease(self._name, self._me, now_us, now_us=now_us)
