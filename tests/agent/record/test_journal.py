"""The journal writer: segments, locks, modes, torn tails, and disks that are full."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from halfscope.record import journal as journal_module
from halfscope.record import layout, segment
from halfscope.record.errors import StreamBusyError
from halfscope.record.journal import Gap, JournalWriter
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import JournalReader
from halfscope.wire.codec import chain, decode_record
from halfscope.wire.messages import GENESIS_DIGEST, Lost, StreamInfo

INFO = StreamInfo(rank=2, host="node")


@pytest.fixture
def place(tmp_path: Path) -> StreamPlace:
    return StreamPlace(directory=tmp_path / "journals", run_id="run1", stream="ab")


def open_writer(place: StreamPlace, **arguments: Any) -> JournalWriter:
    options = {"quota_bytes": 1 << 30, **arguments}
    heads: Callable[[], list[bytes]] = options.pop("heads", lambda: [b"\x01head"])
    writer = JournalWriter(place, INFO, heads, **options)
    writer.open()
    return writer


def payloads(place: StreamPlace) -> list[bytes]:
    reader = JournalReader(place)
    try:
        return [entry.payload for entry in reader.read(final=True)]
    finally:
        reader.close()


def test_each_segment_begins_with_the_heads_of_that_moment(place: StreamPlace) -> None:
    """The snapshot at the start of a segment is asked for when it begins, and has seqs of its own."""
    heads = [b"\x01start"]
    writer = open_writer(place, heads=lambda: list(heads), segment_bytes=300)
    writer.append([b"a" * 100])
    heads.append(b"\x01declared")
    writer.append([b"b" * 200])
    writer.close()
    assert payloads(place) == [b"\x01start", b"a" * 100, b"\x01start", b"\x01declared", b"b" * 200]
    assert place.segments() == [0, 2]


def test_headers_carry_the_digest_chain(place: StreamPlace) -> None:
    """Each header says the chain before its first record, so a reader that begins there can compare it with a
    server's."""
    writer = open_writer(place, segment_bytes=200)
    for index in range(5):
        writer.append([bytes([index]) * 100])
    writer.close()
    digest = GENESIS_DIGEST
    for first_seq in place.segments():
        data = place.segment(first_seq).read_bytes()
        header, at = segment.read_header(data)
        assert header is not None
        assert (header.first_seq, header.digest, header.info) == (first_seq, digest, INFO)
        frame = segment.read_frame(data, at)
        while frame is not None:
            digest = chain(digest, frame.payload)
            frame = segment.read_frame(data, frame.end)


def test_everything_is_for_the_owner_alone(place: StreamPlace) -> None:
    """Directories 0700, files 0600, whatever the umask."""
    before = os.umask(0)
    try:
        writer = open_writer(place)
        writer.close()
    finally:
        os.umask(before)
    made = [place.directory, place.path.parent, place.path]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.path.iterdir()} == {0o600}


def test_a_second_writer_is_refused_until_the_first_is_gone(place: StreamPlace) -> None:
    """The message names the process that holds the stream."""
    writer = open_writer(place)
    with pytest.raises(StreamBusyError, match=f"by process {os.getpid()}"):
        open_writer(place)
    writer.close()
    open_writer(place).close()


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "A", "x" * 65])
def test_ids_that_would_leave_the_directory_are_refused(place: StreamPlace, run_id: str) -> None:
    """An id is letters and digits, nothing that a path could be made of."""
    with pytest.raises(ValueError, match="run_id"):
        JournalWriter(
            StreamPlace(directory=place.directory, run_id=run_id, stream="ab"), INFO, lambda: [], quota_bytes=1
        )


def test_a_torn_tail_is_cut_when_the_journal_is_taken_up(place: StreamPlace) -> None:
    """Every length at which the last record can be torn; what was whole stays, and the sequence goes on behind it."""
    writer = open_writer(place)
    writer.append([b"first"])
    writer.append([b"second"])
    writer.close()
    path = place.segment(0)
    whole = path.read_bytes()
    last = len(segment.pack(2, b"second"))
    for cut in range(1, last + 1):
        for other in place.segments()[1:]:
            place.segment(other).unlink()
        path.write_bytes(whole[:-cut])
        taken_up = open_writer(place)
        assert taken_up.num_torn_bytes == last - cut
        taken_up.append([b"third"])
        taken_up.close()
        assert payloads(place) == [b"\x01head", b"first", b"\x01head", b"third"]


def test_a_segment_without_a_whole_record_is_forgotten(place: StreamPlace) -> None:
    """Its writer was killed between making the file and filling it."""
    open_writer(place).close()
    place.segment(1).write_bytes(b"\xc1HS")
    open_writer(place).close()
    assert payloads(place) == [b"\x01head", b"\x01head"]


def test_a_failed_write_leaves_the_journal_as_it_was(place: StreamPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of a record before the disk was full is cut off; the same records can be appended later."""
    writer = open_writer(place)

    def half_then_full(descriptor: int, data: bytes | memoryview) -> None:
        os.write(descriptor, bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal_module, "write_all", half_then_full)
    with pytest.raises(OSError, match="No space"):
        writer.append([b"lost?"])
    monkeypatch.setattr(journal_module, "write_all", layout.write_all)
    writer.append([b"not lost"])
    writer.close()
    assert payloads(place) == [b"\x01head", b"not lost"]


def test_where_a_torn_record_cannot_be_cut_off_a_new_segment_begins(
    place: StreamPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost for the reader: seqs go on in the next segment."""
    writer = open_writer(place)

    def half_then_failing(descriptor: int, data: bytes | memoryview) -> None:
        os.write(descriptor, bytes(data)[: len(data) // 2])
        raise OSError(errno.EIO, "Input/output error")

    def cannot(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(journal_module, "write_all", half_then_failing)
    monkeypatch.setattr(journal_module.os, "ftruncate", cannot)
    with pytest.raises(OSError, match="Input/output"):
        writer.append([b"x" * 50])
    monkeypatch.undo()
    writer.append([b"x" * 50])
    writer.close()
    assert payloads(place) == [b"\x01head", b"\x01head", b"x" * 50]


def test_a_segment_that_cannot_be_filled_is_not_left_behind(
    place: StreamPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at the start of a segment leaves no empty file."""
    writer = open_writer(place, segment_bytes=200)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal_module, "write_all", full)
    with pytest.raises(OSError, match="No space"):
        writer.append([b"y" * 190])
    assert place.segments() == [0]
    monkeypatch.undo()
    writer.append([b"y" * 190])
    writer.close()
    assert payloads(place)[-1] == b"y" * 190


def test_a_gap_is_a_lost_record_with_a_seq_of_its_own(place: StreamPlace) -> None:
    """It stands for what was dropped before it had a seq."""
    writer = open_writer(place)
    writer.append([Gap(reason="memory ring full", time_us=5, counts={"points": 3})])
    writer.close()
    wanted = Lost(first_seq=1, last_seq=1, reason="memory ring full", time_us=5, counts={"points": 3})
    assert decode_record(payloads(place)[1]) == wanted
