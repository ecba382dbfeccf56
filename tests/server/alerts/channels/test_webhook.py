"""The webhook over a real receiver: body, signature, headers."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from halfscope_server.alerts.channels import kinds
from halfscope_server.alerts.channels.webhook import CHANNEL, payload, signature
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message

from tests.helpers.notices import HOSTILE, notice
from tests.helpers.receivers import http_receiver

HERE = Reach.allowed(private=True, networks=())
SECRET = "0123456789abcdef-key"


def test_a_receiver_can_check_who_sent_it_and_when() -> None:
    """The signature is the HMAC-SHA256 of the time and the very bytes, under the secret."""
    message = Message(notices=[notice(1), notice(2, "resolved")])
    with http_receiver() as receiver:
        values = {"url": receiver.url, "secret": SECRET, "authorization": "Bearer abc"}
        assert CHANNEL.send(values, message, HERE).ok
    (request,) = receiver.requests
    time_part, _, given = request.headers["Halfscope-Signature"].partition(",v1=")
    signed = time_part.removeprefix("t=").encode() + b"." + request.body
    assert given == hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert abs(int(time_part.removeprefix("t=")) - time.time()) < 60
    assert request.headers["Authorization"] == "Bearer abc"
    assert request.headers["Content-Type"] == "application/json"
    content = json.loads(request.body)
    assert (content["version"], content["test"], content["id"]) == (1, False, message.id)
    assert request.headers["Idempotency-Key"] == message.id
    assert [alert["id"] for alert in content["alerts"]] == ["e1:fired", "e2:resolved"]
    assert content["alerts"][0]["text"] == "NaN/Inf rate 4.1% > 1% for 200 steps"
    assert content["alerts"][0]["url"] == "https://scope.test/runs/run1?r=900-1500&alert=e1"


def test_the_signature_is_the_one_worked_out_elsewhere() -> None:
    """A signature made with `openssl dgst -sha256 -hmac` over `1700000000.{"a":1}`."""
    expected = "t=1700000000,v1=5dee649719c614c59684367e4bc02f4084affd0b3b1872b29cbcc676e2e1f0d8"
    assert signature(SECRET, b'{"a":1}', timestamp_s=1_700_000_000) == expected


def test_without_a_secret_nothing_is_signed() -> None:
    """No secret, no signature, and no Authorization."""
    with http_receiver() as receiver:
        CHANNEL.send({"url": receiver.url, "secret": "", "authorization": ""}, Message(notices=[notice()]), HERE)
    assert not {"Halfscope-Signature", "Authorization"} & set(receiver.requests[0].headers)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_data(name: str) -> None:
    """A body with any name in it is one JSON object of the same keys, and no header comes from a name."""
    about = notice(name=name, rule_name=name, layer=name, text=name)
    with http_receiver() as receiver:
        values = {"url": receiver.url, "secret": SECRET, "authorization": ""}
        assert CHANNEL.send(values, Message(notices=[about]), HERE).ok
    (request,) = receiver.requests
    assert set(json.loads(request.body)["alerts"][0]) == {"id", *notice().body}
    assert set(request.headers) == {
        *("Host", "Connection", "Content-Type", "Content-Length", "Accept-Encoding", "User-Agent"),
        *("Idempotency-Key", "Halfscope-Signature"),
    }


def test_a_body_is_strict_json() -> None:
    """NaN of a value is a word in it."""
    body = payload(Message(notices=[notice(value=float("nan"))]), sent_us=1)
    assert json.loads(body, parse_constant=pytest.fail)["alerts"][0]["value"] == "NaN"


PAGE = (Path(__file__).parents[4] / "docs" / "alert-channels.md").read_text(encoding="utf-8")


def test_the_page_lists_every_field() -> None:
    """The tables of docs/alert-channels.md name the fields that are sent, in no other spelling."""
    section = PAGE.split("## The webhook's JSON\n", 1)[1].split("### Checking", 1)[0]
    outer, inner = (re.findall(r"^\| `([a-z_]+)` \|", part, re.M) for part in section.split("Each alert:"))
    content = json.loads(payload(Message(notices=[notice()]), sent_us=1))
    assert outer == list(content)
    assert inner == list(content["alerts"][0])


def test_the_page_checks_signatures() -> None:
    """The function on the page takes what we sign, and neither another body, secret or time."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    header = signature(SECRET, b"{}", timestamp_s=1000)
    assert found["is_genuine"](SECRET, header, b"{}", 1100)
    assert not found["is_genuine"](SECRET, header, b"{ }", 1100)
    assert not found["is_genuine"](SECRET + "x", header, b"{}", 1100)
    assert not found["is_genuine"](SECRET, header, b"{}", 2000)
    assert not found["is_genuine"](SECRET, header.replace("t=1000", "t=1100"), b"{}", 1100)


def test_the_page_lists_every_kind() -> None:
    """The table of kinds is the folder's."""
    section = PAGE.split("## Kinds\n", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"^\| `([a-z]+)` \|", section, re.M)) == {kind.kind for kind in kinds()}
