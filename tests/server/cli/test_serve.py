"""`halfscope serve` and `open`, as processes on real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from halfscope.wire.codec import MAX_FRAME_BYTES
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect


def _get(url: str, token: str = "") -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def _post(url: str, token: str) -> Any:
    request = urllib.request.Request(url, data=b"", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def test_server_says_where_it_is_and_gives_one_link_that_works(server: Any) -> None:
    """The printed code trades for a session, once."""
    link = next(
        match for line in server.lines if (match := re.search(r"(http://127\.0\.0\.1:\d+)/#code=([\w-]+)", line))
    )
    assert link[1] == server.url
    body = json.dumps({"code": link[2]}).encode()
    request = urllib.request.Request(
        f"{server.url}/api/v1/session", data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert "HttpOnly" in response.headers["Set-Cookie"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    refused.value.close()
    assert refused.value.code == 401


def test_health_answers_anybody_and_runs_only_the_token(server: Any) -> None:
    """Over a real socket, as a proxy and an agent would ask."""
    assert _get(f"{server.url}/healthz") == {"ok": True, "database": "ok", "writer": "ok"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        _get(f"{server.url}/api/v1/runs")
    refused.value.close()
    assert refused.value.code == 401
    # The server is shared: other tests may have sent it runs.
    assert set(_get(f"{server.url}/api/v1/runs", server.token)) >= {"runs", "total"}


def test_files_with_secrets_are_the_owners_alone(server: Any) -> None:
    """Token, server.json and the database."""
    for name in ("token", "server.json", "halfscope.db"):
        assert stat.S_IMODE((server.home / name).stat().st_mode) == 0o600


def test_open_prints_another_link(server: Any, run_command: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """On the same machine, without pasting anything."""
    done = run_command(server.home, "open")
    assert done.returncode == 0
    assert done.stdout.startswith(f"{server.url}/#code=")
    assert done.stderr == ""


def test_second_server_on_the_same_database_is_refused(
    server: Any, run_command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Two writers would corrupt it; the running one stays announced."""
    before = (server.home / "server.json").read_text()
    done = run_command(server.home, "serve", "--no-browser", "--port", "0")
    assert done.returncode == 1
    assert "in use by another halfscope server" in done.stderr
    assert "Traceback" not in done.stderr
    assert (server.home / "server.json").read_text() == before


def test_oversized_head_is_refused(server: Any) -> None:
    """A header of a megabyte is an attack on memory."""
    host, port = server.url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=10)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (1 << 20))
        answer = connection.recv(1000)
    assert b" 400 " in answer or b" 431 " in answer


def _socket(server: Any, path: str, **headers: str) -> ClientConnection:
    address = server.url.replace("http://", "ws://") + path
    return connect(address, additional_headers=headers, proxy=None, max_size=None, close_timeout=5)


def _sign_in(server: Any) -> str:
    """The cookie of a browser that has signed in."""
    code = _post(f"{server.url}/api/v1/session/links", server.token)["code"]
    request = urllib.request.Request(
        f"{server.url}/api/v1/session",
        data=json.dumps({"code": code}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(response.headers["Set-Cookie"]).partition(";")[0]


def test_websockets_ask_who_is_there_before_the_handshake(server: Any) -> None:
    """A stranger gets 401, a foreign page 403 also with a good cookie, our own page and an agent get in."""
    cookie = _sign_in(server)
    refused = {
        "stranger": {},
        "wrong token": {"Authorization": "Bearer wrong"},
        "cookie without a page": {"Cookie": cookie},
        "foreign page": {"Cookie": cookie, "Origin": "http://evil.example"},
        "other port": {"Cookie": cookie, "Origin": "http://127.0.0.1:3000"},
    }
    for who, headers in refused.items():
        for path in ("/api/v1/live", "/api/v1/agent"):
            with pytest.raises(InvalidStatus) as denied:
                _socket(server, path, **headers)
            expected = 403 if "Origin" in headers else 401
            assert (who, path, denied.value.response.status_code) == (who, path, expected)
            assert json.loads(denied.value.response.body)["request_id"]
    assert not any("ERROR" in line for line in server.lines)
    with _socket(server, "/api/v1/live", Cookie=cookie, Origin=server.url) as page:
        page.send('{"type": "watch_runs"}')
        assert json.loads(page.recv(timeout=10))["type"] == "runs"
    with _socket(server, "/api/v1/agent", Authorization=f"Bearer {server.token}"):
        pass


def test_frame_above_the_limit_closes_the_connection(server: Any) -> None:
    """Before it is held in memory as a whole."""
    with _socket(server, "/api/v1/live", Authorization=f"Bearer {server.token}") as viewer:
        with contextlib.suppress(ConnectionClosed):
            viewer.send("x" * (MAX_FRAME_BYTES + 1))
        with pytest.raises(ConnectionClosed) as closed:
            viewer.recv(timeout=10)
    # Where the server's word was overtaken by the end of the connection, there is no code.
    assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
    assert _get(f"{server.url}/healthz")["ok"] is True


def test_published_under_a_path(tmp_path: Path, serve: Callable[..., Any]) -> None:
    """--root-path: whether a proxy strips it or not, pages, API and links have it."""
    with serve(tmp_path, "--port", "0", "--root-path", "/hs") as server:
        assert server.url.endswith("/hs")
        assert any(f"{server.url}/#code=" in line for line in server.lines)
        bare = server.url.removesuffix("/hs")
        for base in (server.url, bare):
            assert _get(f"{base}/api/v1/runs", server.token)["total"] == 0
            with urllib.request.urlopen(f"{base}/", timeout=10) as response:
                assert b"halfscope" in response.read()
        assert _get(f"{server.url}/api/v1/server", server.token)["address"] == server.url


def test_taken_port_is_worked_around_and_sigterm_ends_cleanly(tmp_path: Path, serve: Callable[..., Any]) -> None:
    """The next free port is used and said, with who has the one asked for; after a restart the token is the same.

    Senders that wait for the server to come back must still know it.
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        port = holder.getsockname()[1]
        with serve(tmp_path, "--port", str(port)) as server:
            assert server.lines[0].startswith(f"Port {port} is taken by ")
            assert f"(pid {os.getpid()})" in server.lines[0]
            assert not server.url.endswith(f":{port}")
            token = server.token
            assert server.stop(signal.SIGTERM) == 0
    assert not (tmp_path / "server.json").exists()
    assert not any("Traceback" in line for line in server.lines)
    with serve(tmp_path, "--port", "0") as server:
        assert server.token == token
        assert _get(f"{server.url}/api/v1/server", token)["database"] == "sqlite"


def test_ctrl_c_ends_cleanly_also_with_a_page_open(tmp_path: Path, serve: Callable[..., Any]) -> None:
    """The page is told, and the server goes within its grace."""
    with (
        serve(tmp_path, "--port", "0") as server,
        _socket(server, "/api/v1/live", Authorization=f"Bearer {server.token}") as page,
    ):
        page.send('{"type": "watch_runs"}')
        page.recv(timeout=10)
        assert server.stop(signal.SIGINT) == 0
        with pytest.raises(ConnectionClosed) as closed:
            page.recv(timeout=10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code in (1001, 1012)
    assert not (tmp_path / "server.json").exists()
    assert not any("Traceback" in line for line in server.lines)
