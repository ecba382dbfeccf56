"""Each single call to the filesystem fails once, one after the other: what was recorded is in the journal all the
same, once and in order."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from pathlib import Path
from unittest import mock

import pytest
from halfscope.record import recorder as recorder_module
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import read_stream
from halfscope.record.recorder import Recorder
from halfscope.wire.messages import End, Event, Lost, Points, Start, StreamInfo

from tests.helpers.failing import every_failure, in_folder

RUN, STREAM = "01jabcdefghjkmnp", "ab12"
NUM_STEPS = 40
FULL = OSError(errno.ENOSPC, "No space left on device")
REAL_WRITE = os.write


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "RETRY_INTERVAL_S", 0.0)
    monkeypatch.setattr(recorder_module, "WRITE_INTERVAL_S", 0.002)


def half_written(descriptor: int, data: memoryview) -> None:
    """As a disk does that fills up in the middle of a write."""
    REAL_WRITE(descriptor, data[: len(data) // 2])


def record(directory: Path) -> Recorder:
    """Rows and events, flushed after each few of them, over several segments."""
    recorder = Recorder.open(
        directory=directory,
        run_id=RUN,
        stream=STREAM,
        info=StreamInfo(),
        start=Start(time_us=1, project="p", name="n"),
        segment_bytes=1000,
    )
    sid = recorder.declare("loss")
    for step in range(NUM_STEPS):
        recorder.row(step, step, [(sid, float(step))])
        if step % 4 == 3:
            recorder.event("test", step)
            recorder.flush(10.0)
    recorder.close(End(outcome="finished", step=NUM_STEPS, time_us=0))
    return recorder


def assert_whole(directory: Path) -> None:
    steps: list[int] = []
    events: list[int] = []
    seqs: list[int] = []
    for seq, record in read_stream(StreamPlace(directory=directory, run_id=RUN, stream=STREAM)):
        assert not isinstance(record, Lost)
        seqs.append(seq)
        if isinstance(record, Points):
            steps += struct.unpack(f"<{len(record.steps) // 8}q", record.steps)
        elif isinstance(record, Event):
            events.append(record.step)
    assert isinstance(record, End)
    assert steps == list(range(NUM_STEPS))
    assert events == list(range(3, NUM_STEPS, 4))
    assert seqs == list(range(len(seqs)))


@pytest.mark.parametrize(
    ("name", "error"),
    [("write", FULL), ("open", OSError(errno.EMFILE, "Too many open files")), ("ftruncate", OSError(errno.EIO, "I/O"))],
)
def test_a_call_that_fails_costs_a_journal_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, error: OSError
) -> None:
    """Writes fail after half of what they were given; all is told with one warning."""
    for fault in every_failure():
        directory = tmp_path / str(fault.number)
        before = half_written if name == "write" else lambda *_: None
        caplog.clear()
        with fault.in_calls(os, name, of=in_folder(directory), error=error, before=before):
            recorder = record(directory)
        assert_whole(directory)
        if not fault.happened:
            assert fault.number > 1
            break
        assert recorder.num_failed_writes <= 1
        assert sum("cannot write the journal" in line for line in caplog.messages) == recorder.num_failed_writes


@pytest.mark.parametrize("name", ["ftruncate", "unlink"])
def test_a_torn_write_that_cannot_be_taken_back_costs_nothing(tmp_path: Path, name: str) -> None:
    """Half of a record, or of a segment, stays: it is neither cut off nor removed, and all is written behind it."""

    def undone(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for fault in every_failure():
        directory = tmp_path / str(fault.number)
        with contextlib.ExitStack() as stack:

            def tear(descriptor: int, data: memoryview, stack: contextlib.ExitStack = stack) -> None:
                half_written(descriptor, data)
                stack.enter_context(mock.patch.object(os, name, undone))

            stack.enter_context(fault.in_calls(os, "write", of=in_folder(directory), error=FULL, before=tear))
            record(directory)
        assert_whole(directory)
        if not fault.happened:
            break
