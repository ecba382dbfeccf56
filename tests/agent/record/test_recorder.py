"""The recorder: what the instruments give it is in the journal, in order, bit for bit."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from halfscope.record.errors import StreamBusyError
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import read_info, read_stream
from halfscope.record.recorder import Recorder
from halfscope.sketch import ArraySketcher, Sketch, unpack
from halfscope.wire.messages import (
    Declare,
    End,
    Event,
    Facts,
    Layer,
    Layers,
    Lost,
    Points,
    Record,
    Series,
    Sketches,
    Start,
    StreamInfo,
)

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


def test_every_name_is_one_that_servers_take(tmp_path: Path) -> None:
    """A refused declaration would cost every row that holds its series, with all that is beside it."""
    recorder = open_recorder(tmp_path)
    names = ["", "a\x00b", "\ud800", "x" * 1000]
    assert [recorder.declare(name, labels={"k\x00": "\x00"}) for name in names] == [0, 1, 2, 3]
    recorder.close(None)
    declared = [series for record in records(tmp_path) if isinstance(record, Declare) for series in record.series]
    assert [series.name for series in declared] == ["unnamed", "a\ufffdb", "?", "x" * 200]
    assert {tuple(series.labels.items()) for series in declared} == {(("k\ufffd", "\ufffd"),)}


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


def test_a_directory_that_cannot_be_made_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on, records wait in memory, and are written once the directory is there."""
    blocked = tmp_path / "journals"
    blocked.write_text("a file where the directory should be")
    recorder = open_recorder(blocked)
    sid = recorder.declare("loss")
    recorder.row(0, 0, [(sid, 1.0)])
    assert not recorder.flush(0.2)
    recorder.row(1, 0, [(sid, 2.0)])
    assert not recorder.flush(0.2)
    assert [entry.message.startswith("halfscope: cannot write the journal in") for entry in caplog.records] == [True]
    blocked.unlink()
    assert recorder.flush(10.0)
    recorder.close(End(outcome="finished", step=1, time_us=0))
    assert "can be written again" in caplog.text
    steps = [p.steps for p in records(blocked) if isinstance(p, Points)]
    assert b"".join(steps) == struct.pack("<2q", 0, 1)
    assert isinstance(records(blocked)[-1], End)


def test_what_is_no_number_costs_only_itself(tmp_path: Path) -> None:
    """A row that cannot be encoded becomes a Lost that counts it; its neighbours are written."""
    recorder = open_recorder(tmp_path)
    sid = recorder.declare("loss")
    recorder.row(0, 0, [(sid, 1.0)])
    recorder.row(1, 0, [(sid, "high")])  # type: ignore[list-item]
    recorder.row(2, 0, [(sid, 3.0)])
    recorder.close(None)
    found = records(tmp_path)
    assert [record.reason for record in found if isinstance(record, Lost)] == ["not numbers"]
    assert b"".join(p.steps for p in found if isinstance(p, Points)) == struct.pack("<2q", 0, 2)


def test_a_huge_configuration_is_bounded(tmp_path: Path) -> None:
    """Start stands at the head of every segment, so it must not fill them."""
    start = Start(time_us=1, project="p", name="n" * 5000, config={"table": ["x" * 100] * 9000, "lr": 0.1})
    recorder = Recorder.open(directory=tmp_path, run_id=RUN, stream=STREAM, info=StreamInfo(), start=start)
    recorder.close(None)
    written = records(tmp_path)[0]
    assert isinstance(written, Start)
    assert written.config["lr"] == 0.1
    assert written.config["table"].startswith("left out: ")
    assert len(written.name) == 200


