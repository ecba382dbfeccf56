"""A disk that fills up, and one that is read-only for a while: real ones of some kilobytes, where one may mount."""

from __future__ import annotations

import itertools
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from halfscope.record import recorder as recorder_module
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import read_stream
from halfscope.record.recorder import Recorder
from halfscope.wire.messages import End, Event, Lost, Points, Start, StreamInfo

RUN, STREAM = "01jabcdefghjkmnp", "ab12"
DISK_BYTES = 256 * 1024


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "RETRY_INTERVAL_S", 0.0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small filesystem of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "halfscope-test", str(path)]
    if os.geteuid() != 0 or subprocess.run(options, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def record(directory: Path) -> Recorder:
    return Recorder.open(
        directory=directory,
        run_id=RUN,
        stream=STREAM,
        info=StreamInfo(),
        start=Start(time_us=1, project="p", name="n"),
        segment_bytes=40_000,
    )


class Steps:
    """Gives steps, each with an event of a kilobyte."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._sid, self.num_given = recorder, recorder.declare("loss"), 0

    def give(self, count: int) -> None:
        for step in range(self.num_given, self.num_given + count):
            self._recorder.row(step, step, [(self._sid, float(step))])
            self._recorder.event("test", step, attributes={"text": "x" * 1000})
        self.num_given += count

    def give_until_it_fails(self) -> None:
        """Until the journal cannot be written any more."""
        before = self._recorder.num_failed_writes
        for _ in itertools.repeat(None, 1000):
            self.give(5)
            if not self._recorder.flush(0.2) and self._recorder.num_failed_writes > before:
                return
        raise AssertionError("the disk takes everything")

    def assert_all_there(self, directory: Path) -> None:
        points: list[int] = []
        events: list[int] = []
        for _, found in read_stream(StreamPlace(directory=directory, run_id=RUN, stream=STREAM)):
            assert not isinstance(found, Lost)
            if isinstance(found, Points):
                points += struct.unpack(f"<{len(found.steps) // 8}q", found.steps)
            elif isinstance(found, Event):
                events.append(found.step)
        assert points == events == list(range(self.num_given))


def fill(disk: Path) -> Path:
    """A file that takes half of the disk."""
    filler = disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES // 2))
    return filler


def test_a_disk_that_is_full_and_freed_costs_nothing(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of a segment; what came meanwhile waits in memory, and one warning said so."""
    filler = fill(disk)
    recorder = record(disk / "journals")
    steps = Steps(recorder)
    steps.give_until_it_fails()
    steps.give(20)
    filler.unlink()
    assert recorder.flush(20.0)
    recorder.close(End(outcome="finished", step=0, time_us=0))
    steps.assert_all_there(disk / "journals")
    assert sum("cannot write the journal" in line for line in caplog.messages) == 1


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True, capture_output=True)


def test_a_directory_that_is_read_only_at_first_costs_nothing(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run without a journal, until there can be one. (A file that is open for writing keeps a mount from becoming
    read-only later.)"""
    remount(disk, "ro")
    recorder = record(disk / "journals")
    steps = Steps(recorder)
    steps.give(20)
    assert not recorder.flush(0.2)
    remount(disk, "rw")
    assert recorder.flush(20.0)
    recorder.close(End(outcome="finished", step=0, time_us=0))
    steps.assert_all_there(disk / "journals")
    assert sum("cannot write the journal" in line for line in caplog.messages) == 1
