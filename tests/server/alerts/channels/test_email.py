"""Letters over a real SMTP server on loopback: content, security, refusals."""

from __future__ import annotations

import base64
import re
import socket
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from halfscope_server.alerts.channels.base import check
from halfscope_server.alerts.channels.email import CHANNEL
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.notification import Message
from halfscope_server.alerts.posting import Outcome

from tests.helpers.notices import HOSTILE, notice
from tests.helpers.receivers import MailServer, mail_server, talker
from tests.helpers.tls import client_context, server_context


def here(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
    """Every name is this machine."""
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]


REACH = Reach(policy=Reach.allowed(private=True, networks=()).policy, look_up=here, tls=client_context(), send_s=5)
MESSAGE = Message(notices=[notice()])


def values(server: MailServer, **given: str) -> dict[str, str]:
    plain = {"to": "a@example.org, b@example.org", "from": "scope@example.org", "host": "mail.test", "security": "none"}
    return {**plain, "port": str(server.port), "user": "", "password": "", **given}


def send(server: MailServer, message: Message = MESSAGE, **given: str) -> Outcome:
    filled = values(server, **given)
    assert check(CHANNEL, filled) == {}
    return CHANNEL.send(filled, message, REACH)


def test_a_letter_arrives_whole() -> None:
    """All recipients get one letter with subject, plain text and the same as HTML."""
    with mail_server() as server:
        outcome = send(server)
    assert (outcome.ok, outcome.text) == (True, "mail.test took it for 2 addresses")
    assert server.envelopes == [("scope@example.org", ["a@example.org", "b@example.org"])]
    (letter,) = server.letters
    assert letter["Subject"] == "[halfscope] critical: NaN/Inf caught · fp16-digits"
    assert letter["Message-ID"] == f"<{MESSAGE.id}@halfscope.example.org>"
    plain, as_html = letter.get_body(("plain",)), letter.get_body(("html",))
    assert plain is not None
    assert as_html is not None
    assert plain.get_content().strip().splitlines() == MESSAGE.text.splitlines()
    assert '<a href="https://scope.test/runs/run1?r=900-1500&amp;alert=e1">' in as_html.get_content()


def test_a_password_goes_over_starttls_only(tmp_path: Path) -> None:
    """After STARTTLS, with the certificate of the name that was asked for, user and password are given."""
    with mail_server(server_context(tmp_path)) as server:
        assert send(server, security="starttls", user="me", password="hunter2-pass").ok
    (given,) = [(line, is_tls) for line, is_tls in server.commands if line.startswith("AUTH")]
    assert given[1]
    assert base64.b64decode(given[0].rsplit(" ", 1)[1]) == b"\0me\0hunter2-pass"
    assert len(server.letters) == 1


def test_tls_from_the_first_byte(tmp_path: Path) -> None:
    """With `tls` there is no word in the open."""
    with mail_server(server_context(tmp_path), tls_at_once=True) as server:
        assert send(server, security="tls", user="me", password="hunter2-pass").ok
    assert all(is_tls for _line, is_tls in server.commands)


def test_a_server_without_starttls_gets_no_letter() -> None:
    """Somebody who takes STARTTLS out of the conversation gets neither password nor letter."""
    with mail_server() as server:
        outcome = send(server, security="starttls", user="me", password="hunter2-pass")
    assert (outcome.ok, outcome.may_retry) == (False, False)
    assert "offers no TLS" in outcome.text
    assert not [line for line, _ in server.commands if line.startswith(("AUTH", "MAIL"))]


def test_a_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    """STARTTLS checks the name."""
    with mail_server(server_context(tmp_path)) as server:
        outcome = send(server, security="starttls", host="other.test")
    assert not outcome.ok
    assert "certificate of other.test is not good" in outcome.text
    assert server.letters == []


@pytest.mark.parametrize(
    ("replies", "may_retry", "words"),
    [
        ({"EHLO": ["421 busy"], "HELO": ["421 busy"]}, True, "421"),
        ({"MAIL": ["451 later"]}, True, "refuses the letter (451 later)"),
        ({"MAIL": ["550 relaying denied"]}, False, "refuses the letter (550 relaying denied)"),
        ({"RCPT": ["550 nobody", "550 nobody"]}, False, "refuses every recipient (550 nobody)"),
        ({"RCPT": ["550 nobody", "450 greylisted"]}, True, "refuses every recipient (450 greylisted)"),
        ({"DATA": ["552 too big"]}, False, "refuses the letter (552 too big)"),
    ],
)
def test_refusals_say_what_and_whether_to_try_again(replies: dict[str, list[str]], may_retry: bool, words: str) -> None:
    """4xx passes, 5xx does not (RFC 5321), and the server's words are told."""
    with mail_server() as server:
        server.replies = {word: list(lines) for word, lines in replies.items()}
        outcome = send(server)
    assert (outcome.ok, outcome.may_retry) == (False, may_retry)
    assert words in outcome.text


