"""One stream's way to a server: resuming, forks, ranges that are gone, records that are refused."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from halfscope.record.acks import read_acks
from halfscope.record.layout import StreamPlace
from halfscope.record.quota import condense
from halfscope.record.reader import MISSING, read_stream
from halfscope.send.outbox import Outbox
from halfscope.wire.agent_session import Acked, AgentSession, BatchRefused, Welcomed
from halfscope.wire.codec import encode
from halfscope.wire.messages import Column, Declare, End, Event, Lost, Points, Record, Start, StreamInfo

NewJournal = Callable[..., Any]


def open_outbox(place: StreamPlace) -> Outbox:
    outbox = Outbox.open(place, "local")
    assert outbox is not None
    return outbox


def ship(outbox: Outbox, model: Any, *, acknowledge: bool = True, max_batches: int = 10_000) -> None:
    """Ship what is there to a model of a server, as `Shipper` does over a socket."""
    session = AgentSession(uniform=lambda: 0.0)
    session.add(outbox.hello(), 0.0)
    now_s = 0.0
    outbox.look_at_writer(0.0)
    for _ in range(2000):
        now_s += 1.0
        for hello in session.hellos(now_s):
            for answer in model.answer(hello):
                for event in session.receive(answer, now_s):
                    assert isinstance(event, Welcomed)
                    if not outbox.matches(event.next, event.digest):
                        assert outbox.fork(event.next)
                        return ship(outbox, model)
                    outbox.start_at(event.next, event.digest)
                    session.resume(event.key)
        while session.room(outbox.key) > 0 and outbox.fill() and max_batches > 0:
            cut = outbox.cut()
            assert cut is not None
            batch = session.batch(outbox.key, cut.count, cut.payloads, now_s)
            outbox.sent(batch, cut)
            max_batches -= 1
            if not acknowledge:
                model.answer(batch)
                continue
            for answer in model.answer(batch):
                for event in session.receive(answer, now_s):
                    if isinstance(event, Acked):
                        outbox.acked(event.next, event.digest)
                    elif isinstance(event, BatchRefused):
                        outbox.refused(event.first, event.count, event.code, event.message)
        if max_batches == 0 or outbox.is_shipped or not acknowledge:
            outbox.save()
            return None
    raise AssertionError("it does not come to an end")


def stored(model: Any, stream: str = "ab") -> list[tuple[int, Record]]:
    found: list[tuple[int, Record]] = model.streams["run1", stream].records
    return found


def test_what_is_in_the_journal_arrives(new_journal: NewJournal, model: Any) -> None:
    """Every record, under its own seq; how far it came is on disk."""
    journal = new_journal()
    journal.write(50)
    journal.end()
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    assert stored(model) == list(read_stream(journal.place))
    assert outbox.outcome == "ended"
    outbox.close()
    assert read_acks(journal.place.acks).journal_next == 53


def test_only_one_ships_a_stream(new_journal: NewJournal) -> None:
    """A second one is told so, until the first lets go."""
    journal = new_journal()
    outbox = open_outbox(journal.place)
    assert Outbox.open(journal.place, "local") is None
    outbox.close()
    open_outbox(journal.place).close()


def test_acknowledgements_that_were_lost_are_asked_of_the_server(new_journal: NewJournal, model: Any) -> None:
    """Neither the answers nor ack.json are needed to go on without sending anything twice."""
    journal = new_journal()
    journal.write(30)
    outbox = open_outbox(journal.place)
    ship(outbox, model, acknowledge=False)
    outbox.close()
    journal.place.acks.unlink(missing_ok=True)
    journal.write(5)
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    outbox.close()
    assert stored(model) == list(read_stream(journal.place))
    assert list(model.streams) == [("run1", "ab")]


def test_a_server_that_went_back_gets_its_records_again(new_journal: NewJournal, model: Any) -> None:
    """It was restored from a backup; the journal still holds what was acknowledged."""
    journal = new_journal()
    journal.write(10)
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    backup = model.streams["run1", "ab"]
    at_backup = (backup.next, backup.digest, list(backup.payloads))
    journal.write(10)
    ship(outbox, model)
    backup.next, backup.digest, backup.payloads = at_backup
    journal.write(3)
    ship(outbox, model)
    outbox.close()
    assert stored(model) == list(read_stream(journal.place))


def test_what_the_journal_let_go_of_is_one_lost_range(new_journal: NewJournal, model: Any) -> None:
    """A server that asks for it gets one batch over the range, and then the rest; later it all still matches."""
    journal = new_journal(segment_bytes=500)
    journal.write(60)
    firsts = journal.place.segments()
    for first_seq in firsts[:5]:
        journal.place.segment(first_seq).unlink()
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    (seq, lost), *rest = stored(model)
    assert (seq, lost) == (0, Lost(first_seq=0, last_seq=firsts[5] - 1, reason=MISSING))
    assert rest == list(read_stream(journal.place, first_seq=firsts[5]))
    outbox.close()
    journal.write(5)
    # Also for one that does not know how far it came, only where the chain was interrupted.
    outbox = open_outbox(journal.place)
    outbox.ack = type(outbox.ack)(acked=outbox.ack.rebases[0], rebases=outbox.ack.rebases)
    ship(outbox, model)
    outbox.close()
    assert list(model.streams) == [("run1", "ab")]
    assert stored(model)[-1][1] == Event("test", 64, 0, attributes={"text": "x" * 10})


def test_a_record_that_is_refused_is_told_as_lost_and_the_others_arrive(new_journal: NewJournal, model: Any) -> None:
    """Halving finds the one; in its place stands why."""
    journal = new_journal()
    journal.write(20)
    journal.write(1, mark="!")
    journal.write(20)
    model.refuses = lambda payload: b"!!" in payload
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    wanted = list(read_stream(journal.place))
    found = stored(model)
    assert found[:22] == wanted[:22]
    assert found[23:] == wanted[23:]
    seq, lost = found[22]
    assert isinstance(lost, Lost)
    assert (lost.first_seq, lost.last_seq) == (seq, seq)
    assert "refused by the server (bad_batch): a record that this server cannot read" in lost.reason
    outbox.close()
    # Another sender, which has not seen the refusal, still finds that this is the same journal.
    journal.write(1)
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    outbox.close()
    assert list(model.streams) == [("run1", "ab")]


def copy_journal(place: StreamPlace, to: Path) -> StreamPlace:
    shutil.copytree(place.directory, to)
    return StreamPlace(directory=to, run_id=place.run_id, stream=place.stream)


def take_up(new_journal: NewJournal, place: StreamPlace, **options: Any) -> Any:
    return new_journal(place.run_id, place.stream, at=place.directory, **options)


def event_texts(records: list[tuple[int, Record]]) -> list[str]:
    return [record.attributes["text"] for _, record in records if isinstance(record, Event) and record.kind == "test"]


def test_a_copied_journal_that_went_its_own_way_becomes_a_stream_of_its_own(
    new_journal: NewJournal, model: Any, tmp_path: Path
) -> None:
    """Nothing of either copy is lost or overwritten, and an event tells of it."""
    original = new_journal()
    original.write(10)
    outbox = open_outbox(original.place)
    ship(outbox, model)
    outbox.close()
    acked = read_acks(original.place.acks).journal_next
    original.writer.close()
    copy_place = copy_journal(original.place, tmp_path / "copy")
    original, copy = take_up(new_journal, original.place), take_up(new_journal, copy_place)
    original.write(5, mark="o")
    copy.write(5, mark="c")

    outbox = open_outbox(original.place)
    ship(outbox, model)
    outbox.close()
    outbox = open_outbox(copy_place)
    ship(outbox, model)
    key = outbox.key
    outbox.close()

    assert event_texts(stored(model)) == ["x" * 10] * 10 + ["o" * 10] * 5
    newcomer = model.streams[key]
    assert key[1] != "ab"
    assert newcomer.hello.info.forked_from == "ab"
    assert newcomer.hello.first_seq == acked
    (_, start), (_, declared), (seq, told), *rest = newcomer.records
    assert isinstance(start, Start)
    assert isinstance(declared, Declare)
    assert (seq, told.kind, told.severity) == (acked + 2, "journal_forked", "warning")
    assert told.attributes["forked_from"] == "ab"
    assert told.step >= 5
    assert event_texts(rest) == ["c" * 10] * 5

    # From here on both go on side by side, through restarts of either sender.
    for round_number in range(2):
        original.write(2, mark="O")
        copy.write(2, mark="C")
        for place in (original.place, copy_place):
            outbox = open_outbox(place)
            ship(outbox, model)
            outbox.close()
        assert event_texts(stored(model))[-2:] == ["O" * 10] * 2
        assert len(newcomer.records) == 3 + len(rest) + 2 * (round_number + 1)
        assert event_texts(newcomer.records)[-2:] == ["C" * 10] * 2
    assert set(model.streams) == {("run1", "ab"), key}


def test_a_copy_of_a_copy_forks_again(new_journal: NewJournal, model: Any, tmp_path: Path) -> None:
    """Behind what was acknowledged to the first fork, and with a name of its own."""
    original = new_journal()
    original.write(4)
    original.writer.close()
    places = [original.place]
    places.append(copy_journal(places[0], tmp_path / "one"))
    for index, place in enumerate(places):
        journal = take_up(new_journal, place)
        journal.write(3, mark="ab"[index])
        outbox = open_outbox(place)
        ship(outbox, model)
        outbox.close()
        journal.writer.close()
    places.append(copy_journal(places[1], tmp_path / "two"))
    for index, place in enumerate(places[1:]):
        journal = take_up(new_journal, place)
        journal.write(3, mark="BC"[index])
        outbox = open_outbox(place)
        ship(outbox, model)
        outbox.close()
    first, second, third = model.streams.values()
    assert [s.hello.info.forked_from for s in (first, second, third)] == ["", "ab", second.hello.stream]
    assert event_texts(first.records) == ["x" * 10] * 4 + ["a" * 10] * 3
    # The copy was made before anything was acknowledged: it sends the common part too, rather than lose it.
    assert event_texts(second.records) == ["x" * 10] * 4 + ["b" * 10] * 3 + ["B" * 10] * 3
    assert event_texts(third.records) == ["C" * 10] * 3
    for stream in (second, third):
        assert isinstance(stream.records[0][1], Start)


def test_an_undiverged_copy_is_the_same_journal(new_journal: NewJournal, model: Any, tmp_path: Path) -> None:
    """Whoever comes second goes on where the first one stopped: no new stream, nothing twice."""
    original = new_journal()
    original.write(10)
    original.end()
    copy_place = copy_journal(original.place, tmp_path / "copy")
    outbox = open_outbox(copy_place)
    ship(outbox, model, max_batches=0)
    outbox.close()
    for place in (original.place, copy_place):
        outbox = open_outbox(place)
        ship(outbox, model)
        outbox.close()
    assert list(model.streams) == [("run1", "ab")]
    assert stored(model) == list(read_stream(original.place))


def test_a_copy_that_has_nothing_of_its_own_makes_no_stream(
    new_journal: NewJournal, model: Any, tmp_path: Path
) -> None:
    """A backup of a journal that was shipped: the server has more, and there is nothing to add."""
    original = new_journal()
    original.write(10)
    outbox = open_outbox(original.place)
    ship(outbox, model)
    outbox.close()
    original.writer.close()
    copy_place = copy_journal(original.place, tmp_path / "copy")
    original = take_up(new_journal, original.place)
    original.write(5)
    outbox = open_outbox(original.place)
    ship(outbox, model)
    outbox.close()
    outbox = open_outbox(copy_place)
    (welcome,) = model.answer(outbox.hello())
    assert not outbox.matches(welcome.next, welcome.digest)
    assert not outbox.fork(welcome.next)
    outbox.close()
    assert list(model.streams) == [("run1", "ab")]


def test_a_fork_is_per_server(new_journal: NewJournal, model: Any, tmp_path: Path) -> None:
    """Shipped to a server that knows neither copy, a forked journal is sent whole, under its own name."""
    original = new_journal()
    original.write(4)
    original.writer.close()
    copy_place = copy_journal(original.place, tmp_path / "copy")
    for place, mark in ((original.place, "o"), (copy_place, "c")):
        journal = take_up(new_journal, place)
        journal.write(2, mark=mark)
        outbox = open_outbox(place)
        ship(outbox, model)
        outbox.close()
        journal.writer.close()
    elsewhere = type(model)()
    outbox_there = Outbox.open(copy_place, "https://elsewhere")
    assert outbox_there is not None
    ship(outbox_there, elsewhere)
    outbox_there.close()
    assert elsewhere.streams["run1", "ab"].records == list(read_stream(copy_place))
    assert set(read_acks(copy_place.acks).servers) == {"local", "https://elsewhere"}


def test_the_death_of_a_writer_is_seen_in_its_lock(new_journal: NewJournal, model: Any) -> None:
    """While it is held the stream may grow; free, and without an End, the process was killed."""
    journal = new_journal()
    journal.write(3)
    outbox = open_outbox(journal.place)
    outbox.look_at_writer(0.0)
    ship(outbox, model)
    assert outbox.outcome == ""
    journal.writer.close()
    outbox.look_at_writer(0.0)
    assert outbox.outcome == "killed"
    outbox.close()


def test_an_end_shipped_by_an_earlier_sender_is_not_forgotten(new_journal: NewJournal, model: Any) -> None:
    """A sender that dies between the last acknowledgement and the farewell does not make the run killed."""
    journal = new_journal()
    journal.end()
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    outbox.close()
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    assert outbox.outcome == "ended"
    outbox.close()


def test_a_writer_on_another_host_counts_as_alive_until_it_is_long_silent(new_journal: NewJournal) -> None:
    """Its lock may not be seen from here, on a network filesystem."""
    journal = new_journal(info=StreamInfo(host=f"not-{socket.gethostname()}", pid=1))
    journal.writer.close()
    written_s = journal.place.segment(0).stat().st_mtime
    outbox = open_outbox(journal.place)
    outbox.look_at_writer(written_s + 599)
    assert outbox.outcome == ""
    outbox.look_at_writer(written_s + 600)
    assert outbox.outcome == "killed"
    outbox.close()


def test_a_torn_tail_is_shipped_as_lost_once_the_writer_is_gone(new_journal: NewJournal, model: Any) -> None:
    """Until then its rest may come."""
    journal = new_journal()
    journal.write(3)
    with journal.place.segment(0).open("ab") as file:
        file.write(b"\xc1HSR\x10\x00")
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    assert len(stored(model)) == 5
    journal.writer.close()
    ship(outbox, model)
    assert stored(model)[-1] == (5, Lost(first_seq=5, last_seq=5, reason="damaged"))
    assert not any(isinstance(record, End) for _, record in stored(model))
    outbox.close()


def test_a_segment_condensed_while_its_batches_are_under_way_is_no_fork(new_journal: NewJournal, model: Any) -> None:
    """The quota replaced what the server has just committed: the digests of what was sent are still known."""
    journal = new_journal(heads=[])
    steps = struct.pack("<q", 0)
    points = encode(Points(steps=steps, times_us=steps, columns=[Column(sid=0, values=struct.pack("<d", 1.0))]))
    journal.writer.append([points] * 10)
    outbox = open_outbox(journal.place)
    ship(outbox, model, acknowledge=False)
    journal.writer.close()
    condense(journal.place.segment(0))
    take_up(new_journal, journal.place, heads=[]).write(1)
    ship(outbox, model)
    outbox.close()
    assert list(model.streams) == [("run1", "ab")]
    assert [type(record) for _, record in stored(model)] == [Points] * 10 + [Event]


def test_a_stream_written_again_after_its_end_is_taken_up_again(new_journal: NewJournal, model: Any) -> None:
    """What was acknowledged as the end is not the end if the journal has grown since."""
    journal = new_journal()
    journal.write(3)
    journal.writer.close()
    outbox = open_outbox(journal.place)
    ship(outbox, model)
    outbox.set_ended(outbox.outcome)
    outbox.close()
    assert open_settled(journal.place)
    again = take_up(new_journal, journal.place)
    again.write(3)
    later_s = time.time() + 2
    os.utime(again.place.segment(again.place.segments()[-1]), (later_s, later_s))
    assert not open_settled(journal.place)


def open_settled(place: StreamPlace) -> bool:
    outbox = open_outbox(place)
    try:
        return outbox.is_settled
    finally:
        outbox.close()
