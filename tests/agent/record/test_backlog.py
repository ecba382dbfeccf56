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
