"""`sync`: a directory shipped once, with what is left to others left to them."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from halfscope.record.reader import read_stream
from halfscope.send import SyncError, SyncProgress, once, sync
from halfscope.send.outbox import Outbox
from halfscope.wire.codec import chain
from halfscope.wire.messages import GENESIS_DIGEST, Lost, Refuse

NewJournal = Callable[..., Any]


def test_a_directory_is_shipped_as_a_whole(
    new_journal: NewJournal, start_server: Callable[..., Any], model: Any, directory: Path
) -> None:
    """Ended runs, and what there is now of runs that go on."""
    journals = [new_journal("run1", "aa"), new_journal("run1", "bb"), new_journal("run2", "cc")]
    for journal in journals:
        journal.write(100)
    journals[0].end()
    told: list[SyncProgress] = []
    result = sync(directory, start_server().url, progress=told.append)
    assert (result.num_streams, result.num_shipped, result.num_busy, result.num_gone) == (3, 3, 0, 0)
    assert result.num_records == 307
    assert told[-1] == result
    for journal in journals:
        assert model.streams[journal.place.run_id, journal.place.stream].records == list(read_stream(journal.place))
    assert [stream.ended for stream in model.streams.values()] == ["ended", "", ""]


def test_a_second_sync_sends_nothing(
    new_journal: NewJournal, start_server: Callable[..., Any], model: Any, directory: Path
) -> None:
    """What is acknowledged stays acknowledged, and counts as shipped."""
    new_journal().end()
    server = start_server()
    sync(directory, server.url)
    before = model.num_batches
    result = sync(directory, server.url)
    assert (result.num_streams, result.num_shipped, result.num_records) == (1, 1, 0)
    assert model.num_batches == before


@pytest.mark.parametrize("num_kept", [0, 3])
def test_a_server_that_lost_what_it_had_acknowledged_is_given_it_again(
    new_journal: NewJournal, start_server: Callable[..., Any], model: Any, directory: Path, num_kept: int
) -> None:
    """Wiped, or restored to an earlier moment, after the run had ended: as far as its journal goes."""
    journal = new_journal()
    journal.write(8)
    journal.end()
    server = start_server()
    sync(directory, server.url)
    before = journal.place.acks.read_bytes()
    assert sync(directory, server.url).num_records == 0
    assert journal.place.acks.read_bytes() == before, "a journal that is asked about does not become younger"
    forget(model, num_kept)
    assert sync(directory, server.url).num_records == 11 - num_kept
    assert model.streams["run1", "ab"].records == list(read_stream(journal.place))


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_server_that_went_back_behind_the_journal_gets_what_there_is_and_is_told_the_rest(
    new_journal: NewJournal, start_server: Callable[..., Any], model: Any, directory: Path, has_ended: bool
) -> None:
    """Acknowledged segments were let go of, then the server was restored to a moment before them."""
    journal = new_journal(segment_bytes=300)
    journal.write(30)
    if has_ended:
        journal.end()
    server = start_server()
    sync(directory, server.url)
    written = list(read_stream(journal.place))
    held = journal.place.segments()[3]
    for first_seq in journal.place.segments()[:3]:
        journal.place.segment(first_seq).unlink()
    forget(model, 4)
    sync(directory, server.url)
    records = model.streams["run1", "ab"].records
    assert list(model.streams) == [("run1", "ab")]
    assert records[:4] == written[:4]
    seq, lost = records[4]
    assert isinstance(lost, Lost)
    assert (seq, lost.first_seq, lost.last_seq) == (4, 4, held - 1)
    assert records[5:] == written[held:]


def forget(model: Any, num_kept: int) -> None:
    """The server's stream is as it was after so many records."""
    stream = model.streams["run1", "ab"]
    stream.payloads, stream.next = stream.payloads[:num_kept], num_kept
    stream.digest = functools.reduce(chain, (payload for _, payload in stream.payloads), GENESIS_DIGEST)


def test_what_a_live_sender_ships_is_left_to_it(
    new_journal: NewJournal, start_server: Callable[..., Any], model: Any, directory: Path
) -> None:
    """Told as busy, not waited for."""
    held, free = new_journal("run1"), new_journal("run2")
    outbox = Outbox.open(held.place, "local")
    assert outbox is not None
    result = sync(directory, start_server().url)
    assert (result.num_shipped, result.num_busy) == (1, 1)
    assert list(model.streams) == [("run2", "ab")]
    outbox.close()
    free.end()


