"""Alerts over the API: lists, acknowledging, silences, bands for the charts, and what pages are told live."""

from __future__ import annotations

from typing import Any

import pytest
from halfscope_server.api import alert_models, live_models
from halfscope_server.api.auth import wall_clock_us
from halfscope_server.api.services import Services
from halfscope_server.store.types import EpisodeRow, NoticeRow
from pydantic import TypeAdapter
from starlette.testclient import TestClient, WebSocketTestSession

START_US = 1_767_323_045_000_000
LIVE = "ws://127.0.0.1:65504/api/v1/live"
HOSTILE = "<img src=x onerror=alert(1)>"
_server_message: TypeAdapter[Any] = TypeAdapter(live_models.ServerMessage)


def episode(run_id: str, name: str, *, state: Any = "firing", at: int = 100, **changes: Any) -> EpisodeRow:
    """One that fired at a step of the sample run."""
    is_over = state == "resolved"
    values: dict[str, Any] = {
        "episode_id": name,
        "rule_id": "watch",
        "rule_version": 1,
        "run_id": run_id,
        "rule_name": "Watch",
        "metric": "nonfinite_rate.applied",
        "severity": "critical",
        "layer": "",
        "rank": None,
        "labels": {},
        "attempt": 0,
        "state": state,
        "first_step": at,
        "first_us": START_US + at,
        "fired_step": None if state == "pending" else at + 5,
        "fired_us": None if state == "pending" else START_US + at + 5,
        "last_step": at + 20,
        "last_us": START_US + at + 20,
        "resolved_step": at + 25 if is_over else None,
        "resolved_us": START_US + at + 25 if is_over else None,
        "resolution": "cleared" if is_over else "",
        "value": 0.041,
        "worst": float("inf"),
        "threshold": 0.01,
        "text": f"{HOSTILE}: NaN/Inf rate 4.1% > 1%",
        "evidence": {"step": [at, at + 5], "value": [0.0, float("nan")]},
        "updated_us": START_US,
    }
    return EpisodeRow(**values | changes)


def save(services: Services, *rows: EpisodeRow, notices: tuple[NoticeRow, ...] = ()) -> None:
    for run_id in {row.run_id for row in rows}:
        of_run = [row for row in rows if row.run_id == run_id]
        assert services.store.alerts.save_evaluation(run_id, episodes=of_run, notices=notices, now_us=wall_clock_us())


def test_an_alert_comes_with_words_evidence_and_a_link(client: TestClient, services: Services, run_id: str) -> None:
    """What is not finite is named, the link lands on the steps with the alert marked, and names stay text."""
    notice = NoticeRow(
        episode_id="one", channel_id="gone", kind="fired", state="sent", num_tries=2, due_us=0, created_us=START_US,
        sent_us=START_US + 9, error="", body={},
    )  # fmt: skip
    save(services, episode(run_id, "one"), notices=(notice,))
    body = client.get("/api/v1/alerts/one").json()
    alert_models.AlertItem.model_validate(body)
    assert (body["run_name"], body["project"], body["state"]) == ("fp16-cnn", "digits", "firing")
    assert (body["value_text"], body["threshold_text"]) == ("0.041", "0.01")
    assert (body["worst"], body["spark_values"]) == ("Infinity", [0.0, "NaN"])
    assert body["text"].startswith(HOSTILE)
    assert body["panel"] == "scale"
    assert body["link"] == f"/runs/{run_id}?r=80-140&alert=one"
    assert [(n["channel_name"], n["state"], n["num_tries"]) for n in body["notices"]] == [
        ("a deleted channel", "sent", 2)
    ]


