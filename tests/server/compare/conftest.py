"""A store for runs that a test writes itself; what is stored is the same on both databases, so one of them will do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from halfscope_server.store.store import Store


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Store]:
    """An empty one."""
    opened = Store.open(sqlite_url)
    yield opened
    opened.close()
