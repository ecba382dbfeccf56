"""The backlog: order, marks, and what is dropped when the journal cannot be written for long."""

from __future__ import annotations

from halfscope.record.backlog import WRITE_BYTES, Backlog
from halfscope.record.journal import Gap


def drained(backlog: Backlog) -> list[bytes | Gap]:
    records: list[bytes | Gap] = []
    while backlog:
        records += backlog.head()
        backlog.pop_head()
    return records


def test_records_leave_in_order_in_writes_of_bounded_size() -> None:
    """A head holds as many as fit one write, and at least one."""
    backlog = Backlog()
    records = [bytes([index]) * (WRITE_BYTES // 2 + 1) for index in range(3)]
    for record in records:
        backlog.append(record)
    assert backlog.head() == records[:1]
    assert drained(backlog) == records


def test_a_mark_is_called_once_what_was_before_it_is_written() -> None:
    """At once where nothing waits."""
    called: list[str] = []
    backlog = Backlog()
    backlog.mark(lambda: called.append("empty"))
    backlog.append(b"a")
    backlog.mark(lambda: called.append("after a"))
    backlog.append(b"b")
    assert called == ["empty"]
    drained(backlog)
    assert called == ["empty", "after a"]


def test_the_oldest_points_give_way_and_are_counted() -> None:
    """Events stay; the gap stands where the dropped points stood."""
    backlog = Backlog(max_bytes=1000)
    backlog.append(b"event 1")
    for index in range(20):
        backlog.append(bytes([index]) * 100, num_points=7)
    backlog.append(b"event 2")
    backlog.bound(now_us=5)
    records = drained(backlog)
    assert records[0] == b"event 1"
    gap = records[1]
    assert isinstance(gap, Gap)
    kept = [record for record in records[2:-1] if isinstance(record, bytes)]
    assert kept == [bytes([index]) * 100 for index in range(20 - len(kept), 20)]
    assert gap.counts == {"records": 20 - len(kept), "points": 7 * (20 - len(kept)), "bytes": 100 * (20 - len(kept))}
    assert records[-1] == b"event 2"
    assert sum(len(record) for record in kept) <= 1000


def test_a_mark_is_not_lost_with_what_is_dropped() -> None:
    """A flush behind dropped points ends when the rest is written."""
    called: list[str] = []
    backlog = Backlog(max_bytes=100)
    for index in range(4):
        backlog.append(bytes([index]) * 100, num_points=1)
    backlog.mark(lambda: called.append("flushed"))
    backlog.bound(now_us=0)
    assert called == []
    drained(backlog)
    assert called == ["flushed"]


def test_sketches_give_way_before_points() -> None:
    """The oldest of them, wherever they stand; points stay while that is enough."""
    backlog = Backlog(max_bytes=1200)
    for index in range(8):
        backlog.append(b"p" * 100, num_points=1)
        backlog.append(bytes([index]) * 100, num_sketches=3)
    called: list[str] = []
    backlog.mark(lambda: called.append("flushed"))
    backlog.bound(now_us=0)
    assert called == []
    records = drained(backlog)
    gap = records[1]
    assert isinstance(gap, Gap)
    assert gap.counts == {"records": 7, "sketches": 21, "bytes": 700}
    assert [record for record in records if record is not gap] == [b"p" * 100] * 8 + [bytes([7]) * 100]
    assert called == ["flushed"]


def test_points_give_way_when_there_are_no_more_sketches() -> None:
    """A gap for each kind, each where its first record stood."""
    backlog = Backlog(max_bytes=1000)
    backlog.append(b"event")
    for _ in range(10):
        backlog.append(b"p" * 100, num_points=2)
    for _ in range(3):
        backlog.append(b"s" * 100, num_sketches=5)
    backlog.bound(now_us=0)
    event, points, *middle, sketches = drained(backlog)
    assert event == b"event"
    assert isinstance(points, Gap)
    assert isinstance(sketches, Gap)
    assert set(middle) == {b"p" * 100}
    assert points.counts["points"] == 2 * (10 - len(middle))
    assert sketches.counts["sketches"] == 15
    assert len(middle) * 100 <= 750
