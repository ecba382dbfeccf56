"""The recorder: what the instruments give it is in the journal, in order, bit for bit."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from halfscope.record.errors import StreamBusyError
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import read_info, read_stream
from halfscope.record.recorder import Recorder
from halfscope.wire.messages import Declare, End, Event, Facts, Points, Record, Series, Start, StreamInfo

RUN = "01jabcdefghjkmnp"
STREAM = "00112233445566ff"
START = Start(time_us=1, project="p", name="n", config={"lr": 0.1})


def open_recorder(directory: Path, **arguments: object) -> Recorder:
    return Recorder.open(
        directory=directory, run_id=RUN, stream=STREAM, info=StreamInfo(rank=3, host="h"), start=START, **arguments
    )  # type: ignore[arg-type]


def records(directory: Path) -> list[Record]:
    return [record for _, record in read_stream(StreamPlace(directory=directory, run_id=RUN, stream=STREAM))]


def test_everything_given_is_written_in_order(tmp_path: Path) -> None:
    """Start first, then declarations, numbers, events and facts in the order given, and the end last."""
    recorder = open_recorder(tmp_path)
    loss = recorder.declare("loss", unit="1")
    recorder.row(0, 10, [(loss, 2.5)])
    recorder.event("skip", 0, where=["adam"], attributes={"scale": 65536.0}, time_us=11)
    recorder.row(1, 12, [(loss, math.nan)])
    recorder.facts({"precision": "FP16-AMP"})
    end = End(outcome="finished", step=1, time_us=13)
    recorder.close(end)

    start, declared, first, event, second, facts, last = records(tmp_path)
    assert start == START
    assert declared == Declare(series=[Series(sid=loss, name="loss", unit="1")])
    assert isinstance(first, Points)
    assert (first.steps, first.times_us, first.columns[0].values) == tuple(
        struct.pack(code, value) for code, value in (("<q", 0), ("<q", 10), ("<d", 2.5))
    )
    assert event == Event("skip", 0, 11, where=["adam"], attributes={"scale": 65536.0})
    assert isinstance(second, Points)
    assert math.isnan(struct.unpack("<d", second.columns[0].values)[0])
    assert isinstance(facts, Facts)
    assert facts.facts == {"precision": "FP16-AMP"}
    assert last == end
    assert read_info(StreamPlace(directory=tmp_path, run_id=RUN, stream=STREAM)) == StreamInfo(rank=3, host="h")


def test_a_series_has_one_number_per_name_and_labels(tmp_path: Path) -> None:
    """Declaring again gives the number again, whatever the order of the labels."""
    recorder = open_recorder(tmp_path)
    first = recorder.declare("lr", labels={"optimizer": "a", "group": "0"})
    assert recorder.declare("lr", labels={"group": "0", "optimizer": "a"}) == first
    assert recorder.declare("lr", labels={"group": "1", "optimizer": "a"}) != first
    recorder.close(None)
    assert sum(isinstance(record, Declare) for record in records(tmp_path)) == 2


def test_flush_waits_until_what_was_given_is_written(tmp_path: Path) -> None:
    """After a flush a reader finds all of it, while the recorder is still open."""
    recorder = open_recorder(tmp_path)
    sid = recorder.declare("loss")
    for step in range(100):
        recorder.row(step, step, [(sid, float(step))])
    assert recorder.flush(10.0)
    seen = [struct.unpack(f"<{len(p.steps) // 8}q", p.steps) for p in records(tmp_path) if isinstance(p, Points)]
    assert [step for steps in seen for step in steps] == list(range(100))
    recorder.close(None)


def test_a_second_writer_of_one_stream_is_refused(tmp_path: Path) -> None:
    """The message names the stream and says what to do."""
    recorder = open_recorder(tmp_path)
    with pytest.raises(StreamBusyError, match=f"stream {STREAM} .* is already being written .*new stream id"):
        open_recorder(tmp_path)
    recorder.close(None)
    open_recorder(tmp_path).close(None)
