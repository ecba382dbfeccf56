"""Channels over the API: secrets go in and never come out, the test button, and the way from a run to a receiver."""

from __future__ import annotations

import dataclasses
import json
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
from halfscope.wire.messages import Column, Declare, Points, Record, Series, Start
from halfscope_server.settings import Settings
from starlette.testclient import TestClient

from tests.helpers.receivers import http_receiver

RUN = "01hwtestrun00001"
SECRET = "0123456789-signing"
WAIT_S = 20.0


def webhook(url: str, **secrets: str) -> dict[str, Any]:
    return {"kind": "webhook", "name": "mine", "secrets": {"url": url, **secrets}}


def test_secrets_go_in_and_never_come_out(client: TestClient) -> None:
    """No answer holds one: not the list, not the change, not an error."""
    made = client.post("/api/v1/channels", json=webhook("https://example.org/s3cr3t-path", secret=SECRET))
    assert made.status_code == 201
    channel = made.json()
    assert (channel["secrets_set"], channel["options"]) == (["secret", "url"], {})
    changed = client.put(f"/api/v1/channels/{channel['id']}", json={"kind": "webhook", "name": "other"})
    assert changed.json()["secrets_set"] == ["secret", "url"]
    refused = client.post("/api/v1/channels", json=webhook("https://s3cr3t:pw@example.org/", secret=SECRET))
    assert refused.status_code == 422
    texts = [made.text, changed.text, refused.text, client.get("/api/v1/channels").text]
    assert not [text for text in texts if "s3cr3t" in text or SECRET in text]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"options": {"adress": "x"}}, "adress: Webhook has no such field; expected url or secret"),
        ({"name": "   "}, "name holds only spaces"),
        ({"name": "a\x00"}, "name holds a NUL"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_expected(client: TestClient, changes: dict[str, Any], told: str) -> None:
    """And nothing is kept."""
    refused = client.post("/api/v1/channels", json=webhook("https://example.org/") | changes)
    assert (refused.status_code, refused.json()["detail"][: len(told)]) == (422, told)
    assert client.get("/api/v1/channels").json()["channels"] == []


def test_a_key_does_not_follow_to_another_receiver(client: TestClient) -> None:
    """A change of the address asks for the other secrets again; with them it is taken."""
    made = client.post("/api/v1/channels", json=webhook("https://example.org/", secret=SECRET)).json()
    path = f"/api/v1/channels/{made['id']}"
    refused = client.put(path, json=webhook("https://evil.test/"))
    assert (refused.status_code, "must be entered again" in refused.text) == (422, True)
    assert client.put(path, json=webhook("https://other.test/", secret="another-secret-16")).status_code == 200


def test_the_test_button_reaches_no_private_network(client: TestClient) -> None:
    """Without the operator's word, the server posts nothing to its own machine."""
    with http_receiver() as receiver:
        made = client.post("/api/v1/channels", json=webhook(receiver.url)).json()
        result = client.post(f"/api/v1/channels/{made['id']}/test").json()
        assert receiver.requests == []
    assert result["ok"] is False
    assert "private or reserved network" in result["text"]


def records(steps: range, value: float) -> list[Record]:
    """A run that begins now, with one series: what was there before a rule was made is not judged by it."""
    now_us = time.time_ns() // 1000
    times_us = [now_us + (step - steps.start) * 10 for step in steps]
    return [
        Start(times_us[0], "digits", "fp16 <b>cnn</b>", {}, [], {}, 0, "0.1.0"),
        Declare([Series(0, "amp.scale", "1", "state")]),
        Points(
            struct.pack(f"<{len(steps)}q", *steps),
            struct.pack(f"<{len(steps)}q", *times_us),
            [Column(0, struct.pack(f"<{len(steps)}d", *([1024.0] * (len(steps) - 5) + [value] * 5)))],
        ),
    ]


def test_from_a_bad_step_to_a_signed_message(
    settings: Settings, opened: Callable[..., Any], send: Callable[..., None]
) -> None:
    """A rule over the API, a run over the ingest: the receiver gets the alert once, with run, step and signature."""
    allowed = dataclasses.replace(settings, alert_allow_private=True, public_url="https://scope.test/")
    rule = {"id": "low", "name": "Low scale", "metric": "amp.scale", "comparison": "<", "threshold": 1.0}
    with http_receiver() as receiver, opened(allowed) as (_services, client):
        made = client.post("/api/v1/channels", json=webhook(receiver.url, secret=SECRET)).json()
        assert client.post(f"/api/v1/channels/{made['id']}/test").json()["ok"]
        assert client.post("/api/v1/rules", json=rule).status_code in (200, 201)
        send(client, RUN, records(range(100), 0.5))
        deadline_s = time.monotonic() + WAIT_S
        while client.get("/api/v1/channels").json()["channels"][0]["last_sent_us"] is None:
            assert time.monotonic() < deadline_s, "no alert came"
            time.sleep(0.01)
        (channel,) = client.get("/api/v1/channels").json()["channels"]
        assert (channel["num_waiting"], channel["last_error"]) == (0, "")
    content = json.loads(receiver.requests[1].body)
    (alert,) = content["alerts"]
    assert content["test"] is False
    assert (alert["kind"], alert["fired_step"], alert["value"]) == ("fired", 95, 0.5)
    assert alert["run"] == {"id": RUN, "name": "fp16 <b>cnn</b>", "project": "digits"}
    assert alert["url"].startswith(f"https://scope.test/runs/{RUN}?r=")
    assert receiver.requests[1].headers["Halfscope-Signature"].startswith("t=")
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_stranger_sees_no_channels(stranger: TestClient, method: str) -> None:
    """Without a token there is neither list nor making."""
    assert stranger.request(method, "/api/v1/channels", json=webhook("https://example.org/")).status_code == 401
