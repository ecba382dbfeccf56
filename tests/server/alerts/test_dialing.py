"""Connections go where the guard looked, in time, and with the right name in TLS."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from halfscope_server.alerts.addresses import Policy, Refused
from halfscope_server.alerts.dialing import Reach, explain
from halfscope_server.alerts.posting import Outcome, place_of, post

from tests.helpers.receivers import http_receiver, talker
from tests.helpers.tls import client_context, server_context

HERE = Policy(allow_private=True)


class Names:
    """A resolver whose answers a test decides; each is given once, the last one for ever."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        self.asked.append(host)
        address = self.addresses.pop(0) if len(self.addresses) > 1 else self.addresses[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))]


def posted(url: str, reach: Reach) -> Outcome:
    return post(place_of(url), b"{}", {}, reach)


def test_a_name_is_asked_once_and_the_checked_address_is_connected_to() -> None:
    """A name that answers with another address the second time gains nothing; Host is the name."""
    with http_receiver() as receiver:
        names = Names("127.0.0.1", "169.254.169.254")
        outcome = posted(f"http://receiver.test:{receiver.port}/x?y=1", Reach(policy=HERE, look_up=names))
    assert outcome.ok
    assert names.asked == ["receiver.test"]
    assert receiver.requests[0].headers["Host"] == f"receiver.test:{receiver.port}"
    assert receiver.requests[0].path == "/x?y=1"


def test_a_name_that_leads_inside_is_refused_before_anything_is_sent() -> None:
    """A public-looking name with a loopback address is refused for good, and nobody is connected to."""
    with http_receiver() as receiver:
        outcome = posted(f"http://hooks.test:{receiver.port}/", Reach(look_up=Names("127.0.0.1")))
        assert receiver.requests == []
    assert (outcome.ok, outcome.may_retry) == (False, False)
    assert "hooks.test is 127.0.0.1" in outcome.text


def test_tls_asks_for_the_name_and_checks_it(tmp_path: Path) -> None:
    """The name goes into SNI and is compared with the certificate, though an address is connected to."""
    with http_receiver(server_context(tmp_path)) as receiver:
        reach = Reach(policy=HERE, look_up=Names("127.0.0.1"), tls=client_context())
        good = posted(f"https://receiver.test:{receiver.port}/", reach)
        bad = posted(f"https://other.test:{receiver.port}/", reach)
        unknown = posted(f"https://receiver.test:{receiver.port}/", Reach(policy=HERE, look_up=Names("127.0.0.1")))
    assert good.ok
    assert len(receiver.requests) == 1
    assert receiver.names == ["receiver.test", "other.test", "receiver.test"]
    assert (bad.ok, unknown.ok) == (False, False)
    assert "certificate of other.test is not good" in bad.text
    assert "certificate of receiver.test is not good" in unknown.text


@pytest.mark.parametrize("piece", [b"", b"H", b"HTTP/1.1 200 OK\r\nX: "], ids=["silent", "trickling", "endless header"])
def test_who_is_slow_is_left_at_the_deadline(piece: bytes) -> None:
    """A receiver that says nothing, or little by little, costs no more than the time for one message."""
    leave = threading.Event()

    def trickle(connection: socket.socket) -> None:
        try:
            connection.sendall(piece)
            while not leave.wait(0.02):
                connection.sendall(piece[-1:])
        except OSError:
            return

    with talker(trickle) as port:
        begun_s = time.monotonic()
        outcome = posted(f"http://127.0.0.1:{port}/", Reach(policy=HERE, send_s=0.3))
        took_s = time.monotonic() - begun_s
        leave.set()
    assert (outcome.ok, outcome.may_retry) == (False, True)
    assert "did not answer in time" in outcome.text
    assert took_s < 5


def test_an_answer_without_end_is_not_read() -> None:
    """Of an answer only the head is read, however much follows."""
    sent_bytes = 0

    def pour(connection: socket.socket) -> None:
        nonlocal sent_bytes
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
            while True:
                sent_bytes += connection.send(b"x" * 65536)
        except OSError:
            return

    with talker(pour) as port:
        assert posted(f"http://127.0.0.1:{port}/", Reach(policy=HERE, send_s=10)).ok
    assert sent_bytes < 64 << 20


@pytest.mark.parametrize(
    "head",
    [
        b"\x00\xff\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    ],
)
def test_what_is_no_http_is_said(head: bytes) -> None:
    """Something else that listens there is a failure in words, not an exception, and its words are not repeated."""
    with talker(lambda connection: connection.sendall(head)) as port:
        outcome = posted(f"http://127.0.0.1:{port}/", Reach(policy=HERE, send_s=5))
    assert not outcome.ok
    assert "SSH" not in outcome.text


def test_a_connection_is_closed_when_its_user_fails() -> None:
    """Whatever happens in the block, the socket does not stay open."""
    with http_receiver() as receiver:
        with (
            pytest.raises(http.client.HTTPException),
            Reach(policy=HERE).connection("127.0.0.1", receiver.port, tls=False) as opened,
        ):
            raise http.client.HTTPException
        assert opened.fileno() == -1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Refused("not there"), "not there"),
        (socket.gaierror(-2, "Name or service not known"), "the name h.test is not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong"), "no TLS with h.test"),
        (TimeoutError(), "did not answer in time"),
        (ConnectionRefusedError(111, "x"), "nothing listens there"),
        (OSError(113, "No route to host"), "No route to host"),
        (EOFError(), "broke: EOFError"),
    ],
)
def test_failures_are_told_in_words(error: BaseException, words: str) -> None:
    """Each way to fail has words that name the host."""
    assert words in explain(error, "h.test")