def test_pages_of_alerts_yield_each_once_and_newest_first(client: TestClient, services: Services, run_id: str) -> None:
    """Across pages, by state, rule and run; what is only pending is shown to those who ask for it."""
    rows = [episode(run_id, f"e{at}", at=at, state="resolved", rule_id=f"r{at % 2}") for at in range(7)]
    save(services, *rows, episode(run_id, "p", at=50, state="pending"))
    seen: list[str] = []
    before = ""
    while True:
        page = client.get("/api/v1/alerts", params={"limit": 3, "before": before}).json()
        seen += [alert["id"] for alert in page["alerts"]]
        before = page["next_cursor"]
        if before is None:
            break
    assert seen == [f"e{at}" for at in reversed(range(7))]

    def ids(**query: Any) -> list[str]:
        return [alert["id"] for alert in client.get("/api/v1/alerts", params=query).json()["alerts"]]

    assert ids(state="pending") == ["p"]
    assert ids(rule="r1") == ["e5", "e3", "e1"]
    assert ids(run="another") == []


@pytest.mark.parametrize(
    "query",
    [
        {"before": "x"},
        {"before": "x.y"},
        {"before": f"{'9' * 26}.a"},
        {"before": "٣.a"},
        {"before": "5.a\x00"},
        {"limit": 0},
        {"state": "angry"},
    ],
)
def test_arguments_that_make_no_sense_are_refused(client: TestClient, query: dict[str, Any]) -> None:
    """A cursor is used as it was given out, or not at all."""
    response = client.get("/api/v1/alerts", params=query)
    assert (response.status_code, response.json()["code"]) == (422, "invalid")


def test_acknowledging_names_who_and_keeps_the_first(client: TestClient, services: Services, run_id: str) -> None:
    """The bell counts it no longer; it goes on firing."""
    save(services, episode(run_id, "one"), episode(run_id, "two", severity="warning"))
    assert client.get("/api/v1/alerts").json()["counts"] == {"firing": 2, "unacknowledged": 2, "critical": 1}
    first = client.post("/api/v1/alerts/one/acknowledge").json()
    assert (first["acknowledged_by"], first["state"]) == ("tests", "firing")
    again = client.post("/api/v1/alerts/one/acknowledge").json()
    assert again["acknowledged_us"] == first["acknowledged_us"]
    assert client.get("/api/v1/alerts").json()["counts"] == {"firing": 2, "unacknowledged": 1, "critical": 0}
    assert client.post("/api/v1/alerts/nobody/acknowledge").status_code == 404


def test_bands_say_where_rules_fired_on_a_run(client: TestClient, services: Services, run_id: str) -> None:
    """Those that are over end, those that fire reach on, and what never fired is none; a deleted run has none."""
    save(
        services,
        episode(run_id, "open", at=100),
        episode(run_id, "over", at=10, state="resolved", metric=f"val/{HOSTILE}", layer="fc1"),
        episode(run_id, "waits", at=60, state="pending"),
    )
    bands = client.get(f"/api/v1/runs/{run_id}/alerts").json()["bands"]
    assert [(b["alert"], b["first_step"], b["last_step"], b["layer"]) for b in bands] == [
        ("open", 100, None, ""),
        ("over", 10, 35, "fc1"),
    ]
    panels = {panel["id"] for panel in client.get(f"/api/v1/runs/{run_id}/panels").json()["panels"]}
    assert {band["panel"] for band in bands} <= panels
    client.delete(f"/api/v1/runs/{run_id}")
    assert client.get(f"/api/v1/runs/{run_id}/alerts").status_code == 410
    assert client.get("/api/v1/alerts/open").status_code == 404


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"layer": "a" * 200_000}, "layer has 200,000 characters; expected at most 512"),
        ({"run": "x\x00"}, "run holds a NUL"),
        ({"rule": "  "}, "rule holds only spaces"),
        ({"rule": "wach"}, 'there is no rule \\"wach\\"; did you mean watch?'),
        ({"rule": "loss"}, "expected the id of a rule"),
        ({"run": "fp16-cnn"}, "that is the name of "),
        ({"run": "0123abcd"}, 'there is no run \\"0123abcd\\"; expected the id of a run'),
    ],
)
def test_a_silence_that_can_match_nothing_is_refused(
    client: TestClient, services: Services, run_id: str, body: dict[str, str], told: str
) -> None:
    """With what was seen; nothing is kept of it."""
    services.store.alerts.put_rule("watch", {}, now_us=1)
    refused = client.post("/api/v1/silences", json=body)
    assert (refused.status_code, told in refused.text) == (422, True)
    assert client.get("/api/v1/silences").json() == {"silences": []}


