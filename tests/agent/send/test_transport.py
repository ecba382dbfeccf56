"""Connections: proxies, certificate authorities, redirects. Shipping over them is in test_ship.py."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from halfscope.send import transport
from halfscope.send.endpoint import Endpoint
from halfscope.send.transport import (
    HttpTransport,
    TransportError,
    UnauthorizedError,
    WebsocketTransport,
    open_transport,
)
from halfscope.wire.messages import Hello, StreamInfo, Welcome

HELLO = Hello("run1", "ab", StreamInfo())


def test_nobody_there_is_an_error_and_not_a_reason_to_try_http() -> None:
    """The message is the system's own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(TransportError, match=r"[Rr]efused"):
        open_transport(Endpoint(url=f"http://127.0.0.1:{port}"))


def test_a_server_without_websockets_is_asked_by_post(start_server: Callable[..., Any]) -> None:
    """Found out while connecting."""
    connection = open_transport(Endpoint(url=start_server(websockets=False).url))
    assert isinstance(connection, HttpTransport)
    connection.send([HELLO])
    (welcome,) = connection.receive(0.0)
    assert isinstance(welcome, Welcome)
    assert connection.receive(0.0) == []


@pytest.mark.parametrize("websockets", [True, False])
def test_a_wrong_token_is_an_error_of_its_own(start_server: Callable[..., Any], websockets: bool) -> None:
    """So that the user can be told what to do."""
    server = start_server(websockets=websockets, token="right")
    with pytest.raises(UnauthorizedError, match="401"):
        open_transport(Endpoint(url=server.url, token="wrong"))


class _Recording(ThreadingHTTPServer):
    """Answers everything alike, and keeps what it was asked."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        recording = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                recording.requests.append((self.command, self.path, dict(self.headers)))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            do_GET = do_POST = do_CONNECT = answer

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


def test_a_redirect_is_not_followed() -> None:
    """Neither by websocket nor by POST: it would show the token, and the measurements, to somebody nobody named."""
    other = _Recording(200, {})
    first = _Recording(307, {"Location": f"{other.url}/elsewhere"})
    try:
        with pytest.raises(TransportError, match="307"):
            open_transport(Endpoint(url=first.url, token="secret"))
        assert {method for method, _, _ in first.requests} == {"GET", "POST"}
        assert other.requests == []
    finally:
        first.stop()
        other.stop()


def test_a_proxy_is_used_for_others_and_never_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, start_server: Callable[..., Any]
) -> None:
    """Variables as other tools read them; a local server is reached directly even where nobody set no_proxy."""
    proxy = _Recording(503, {})
    try:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        WebsocketTransport(Endpoint(url=start_server().url), 5.0).close()
        assert proxy.requests == []
        with pytest.raises(TransportError):
            open_transport(Endpoint(url="http://halfscope.invalid", token="secret"))
        assert ("CONNECT", "halfscope.invalid:80") in [request[:2] for request in proxy.requests]
        assert not any("secret" in str(headers) for method, _, headers in proxy.requests if method == "CONNECT")
    finally:
        proxy.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that nobody trusts, with its key in one file."""
    path = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(path / "key.pem"), "-out", str(path / "certificate.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    both = path / "both.pem"
    both.write_bytes((path / "key.pem").read_bytes() + (path / "certificate.pem").read_bytes())
    return both


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_private_certificate_authority_is_taken_from_the_environment(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Without it the server is not trusted; with it, it is, for POST as for websockets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = _Recording(200, {})
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = f"https://localhost:{server.server_address[1]}"
    try:
        with pytest.raises(TransportError, match="certificate verify failed"):
            open_transport(Endpoint(url=url))
        monkeypatch.setenv(variable, str(certificate))
        assert isinstance(open_transport(Endpoint(url=url)), HttpTransport)
    finally:
        server.stop()


def test_posts_are_of_bounded_size(start_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Many frames become several requests, and all answers come back in order."""
    monkeypatch.setattr(transport, "MAX_POST_BYTES", 200)
    connection = HttpTransport(Endpoint(url=start_server(websockets=False).url))
    connection.send([Hello("run1", f"{number:02x}", StreamInfo()) for number in range(10)])
    welcomed = [answer.stream for answer in connection.receive(0.0) if isinstance(answer, Welcome)]
    assert welcomed == [f"{number:02x}" for number in range(10)]
