"""PagerDuty's events, against what its Events API v2 documents."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from halfscope_server.alerts.channels import pagerduty
from halfscope_server.alerts.channels.pagerduty import CHANNEL, event
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message

from tests.helpers.notices import HOSTILE, notice
from tests.helpers.receivers import http_receiver
from tests.helpers.tls import client_context, server_context

KEY = "0123456789abcdef0123456789abcdef"


def test_an_incident_is_opened_and_resolved_by_the_same_key() -> None:
    """The episode is the incident, whatever became of its text."""
    opened = event(KEY, Message(notices=[notice(7)]))
    again = event(KEY, Message(notices=[notice(7, "repeat:1")]))
    closed = event(KEY, Message(notices=[notice(7, "resolved", text="another text")]))
    assert [one["event_action"] for one in (opened, again, closed)] == ["trigger", "trigger", "resolve"]
    assert {one["dedup_key"] for one in (opened, again, closed)} == {"halfscope:e7"}
    assert opened["payload"]["severity"] == "critical"
    assert opened["payload"]["summary"].endswith("NaN/Inf rate 4.1% > 1% for 200 steps")
    assert opened["links"][0]["href"] == "https://scope.test/runs/run1?r=900-1500&alert=e7"


@pytest.mark.parametrize("name", HOSTILE)
def test_an_event_is_within_limits(name: str) -> None:
    """The summary is at most 1,024 characters on one line, and the event strict JSON."""
    made = event(KEY, Message(notices=[notice(name=name, rule_name=name, text=name, value=float("inf"))]))
    json.dumps(made, allow_nan=False).encode()
    assert 0 < len(made["payload"]["summary"]) <= 1024
    assert "\n" not in made["payload"]["summary"]


def test_it_is_posted_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event goes to the region's host, whose certificate is checked."""
    asked: list[tuple[str, int]] = []

    with http_receiver(server_context(tmp_path)) as receiver:

        def here(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
            asked.append((host, port))
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", receiver.port))]

        reach = Reach(
            policy=Reach.allowed(private=True, networks=()).policy, look_up=here, tls=client_context(), send_s=5
        )
        refused = CHANNEL.send({"key": KEY, "region": "eu"}, Message(notices=[notice()]), reach)
        monkeypatch.setitem(pagerduty.HOSTS, "us", "receiver.test")
        taken = CHANNEL.send({"key": KEY, "region": ""}, Message(notices=[notice()]), reach)
    assert asked == [("events.eu.pagerduty.com", 443), ("receiver.test", 443)]
    assert "certificate of events.eu.pagerduty.com is not good" in refused.text
    assert taken.ok
    assert [(request.path, json.loads(request.body)["routing_key"]) for request in receiver.requests] == [
        ("/v2/enqueue", KEY)
    ]
