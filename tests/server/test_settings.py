"""The table of settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from halfscope_server import settings
from halfscope_server.settings import Settings, from_environment


def test_nothing_set_gives_a_server_of_this_machine_only() -> None:
    """The defaults listen on loopback, on the largest FP16 number, and keep everything below the home."""
    found = from_environment({})
    assert (found.host, found.port) == ("127.0.0.1", 65504)
    assert found.database == f"sqlite:///{Path.home() / '.halfscope' / 'halfscope.db'}"
    assert found.journals_directory == Path.home() / ".halfscope" / "journals"


def test_environment_is_read_and_the_command_line_goes_over_it(tmp_path: Path) -> None:
    """A given field wins over its variable; None means not given."""
    environ = {
        "HALFSCOPE_HOME": str(tmp_path),
        "HALFSCOPE_PORT": "7000",
        "HALFSCOPE_ALLOW_HOST": "A.example, b.example:8443",
    }
    found = from_environment(environ, port=8000, host=None)
    assert (found.home, found.port, found.host) == (tmp_path, 8000, "127.0.0.1")
    assert found.allow_hosts == ("a.example", "b.example:8443")


@pytest.mark.parametrize(("text", "expected"), [("", ""), ("/", ""), ("halfscope", "/halfscope"), ("/a/b/", "/a/b")])
def test_root_path_has_one_spelling(text: str, expected: str) -> None:
    """However it is written, it begins with a slash and ends without."""
    assert from_environment({"HALFSCOPE_ROOT_PATH": text}).root_path == expected


def test_token_file_stands_in_for_the_token(tmp_path: Path) -> None:
    """Containers mount secrets as files."""
    file = tmp_path / "token"
    file.write_text("a-token-that-is-long-enough\n")
    assert from_environment({"HALFSCOPE_TOKEN_FILE": str(file)}).token == "a-token-that-is-long-enough"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"HALFSCOPE_PORT": "http"}, "HALFSCOPE_PORT is 'http'"),
        ({"HALFSCOPE_PORT": "70000"}, "expected 1 to 65535"),
        ({"HALFSCOPE_TOKEN": "short"}, "at least 20"),
        ({"HALFSCOPE_TOKEN_FILE": "/nonexistent/token"}, "HALFSCOPE_TOKEN_FILE cannot be read"),
        ({"HALFSCOPE_LOG_LEVEL": "loud"}, "expected debug, info, warning or error"),
        ({"HALFSCOPE_SESSION_S": "0"}, "expected a number above 0"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(environ: dict[str, str], message: str) -> None:
    """The error names the variable or setting, what it held and what was expected."""
    with pytest.raises(ValueError, match=message):
        from_environment(environ)


def test_every_setting_has_a_variable_and_a_sentence() -> None:
    """The table that the documentation lists is complete and holds no variable twice."""
    rows = settings.table()
    assert len(rows) == len(dataclasses.fields(Settings))
    assert len({variable for variable, _, _ in rows}) == len(rows)
    for variable, _, text in rows:
        assert variable.startswith("HALFSCOPE_")
        assert text.endswith(".")
