"""What doctor finds, and what it says to do."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from halfscope import doctor


def test_healthy_environment_is_ok() -> None:
    """This very environment runs the tests, so Python, packages and torch are in order."""
    findings = doctor.examine([doctor.check_python, doctor.check_versions, doctor.check_torch])
    assert [finding.state for finding in findings] == ["ok", "ok", "ok"]
    assert "CPU only" in findings[2].found or "compute capability" in findings[2].found


def test_the_compiled_helper_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said whether it is in use; where not, why, and how to have it."""
    monkeypatch.setattr(doctor.native, "helper", object())
    assert (doctor.check_helper().state, doctor.check_helper().found) == ("ok", "in use")
    monkeypatch.setattr(doctor.native, "helper", None)
    monkeypatch.setattr(doctor.native, "absent_because", "not built")
    monkeypatch.setattr(doctor.native, "can_be_built", True)
    finding = doctor.check_helper()
    assert finding.state == "info"
    assert finding.found.startswith("not built; NumPy")
    assert "halfscope.native.build" in finding.mend


def test_missing_torch_is_a_warning_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that only serves needs none."""
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    finding = doctor.check_torch()
    assert finding.state == "warning"
    assert "install PyTorch" in finding.mend


def test_torch_that_cannot_be_imported_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is missing below it shows as an ImportError or OSError."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object())
    assert doctor.check_torch().state == "problem"


def test_writable_directory_is_named_with_its_filesystem(tmp_path: Path) -> None:
    """A folder that is not there yet is judged by its nearest parent."""
    finding = doctor.check_directory(tmp_path / "not" / "yet")
    assert finding.state in ("ok", "warning")  # a warning where the disk of the test is nearly full
    assert doctor.filesystem_of(tmp_path) in finding.found
    assert not (tmp_path / "not").exists()


def test_file_in_place_of_the_directory_is_a_problem(tmp_path: Path) -> None:
    """Journals could not be written, and the finding says which variable to set."""
    (tmp_path / "file").write_text("")
    finding = doctor.check_directory(tmp_path / "file")
    assert finding.state == "problem"
    assert "HALFSCOPE_DIR" in finding.mend


def test_check_that_fails_hides_no_other() -> None:
    """The failure becomes a finding of its own."""

    def check_broken() -> doctor.Finding:
        raise RuntimeError("no luck")

    broken, python = doctor.examine([check_broken, doctor.check_python])
    assert (broken.state, broken.topic) == ("problem", "broken")
    assert "no luck" in broken.found
    assert python.state == "ok"


def test_what_to_do_stands_under_what_was_found() -> None:
    """Nothing to do, nothing there."""
    text = doctor.render(
        [
            doctor.Finding(state="ok", topic="python", found="3.11"),
            doctor.Finding(state="problem", topic="server", found="gone", mend="start it"),
        ]
    )
    assert text.splitlines() == ["ok       python: 3.11", "PROBLEM  server: gone", "         -> start it"]


def test_nobody_at_the_address_is_a_warning() -> None:
    """Training goes on without a server; port 1 has none."""
    finding = doctor.check_server("http://127.0.0.1:1", "")
    assert finding.state == "warning"
    assert "halfscope serve" in finding.mend


def test_another_programs_server_is_told_apart() -> None:
    """Something answers at the address, but it is no halfscope."""
    with _answering({}) as address:
        finding = doctor.check_server(address, "")
    assert finding.state == "problem"
    assert "no halfscope server" in finding.found


def test_unwell_server_says_what_ails_it() -> None:
    """The parts of the health check come through."""
    with _answering({"ok": False, "database": "disk full", "writer": "ok"}, status=503) as address:
        finding = doctor.check_server(address, "")
    assert finding.state == "problem"
    assert "disk full" in finding.found


@contextmanager
def _answering(body: dict[str, object], *, status: int = 200) -> Iterator[str]:
    """An HTTP server that answers everything alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

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
