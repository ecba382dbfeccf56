"""Under which address a server is announced, and under which it is linked to."""

from __future__ import annotations

from pathlib import Path

import pytest
from halfscope_server.cli.serve import local_url
from halfscope_server.settings import Settings, child_environment, from_environment


@pytest.mark.parametrize(
    ("host", "root_path", "expected"),
    [
        ("127.0.0.1", "", "http://127.0.0.1:7000"),
        ("0.0.0.0", "", "http://127.0.0.1:7000"),
        ("::", "", "http://[::1]:7000"),
        ("::1", "/hs", "http://[::1]:7000/hs"),
        ("10.0.0.5", "", "http://10.0.0.5:7000"),
    ],
)
def test_agents_on_this_machine_get_a_local_address(host: str, root_path: str, expected: str) -> None:
    """An address that stands for all of them is no address to connect to; a proxy's is not for the local token."""
    settings = Settings(host=host, port=7000, root_path=root_path, public_url="https://hs.example")
    assert local_url(settings) == expected


def test_a_child_process_sees_the_same_settings(tmp_path: Path) -> None:
    """What was given on the command line reaches the server that the demo starts; what is unset stays unset."""
    settings = Settings(home=tmp_path, port=7000, allow_hosts=("a.example", "b.example:8443"))
    environment = child_environment(settings, {"PATH": "/bin", "HALFSCOPE_TOKEN": "left-from-the-parents-environment"})
    assert environment["PATH"] == "/bin"
    assert "HALFSCOPE_TOKEN" not in environment
    assert from_environment(environment) == settings
