"""Room for a journal: acknowledged segments go first, then points give way to a `Lost`; events stay."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from halfscope.record.acks import Checkpoint, ServerAck, write_ack
from halfscope.record.journal import JournalWriter
from halfscope.record.layout import StreamPlace
from halfscope.record.quota import REASON, SKETCHES, Kinds, condense, make_room
from halfscope.record.reader import MISSING, read_stream
from halfscope.wire.codec import encode
from halfscope.wire.messages import Column, Event, Lost, Points, Sketches, StreamInfo

QUOTA_BYTES = 20_000


@pytest.fixture
def place(tmp_path: Path) -> StreamPlace:
    return StreamPlace(directory=tmp_path, run_id="run1", stream="ab")


def points(step: int) -> bytes:
    values = struct.pack("<10d", *range(10))
    return encode(
        Points(
            steps=struct.pack("<q", step), times_us=struct.pack("<q", step * 10), columns=[Column(sid=0, values=values)]
        )
    )


def sketches(step: int) -> bytes:
    return encode(
        Sketches(
            step=step, time_us=step, point="step", clipped="no", scale=1.0, lids=struct.pack("<2I", 0, 1),
            counts=bytes(80), moments=bytes(64), lowest=bytes(4), num_bins=struct.pack("<2H", 50, 50),
            bins=bytes(100), width=1,
        )
    )  # fmt: skip


def event(step: int) -> bytes:
    return encode(Event(kind="skip", step=step, time_us=step))


def size(place: StreamPlace) -> int:
    return sum(place.segment(first).stat().st_size for first in place.segments())


def fill(place: StreamPlace, num_rounds: int) -> JournalWriter:
    """Each round is ten records of points and one event."""
    writer = JournalWriter(place, StreamInfo(), lambda: [b"\xc0"], quota_bytes=QUOTA_BYTES, segment_bytes=2000)
    writer.open()
    for number in range(num_rounds):
        writer.append([points(number * 10 + index) for index in range(10)])
        writer.append([event(number)])
    return writer


def test_acknowledged_segments_go_first_and_leave_nothing(place: StreamPlace) -> None:
    """What a server has is simply removed; the rest is whole."""
    writer = fill(place, 10)
    acked = writer.next_seq
    write_ack(place.acks, "local", ServerAck(acked=Checkpoint(seq=acked, digest=bytes(16))))
    for number in range(10, 14):
        writer.append([points(number * 10 + index) for index in range(10)])
    writer.close()
    assert size(place) <= QUOTA_BYTES
    assert place.segments()[0] > 0
    first_held = place.segments()[0]
    contents = b"".join(place.segment(first).read_bytes() for first in place.segments())
    assert b"\xa4lost" not in contents
    assert first_held <= acked


def test_unacknowledged_points_become_lost_and_events_stay(place: StreamPlace) -> None:
    """Every point is there or counted in a Lost; every event is there."""
    writer = JournalWriter(place, StreamInfo(), list, quota_bytes=QUOTA_BYTES, segment_bytes=2000)
    writer.open()
    for number in range(40):
        writer.append([points(number * 10 + index) for index in range(10)])
        writer.append([event(number)])
    writer.close()
    assert size(place) <= QUOTA_BYTES
    found = list(read_stream(place))
    assert [record.step for _, record in found if isinstance(record, Event)] == list(range(40))
    lost = [record for _, record in found if isinstance(record, Lost)]
    assert lost
    assert all(record.reason == REASON for record in lost)
    num_held = sum(10 for _, record in found if isinstance(record, Points))
    assert num_held + sum(record.counts["points"] for record in lost) == 40 * 10 * 10
    for record in lost:
        assert record.counts["first_step"] <= record.counts["last_step"]
    next_seq = 0
    for seq, record in found:
        assert seq == next_seq
        next_seq = record.last_seq + 1 if isinstance(record, Lost) else seq + 1
    assert next_seq == 40 * 11


def test_condensing_twice_changes_nothing(place: StreamPlace) -> None:
    """A Lost of the quota stays one Lost."""
    writer = JournalWriter(place, StreamInfo(), list, quota_bytes=1 << 30)
    writer.open()
    writer.append([points(step) for step in range(5)] + [event(5)] + [points(6)])
    writer.close()
    condense(place.segment(0))
    once = place.segment(0).read_bytes()
    condense(place.segment(0))
    assert place.segment(0).read_bytes() == once
    assert [type(record) for _, record in read_stream(place)] == [Lost, Event, Lost]


def test_what_the_quota_let_go_of_is_told_to_a_server_that_asks_for_it(place: StreamPlace) -> None:
    """The first record read is a Lost over everything that is gone."""
    writer = JournalWriter(place, StreamInfo(), list, quota_bytes=QUOTA_BYTES, segment_bytes=2000)
    writer.open()
    for number in range(20):
        writer.append([points(number * 10 + index) for index in range(10)])
        write_ack(place.acks, "local", ServerAck(acked=Checkpoint(seq=writer.next_seq, digest=bytes(16))))
    writer.close()
    first_held = place.segments()[0]
    assert first_held > 0
    assert next(iter(read_stream(place)))[1] == Lost(first_seq=0, last_seq=first_held - 1, reason=MISSING)


def test_the_segment_that_is_written_is_never_condensed(place: StreamPlace) -> None:
    """A full disk may keep the next one from beginning, and then it is gone on with."""
    writer = JournalWriter(place, StreamInfo(), list, quota_bytes=QUOTA_BYTES)
    writer.open()
    writer.append([points(step) for step in range(10)])
    make_room(place, 0)
    writer.append([event(10)])
    writer.close()
    assert [type(record) for _, record in read_stream(place)] == [Points] * 10 + [Event]


def test_sketches_go_before_points(place: StreamPlace) -> None:
    """While giving up sketches is enough, every point stays; each sketch is there or counted."""
    writer = JournalWriter(place, StreamInfo(), list, quota_bytes=QUOTA_BYTES, segment_bytes=2000)
    writer.open()
    for number in range(60):
        writer.append([points(number), sketches(number), event(number)])
    writer.close()
    assert size(place) <= QUOTA_BYTES
    found = [record for _, record in read_stream(place)]
    assert [record.step for record in found if isinstance(record, Event)] == list(range(60))
    assert sum(isinstance(record, Points) for record in found) == 60
    lost = [record for record in found if isinstance(record, Lost)]
    assert sum(record.counts["sketches"] for record in lost) + 2 * sum(isinstance(r, Sketches) for r in found) == 120
    assert lost
    assert all("points" not in record.counts for record in lost)


def test_a_segment_relieved_of_sketches_is_not_read_for_them_again(
    place: StreamPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each new segment would cost a reading of the whole journal."""
    read: list[tuple[Path, object]] = []

    def counted(path: Path, kinds: Kinds) -> int:
        read.append((path, kinds))
        return condense(path, kinds)

    monkeypatch.setattr("halfscope.record.quota.condense", counted)
    writer = JournalWriter(place, StreamInfo(), list, quota_bytes=QUOTA_BYTES, segment_bytes=2000)
    writer.open()
    for number in range(100):
        writer.append([points(number), sketches(number)])
    writer.close()
    for_sketches = [path for path, kinds in read if kinds == SKETCHES]
    assert len(for_sketches) == len(set(for_sketches)) > 3
