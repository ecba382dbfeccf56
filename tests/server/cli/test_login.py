"""`halfscope login`, `sync` and `doctor` against a real server."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.preloaded import Preloaded

Command = Callable[..., subprocess.CompletedProcess[str]]
Environment = Callable[[Path], dict[str, str]]


def test_login_keeps_an_accepted_token_for_the_owner_alone(server: Any, run_command: Command, tmp_path: Path) -> None:
    """From then on the other commands of that home ask that server."""
    home = tmp_path / "home"
    done = run_command(home, "login", server.url + "/", "--token-file", str(server.home / "token"))
    assert done.returncode == 0, done.stderr
    assert server.token not in done.stdout + done.stderr
    kept = home / "credentials.json"
    assert json.loads(kept.read_text()) == {"url": server.url, "token": server.token}
    assert kept.stat().st_mode & 0o777 == 0o600
    listed = run_command(home, "runs", "--json")
    there = run_command(server.home, "runs", "--json")
    assert (listed.returncode, json.loads(listed.stdout)) == (0, json.loads(there.stdout))


def test_login_keeps_no_token_that_was_refused(server: Any, run_command: Command, tmp_path: Path) -> None:
    """And says where the right one is."""
    (tmp_path / "wrong").write_text("some-other-token-of-some-length")
    done = run_command(tmp_path, "login", server.url, "--token-file", str(tmp_path / "wrong"))
    assert done.returncode == 1
    assert "does not know this token" in done.stderr
    assert not (tmp_path / "credentials.json").exists()


def test_token_of_this_home_goes_to_no_server_elsewhere(run_command: Command, tmp_path: Path) -> None:
    """The local token opens this machine's server; another machine must never see it."""
    from halfscope_server.cli import client
    from halfscope_server.settings import Settings

    (tmp_path / "token").write_text("local-token-of-some-length")
    settings = Settings(home=tmp_path)
    assert client.find(settings, "http://127.0.0.1:65504").token == "local-token-of-some-length"
    assert client.find(settings, "https://halfscope.example").token == ""


def test_doctor_is_content_with_a_running_server(server: Any, environment: Environment, python: Preloaded) -> None:
    """Reachable, token accepted, database in order, and the port the server's own."""
    done = python.run(["-m", "halfscope", "doctor", "--json"], env=environment(server.home))
    findings = {finding["topic"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert findings["server"]["state"] == "ok"
    assert "token accepted" in findings["server"]["found"]
    assert findings["local server"]["found"].startswith(server.url)
    assert re.search(r"halfscope\.db, \d+ runs?$", findings["database"]["found"])
