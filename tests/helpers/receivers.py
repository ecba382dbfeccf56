"""Receivers of notifications on loopback that do as a test says: HTTP, SMTP, and one that trickles.

Must not import the server. Invariant: what they were given is kept in the order in which it came.
"""

from __future__ import annotations

import email.policy
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a receiver was asked."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True)
class HttpReceiver:
    """Answers POSTs."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    answers: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    """(status, headers) of the next answers, first come; 200 when they are used up."""
    hold: threading.Event | None = None
    """Answers wait for it."""
    names: list[str | None] = field(default_factory=list)
    """Names that were asked for in TLS."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    context: ssl.SSLContext | None = None

    def handle_error(self, *_: Any) -> None:
        """Whoever hangs up in the middle is no failure of the test."""

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.context is None:
            return super().finish_request(request, client_address)
        with self.context.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)


@contextmanager
def serving(handler: type[socketserver.BaseRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server on loopback; gives its port."""
    with _Server(("127.0.0.1", 0), handler) as server:
        server.context = context
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@contextmanager
def http_receiver(context: ssl.SSLContext | None = None) -> Iterator[HttpReceiver]:
    """A receiver of POSTs."""
    receiver = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            receiver.requests.append(Request(path=self.path, headers=dict(self.headers), body=body))
            status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
            if receiver.hold is not None:
                receiver.hold.wait(20)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    if context is not None:
        context.sni_callback = lambda _socket, name, _context: receiver.names.append(name)
    with serving(Handler, context) as port:
        receiver.port = port
        yield receiver


@contextmanager
def talker(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does with each connection what it is told; gives its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            talk(self.request)

    with serving(Handler) as port:
        yield port


@dataclass(slots=True, kw_only=True)
class MailServer:
    """Takes letters."""

    port: int = 0
    letters: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    commands: list[tuple[str, bool]] = field(default_factory=list)
    """(line, whether it came over TLS)."""
    replies: dict[str, list[str]] = field(default_factory=dict)
    """For a command's first word, the next replies instead of the usual one."""


@contextmanager
def mail_server(context: ssl.SSLContext | None = None, *, tls_at_once: bool = False) -> Iterator[MailServer]:
    """An SMTP server; with a context it offers STARTTLS, or speaks TLS from the first byte."""
    server = MailServer()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            connection, is_tls = self.request, tls_at_once
            stream = connection.makefile("rwb")

            def say(*lines: str) -> None:
                stream.write("".join(f"{line}\r\n" for line in lines).encode())
                stream.flush()

            say("220 mail.test")
            sender, recipients = "", []
            while line := stream.readline().decode("utf-8", "replace").rstrip("\r\n"):
                word = line.split(" ", 1)[0].upper()
                server.commands.append((line, is_tls))
                if server.replies.get(word):
                    say(server.replies[word].pop(0))
                elif word == "EHLO":
                    offers = ["250-AUTH PLAIN"] if is_tls else ["250-STARTTLS"] if context else []
                    say("250-mail.test", *offers, "250 8BITMIME")
                elif word == "STARTTLS":
                    say("220 go on")
                    assert context is not None
                    connection = context.wrap_socket(connection, server_side=True)
                    stream, is_tls = connection.makefile("rwb"), True
                elif word == "AUTH":
                    say("235 welcome")
                elif word == "MAIL":
                    sender = line.partition("<")[2].partition(">")[0]
                    say("250 ok")
                elif word == "RCPT":
                    recipients.append(line.partition("<")[2].partition(">")[0])
                    say("250 ok")
                elif word == "DATA":
                    say("354 go on")
                    letter = b""
                    while (piece := stream.readline()) not in (b".\r\n", b""):
                        letter += piece.removeprefix(b".") if piece.startswith(b"..") else piece
                    server.raw.append(letter)
                    parser = BytesParser(EmailMessage, policy=email.policy.default)
                    server.letters.append(parser.parsebytes(letter))  # type: ignore[arg-type]
                    server.envelopes.append((sender, recipients))
                    say("250 taken")
                elif word == "QUIT":
                    say("221 bye")
                    break
                else:
                    say("250 ok")
            stream.close()
            if connection is not self.request:
                connection.close()

    with serving(Handler, context if tls_at_once else None) as port:
        server.port = port
        yield server
