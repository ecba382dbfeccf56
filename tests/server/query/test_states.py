"""What a run's end is called."""

from __future__ import annotations

import pytest
from halfscope_server.query.states import error_text


@pytest.mark.parametrize(
    ("error_type", "message", "said"),
    [
        ("RuntimeError", "out of luck", "RuntimeError: out of luck"),
        ("RuntimeError", "", "RuntimeError"),
        ("SystemExit", "3", "exit code 3"),
        ("SystemExit", "-1", "exit code -1"),
        ("SystemExit", "no more data", "exit code 1: no more data"),
        ("SystemExit", "", "SystemExit"),
        ("", "", ""),
    ],
)
def test_an_exit_is_told_by_its_code(error_type: str, message: str, said: str) -> None:
    """A program that ends itself by a text prints it, and its code is 1; an exception is told by its name."""
    assert error_text(error_type, message) == said
