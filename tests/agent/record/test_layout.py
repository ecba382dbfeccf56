"""Places and locks below a journal directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from halfscope.record import layout
from halfscope.record.layout import StreamPlace, find_streams, is_locked, try_lock, write_atomically


def test_streams_are_found_and_other_things_passed_over(tmp_path: Path) -> None:
    """Files of the sender, editors' leftovers and links are no streams."""
    place = StreamPlace(directory=tmp_path, run_id="01jabc", stream="00ff")
    place.path.mkdir(parents=True)
    (tmp_path / "sender-node.json").touch()
    (tmp_path / "01jabc" / "notes.txt").touch()
    (tmp_path / "01jabc" / "NOT-HEX").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "01jabc")
    (place.path / "junk.seg").touch()
    place.segment(12).touch()
    assert list(find_streams(tmp_path)) == [place]
    assert place.segments() == [12]
    assert list(find_streams(tmp_path / "missing")) == []


def test_a_lock_is_held_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    """Whoever asks in between is told so; a missing lock file tells nothing."""
    path = tmp_path / "lock"
    assert is_locked(path) is None
    descriptor = try_lock(path)
    assert descriptor is not None
    assert is_locked(path) is True
    assert try_lock(path) is None
    os.close(descriptor)
    assert is_locked(path) is False


def test_a_small_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed replacement leaves the old content and no temporary file."""
    path = tmp_path / "ack.json"
    write_atomically(path, b"old")

    def full(*_: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(layout, "write_all", full)
    with pytest.raises(OSError, match="full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["ack.json"]
