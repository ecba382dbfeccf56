"""The `halfscope` command, without and with the server package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import halfscope
import pytest

from tests.helpers.preloaded import Preloaded

AGENT = Path(halfscope.__file__).parents[1]
GOOD_TOKEN = "a-token-that-looks-like-one"


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HALFSCOPE_")}
    return {**kept, "HALFSCOPE_HOME": str(home)}


def _run(home: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "halfscope", *arguments],
        env=_environment(home),
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _run_bare(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where nothing is installed but Python: no site-packages, so no server package either."""
    code = (
        f"import sys; sys.path.insert(0, {str(AGENT)!r})\n"
        f"from halfscope.__main__ import main\n"
        f"sys.exit(main({arguments!r}))"
    )
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        env=_environment(home),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["serve", "demo", "open", "runs", "export"])
def test_without_the_server_package_the_exact_install_line_is_printed(tmp_path: Path, command: str) -> None:
    """On stderr, with exit code 1 and nothing else."""
    done = _run_bare(tmp_path, command)
    assert done.returncode == 1
    assert done.stdout == ""
    assert (
        done.stderr
        == f"halfscope {command} needs the server, which is not installed here: pip install 'halfscope[server]'\n"
    )


def test_help_needs_nothing(tmp_path: Path) -> None:
    """It names every command, also those of the package that is not there."""
    done = _run_bare(tmp_path, "--help")
    assert done.returncode == 0
    for command in ("sync", "login", "doctor", "serve", "demo", "open", "runs", "export"):
        assert f"  {command} " in done.stdout


def test_command_loads_neither_torch_nor_the_server() -> None:
    """`halfscope sync` runs on login nodes, where importing torch takes seconds."""
    code = (
        "import sys, halfscope.__main__, halfscope.send.once, halfscope.doctor\n"
        "print(sorted(set(sys.modules) & {'torch', 'numpy', 'fastapi', 'pydantic', 'halfscope_server'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_wrong_arguments_are_exit_code_two(tmp_path: Path) -> None:
    """For both halves of the command."""
    for arguments in (("sink",), ("login",), ("export",)):
        done = _run(tmp_path, *arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_login_keeps_nothing_where_no_halfscope_answers(tmp_path: Path) -> None:
    """Another program at the address, nobody there, no address at all, and no token."""
    with _another_program() as url:
        other = _run(tmp_path, "login", url, given=GOOD_TOKEN)
    nobody = _run(tmp_path, "login", "http://127.0.0.1:1", given=GOOD_TOKEN)
    none = _run(tmp_path, "login", "halfscope.example", given=GOOD_TOKEN)
    blank = _run(tmp_path, "login", "http://127.0.0.1:1", given="\n")
    for done, words in (
        (other, "does not answer like a halfscope server"),
        (nobody, "no server answers"),
        (none, "expected http://host:port"),
        (blank, "that is no token"),
    ):
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "credentials.json").exists()


def test_doctor_finds_what_is_wrong_and_touches_nothing(tmp_path: Path, python: Preloaded) -> None:
    """A token that others can read is a problem, a problem is exit code 1, and mending it is left to its reader."""
    (tmp_path / "token").write_text("x" * 40)
    (tmp_path / "token").chmod(0o644)
    done = python.run(["-m", "halfscope", "doctor", "--json"], env=_environment(tmp_path))
    findings = {finding["topic"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 1
    assert findings["tokens"]["state"] == "problem"
    assert findings["tokens"]["mend"] == f"chmod 600 {tmp_path / 'token'}"
    assert {"python", "packages", "torch", "journals", "sender", "server", "port", "database"} <= findings.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o644


@contextmanager
def _another_program() -> Iterator[str]:
    """An HTTP server that says 200 to everything and is no halfscope."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>It works!</html>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