def test_a_row_of_very_many_series_is_split(tmp_path: Path) -> None:
    """No record is larger than the wire takes, however much is logged at one step."""
    recorder = open_recorder(tmp_path)
    recorder.row(5, 0, [(sid, float(sid)) for sid in range(40_000)])
    assert recorder.flush(30.0)
    recorder.close(None)
    points = [record for record in records(tmp_path) if isinstance(record, Points)]
    assert sorted(column.sid for p in points for column in p.columns) == list(range(40_000))
    assert len(points) > 1


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    """A data loader's worker inherits the recorder; what it calls has no effect, and it holds no lock."""
    recorder = open_recorder(tmp_path)
    sid = recorder.declare("loss")
    recorder.row(0, 0, [(sid, 1.0)])
    assert recorder.flush(10.0)
    to_parent, from_child = os.pipe()
    go_on, wait_for_parent = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            recorder.row(1, 0, [(sid, 2.0)])
            recorder.event("skip", 1, urgent=True)
            flushed = recorder.flush(0.01)
            number = recorder.declare("new")
            recorder.close(End(outcome="finished", step=1, time_us=0))
            os.write(from_child, f"{flushed} {number}".encode())
            os.read(go_on, 1)
        finally:
            os._exit(0)
    assert os.read(to_parent, 100) == b"False 1"
    recorder.row(2, 0, [(sid, 3.0)])
    recorder.close(None)
    # The child still lives, and yet the stream is free.
    open_recorder(tmp_path).close(None)
    os.write(wait_for_parent, b"x")
    os.waitpid(child, 0)
    for descriptor in (to_parent, from_child, go_on, wait_for_parent):
        os.close(descriptor)
    found = records(tmp_path)
    assert b"".join(p.steps for p in found if isinstance(p, Points)) == struct.pack("<2q", 0, 2)
    assert not any(isinstance(record, Event | End) for record in found)


def test_a_recorder_left_open_is_written_at_exit(tmp_path: Path) -> None:
    """A script that ends without finish loses nothing of what it recorded."""
    script = f"""
from pathlib import Path
from halfscope.record.recorder import Recorder
from halfscope.wire.messages import Start, StreamInfo
recorder = Recorder.open(directory=Path({str(tmp_path)!r}), run_id={RUN!r}, stream={STREAM!r}, info=StreamInfo(),
                         start=Start(time_us=1, project="p", name="n"))
sid = recorder.declare("loss")
for step in range(1000):
    recorder.row(step, step, [(sid, 1.0)])
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    steps = b"".join(p.steps for p in records(tmp_path) if isinstance(p, Points))
    assert steps == struct.pack("<1000q", *range(1000))


def test_recording_loads_neither_torch_nor_numpy() -> None:
    """The journal is shared with the sender, which stays small; importing starts no thread."""
    script = (
        "import sys, threading, halfscope.record.recorder; "
        "assert not {'torch', 'numpy', 'websockets'} & set(sys.modules); assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_an_offline_run_is_marked_before_there_is_anything_to_ship(tmp_path: Path) -> None:
    """The node's sender passes over what it finds marked."""
    recorder = open_recorder(tmp_path, offline=True)
    assert recorder.place.offline_mark.exists()
    recorder.close(None)


# ---- layers and sketches ----------------------------------------------------------------------------------


def some_sketches(num_layers: int) -> Sketch:
    rng = np.random.default_rng(num_layers)
    return ArraySketcher()([rng.standard_normal(rng.integers(0, 50)).astype(np.float32) for _ in range(num_layers)])


def give(recorder: Recorder, step: int, lids: list[int], sketches: Sketch) -> None:
    recorder.sketches(step, step * 10, point="unscale", clipped="no", scale=512.0, lids=lids, sketches=sketches)