def test_silences_end_by_themselves_or_are_lifted(client: TestClient, services: Services, run_id: str) -> None:
    """Silencing everything must be said; what has ended is not listed."""
    for rule in ("watch", "short"):
        services.store.alerts.put_rule(rule, {}, now_us=1)
    assert client.post("/api/v1/silences", json={"for_s": 60}).status_code == 422
    made = client.post("/api/v1/silences", json={"run": run_id, "rule": "watch", "for_s": 3600, "comment": " why "})
    body = made.json()
    assert (made.status_code, body["run_name"], body["comment"]) == (201, "fp16-cnn", "why")
    assert body["until_us"] - body["created_us"] == 3_600_000_000
    mute = client.post("/api/v1/silences", json={"run": run_id}).json()
    assert mute["until_us"] is None
    client.post("/api/v1/silences", json={"rule": "short", "for_s": 1e-6})
    assert [s["id"] for s in client.get("/api/v1/silences").json()["silences"]] == [body["id"], mute["id"]]
    assert client.delete(f"/api/v1/silences/{body['id']}").status_code == 204
    assert client.delete(f"/api/v1/silences/{body['id']}").status_code == 404


def test_an_alert_shows_what_silences_it_though_it_was_sent(
    client: TestClient, services: Services, run_id: str
) -> None:
    """Of several silences the one that ends last, for as long as it goes on; what is over is not silenced."""
    services.store.alerts.put_rule("watch", {}, now_us=1)
    over = episode(run_id, "over", layer="fc1", state="resolved")
    save(services, episode(run_id, "one", layer="fc1"), episode(run_id, "two", layer="fc2"), over)

    def silenced() -> dict[str, str]:
        alerts = client.get("/api/v1/alerts").json()["alerts"]
        assert {alert["muted_by"] for alert in alerts} == {""}
        return {alert["id"]: alert["silence"]["id"] for alert in alerts if alert["silence"]}

    def silence(**body: Any) -> str:
        return str(client.post("/api/v1/silences", json=body).json()["id"])

    assert silenced() == {}
    short, long = silence(rule="watch", layer="fc1", for_s=60), silence(layer="f?1", for_s=3600)
    assert silenced() == {"one": long}
    mute = silence(run=run_id)
    assert silenced() == {"one": mute, "two": mute}
    (shown,) = (alert for alert in client.get("/api/v1/alerts").json()["alerts"] if alert["id"] == "two")
    assert (shown["silence"]["run_name"], shown["silence"]["until_us"]) == ("fp16-cnn", None)
    for name in (mute, long):
        client.delete(f"/api/v1/silences/{name}")
    assert silenced() == {"one": short}


def test_every_page_is_told_of_alerts_whatever_it_watches(client: TestClient, services: Services, run_id: str) -> None:
    """The numbers at once, then each change as it happens, silences that begin or end among them."""
    with client.websocket_connect(LIVE) as live:
        live.send_json({"type": "watch_alerts"})
        assert _alerts(live)["counts"]["firing"] == 0
        save(services, episode(run_id, "one"))
        services.hub.alerts_changed()
        told = _alerts(live)
        assert (told["counts"]["critical"], [alert["id"] for alert in told["changed"]]) == (1, ["one"])
        client.post("/api/v1/alerts/one/acknowledge")
        told = _alerts(live)
        assert (told["counts"]["critical"], told["changed"][0]["acknowledged_by"]) == (0, "tests")
        silence = client.post("/api/v1/silences", json={"run": run_id}).json()["id"]
        assert _alerts(live)["silences"] == [silence]
        client.delete(f"/api/v1/silences/{silence}")
        assert _alerts(live)["silences"] == []


def _alerts(live: WebSocketTestSession) -> dict[str, Any]:
    """The next message about alerts, as the API describes it."""
    while True:
        message: dict[str, Any] = live.receive_json()
        _server_message.validate_python(message)
        if message["type"] == "alerts":
            return message
