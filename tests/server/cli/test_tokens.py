"""`halfscope token`, through a running server and straight in a database."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from halfscope_server.cli.client import ClientError, Target, get_json
from halfscope_server.store.store import Store

Command = Callable[..., subprocess.CompletedProcess[str]]


def asks(server: Any, token: str, path: str = "/api/v1/runs") -> Any:
    """What the running server answers a request with this token."""
    return get_json(Target(url=server.url, token=token), path)


def names(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [each["name"] for each in json.loads(done.stdout)]


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A database that no server has open."""
    Store.open(f"sqlite:///{tmp_path / 'halfscope.db'}").close()
    return f"sqlite:///{tmp_path / 'halfscope.db'}"


def test_token_works_from_making_to_revoking(server: Any, invoke: Command) -> None:
    """It alone is on stdout, the running server takes it at once, and no longer after it was revoked."""
    made = invoke(server.home, "token", "create", "cluster/eu é")
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    assert len(token) == 43
    assert token not in made.stderr
    assert "runs" in asks(server, token)
    before = json.loads(invoke(server.home, "token", "list", "--json").stdout)
    assert {"local", "cluster/eu é"} <= {each["name"] for each in before}
    assert token not in json.dumps(before)
    revoked = invoke(server.home, "token", "revoke", "cluster/eu é")
    assert revoked.stdout == "Revoked 1 token called 'cluster/eu é'.\n"
    with pytest.raises(ClientError, match="was not accepted"):
        asks(server, token)
    assert "cluster/eu é" not in invoke(server.home, "token", "list").stdout


def test_given_token_cannot_make_or_revoke_others(
    server: Any, invoke: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So revoking it is the end of what its owner can do."""
    token = invoke(server.home, "token", "create", "colleague").stdout.strip()
    monkeypatch.setattr("halfscope_server.cli.client._token_for", lambda *_: token)
    for arguments in (("create", "another"), ("list",), ("revoke", "local")):
        done = invoke(tmp_path, "token", *arguments, "--server", server.url)
        assert (done.returncode, done.stdout) == (1, "")
        assert "answered 403" in done.stderr
        assert "on the machine of the server" in done.stderr
    monkeypatch.undo()
    assert invoke(server.home, "token", "revoke", "colleague").returncode == 0


def test_database_that_a_server_has_open_is_left_to_it(server: Any, invoke: Command) -> None:
    """SQLite takes one writing process; the error says how it goes."""
    url = f"sqlite:///{server.home / 'halfscope.db'}"
    done = invoke(server.home, "token", "create", "x", "--database-url", url)
    assert done.returncode == 1
    assert "leave --database-url away" in done.stderr
    assert "local" in invoke(server.home, "token", "list", "--database-url", url).stdout


def test_database_without_a_server(database: str, tmp_path: Path, invoke: Command) -> None:
    """The same three commands, with the time of making in UTC."""
    assert invoke(tmp_path, "token", "list", "--database-url", database).stdout.startswith("No tokens.")
    start_s = int(time.time())
    token = invoke(tmp_path, "token", "create", "laptop", "--database-url", database).stdout.strip()
    assert token.isascii()
    listed = invoke(tmp_path, "token", "list", "--json", "--database-url", database)
    (row,) = json.loads(listed.stdout)
    assert row["name"] == "laptop"
    assert row["created"] >= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start_s))
    table = invoke(tmp_path, "token", "list", "--database-url", database).stdout.splitlines()
    assert [line.split() for line in table] == [["name", "created"], ["laptop", row["created"]]]
    assert invoke(tmp_path, "token", "revoke", "laptop", "--database-url", database).returncode == 0
    assert names(invoke(tmp_path, "token", "list", "--json", "--database-url", database)) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "taken"), "there is a token called 'taken' already"),
        (("create", "local"), "takes in by itself"),
        (("create", " "), "is no name for a token"),
        (("create", "a\nb"), "is no name for a token"),
        (("create", "x" * 201), "is no name for a token"),
        (("revoke", "nobody"), "there is no token called 'nobody'"),
    ],
)
def test_mistakes_say_what_to_do(
    database: str, tmp_path: Path, invoke: Command, arguments: tuple[str, str], words: str
) -> None:
    """One line on stderr, nothing on stdout, and nothing is changed."""
    assert invoke(tmp_path, "token", "create", "taken", "--database-url", database).returncode == 0
    done = invoke(tmp_path, "token", *arguments, "--database-url", database)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert names(invoke(tmp_path, "token", "list", "--json", "--database-url", database)) == ["taken"]


def test_no_database_is_made_by_mistake(tmp_path: Path, invoke: Command) -> None:
    """A path with a typing error would give a token that no server ever knows."""
    done = invoke(tmp_path, "token", "create", "x", "--database-url", f"sqlite:///{tmp_path / 'typo.db'}")
    assert done.returncode == 1
    assert "there is no database" in done.stderr
    assert not (tmp_path / "typo.db").exists()
