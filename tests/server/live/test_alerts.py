"""What pages are told of alerts: news and no more, to each from the present numbers on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from halfscope.wire.messages import Start, StreamInfo
from halfscope_server.live import Hub
from halfscope_server.live.alerts import AlertReader, alerts_message, merged
from halfscope_server.query.summary import now_us
from halfscope_server.store.store import Store
from halfscope_server.store.types import EpisodeRow

from tests.helpers.stream import Stream

NOW_US = 1_767_323_045_000_000
RUN = "run0000000000001"
QUIET = {"firing": 0, "unacknowledged": 0, "critical": 0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """With one run."""
    opened = Store.open(f"sqlite:///{tmp_path / 'halfscope.db'}")
    sender = Stream(RUN, "00aa00aa00aa00aa", StreamInfo(host="box", pid=1, started_us=NOW_US))
    sender.welcomed(opened.grant(sender.hello(), now_us=NOW_US))
    opened.commit([sender.batch(Start(NOW_US, "digits", "fp16", {}, [], {}))], now_us=NOW_US)
    yield opened
    opened.close()


def episode(name: str = "one", **changes: Any) -> EpisodeRow:
    row = EpisodeRow(
        episode_id=name, rule_id="watch", rule_version=1, run_id=RUN, rule_name="Watch", metric="loss",
        severity="critical", layer="", rank=None, labels={}, attempt=0, state="firing", first_step=1, first_us=NOW_US,
        fired_step=1, fired_us=NOW_US, last_step=1, last_us=NOW_US, resolved_step=None, resolved_us=None,
        resolution="", value=1.0, worst=1.0, threshold=0.0, text="loss is high", evidence={}, updated_us=NOW_US,
    )  # fmt: skip
    return replace(row, **changes)


def save(store: Store, *rows: EpisodeRow, at_us: int = NOW_US) -> None:
    assert store.alerts.save_evaluation(RUN, episodes=[replace(row, updated_us=at_us) for row in rows], now_us=at_us)


def test_first_reading_is_the_present_and_later_ones_are_what_changed(store: Store) -> None:
    """What fired before a page was opened is in its numbers, not among its news."""
    save(store, episode("before"))
    reader = AlertReader(store, NOW_US)
    message, is_new = reader.read()
    assert (message["counts"]["firing"], message["changed"], is_new) == (1, [], False)
    save(store, episode("after", severity="warning"), at_us=NOW_US + 5)
    message, is_new = reader.read()
    assert (is_new, message["counts"]["firing"], [a["id"] for a in message["changed"]]) == (True, 2, ["after"])
    assert reader.read()[1] is False


def test_steps_that_an_alert_goes_on_through_are_no_news(store: Store) -> None:
    """They would be told all the time; that it is over is told."""
    reader = AlertReader(store, NOW_US)
    reader.read()
    save(store, episode(), at_us=NOW_US + 1)
    assert reader.read()[1]
    save(store, episode(last_step=900, worst=9.0), at_us=NOW_US + 2)
    assert not reader.read()[1]
    save(store, episode(state="resolved", resolution="cleared", resolved_step=901), at_us=NOW_US + 3)
    message, is_new = reader.read()
    assert (is_new, message["counts"], message["changed"][0]["state"]) == (True, QUIET, "resolved")


def test_what_is_only_pending_is_no_news(store: Store) -> None:
    """Noise comes and goes there; nobody was told that it began."""
    reader = AlertReader(store, NOW_US)
    reader.read()
    save(store, episode(state="pending", fired_step=None, fired_us=None), at_us=NOW_US + 1)
    assert not reader.read()[1]


def test_messages_that_were_not_taken_lose_nothing() -> None:
    """The newest of each alert, the newest numbers."""
    older = alerts_message(QUIET, ["s"], [{"id": "a", "state": "firing"}, {"id": "b", "state": "firing"}])
    newer = alerts_message({**QUIET, "firing": 1}, [], [{"id": "a", "state": "resolved"}])
    assert merged(older, newer) == {
        "type": "alerts",
        "counts": {**QUIET, "firing": 1},
        "silences": [],
        "changed": [{"id": "a", "state": "resolved"}, {"id": "b", "state": "firing"}],
    }


def test_a_page_is_told_whatever_else_it_watches_and_not_unless_it_asks(store: Store) -> None:
    """News that wait outlive a change of what is watched; a page that was away begins with the present numbers."""

    async def watch() -> None:
        clock_s, begun_us = [0.0], now_us()
        hub = Hub(store, interval_s=0.0, runs_interval_s=0.0, poll_s=0.05, clock_s=lambda: clock_s[0])
        asked, silent = hub.subscribe(), hub.subscribe()
        asked.watch_alerts()
        assert [m["counts"] for m in await asyncio.wait_for(asked.next(), 20)] == [QUIET]
        save(store, episode("one"), at_us=begun_us + 1)
        await _until(lambda: "alerts" in asked._waiting)
        asked.watch(None)
        save(store, episode("two"), at_us=begun_us + 2)
        await _until(lambda: len(asked._waiting["alerts"][0]["changed"]) == 2)
        clock_s[0] += 60.0
        save(store, episode("three"), at_us=begun_us + 3)
        await _until(lambda: asked.is_stalled)
        (present,) = await asyncio.wait_for(asked.next(), 20)
        assert (present["counts"]["firing"], present["changed"]) == (3, [])
        assert silent._waiting == {}
        assert hub.num_failures == 0
        await hub.close()

    asyncio.run(watch())


async def _until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)
