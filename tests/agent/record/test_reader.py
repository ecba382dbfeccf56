"""Reading a journal: consecutive seqs whatever happened to the files, and a `Lost` for what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from halfscope.record import segment
from halfscope.record.journal import JournalWriter
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import DAMAGED, MISSING, Entry, JournalReader, read_checkpoint, read_info
from halfscope.wire.codec import decode_record, encode
from halfscope.wire.messages import Event, Lost, StreamInfo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

INFO = StreamInfo(rank=1)


def event(number: int) -> bytes:
    return encode(Event(kind="k", step=number, time_us=0, attributes={"text": "x" * (number % 7)}))


@pytest.fixture
def place(tmp_path: Path) -> StreamPlace:
    return StreamPlace(directory=tmp_path, run_id="run1", stream="ab")


def write(place: StreamPlace, num_records: int, *, segment_bytes: int = 1 << 20) -> list[bytes]:
    """A journal of so many records; gives their payloads. The heads are numbered like the rest."""
    written: list[bytes] = []

    def heads() -> list[bytes]:
        written.append(event(len(written)))
        return written[-1:]

    writer = JournalWriter(place, INFO, heads, quota_bytes=1 << 30, segment_bytes=segment_bytes)
    writer.open()
    while len(written) < num_records:
        payload = event(1000 + len(written))
        before = len(written)
        writer.append([payload])
        # A head may have come before it.
        written.append(payload)
        assert writer.next_seq == len(written) >= before
    writer.close()
    return written


def read(place: StreamPlace, seq: int = 0, *, final: bool = True) -> list[Entry]:
    reader = JournalReader(place, seq)
    try:
        return list(reader.read(final=final))
    finally:
        reader.close()


def assert_accounted(entries: list[Entry], written: list[bytes], first_seq: int = 0) -> int:
    """Entries are consecutive, each is what was written there or a Lost that names exactly it. Gives the seqs lost."""
    next_seq, num_lost = first_seq, 0
    for entry in entries:
        assert entry.seq == next_seq
        if entry.payload == written[entry.seq] and entry.last_seq == entry.seq:
            next_seq += 1
            continue
        lost = decode_record(entry.payload)
        assert isinstance(lost, Lost)
        assert (lost.first_seq, lost.last_seq) == (entry.seq, entry.last_seq)
        num_lost += entry.last_seq - entry.seq + 1
        next_seq = entry.last_seq + 1
    return num_lost


def test_records_come_in_order_over_all_segments(place: StreamPlace) -> None:
    """From the start, and from any seq in between."""
    written = write(place, 30, segment_bytes=150)
    assert len(place.segments()) > 5
    for seq in range(30):
        entries = read(place, seq)
        assert [entry.payload for entry in entries] == written[seq:]
        assert assert_accounted(entries, written, seq) == 0
    assert read_info(place) == INFO


def test_a_journal_that_grows_is_followed(place: StreamPlace) -> None:
    """Each reading goes on where the last one stopped, into new segments too."""
    payloads = [event(number) for number in range(20)]
    writer = JournalWriter(place, INFO, list, quota_bytes=1 << 30, segment_bytes=200)
    writer.open()
    reader = JournalReader(place)
    seen: list[bytes] = []
    for payload in payloads:
        writer.append([payload])
        seen += [entry.payload for entry in reader.read()]
        assert seen[-1] == payload
    assert seen == payloads
    reader.close()
    writer.close()


def test_a_reading_may_be_left_at_any_record(place: StreamPlace) -> None:
    """Taking one entry at a time, with a new generator each, gives the same."""
    written = write(place, 20, segment_bytes=150)
    reader = JournalReader(place)
    seen = []
    while (entry := next(iter(reader.read(final=True)), None)) is not None:
        seen.append(entry)
    reader.close()
    assert [entry.payload for entry in seen] == written


def test_every_flipped_byte_is_accounted_for(place: StreamPlace) -> None:
    """Each byte of a small journal of two segments in turn: one record is lost, and a Lost names it."""
    written = write(place, 6, segment_bytes=250)
    assert len(place.segments()) == 2
    for first_seq in place.segments():
        path = place.segment(first_seq)
        whole = path.read_bytes()
        _, header_end = segment.read_header(whole)
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
            entries = read(place)
            num_lost = assert_accounted(entries, written)
            assert num_lost == (0 if at < header_end else 1)
            assert entries[-1].last_seq == 5
        path.write_bytes(whole)


def test_every_length_of_a_truncated_segment_is_accounted_for(place: StreamPlace) -> None:
    """Cut anywhere in the first segment, the second still comes; cut in the last one, whole records stay."""
    written = write(place, 6, segment_bytes=250)
    first, last = place.segments()
    whole = place.segment(first).read_bytes()
    for length in range(len(whole)):
        place.segment(first).write_bytes(whole[:length])
        entries = read(place)
        assert_accounted(entries, written)
        assert entries[-1].payload == written[-1]
    place.segment(first).write_bytes(whole)
    whole = place.segment(last).read_bytes()
    for length in range(len(whole)):
        place.segment(last).write_bytes(whole[:length])
        entries = read(place)
        # What was being written counts as one lost record, however little of it there is.
        assert assert_accounted(entries, written) <= 1
        assert entries[-1].last_seq <= 5


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_any_damage_is_accounted_for(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Several segments overwritten, cut, and taken away at random."""
    place = StreamPlace(directory=tmp_path_factory.mktemp("journal"), run_id="run1", stream="ab")
    written = write(place, 25, segment_bytes=250)
    for first_seq in place.segments():
        path = place.segment(first_seq)
        content = bytearray(path.read_bytes())
        what = data.draw(st.sampled_from(["keep", "overwrite", "cut", "remove"]))
        if what == "overwrite":
            at = data.draw(st.integers(0, len(content) - 1))
            rubbish = data.draw(st.binary(min_size=1, max_size=60))
            content[at : at + len(rubbish)] = rubbish
            path.write_bytes(content)
        elif what == "cut":
            path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        elif what == "remove":
            path.unlink()
    assert_accounted(read(place), written)


