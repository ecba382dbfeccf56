"""The local token and server.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from halfscope_server.cli import home
from halfscope_server.settings import Settings


def test_token_is_made_once_and_private(tmp_path: Path) -> None:
    """Its mode is 0600 and a second start finds the same one."""
    settings = Settings(home=tmp_path / "home")
    token = home.ensure_token(settings)
    assert len(token) >= 40
    assert settings.token_path.stat().st_mode & 0o777 == 0o600
    assert home.ensure_token(settings) == token


def test_token_that_others_can_read_is_closed(tmp_path: Path) -> None:
    """A copied home may have lost the mode."""
    settings = Settings(home=tmp_path)
    token = home.ensure_token(settings)
    settings.token_path.chmod(0o644)
    assert home.ensure_token(settings) == token
    assert settings.token_path.stat().st_mode & 0o777 == 0o600


def test_announcement_is_found_and_withdrawn(tmp_path: Path) -> None:
    """server.json names the address and this process, and goes with it."""
    settings = Settings(home=tmp_path)
    home.announce(settings, "http://127.0.0.1:65504")
    assert home.running_server(settings) == home.RunningServer(url="http://127.0.0.1:65504", pid=os.getpid())
    home.withdraw(settings)
    assert home.running_server(settings, alive_only=False) is None


def test_another_servers_announcement_is_left_alone(tmp_path: Path) -> None:
    """A server that stops must not take back what its successor wrote."""
    settings = Settings(home=tmp_path)
    settings.server_json_path.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": os.getppid()}))
    home.withdraw(settings)
    assert settings.server_json_path.exists()


def test_announcement_of_a_dead_process_does_not_count(tmp_path: Path) -> None:
    """A killed server leaves its file behind."""
    settings = Settings(home=tmp_path)
    child = int(
        subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True).stdout
    )
    settings.server_json_path.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": child}))
    assert home.running_server(settings) is None


def test_damaged_announcement_is_no_server(tmp_path: Path) -> None:
    """Half a file, or another program's, is no error."""
    settings = Settings(home=tmp_path)
    for text in ("", "{", "[]", '{"url": 1}', '{"url": "http://x", "pid": "p"}'):
        settings.server_json_path.write_text(text)
        assert home.running_server(settings) is None