def test_a_wrong_password_is_for_good_and_not_told(tmp_path: Path) -> None:
    """A refused sign-in is not tried again, and says nothing of the password."""
    with mail_server(server_context(tmp_path)) as server:
        server.replies = {"AUTH": ["535 no: hunter2-pass", "535 no: hunter2-pass"]}
        outcome = send(server, security="starttls", user="me", password="hunter2-pass")
    assert (outcome.ok, outcome.may_retry) == (False, False)
    assert "hunter2" not in outcome.text


def test_one_bad_recipient_does_not_stop_the_others() -> None:
    """The letter goes to those who were taken, and the outcome names who was not."""
    with mail_server() as server:
        server.replies = {"RCPT": ["550 nobody"]}
        outcome = send(server)
    assert (outcome.ok, outcome.text) == (True, "mail.test took it, but not for a@example.org")
    assert server.envelopes == [("scope@example.org", ["b@example.org"])]


@pytest.mark.parametrize("greeting", [b"554 go away\r\n", b"SSH-2.0\r\n", b"", b"220 hi\r\n"])
def test_who_speaks_no_smtp_is_no_exception(greeting: bytes) -> None:
    """Something else on that port, or a server that hangs up, is a failure in words."""
    with talker(lambda connection: connection.sendall(greeting)) as port:
        outcome = CHANNEL.send(values(MailServer(port=port)), MESSAGE, REACH)
    assert not outcome.ok
    assert "mail.test" in outcome.text


class Tags(HTMLParser):
    """The tags of a text, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_make_neither_headers_nor_tags(name: str) -> None:
    """Whatever a run, rule or layer is called: same headers, same recipients, same tags and links."""
    about = notice(name=name, rule_name=name, layer=name, text=name)
    with mail_server() as server:
        assert send(server, Message(notices=[about])).ok
    (letter,) = server.letters
    assert set(letter.keys()) == {
        *("Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type"),
    }
    assert server.envelopes[0][1] == ["a@example.org", "b@example.org"]
    as_html = letter.get_body(("html",))
    assert as_html is not None
    tags = Tags(as_html.get_content()).found
    assert {tag for tag, _ in tags} <= {"html", "body", "p", "br", "a"}
    links = [value for _, attributes in tags for key, value in attributes if key == "href"]
    assert len(links) == 1
    assert str(links[0]).startswith("https://scope.test/runs/run1/layers?")
    assert not [line for line in server.raw[0].split(b"\r\n") if len(line) > 998]


@pytest.mark.parametrize("name", ["http://evil.test/", "Runbook: https://evil.test/x"])
def test_a_name_that_is_an_address_is_no_link_in_disguise(name: str) -> None:
    """A link shows where it leads: its text is its address."""
    with mail_server() as server:
        assert send(server, Message(notices=[notice(text=name)])).ok
    as_html = server.letters[0].get_body(("html",))
    assert as_html is not None
    for address, shown in re.findall(r'<a href="([^"]*)">([^<]*)</a>', as_html.get_content()):
        assert address == shown


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"to": ""}, "to"),
        ({"to": "a@example.org\r\nRCPT TO:<x@y.z>"}, "to"),
        ({"to": "a@example.org>\nx"}, "to"),
        ({"to": "nobody"}, "to"),
        ({"from": "Me <me@example.org>"}, "from"),
        ({"host": "mail.test/path"}, "host"),
        ({"host": "user:pw@mail.test"}, "host"),
        ({"port": "70000"}, "port"),
        ({"port": "-1"}, "port"),
        ({"security": "ssl"}, "security"),
        ({"user": "me"}, "password"),
        ({"password": "hunter2-pass"}, "user"),
        ({"user": "me", "password": "hunter2-pass"}, "security"),
        ({"user": "me\r\nRSET", "password": "hunter2-pass"}, "user"),
        ({"nonsense": "x"}, "nonsense"),
    ],
)
def test_what_cannot_be_used_is_said_by_field(given: dict[str, str], field: str) -> None:
    """A value that is wrong, or goes with none of the others, is named, and not repeated."""
    found = check(CHANNEL, values(MailServer(port=25), **given))
    assert set(found) == {field}
    assert "hunter2" not in str(found)
