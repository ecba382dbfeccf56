"""What holds for every kind of channel that is found, and what is common to them."""

from __future__ import annotations

import pytest
from halfscope_server.alerts import channels
from halfscope_server.alerts.channels.base import Channel, scrub
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message
from halfscope_server.store.types import ChannelRow

from tests.helpers.notices import notice

KINDS = channels.kinds()


def row(kind: str, options: dict[str, str], secrets: dict[str, str]) -> ChannelRow:
    return ChannelRow(
        channel_id="c1",
        kind=kind,
        name="mine",
        enabled=True,
        options=options,
        secrets=secrets,
        created_us=0,
        updated_us=0,
    )


def test_the_kinds_are_found() -> None:
    """Scanning the folder finds the kinds that people ask for, each once."""
    kinds = [kind.kind for kind in KINDS]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) >= {
        *("webhook", "email", "slack", "discord", "teams", "telegram", "dingtalk", "feishu", "wecom", "pagerduty"),
        *("ntfy", "apprise"),
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_kind_describes_itself(kind: Channel) -> None:
    """Title, sentence, fields with a title; something is required, and addresses with tokens are secrets."""
    assert kind.title
    assert kind.text.endswith(".")
    names = [field.name for field in kind.fields]
    assert len(names) == len(set(names))
    assert all(field.title and (field.text or field.placeholder) for field in kind.fields)
    assert any(field.required for field in kind.fields)
    assert all(field.secret for field in kind.fields if field.name in ("url", "token", "secret", "password", "key"))
    assert kind.per_minute > 0
    assert kind.max_notices >= 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("value", ["x\r\ny\x00", "\ud800", "'\"<>{}", "a" * 3000, "http://127.0.0.1/hunter2"])
def test_nonsense_is_refused_by_field_and_not_repeated(kind: Channel, value: str) -> None:
    """Any value in any required field is taken or refused in words, never with an exception."""
    options = {field.name: value for field in kind.fields if not field.secret}
    secrets = {field.name: value for field in kind.fields if field.secret}
    found = channels.problems(kind.kind, options, secrets)
    assert set(found) <= {field.name for field in kind.fields}
    assert "hunter2" not in str(found)
    if "\n" in value or len(value) > 2000:
        assert found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_what_is_required_is_asked_for(kind: Channel) -> None:
    """An empty form names every required field."""
    required = {field.name for field in kind.fields if field.required}
    assert set(channels.problems(kind.kind, {}, {})) == required


def test_secrets_among_the_options_are_a_problem() -> None:
    """A secret that would be shown, and an option that would be hidden, are refused."""
    found = channels.problems("webhook", {"url": "https://example.org/"}, {})
    assert found == {"url": "this is a secret and belongs with the secrets"}
    found = channels.problems("telegram", {}, {"token": "1:a", "chat": "5"})
    assert found == {"chat": "this is no secret and belongs with the options"}


def test_a_kind_that_is_not_there_is_said() -> None:
    """An unknown kind is a problem when kept, and a failure for good when sent to."""
    assert "no kind of channel 'pigeon'" in channels.problems("pigeon", {}, {})["kind"]
    outcome = channels.send(row("pigeon", {}, {}), Message(notices=[notice()]), Reach())
    assert (outcome.ok, outcome.may_retry) == (False, False)


def test_a_stored_channel_that_is_not_good_any_more_is_not_sent_to() -> None:
    """What an older server kept is checked before every use."""
    outcome = channels.send(row("webhook", {}, {"url": "ftp://example.org/"}), Message(notices=[notice()]), Reach())
    assert (outcome.ok, outcome.may_retry) == (False, False)
    assert "no web address" in outcome.text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("no hook s3cr3tpath at example", "https://example.org/hooks/s3cr3tpath"),
        ("bad key=abcd1234", "https://example.org/?key=abcd1234&x=1"),
        ("535 AUTH hunter2-pass refused", "hunter2-pass"),
        ("token tk_live_99\nline", "tk_live_99"),
        ("asked for abcd1234 there", "tgram://abcd1234/-100"),
    ],
)
def test_error_texts_hold_no_secret(text: str, secret: str) -> None:
    """Secrets, and the parts of addresses that are some, are taken out of what a receiver said."""
    cleaned = scrub(text, [secret])
    assert "…" in cleaned
    assert "\n" not in cleaned
    assert scrub("example.org answered 404", ["https://example.org/hooks/s3cr3tpath"]) == "example.org answered 404"
    for part in ("s3cr3tpath", "abcd1234", "hunter2-pass", "tk_live_99"):
        assert part not in cleaned


@pytest.mark.parametrize(
    ("kind", "options", "secrets"),
    [
        ("webhook", {}, {"url": "http://127.0.0.1:9/"}),
        ("email", {"to": "a@b.org", "from": "a@b.org", "host": "127.0.0.1", "security": "none"}, {}),
    ],
)
def test_no_channel_reaches_what_is_private(kind: str, options: dict[str, str], secrets: dict[str, str]) -> None:
    """A channel whose host can be chosen refuses loopback for good; those through Apprise are tried beside this."""
    assert channels.problems(kind, options, secrets) == {}
    outcome = channels.send(row(kind, options, secrets), Message(notices=[notice()]), Reach())
    assert (outcome.ok, outcome.may_retry) == (False, False)
    assert "private or reserved" in outcome.text


@pytest.mark.parametrize(
    ("before", "options", "given", "asked"),
    [
        # A password must not follow to another mail server.
        ("email", {"host": "evil.test", "user": "me"}, {}, {"password"}),
        ("email", {"host": "mail.test", "user": "me", "security": "none"}, {}, {"password"}),
        ("email", {"host": "mail.test", "user": "me", "port": "2525"}, {}, {"password"}),
        ("email", {"host": "evil.test", "user": "me"}, {"password": "hunter3"}, set()),
        ("email", {"host": "mail.test", "user": "you", "to": "c@example.org"}, {}, set()),
        # Nor a key or an Authorization to another receiver.
        ("webhook", {}, {"url": "https://evil.test/"}, {"secret", "authorization"}),
        ("webhook", {}, {"url": "https://evil.test/", "secret": "another-secret-16"}, {"authorization"}),
        ("webhook", {}, {"url": "https://example.org/"}, set()),
        ("webhook", {}, {"authorization": "Bearer 2"}, set()),
        ("ntfy", {"server": "https://evil.test"}, {}, {"topic", "token"}),
        ("ntfy", {"server": "https://ntfy.test"}, {"topic": "other"}, set()),
        ("pigeon", {}, {}, set()),
    ],
)
def test_secrets_do_not_follow_to_another_server(
    before: str, options: dict[str, str], given: dict[str, str], asked: set[str]
) -> None:
    """Where a change says another server, the secrets that would be sent there are asked for again."""
    kept = {
        "email": ({"host": "mail.test", "user": "me"}, {"password": "hunter2"}),
        "webhook": ({}, {"url": "https://example.org/", "secret": "0123456789abcdef", "authorization": "Bearer 1"}),
        "ntfy": ({"server": "https://ntfy.test"}, {"topic": "t", "token": "tk_1"}),
        "pigeon": ({}, {"seed": "x"}),
    }[before]
    assert set(channels.asked_again(row(before, *kept), options, given)) == asked