def test_a_record_that_is_being_written_is_waited_for(place: StreamPlace) -> None:
    """While the writer lives a torn tail is no loss: the rest comes."""
    written = write(place, 3)
    path = place.segment(0)
    whole = path.read_bytes()
    reader = JournalReader(place)
    path.write_bytes(whole[:-4])
    assert [entry.payload for entry in reader.read()] == written[:2]
    path.write_bytes(whole)
    assert [entry.payload for entry in reader.read()] == written[2:]
    reader.close()


def test_a_record_cut_off_and_written_again_is_read_anew(place: StreamPlace) -> None:
    """A writer whose disk was full cuts its half record; what it writes there later is what counts."""
    write(place, 1)
    path = place.segment(0)
    whole = path.read_bytes()
    reader = JournalReader(place)
    path.write_bytes(whole + segment.pack(1, b"x" * 100)[:70])
    assert len(list(reader.read())) == 1
    path.write_bytes(whole + segment.pack(1, b"y" * 300))
    assert [entry.payload for entry in reader.read()] == [b"y" * 300]
    reader.close()


def test_segments_that_are_gone_are_one_lost_range(place: StreamPlace) -> None:
    """At the start, and between two that are there."""
    write(place, 30, segment_bytes=150)
    firsts = place.segments()
    for index in (0, 1, 4):
        place.segment(firsts[index]).unlink()
    entries = read(place)
    lost = [decode_record(entry.payload) for entry in entries if entry.is_missing]
    assert lost == [
        Lost(first_seq=0, last_seq=firsts[2] - 1, reason=MISSING),
        Lost(first_seq=firsts[4], last_seq=firsts[5] - 1, reason=MISSING),
    ]


