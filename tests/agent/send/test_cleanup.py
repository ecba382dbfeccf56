"""Journals of runs that are over and safe on a server are removed after a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from halfscope.record.acks import Checkpoint, ServerAck, read_acks, write_ack
from halfscope.send.cleanup import remove_shipped

NewJournal = Callable[..., Any]


def settle(journal: Any, *, age_s: float, **state: Any) -> None:
    journal.writer.close()
    write_ack(
        journal.place.acks,
        "local",
        ServerAck(acked=Checkpoint(seq=9, digest=bytes(16)), updated_us=int((time.time() - age_s) * 1e6), **state),
    )


def test_only_runs_that_are_over_as_a_whole_are_removed(new_journal: NewJournal, directory: Path) -> None:
    """Not those with a stream that goes on, is not acknowledged, or ended just now."""
    over = [new_journal("over", "aa"), new_journal("over", "bb")]
    deleted, recent, half, live = (new_journal(name) for name in ("deleted", "recent", "half", "live"))
    half_open = new_journal("half", "bb")
    for journal in over:
        settle(journal, age_s=100, ended="ended")
    settle(deleted, age_s=100, gone=True)
    settle(recent, age_s=10, ended="ended")
    settle(half, age_s=100, ended="killed")
    half_open.writer.close()
    removed = remove_shipped(directory, older_than_s=50, wall_s=time.time())
    assert removed == 3
    assert [bool(j.place.segments()) for j in (*over, deleted, recent, half, half_open, live)] == [
        False, False, False, True, True, True, True,
    ]  # fmt: skip
    # The directories stay: they say how many attempts the run has had, and that nothing is left to ship.
    assert read_acks(over[0].place.acks).servers["local"].ended == "ended"


def test_a_stream_that_is_written_again_is_kept(new_journal: NewJournal, directory: Path) -> None:
    """Its lock tells, whatever was acknowledged before."""
    journal = new_journal()
    settle(journal, age_s=100, ended="ended")
    again = new_journal()
    assert remove_shipped(directory, older_than_s=50, wall_s=time.time()) == 0
    assert len(again.place.segments()) == 2
