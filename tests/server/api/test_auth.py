"""Codes, sessions and tokens, on an explicit clock and a real store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from halfscope_server.api.auth import Authenticator
from halfscope_server.store.store import Store

SECOND_US = 1_000_000


class Clock:
    """A wall clock that stands until it is moved."""

    def __init__(self) -> None:
        self.us = 1_700_000_000 * SECOND_US

    def __call__(self) -> int:
        return self.us

    def advance(self, seconds: int) -> None:
        self.us += seconds * SECOND_US


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "halfscope.db"


@pytest.fixture
def authenticator(database: Path, clock: Clock) -> Iterator[Authenticator]:
    store = Store.open(f"sqlite:///{database}")
    yield Authenticator(store, code_s=600, session_s=3600, clock_us=clock)
    store.close()


def test_code_opens_one_session(authenticator: Authenticator, clock: Clock) -> None:
    """The second use is refused, also while the first session lives."""
    code, expires_us = authenticator.issue_code()
    assert expires_us == clock.us + 600 * SECOND_US
    opened = authenticator.redeem_code(code)
    assert opened is not None
    assert authenticator.session_expiry(opened[0]) == clock.us + 3600 * SECOND_US
    assert authenticator.redeem_code(code) is None


def test_code_is_good_for_ten_minutes(authenticator: Authenticator, clock: Clock) -> None:
    """A second before the end it still is, at the end it is not."""
    first, _ = authenticator.issue_code()
    second, _ = authenticator.issue_code()
    clock.advance(599)
    assert authenticator.redeem_code(first) is not None
    clock.advance(1)
    assert authenticator.redeem_code(second) is None


def test_of_two_requests_with_one_code_one_gets_in(authenticator: Authenticator) -> None:
    """Eight at once, and still only one."""
    for _ in range(5):
        code, _ = authenticator.issue_code()
        with ThreadPoolExecutor(8) as pool:
            opened = list(pool.map(authenticator.redeem_code, [code] * 8))
        assert sum(each is not None for each in opened) == 1


def test_session_ends_by_the_clock_and_by_signing_out(authenticator: Authenticator, clock: Clock) -> None:
    """Whichever comes first."""
    secrets = []
    for _ in range(2):
        opened = authenticator.redeem_code(authenticator.issue_code()[0])
        assert opened is not None
        secrets.append(opened[0])
    authenticator.end_session(secrets[0])
    assert authenticator.session_expiry(secrets[0]) is None
    assert authenticator.session_expiry(secrets[1]) is not None
    clock.advance(3600)
    assert authenticator.session_expiry(secrets[1]) is None


def test_code_is_no_cookie_and_a_guess_is_nothing(authenticator: Authenticator) -> None:
    """What stands in a link's fragment opens nothing by itself."""
    code, _ = authenticator.issue_code()
    assert authenticator.session_expiry(code) is None
    assert not authenticator.is_token(code)
    assert authenticator.redeem_code("guess") is None
    assert authenticator.redeem_code("") is None


def test_token_is_good_once_admitted(authenticator: Authenticator) -> None:
    """Admitting it again, at the next start of the server, changes nothing."""
    assert not authenticator.is_token("a-token-of-some-length")
    authenticator.admit_token("a-token-of-some-length", name="local")
    authenticator.admit_token("a-token-of-some-length", name="local")
    assert authenticator.is_token("a-token-of-some-length")
    assert not authenticator.is_token("")


def test_database_holds_no_secret(authenticator: Authenticator, database: Path) -> None:
    """Whoever reads the file, or a backup of it, can sign in with nothing in there."""
    code, _ = authenticator.issue_code()
    opened = authenticator.redeem_code(authenticator.issue_code()[0])
    assert opened is not None
    authenticator.admit_token("a-token-of-some-length", name="local")
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        dump = "\n".join(connection.iterdump())
    connection.close()
    assert "local" in dump
    for secret in (code, opened[0], "a-token-of-some-length"):
        assert secret not in dump