def test_damage_reads_the_same_each_time(place: StreamPlace) -> None:
    """A Lost for a damaged record has no clock in it, so the digest chain over it can be had again."""
    write(place, 5)
    path = place.segment(0)
    content = bytearray(path.read_bytes())
    content[-30] ^= 1
    path.write_bytes(content)
    first, second = read(place), read(place)
    assert first == second
    assert DAMAGED in str(decode_record(first[-1].payload))


def test_a_lost_range_can_be_entered_in_the_middle(place: StreamPlace) -> None:
    """A reader that begins inside it gets the rest of it."""
    write(place, 1)
    lost = encode(Lost(first_seq=1, last_seq=9, reason="journal quota", counts={"points": 5}))
    with place.segment(0).open("ab") as file:
        file.write(segment.pack(1, lost) + segment.pack(10, b"after"))
    middle, after = read(place, 4)
    assert (middle.seq, middle.last_seq) == (4, 9)
    assert decode_record(middle.payload) == Lost(first_seq=4, last_seq=9, reason="journal quota")
    assert (after.seq, after.payload) == (10, b"after")


def test_the_checkpoint_before_a_seq_is_that_of_its_segment(place: StreamPlace) -> None:
    """The nearest place at which the writer noted the chain."""
    write(place, 30, segment_bytes=150)
    firsts = place.segments()
    found = read_checkpoint(place, firsts[2] + 1)
    assert found is not None
    assert found[0] == firsts[2]
    assert read_checkpoint(StreamPlace(directory=place.directory, run_id="none", stream="ab"), 3) is None


def damaged(whole: bytes) -> Iterator[tuple[bytes, int, bool]]:
    """Each byte flipped, and cut at each length: what is left, where it differs, whether more follows."""
    for at in range(len(whole)):
        yield whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :], at, True
        yield whole[:at], at, False


def test_a_writer_that_takes_up_a_damaged_journal_loses_no_more_of_it(tmp_path: Path) -> None:
    """Each byte of its last segment flipped, and each length of it: what is whole is read, in its place; what is not is
    a `Lost` or bytes that the writer counts; and what it writes then stands behind all of it."""
    template = StreamPlace(directory=tmp_path / "template", run_id="run1", stream="ab")
    written = write(template, 6, segment_bytes=250)
    first, last = template.segments()
    whole = template.segment(last).read_bytes()
    _, begins = segment.read_header(whole)
    ends = [begins]
    while (frame := segment.read_frame(whole, ends[-1])) is not None:
        ends.append(frame.end)
    fresh = [event(2000), event(2001)]
    for number, (left, at, is_whole_behind) in enumerate(damaged(whole)):
        place = StreamPlace(directory=tmp_path / str(number), run_id="run1", stream="ab")
        place.path.mkdir(parents=True)
        place.segment(first).write_bytes(template.segment(first).read_bytes())
        place.segment(last).write_bytes(left)
        writer = JournalWriter(place, INFO, list, quota_bytes=1 << 30)
        writer.open()
        writer.append(fresh[:1])
        writer.append(fresh[1:])
        writer.close()
        entries = read(place)
        assert [entry.payload for entry in entries[-2:]] == fresh
        assert [entry.seq for entry in entries[1:]] == [entry.last_seq + 1 for entry in entries[:-1]]
        lost = [entry for entry in entries if isinstance(decode_record(entry.payload), Lost)]
        found = {entry.seq: entry.payload for entry in entries[:-2] if entry not in lost}
        told = {seq for entry in lost for seq in range(entry.seq, entry.last_seq + 1)}
        intact = {
            last + index
            for index, (begin, end) in enumerate(pairwise(ends))
            if end <= at or (is_whole_behind and at < begin)
        }
        assert found == {seq: written[seq] for seq in intact | set(range(last))}
        # Behind the last record that is whole nobody can tell one that was damaged from one half written.
        behind = set(range(len(written))) - found.keys() - told
        assert behind == set(range(entries[-2].seq, len(written)))
        assert not (behind and is_whole_behind) or writer.num_torn_bytes > 0
        assert writer.num_torn_bytes == 0 or len(left) > max([0, *(end for end in ends if end <= at)])
