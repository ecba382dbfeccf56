"""`halfscope serve` and `open`, as processes on real sockets."""

from __future__ import annotations

import json
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


def _get(url: str, token: str = "") -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
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
    assert _get(f"{server.url}/api/v1/runs", server.token)["runs"] == []


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_taken_port_and_graceful_end(tmp_path: Path, serve: Callable[..., Any], number: int) -> None:
    """The next free port is used and said, with who has the one asked for; Ctrl-C and SIGTERM end it cleanly."""
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        port = holder.getsockname()[1]
        with serve(tmp_path, "--port", str(port)) as server:
            assert server.lines[0].startswith(f"Port {port} is taken by ")
            assert "pytest" in server.lines[0] or "python" in server.lines[0]
            assert not server.url.endswith(f":{port}")
            assert server.stop(number) == 0
        assert not (tmp_path / "server.json").exists()
        assert not any("Traceback" in line for line in server.lines)


def test_token_survives_a_restart(tmp_path: Path, serve: Callable[..., Any]) -> None:
    """Senders that wait for the server to come back still know it."""
    with serve(tmp_path, "--port", "0") as server:
        token = server.token
        server.stop()
    with serve(tmp_path, "--port", "0") as server:
        assert server.token == token
        assert _get(f"{server.url}/api/v1/server", token)["database"] == "sqlite"
