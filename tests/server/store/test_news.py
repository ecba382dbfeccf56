"""Word among servers on one PostgreSQL: who is told what, and what a failure costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from halfscope.wire.messages import Bye
from halfscope_server.store import news
from halfscope_server.store.news import MAX_PAYLOAD_BYTES, payloads
from halfscope_server.store.store import Store

from tests.helpers.listening import WAIT_S, wait_for_listeners

Make = Callable[..., Any]


class Ear:
    """What a server was told."""

    def __init__(self) -> None:
        self.heard: list[frozenset[str]] = []
        self._changed = threading.Condition()

    def __call__(self, run_ids: frozenset[str]) -> None:
        with self._changed:
            self.heard.append(run_ids)
            self._changed.notify_all()

    def wait_for(self, *run_ids: str) -> None:
        """Until word of all of these has come."""
        with self._changed:
            told = self._changed.wait_for(lambda: set(run_ids) <= frozenset().union(*self.heard), WAIT_S)
        assert told, self.heard


@pytest.fixture
def pair(postgres_url: str) -> Iterator[tuple[Store, Store, Ear, Ear]]:
    """Two servers' stores on one database, that listen, and what they hear."""
    stores, ears = [Store.open(postgres_url) for _ in range(2)], [Ear() for _ in range(2)]
    for store, ear in zip(stores, ears, strict=True):
        store.listen(ear)
        wait_for_listeners(postgres_url, stores.index(store) + 1)
    yield stores[0], stores[1], ears[0], ears[1]
    for store in stores:
        store.close()


def test_a_commit_is_told_to_the_other_server_and_not_to_its_own(
    pair: tuple[Store, Store, Ear, Ear], make_sender: Make, make_points: Make
) -> None:
    """In both directions; so are a sender's goodbye, lost contact, another name, other tags, and a deletion."""
    first, second, at_first, at_second = pair
    sender = make_sender(run_id="run1")
    sender.greet(first)
    assert not first.commit([sender.begin("loss")], now_us=2).refused
    at_second.wait_for("run1")
    second.rename_run("run1", "other")
    at_first.wait_for("run1")
    acts: list[Callable[[], object]] = [
        lambda: first.commit([sender.batch(make_points([1], {0: [1]}))], now_us=3),
        lambda: first.bye(Bye(*sender.key, "killed"), now_us=4),
        lambda: first.set_tags("run1", ["a"]),
        lambda: first.delete_run("run1", now_us=5),
    ]
    for act in acts:
        at_second.heard.clear()
        act()
        at_second.wait_for("run1")
    lost = make_sender(run_id="run2")
    lost.greet(first)
    assert not first.commit([lost.begin("loss")], now_us=2).refused
    at_second.wait_for("run2")
    at_second.heard.clear()
    assert first.mark_lost_contact(silent_since_us=100, now_us=200) == ["run2"]
    at_second.wait_for("run2")
    assert at_first.heard == [frozenset({"run1"})]


def test_a_connection_that_breaks_is_replaced(
    pair: tuple[Store, Store, Ear, Ear], postgres_url: str, make_sender: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All connections cut by the database at once: commits go on, and word is heard again."""
    monkeypatch.setattr(news, "RETRY_S", 0.01)
    first, _, _, at_second = pair
    sender = make_sender(run_id="run1")
    sender.greet(first)
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid) {others}".encode())
    assert first.commit([sender.begin("loss")], now_us=2).next == {("run1", sender.stream): 2}
    deadline_s = time.monotonic() + WAIT_S
    while not at_second.heard:
        assert time.monotonic() < deadline_s, "nothing is heard after the cut"
        first.rename_run("run1", "again")
        time.sleep(0.02)
    assert set().union(*at_second.heard) == {"run1"}


def test_a_failure_to_tell_fails_no_commit(
    postgres_url: str, make_sender: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where no connection for it can be had."""
    monkeypatch.setattr(news, "RETRY_S", 0.01)
    store = Store.open(postgres_url)

    def refuse() -> None:
        raise ConnectionError("no more connections")

    monkeypatch.setattr(store._database, "apart", refuse)
    ear = Ear()
    store.listen(ear)
    sender = make_sender(run_id="run1")
    sender.greet(store)
    assert not store.commit([sender.begin("loss")], now_us=2).refused
    assert store._news is not None
    deadline_s = time.monotonic() + WAIT_S
    while store._news.num_failures < 4:
        assert time.monotonic() < deadline_s, "it does not try again"
        time.sleep(0.01)
    store.close()
    assert ear.heard == []


def test_sqlite_has_nobody_to_tell(sqlite_url: str, make_sender: Make) -> None:
    """One server has the file: listening is nothing."""
    store = Store.open(sqlite_url)
    ear = Ear()
    store.listen(ear)
    sender = make_sender()
    sender.greet(store)
    assert not store.commit([sender.begin("loss")], now_us=2).refused
    store.close()
    assert ear.heard == []


def test_many_runs_are_told_in_payloads_that_postgresql_takes() -> None:
    """None is left out or cut, whatever characters it has."""
    run_ids = {f"{at:03d}" + "é" * 61 for at in range(500)} | {'"\\'}
    sent = list(payloads("me", run_ids))
    assert len(sent) > 1
    assert all(len(payload.encode()) <= MAX_PAYLOAD_BYTES for payload in sent)
    decoded = [msgspec.json.decode(payload) for payload in sent]
    assert {sender for sender, _ in decoded} == {"me"}
    assert [run_id for _, part in decoded for run_id in part] == sorted(run_ids)
    assert list(payloads("me", [])) == []
