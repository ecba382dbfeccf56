"""A run's events page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from halfscope.wire.messages import Event
from halfscope_server.settings import Settings
from starlette.testclient import TestClient

RUN = "run00000000000e5"
START_US = 1_767_323_045_000_000


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory,
    opened: Callable[..., Any],
    record: Callable[..., None],
    make_records: Callable[..., Any],
) -> Iterator[TestClient]:
    """A server with a run that has 500 scale growths besides; nothing here changes anything."""
    growths = [Event("scale_growth", step, START_US + step, "info", [], {"scale": 2.0}) for step in range(500)]
    with opened(Settings(home=tmp_path_factory.mktemp("home"))) as (services, client):
        record(services.store, RUN, [*make_records(ended=False), *growths])
        yield client


@pytest.mark.parametrize("newest_first", [False, True])
def test_following_the_cursor_yields_every_event_once(client: TestClient, newest_first: bool) -> None:
    """In order, across pages of odd sizes."""
    steps: list[int] = []
    ids: list[str] = []
    cursor = None
    while True:
        query = {"limit": 77, "newest_first": newest_first, **({"cursor": cursor} if cursor else {})}
        page = client.get(f"/api/v1/runs/{RUN}/events", params=query).json()
        steps += [event["step"] for event in page["events"]]
        ids += [event["id"] for event in page["events"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(ids) == len(set(ids)) == page["total"] == 502
    assert steps == sorted(steps, reverse=newest_first)


def test_kinds_are_counted_before_they_are_filtered(client: TestClient) -> None:
    """So that a filter can be taken back."""
    page = client.get(f"/api/v1/runs/{RUN}/events", params={"kind": "skip"}).json()
    assert [event["kind"] for event in page["events"]] == ["skip"]
    assert {kind["kind"]: kind["count"] for kind in page["kinds"]} == {
        "scale_growth": 500,
        "skip": 1,
        "scale_backoff": 1,
    }
    assert page["total"] == 1


def test_range_holds_its_ends(client: TestClient) -> None:
    """Both steps are in it."""
    query = {"first_step": 10, "last_step": 12}
    events = client.get(f"/api/v1/runs/{RUN}/events", params=query).json()["events"]
    assert [event["step"] for event in events] == [10, 11, 12]
    assert client.get(f"/api/v1/runs/{RUN}/events", params={**query, "rank": 1}).json()["events"] == []


@pytest.mark.parametrize("query", [{"cursor": "x"}, {"cursor": "1.2.x.y"}, {"limit": 0}, {"limit": 100000}])
def test_arguments_that_make_no_sense_are_refused(client: TestClient, query: dict[str, Any]) -> None:
    """A cursor is used as it was given out, or not at all."""
    response = client.get(f"/api/v1/runs/{RUN}/events", params=query)
    assert response.status_code == 422
    assert response.json()["code"] == "invalid"
