"""Chats through Apprise: what each service is asked, and what the process that asks may and may not do."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import apprise
import pytest
import requests
from halfscope_server.alerts import channels
from halfscope_server.alerts.channels.base import check
from halfscope_server.alerts.channels.through_apprise import AppriseChannel, quiet
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message
from halfscope_server.alerts.posting import Outcome
from requests.adapters import HTTPAdapter

from tests.helpers.notices import HOSTILE, notice
from tests.helpers.receivers import HttpReceiver, http_receiver, talker

# A plugin that is not used here still imports it.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

HERE = Reach.allowed(private=True, networks=())
MESSAGE = Message(notices=[notice()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service as its own pages describe it."""

    values: Mapping[str, str]
    url: str
    """What is posted to."""
    path: tuple[str | int, ...] = ()
    """Where the text lies in the JSON that it takes."""


SERVICES = {
    "slack": Service(
        values={"url": "https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/cccccccccccccccccccccccc"},
        url="https://hooks.slack.com/services/T0AAAAAAA/B0BBBBBBB/cccccccccccccccccccccccc",
    ),
    "discord": Service(
        values={"url": "https://discord.com/api/webhooks/123456789012345678/abc-DEF_ghi"},
        url="https://discord.com/api/webhooks/123456789012345678/abc-DEF_ghi",
    ),
    "teams": Service(
        values={
            "url": "https://prod-01.westeurope.logic.azure.com:443/workflows/0123abcd/triggers/manual/paths/invoke"
            "?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=abc-DEF"
        },
        url="https://prod-01.westeurope.logic.azure.com:443/workflows/0123abcd/triggers/manual/paths/invoke",
    ),
    "telegram": Service(
        values={"token": "123456789:AAabc-DEF_ghi", "chat": "-1001234567890"},
        url="https://api.telegram.org/bot123456789:AAabc-DEF_ghi/sendMessage",
        path=("text",),
    ),
    "dingtalk": Service(
        values={"url": "https://oapi.dingtalk.com/robot/send?access_token=abc123", "secret": "SECdef456"},
        url="https://oapi.dingtalk.com/robot/send?access_token=abc123",
    ),
    "feishu": Service(
        values={"url": "https://open.feishu.cn/open-apis/bot/v2/hook/0123-abc"},
        url="https://open.feishu.cn/open-apis/bot/v2/hook/0123-abc",
        path=("content", "text"),
    ),
    "wecom": Service(
        values={"url": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=0123-abc"},
        url="https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=0123-abc",
        path=("text", "content"),
    ),
    "ntfy": Service(
        values={"topic": "my-topic", "server": "https://ntfy.example.org:8443", "token": "tk_abc"},
        url="https://ntfy.example.org:8443",
        path=("message",),
    ),
    "apprise": Service(values={"url": "jsons://hooks.example.org/x"}, url="https://hooks.example.org/x"),
}
KINDS = {kind.kind: kind for kind in channels.kinds() if isinstance(kind, AppriseChannel)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[requests.PreparedRequest]:
    """What would have gone out; every service is content."""
    found: list[requests.PreparedRequest] = []

    def answer(_self: HTTPAdapter, request: requests.PreparedRequest, **_: Any) -> requests.Response:
        found.append(request)
        response = requests.Response()
        response.status_code = 200
        is_slack = str(request.url).startswith("https://hooks.slack.com/")
        response._content = b"ok" if is_slack else b'{"ok": true, "errcode": 0, "code": 0}'
        response.request, response.url = request, str(request.url)
        return response

    monkeypatch.setattr(HTTPAdapter, "send", answer)
    monkeypatch.setattr("time.sleep", lambda _s: None)
    return found


def filled(kind: str) -> dict[str, str]:
    return {field.name: "" for field in KINDS[kind].fields} | dict(SERVICES[kind].values)


def ask(kind: str, message: Message) -> bool:
    """As the process does, but in this one."""
    values = filled(kind)
    assert check(KINDS[kind], values) == {}
    sender = apprise.Apprise(
        asset=apprise.AppriseAsset(async_mode=False, storage_mode=apprise.PersistentStoreMode.MEMORY)
    )
    assert sender.add(KINDS[kind].address(values))
    return bool(
        sender.notify(
            title=quiet(message.title),
            body=quiet(message.text),
            notify_type="failure",
            body_format=apprise.NotifyFormat.TEXT,
        )
    )


def test_every_kind_is_tried_here() -> None:
    """A new kind through Apprise needs a line in the table above."""
    assert set(SERVICES) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_service_is_asked_as_it_documents(kind: str, asked: list[requests.PreparedRequest]) -> None:
    """One POST to the service's own address, whose JSON holds title and sentence."""
    assert ask(kind, MESSAGE)
    (request,) = asked
    assert request.method == "POST"
    assert unquote(str(request.url)).rstrip("/").startswith(SERVICES[kind].url)
    body = request.body.decode() if isinstance(request.body, bytes) else str(request.body)
    content = json.loads(body)
    for step in SERVICES[kind].path:
        content = content[step]
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    text = text.replace("\\", "")  # Teams' Markdown
    assert "NaN/Inf rate 4.1%" in text
    assert "1% for 200 steps" in text
    assert "r=900-1500" in text
    if kind == "ntfy":
        assert request.headers["Authorization"] == "Bearer tk_abc"
        assert json.loads(body)["topic"] == "my-topic"
    if kind == "dingtalk":
        assert "sign=" in str(request.url)


def test_lark_is_told_from_feishu(asked: list[requests.PreparedRequest]) -> None:
    """The same bot of the international service has another host."""
    values = {"url": "https://open.larksuite.com/open-apis/bot/v2/hook/0123-abc"}
    assert check(KINDS["feishu"], values) == {}
    assert KINDS["feishu"].address(values) == "lark://0123-abc"


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_call_nobody(kind: str, name: str, asked: list[requests.PreparedRequest]) -> None:
    """Any name is taken, in one request, to the same address, mentions nobody and hides no link behind words."""
    assert ask(kind, Message(notices=[notice(name=name, rule_name=name, text=name)]))
    (request,) = asked
    assert unquote(str(request.url)).rstrip("/").startswith(SERVICES[kind].url)
    body = request.body.decode() if isinstance(request.body, bytes) else str(request.body)
    text = json.dumps(json.loads(body), ensure_ascii=False)
    for markup in ("@everyone", "@here", "<!channel>", "<@U123>", "](https://evil", "<https://evil", "<script"):
        assert markup not in text


# ---- the process ------------------------------------------------------------------------------


def send(url: str, reach: Reach = HERE, message: Message = MESSAGE) -> Outcome:
    return KINDS["apprise"].send({"url": url}, message, reach)


@pytest.fixture(scope="module")
def receiver() -> Any:
    with http_receiver() as made:
        yield made


def test_a_message_goes_out_and_comes_in(receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the process of its own a real receiver gets the message, and no proxy is asked."""
    receiver.requests.clear()
    with http_receiver() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        outcome = KINDS["ntfy"].send(
            {"topic": "t1", "server": f"http://127.0.0.1:{receiver.port}", "token": "tk_1"}, MESSAGE, HERE
        )
        assert proxy.requests == []
    assert outcome.ok, outcome.text
    (request,) = receiver.requests
    content = json.loads(request.body)
    assert (content["topic"], content["title"]) == ("t1", MESSAGE.title)
    assert content["message"].splitlines() == MESSAGE.text.splitlines()


@pytest.mark.parametrize(
    ("answer", "may_retry", "words"),
    [
        ((503, {"Retry-After": "7"}), True, "answered 503"),
        ((302, {"Location": "http://127.0.0.1:PORT/elsewhere"}), False, "redirects are not followed"),
    ],
)
def test_answers_are_understood_and_redirects_not_followed(
    receiver: HttpReceiver, answer: tuple[int, Mapping[str, str]], may_retry: bool, words: str
) -> None:
    """The status decides about trying again; a redirect is not followed although the address asks for it."""
    receiver.requests.clear()
    headers = {name: value.replace("PORT", str(receiver.port)) for name, value in answer[1].items()}
    receiver.answers = [(answer[0], headers)]
    outcome = send(f"json://127.0.0.1:{receiver.port}/hook?redirect=yes")
    assert (outcome.ok, outcome.may_retry) == (False, may_retry)
    assert words in outcome.text
    assert len(receiver.requests) == 1
    assert outcome.retry_after_s == (7.0 if answer[0] == 503 else None)


@pytest.mark.parametrize("url", ["json://2130706433:PORT/hook", "rsyslog://127.0.0.1:PORT"])
def test_the_guard_holds_for_whatever_apprise_opens(url: str, receiver: HttpReceiver) -> None:
    """A loopback address is refused for good, in any spelling, over requests or a bare socket."""
    receiver.requests.clear()
    outcome = send(url.replace("PORT", str(receiver.port)), Reach())
    assert (outcome.ok, outcome.may_retry) == (False, False)
    assert "private or reserved network" in outcome.text or "did not look up" in outcome.text
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("url", "words"), [("nosuch://hunter2-token", "cannot read"), ("opsgenie://hunter2-token", "was not asked")]
)
def test_what_was_not_sent_is_not_called_sent(url: str, words: str) -> None:
    """An address that means nothing, and a service that leaves out a mere notice, are failures for good; the text does
    not hold the address."""
    outcome = send(url, message=Message(notices=[notice(severity="info")]))
    assert (outcome.ok, outcome.may_retry) == (False, False)
    assert words in outcome.text
    assert "hunter2" not in outcome.text


def test_a_receiver_that_never_answers_ends_with_its_process() -> None:
    """Whoever trickles for ever is left when the time is over, and so is the process."""
    is_left = threading.Event()

    def trickle(connection: socket.socket) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not is_left.wait(0.05):
                connection.sendall(b"X")
        except OSError:
            is_left.set()

    with talker(trickle) as port:
        outcome = send(f"json://127.0.0.1:{port}/", Reach(policy=HERE.policy, send_s=0.5))
        assert is_left.wait(10), "the process is still connected"
    assert (outcome.ok, outcome.may_retry, outcome.text) == (False, True, "no answer within 0.5 s")
