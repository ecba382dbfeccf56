"""The demo trains for real, and what halfscope records of it is what happened."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from halfscope.demo.train import Progress, train
from halfscope.demo.trainings import find
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import JournalReader
from halfscope.wire.codec import decode_record
from halfscope.wire.messages import End, Event, Facts, Record, Sketches, Start

from tests.helpers.demos import series
from tests.helpers.preloaded import Preloaded


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HALFSCOPE_HOME of its own, and no setting from outside."""
    for name in [name for name in os.environ if name.startswith("HALFSCOPE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HALFSCOPE_HOME", str(tmp_path))
    return tmp_path


def trained(name: str, num_steps: int) -> list[Progress]:
    """Trains one run here and now, watched with a journal and no sender."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return list(train(find(name), num_steps=num_steps, mode="offline"))
    finally:
        torch.set_num_threads(threads)


def journal(home: Path) -> list[Record]:
    (stream,) = (home / "journals").glob("*/*")
    reader = JournalReader(StreamPlace(directory=home / "journals", run_id=stream.parent.name, stream=stream.name))
    try:
        return [decode_record(entry.payload) for entry in reader.read(final=True)]
    finally:
        reader.close()


@pytest.mark.slow
def test_healthy_training_learns_the_digits(home: Path) -> None:
    """Some of the convolutional run's steps name over 95% of the held-out images rightly, and it is recorded so."""
    reports = trained("fp32-cnn", 400)
    assert [report.step for report in reports] == list(range(4, 401, 4))
    assert {(report.run, report.total) for report in reports} == {("fp32-cnn", 400)}
    assert reports[-1].accuracy > 0.95
    records = journal(home)
    start = next(record for record in records if isinstance(record, Start))
    assert (start.project, start.name, start.tags) == ("halfscope-demo", "fp32-cnn", ["demo"])
    assert (start.config["learning_rate"], start.config["num_steps"]) == (4e-3, 400)
    facts = {key: value for record in records if isinstance(record, Facts) for key, value in record.facts.items()}
    assert (facts["precision"], facts["demo"], facts["samples_source"]) == ("FP32", True, "declared")
    assert series(records, "val/accuracy") == {report.step - 1: report.accuracy for report in reports}
    losses = series(records, "loss")
    assert sorted(losses) == list(range(400))
    assert {report.step - 1: report.loss for report in reports}.items() <= losses.items()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif("HALFSCOPE_TEST_DEMO" not in os.environ, reason="minutes long: make soak")
@pytest.mark.parametrize("name", ["fp16-cnn", "fp16-transformer"])
def test_healthy_runs_are_calm_from_end_to_end(home: Path, name: str) -> None:
    """All steps of a healthy FP16 run: settling and probes and no other skip, no streak, and the digits are learnt."""
    reports = trained(name, find(name).num_steps)
    assert reports[-1].accuracy > 0.95
    events = [record for record in journal(home) if isinstance(record, Event)]
    classes = [event.attributes["class"] for event in events if event.kind == "skip"]
    assert set(classes) <= {"settling", "probe"}
    assert 2 <= classes.count("probe") <= find(name).num_steps // find(name).growth_interval
    assert not any(event.kind == "bad_streak" for event in events)


@pytest.mark.slow
def test_troubled_training_has_its_streak_and_goes_on(troubled_demo: Sequence[bytes]) -> None:
    """The mask constant makes losses NaN while the odd shard is read: caught skips, a streak, then clean steps, at a
    scale so low that whole layers are flushed."""
    records = [decode_record(payload) for payload in troubled_demo]
    events = [record for record in records if isinstance(record, Event)]
    losses, skipped = series(records, "loss"), series(records, "amp.skipped")
    assert math.isfinite(losses[269])
    nan_steps = [step for step, loss in losses.items() if math.isnan(loss)]
    assert len(nan_steps) > 20
    assert all(skipped[step] == 1.0 for step in nan_steps)
    assert [event.step for event in events if event.kind == "loss_nonfinite"] == nan_steps
    assert {event.attributes["caught"] for event in events if event.kind == "loss_nonfinite"} == {True}
    classes = {event.attributes["class"] for event in events if event.kind == "skip"}
    assert {"settling", "streak"} <= classes
    (streak,) = [event for event in events if event.kind == "bad_streak"]
    assert streak.attributes["origin"] == "forward, not yet localised"
    assert nan_steps[0] == streak.attributes["first_step"]
    assert any(event.kind == "bad_streak_end" for event in events)
    assert min(series(records, "amp.scale").values()) < 1.0
    assert series(records, "opt.steps")[269] == 270 - sum(skipped.values())
    sketched = {record.step for record in records if isinstance(record, Sketches)}
    assert sketched == {*range(0, 270, 10), *(step for step, was in skipped.items() if was)}
    flushed = [event for event in events if event.kind == "layer_flushed"]
    assert flushed[0].step > streak.step
    assert {"embed.weight", "head.weight"} <= {name for event in flushed for name in event.where}
    assert [record.outcome for record in records if isinstance(record, End)] == ["finished"]


SIDE_BY_SIDE = """
import sys
from halfscope.demo import __main__ as demo

sys.executable, demo.CAN_FORK = sys.argv.pop(1), sys.argv.pop(1) == "forks"
sys.exit(demo.main())
"""


@pytest.mark.parametrize("how", ["forks", "programs"])
def test_runs_side_by_side_say_on_lines_of_json_where_they_stand_and_how_they_ended(
    home: Path, python: Preloaded, how: str
) -> None:
    """Trained by forks of the process that has loaded torch, or by programs of their own: nothing else is printed."""
    runs = ("fp16-cnn", "fp32-cnn")
    with python.executable() as interpreter:
        command = ["-c", SIDE_BY_SIDE, interpreter, how, *(f"--run={name}" for name in runs), "--steps=2", "--server=-"]
        done = python.run(command, env={**os.environ, "HALFSCOPE_MODE": "offline"})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for name in runs:
        *lines, end = [line for line in told if line["run"] == name]
        assert [(line["step"], line["total"]) for line in lines] == [(1, 2), (2, 2)]
        assert all(set(line) == {"run", "step", "total", "loss", "accuracy"} for line in lines)
        assert end == {"run": name, "code": 0}
    assert len(list((home / "journals").glob("*/*"))) == 2