def assert_same(one: Sketch, other: Sketch) -> None:
    for name in ("n", "zeros", "nan", "pos_inf", "neg_inf", "sum", "sumsq", "absmax", "absmin_nonzero"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    one, other = one.trimmed(), other.trimmed()
    assert one.lowest == other.lowest
    np.testing.assert_array_equal(one.counts, other.counts)


def test_sketches_are_written_behind_their_layers(tmp_path: Path) -> None:
    """In the order given, bit for bit, with the step's scale beside them."""
    recorder = open_recorder(tmp_path)
    recorder.layers([Layer(0, "a.weight", [3, 4], "float32"), Layer(1, "a.bias", [3], "float32")])
    sketches = some_sketches(2)
    recorder.event("before", 7, time_us=1)
    give(recorder, 7, [1, 0], sketches)
    recorder.close(None)
    _, layers, event, record = records(tmp_path)
    assert layers == Layers(layers=[Layer(0, "a.weight", [3, 4], "float32"), Layer(1, "a.bias", [3], "float32")])
    assert isinstance(event, Event)
    assert isinstance(record, Sketches)
    assert (record.step, record.time_us, record.point, record.clipped, record.scale, record.of) == (
        7, 70, "unscale", "no", 512.0, "grad",
    )  # fmt: skip
    lids, found = unpack(record)
    assert lids.tolist() == [1, 0]
    assert_same(found, sketches)


def test_a_large_frame_is_several_records(tmp_path: Path) -> None:
    """No record holds more than 512 layers; together they are the frame."""
    recorder = open_recorder(tmp_path)
    recorder.layers([Layer(lid, f"layer.{lid}") for lid in range(1300)])
    sketches = some_sketches(1300)
    give(recorder, 3, list(range(1300)), sketches)
    recorder.close(None)
    found = [record for record in records(tmp_path) if isinstance(record, Sketches)]
    assert [len(record.lids) // 4 for record in found] == [512, 512, 276]
    for part, record in enumerate(found):
        lids, unpacked = unpack(record)
        assert lids.tolist() == list(range(1300))[part * 512 : part * 512 + 512]
        assert_same(unpacked, sketches[part * 512 : part * 512 + 512])


def test_layers_are_declared_once_as_servers_take_them_and_stand_at_the_head_of_each_segment(tmp_path: Path) -> None:
    """A name that servers refuse would cost every sketch."""
    recorder = open_recorder(tmp_path, segment_bytes=2000)
    recorder.layers([Layer(0, "", [1] * 40, "d" * 99), Layer(1, "a\x00" + "b" * 498), Layer(70_000, "beyond")])
    recorder.layers([Layer(1, "again"), Layer(2, "c")])
    give(recorder, 0, [0, 70_000, 2], some_sketches(3))
    for step in range(40):
        recorder.event("filler", step, attributes={"text": "x" * 100})
        if step % 5 == 0:
            recorder.flush(10.0)
    recorder.close(None)
    bounded = [Layer(0, "unnamed", [1] * 32, "d" * 64), Layer(1, "a\ufffd" + "b" * 498), Layer(2, "c")]
    declared = [record.layers for record in records(tmp_path) if isinstance(record, Layers)]
    assert declared.count(bounded[:2]) == declared.count(bounded[2:]) == 1
    heads = [layers for layers in declared if layers not in (bounded[:2], bounded[2:])]
    assert len(heads) > 3
    assert all(layers == bounded for layers in heads)
    (record,) = [record for record in records(tmp_path) if isinstance(record, Sketches)]
    assert unpack(record)[0].tolist() == [0, 2]


def test_long_names_that_begin_alike_stay_apart(tmp_path: Path) -> None:
    """Cut off they would be one layer, and a server would keep one of its two sketches."""
    recorder = open_recorder(tmp_path)
    recorder.layers([Layer(0, "b" * 600 + "x"), Layer(1, "b" * 600 + "y"), Layer(2, "c" * 500)])
    recorder.flush(10.0)
    recorder.close(None)
    (declared,) = [record.layers for record in records(tmp_path) if isinstance(record, Layers)]
    names = [layer.name for layer in declared]
    assert len(set(names)) == 3
    assert [len(name) for name in names] == [500] * 3
    assert names[2] == "c" * 500


def test_sketches_beyond_the_memory_for_them_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the journal thread is stuck; afterwards sketches are taken again."""
    sketches = some_sketches(3)
    num_bytes = sketches.counts.nbytes + 3 * 72
    monkeypatch.setattr("halfscope.record.recorder.MAX_SKETCH_BYTES", 2 * num_bytes)
    recorder = open_recorder(tmp_path)
    recorder.layers([Layer(lid, f"layer.{lid}") for lid in range(3)])
    recorder.flush(10.0)
    let_go = recorder._ring.drain
    monkeypatch.setattr(recorder._ring, "drain", lambda: iter(()))
    for step in range(5):
        give(recorder, step, [0, 1, 2], sketches)
    monkeypatch.setattr(recorder._ring, "drain", let_go)
    assert recorder.flush(10.0)
    give(recorder, 9, [0, 1, 2], sketches)
    recorder.close(None)
    found = records(tmp_path)
    assert [record.step for record in found if isinstance(record, Sketches)] == [0, 1, 9]
    (lost,) = [record for record in found if isinstance(record, Lost)]
    assert lost.counts == {"sketches": 9}
    assert lost.reason == "memory for sketches full"


def test_nothing_is_recorded_after_the_end(tmp_path: Path) -> None:
    """Layers and sketches of a closed recorder go nowhere."""
    recorder = open_recorder(tmp_path)
    recorder.close(None)
    recorder.layers([Layer(0, "late")])
    give(recorder, 0, [0], some_sketches(1))
    assert [type(record) for record in records(tmp_path)] == [Start]
