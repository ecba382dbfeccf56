"""The image and the compose file, as far as they can be checked where no container engine runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from halfscope_server.settings import DEFAULT_PORT, table

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", "Dockerfile"],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml"],
    ],
    ids=lambda command: command[0],
)
def test_linter_has_nothing_to_say(command: list[str]) -> None:
    """hadolint and the compose specification's schema accept the files as they are."""
    done = subprocess.run(
        [BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_secret_has_a_default() -> None:
    """Passwords and tokens come from the environment, and compose refuses to start without them."""
    secrets = re.findall(r"(POSTGRES_PASSWORD|PGPASSWORD|HALFSCOPE_TOKEN): (\S+)", COMPOSE)
    assert {name for name, _ in secrets} == {"POSTGRES_PASSWORD", "PGPASSWORD", "HALFSCOPE_TOKEN"}
    for name, value in secrets:
        assert re.match(r"\$\{HALFSCOPE_\w+:\?", value), f"{name} has a default"
    assert not re.search(r"(?i)(password|token|secret)\s*=", DOCKERFILE)


def test_ports_are_published_on_loopback_only() -> None:
    """Whoever wants more than this machine puts a proxy in front."""
    published = re.findall(r'- "([\d.:]+)"', COMPOSE)
    assert published == [f"127.0.0.1:{DEFAULT_PORT}:{DEFAULT_PORT}"]


def test_container_settings_are_settings() -> None:
    """Every HALFSCOPE_ variable that the containers set is one that the server reads."""
    known = {name for name, _, _ in table()}
    used = set(re.findall(r"^\s+(HALFSCOPE_\w+):", COMPOSE, re.MULTILINE))
    used |= set(re.findall(r"(HALFSCOPE_\w+)=", DOCKERFILE))
    assert used
    assert used <= known


def test_image_runs_without_root_and_says_how_it_is() -> None:
    """A numeric user other than root, and a health check of the port that is exposed."""
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    assert int(user) > 0
    assert f"EXPOSE {DEFAULT_PORT}" in DOCKERFILE
    assert f"http://127.0.0.1:{DEFAULT_PORT}/healthz" in DOCKERFILE
