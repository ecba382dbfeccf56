"""Where the agent sends to, and what it shows there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from halfscope.send.endpoint import DEFAULT_URL, resolve


def write_home(home: Path, *, login: str = "", server: str = "", pid: int = 0) -> None:
    (home / "token").write_text("local-token\n")
    if login:
        (home / "credentials.json").write_text(json.dumps({"url": login, "token": "login-token"}))
    if server:
        (home / "server.json").write_text(json.dumps({"url": server, "pid": pid or os.getpid()}))


def test_addresses_are_looked_up_in_their_order(tmp_path: Path) -> None:
    """Argument, variable, login, running server, default."""
    write_home(tmp_path, login="https://team.example.org", server="http://127.0.0.1:7000")
    environ = {"HALFSCOPE_SERVER": "http://127.0.0.1:8000/"}
    assert resolve("http://127.0.0.1:9000/", home=tmp_path, environ=environ).url == "http://127.0.0.1:9000"
    assert resolve(home=tmp_path, environ=environ).url == "http://127.0.0.1:8000"
    assert resolve(home=tmp_path, environ={}).url == "https://team.example.org"
    (tmp_path / "credentials.json").unlink()
    assert resolve(home=tmp_path, environ={}).url == "http://127.0.0.1:7000"
    (tmp_path / "server.json").unlink()
    assert resolve(home=tmp_path, environ={}).url == DEFAULT_URL


def test_a_server_that_is_gone_is_not_taken_for_running(tmp_path: Path) -> None:
    """server.json of a process that was killed names nobody."""
    write_home(tmp_path, server="http://127.0.0.1:7000", pid=2**22 + 5)
    assert resolve(home=tmp_path, environ={}).url == DEFAULT_URL


def test_the_local_token_is_shown_to_this_machine_only(tmp_path: Path) -> None:
    """A remote server never sees it; a token given for it, or kept for it, it does."""
    write_home(tmp_path, login="https://team.example.org")
    assert resolve("http://127.0.0.1:7000", home=tmp_path, environ={}).token == "local-token"
    assert resolve("http://localhost:7000", home=tmp_path, environ={}).token == "local-token"
    assert resolve("https://other.example.org", home=tmp_path, environ={}).token == ""
    assert resolve("https://team.example.org/", home=tmp_path, environ={}).token == "login-token"
    assert resolve("https://other.example.org", "given", home=tmp_path, environ={}).token == "given"
    assert "login-token" not in repr(resolve(home=tmp_path, environ={}))


def test_a_token_of_the_environment_comes_first(tmp_path: Path) -> None:
    """The variable, then the file that another variable names."""
    write_home(tmp_path, login="https://team.example.org")
    file = tmp_path / "secret"
    file.write_text("file-token\n")
    environ = {"HALFSCOPE_TOKEN_FILE": str(file)}
    assert resolve(home=tmp_path, environ=environ).token == "file-token"
    assert resolve(home=tmp_path, environ={**environ, "HALFSCOPE_TOKEN": "env-token"}).token == "env-token"
    assert resolve(home=tmp_path, environ={"HALFSCOPE_TOKEN_FILE": "/nowhere"}).token == "login-token"


@pytest.mark.parametrize("url", ["127.0.0.1:65504", "ftp://x", "http://", "file:///etc/passwd"])
def test_what_is_no_address_is_refused_with_what_would_be_one(tmp_path: Path, url: str) -> None:
    """A scheme is needed: a port alone is ambiguous."""
    with pytest.raises(ValueError, match="expected http://host:port"):
        resolve(url, home=tmp_path, environ={})


@pytest.mark.parametrize(
    ("url", "websocket"),
    [
        ("http://127.0.0.1:65504", "ws://127.0.0.1:65504/api/v1/agent"),
        ("https://host/halfscope", "wss://host/halfscope/api/v1/agent"),
    ],
)
def test_a_path_of_the_address_is_kept(tmp_path: Path, url: str, websocket: str) -> None:
    """A proxy may publish the server below a path."""
    endpoint = resolve(url, home=tmp_path, environ={})
    assert endpoint.websocket_url == websocket
    assert endpoint.ingest_url == f"{url}/api/v1/ingest"


def test_acknowledgements_of_a_local_server_outlive_its_port(tmp_path: Path) -> None:
    """It takes the next free port when its own is taken, with the same data."""
    first, second = (resolve(f"http://127.0.0.1:{port}", home=tmp_path, environ={}) for port in (7000, 7001))
    assert first.key == second.key
    assert resolve("https://host:7000", home=tmp_path, environ={}).key != first.key
