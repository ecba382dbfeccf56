"""`halfscope compare` and `halfscope.compare`, from journals over a real server to words, JSON, HTML and a notebook."""

from __future__ import annotations

import html
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import halfscope
import pytest
from halfscope.record.recorder import Recorder
from halfscope.send.endpoint import resolve
from halfscope.wire.messages import End, Start, StreamInfo

Command = Callable[..., subprocess.CompletedProcess[str]]

A, B = "01jh00000000cmpa", "01jh00000000cmpb"
START_US = 1_767_323_045_000_000
NUM_STEPS = 120


def journal(directory: Path, run_id: str, *, name: str, factor: float) -> None:
    """A training's journal, whose loss is some multiple of a falling one."""
    recorder = Recorder.open(
        directory=directory,
        run_id=run_id,
        stream="00ff00ff00ff00ff",
        info=StreamInfo(started_us=START_US),
        start=Start(time_us=START_US, project="compared", name=name, config={"lr": 0.1}),
    )
    loss = recorder.declare("loss")
    recorder.facts({"precision": "FP32"})
    for step in range(NUM_STEPS):
        recorder.row(step, START_US + step * 1000, [(loss, factor / (1 + step))])
    recorder.close(End(outcome="finished", step=NUM_STEPS - 1, time_us=START_US + NUM_STEPS * 1000))


@pytest.fixture
def compared(server: Any, invoke: Command, tmp_path: Path) -> Any:
    """A server that has both runs."""
    for run_id, name, factor in ((A, "cmp-one", 1.0), (B, "cmp-two", 1.5)):
        journal(tmp_path / "journals", run_id, name=name, factor=factor)
    assert invoke(server.home, "sync", str(tmp_path / "journals")).returncode == 0
    return server


def test_command_and_function_say_what_the_server_does(
    compared: Any, invoke: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name and by id; as words, as JSON, as a file; the notebook shows the same file in a frame of its own."""
    told = invoke(compared.home, "compare", "cmp-one", B, "--html", str(tmp_path / "out"))
    assert told.returncode == 0, told.stderr
    report = json.loads(invoke(compared.home, "compare", A, B, "--json", "--tolerance", "0.01").stdout)
    assert report["key"] == f"{A},{B}"
    assert report["options"]["tolerance_share"] == 0.01
    found = halfscope.compare(["cmp-one", "cmp-two"])
    assert told.stdout.rstrip("\n") == found.text()
    assert found.sentence in told.stdout
    assert "Fairness:" in told.stdout
    assert found.sentence in repr(found)
    page = (tmp_path / "out").read_text()
    assert page.startswith("<!doctype html>")
    assert html.escape(found.sentence, quote=False) in page
    framed = found._repr_html_()
    assert found._repr_html_() == framed
    assert html.unescape(framed.split('srcdoc="', 1)[1].split('" title=', 1)[0]) == found.html
    assert json.loads(found.save(tmp_path / "report.json").read_text()) == found.report
    assert found.save(tmp_path / "report.html").read_text() == found.html


def test_what_cannot_be_compared_is_said_in_one_line(compared: Any, invoke: Command) -> None:
    """An unknown run, one alone, one twice, no server: exit code 1 and what to do."""
    for arguments, words in (
        ((A, "nobody"), "no run 'nobody'"),
        ((A,), "at least one other run"),
        ((A, A), "twice"),
        (("cmp-", B), "no run 'cmp-'"),
        ((A, B, "--server", "http://127.0.0.1:9"), "halfscope serve"),
        ((A, B, "--server", "nowhere"), "no server address"),
    ):
        done = invoke(compared.home, "compare", *arguments)
        assert (done.returncode, done.stdout) == (1, ""), arguments
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    with pytest.raises(halfscope.CompareError, match="2 runs are called"):
        halfscope.compare(["01jh00000000cmp", B])


def test_names_reach_a_terminal_as_they_are_spelled(invoke: Command, server: Any, tmp_path: Path) -> None:
    """No control sequence, line break or turn of the reading direction of a run's name is carried out; the server gone,
    a notebook still shows the verdict."""
    hostile = "one\x1b]0;title\x07\x1b[2J\nA: equal\u202egnorw\u2028<b>"
    runs = ("01jh00000000cmph", "01jh00000000cmpi")
    for run_id, name, factor in ((runs[0], "plain", 1.0), (runs[1], hostile, 1.5)):
        journal(tmp_path / "journals", run_id, name=name, factor=factor)
    assert invoke(server.home, "sync", str(tmp_path / "journals")).returncode == 0
    told = invoke(server.home, "compare", *runs)
    assert told.returncode == 0, told.stderr
    assert all(char.isprintable() or char == "\n" for char in told.stdout)
    assert not any(line.startswith("A: equal") for line in told.stdout.splitlines())
    assert "\\x1b[2J\\nA: equalgnorw" in told.stdout
    found = halfscope.compare(runs)
    assert repr(found).isprintable()
    shown = halfscope.Comparison(found.report, resolve("http://127.0.0.1:9"), {})._repr_html_()
    assert "The figures are missing: no server answers at" in shown
    assert html.escape(found.text()) in shown
    assert "<b>" not in shown
