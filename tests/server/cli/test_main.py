"""Arguments, exit codes and streams of the server's commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from halfscope_server.cli import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and nothing of halfscope's in the environment."""
    for name in ("SERVER", "DATABASE_URL", "TOKEN", "TOKEN_FILE", "PORT", "HOST"):
        monkeypatch.delenv(f"HALFSCOPE_{name}", raising=False)
    monkeypatch.setenv("HALFSCOPE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("serve", "--port", "http"), 2, "valid integer"),
        (("serve", "--database-url", "mysql://x/y", "--port", "0"), 1, "expected sqlite:////absolute/path.db"),
        (("serve", "--host", "192.0.2.1"), 1, "192.0.2.1 port 65504 cannot be listened on"),
        (("export",), 2, "Missing argument"),
        (("export", "nothing", "--server", "http://127.0.0.1:1"), 1, "halfscope serve"),
        (("export", "nothing", "--server", "ftp://x"), 1, "expected http://host:port"),
        (("export", "x", "--format", "csv", "--kind", "events", "--kind", "points"), 1, "a CSV holds one kind"),
        (("open", "--server", "http://127.0.0.1:1"), 1, "halfscope serve"),
        (("runs", "--database-url", "sqlite:////nonexistent/x.db"), 1, "there is no database"),
        (("runs", "--database-url", "nonsense"), 1, "expected sqlite:////absolute/path.db"),
        (("sink",), 2, "No such command"),
    ],
)
def test_mistakes_end_in_words_that_say_what_to_do(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, words: str
) -> None:
    """On stderr, without a traceback or colour; stdout is for results. Port 1 has no server."""
    assert main(arguments) == code
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""
    assert "Traceback" not in said.err
    assert "\x1b" not in said.err


def test_wrong_environment_names_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever command meets it."""
    monkeypatch.setenv("HALFSCOPE_PORT", "http")
    assert main(["runs"]) == 1
    assert "HALFSCOPE_PORT is 'http'" in capsys.readouterr().err


def test_help_is_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The same in a terminal, a pipe and the documentation."""
    assert main(["serve", "--help"]) == 0
    said = capsys.readouterr().out
    for option in ("--host", "--port", "--database-url", "--allow-host", "--root-path", "--no-browser"):
        assert option in said
    assert "\x1b" not in said
    assert "─" not in said
