"""Servers that listen for each other's news on one PostgreSQL, for tests that must not speak before they do.

Must not import the server.
"""

from __future__ import annotations

import time

import psycopg

WAIT_S = 20.0


def wait_for_listeners(url: str, num: int) -> None:
    """Until so many connections have said LISTEN."""
    deadline_s = time.monotonic() + WAIT_S
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(query).fetchone() != (num,):
            assert time.monotonic() < deadline_s, "they do not listen"
            time.sleep(0.01)