def test_offline_runs_are_shipped_when_asked_for(
    new_journal: NewJournal, start_server: Callable[..., Any], model: Any, directory: Path
) -> None:
    """A server that only picks up what it finds leaves them."""
    journal = new_journal()
    journal.place.offline_mark.touch()
    server = start_server()
    assert sync(directory, server.url, include_offline=False).num_streams == 0
    assert not model.streams
    assert sync(directory, server.url).num_shipped == 1


def test_a_directory_that_cannot_be_written_is_shipped_all_the_same(
    new_journal: NewJournal,
    start_server: Callable[..., Any],
    model: Any,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A backup on a read-only mount: nothing can be locked or noted, and nothing needs to be."""
    journal = new_journal()
    journal.write(20)
    journal.end()
    opened = os.open

    def read_only(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if str(path).startswith(str(directory)) and flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise OSError(30, "Read-only file system", str(path))
        return opened(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", read_only)
    assert sync(directory, start_server().url).num_shipped == 1
    monkeypatch.undo()
    assert not journal.place.acks.exists()
    assert model.streams["run1", "ab"].records == list(read_stream(journal.place))


def test_a_server_that_does_not_answer_is_named_with_what_to_do(
    new_journal: NewJournal, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while; and the journals are as they were."""
    monkeypatch.setattr(once, "UNREACHABLE_S", 0.1)
    new_journal().end()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(SyncError, match=rf"no halfscope server answers at {url} .*halfscope serve"):
        sync(directory, url)


def test_a_server_without_room_is_given_up_or_waited_for(
    new_journal: NewJournal,
    start_server: Callable[..., Any],
    model: Any,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who asks for a sync is told after a while; what a server has started for itself goes on until there is room."""
    monkeypatch.setattr(once, "UNREACHABLE_S", 0.1)
    new_journal().end()
    url, answer, told = start_server().url, model.answer, []
    monkeypatch.setattr(model, "answer", lambda frame: [Refuse("busy", "no room", frame.run_id, frame.stream, 0.05)])
    with pytest.raises(SyncError, match="refuses the journals: no room"):
        sync(directory, url)

    def make_room(progress: SyncProgress) -> None:
        told.append(progress)
        if len(told) == 3:
            monkeypatch.setattr(model, "answer", answer)

    assert sync(directory, url, progress=make_room, is_patient=True).num_shipped == 1
    assert len(told) > 3


def test_a_token_that_is_not_taken_is_told_at_once(
    new_journal: NewJournal, start_server: Callable[..., Any], directory: Path
) -> None:
    """Trying again would not make it better."""
    new_journal().end()
    server = start_server(token="right")
    began_s = time.monotonic()
    with pytest.raises(SyncError, match=f"halfscope login {server.url}"):
        sync(directory, server.url, "wrong")
    assert time.monotonic() - began_s < 5
    assert sync(directory, server.url, "right").num_shipped == 1


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    """With a hint at where journals usually are."""
    with pytest.raises(SyncError, match="is no directory"):
        sync(tmp_path / "missing")


def test_an_empty_directory_needs_no_server(tmp_path: Path) -> None:
    """There is nothing to ship, so nobody is asked."""
    assert sync(tmp_path, "http://127.0.0.1:9").num_streams == 0


def test_a_copied_directory_loses_and_overwrites_nothing(
    new_journal: NewJournal, start_server: Callable[..., Any], model: Any, directory: Path, tmp_path: Path
) -> None:
    """Two copies that both went on, both shipped: every event of either is there once."""
    journal = new_journal()
    journal.write(50)
    url = start_server().url
    sync(directory, url)
    journal.writer.close()
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    for at, mark in ((directory, "o"), (copy, "c")):
        continued = new_journal("run1", "ab", at=at)
        continued.write(30, mark=mark)
        continued.end()
    for at in (copy, directory, copy):
        assert sync(at, url).num_shipped == 1
    texts = [
        record.attributes["text"][0]
        for stream in model.streams.values()
        for _, record in stream.records
        if getattr(record, "kind", "") == "test"
    ]
    assert sorted(texts) == ["c"] * 30 + ["o"] * 30 + ["x"] * 50
    assert len(model.streams) == 2
