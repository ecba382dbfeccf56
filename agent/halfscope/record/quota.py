"""Room for a journal: what goes first when its quota is used up.

First the oldest acknowledged segments go. Then the unacknowledged ones are condensed, the oldest first: their sketches
are replaced by `Lost` records that name the range and count what was in it, and where that is not enough their points
too, while events, facts and declarations stay.
Must not import torch or numpy. Invariant: nothing unacknowledged leaves without a `Lost` in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from halfscope.record import segment
from halfscope.record.acks import read_acks
from halfscope.record.layout import StreamPlace, write_atomically
from halfscope.record.losing import merged, steps_of
from halfscope.wire.codec import decode_record, encode
from halfscope.wire.errors import DecodeError
from halfscope.wire.messages import Lost, Points, Sketches, Slices

REASON = "journal quota"

Kinds = tuple[type[Sketches | Slices | Points], ...]
SKETCHES = (Sketches, Slices)
"""What goes first."""


def make_room(place: StreamPlace, room_bytes: int, without_sketches: set[int] | None = None) -> None:
    """Bring all segments below `room_bytes` together, as far as that can be done without losing events.

    Args:
        without_sketches: first seqs of segments that were relieved of their sketches; grows. Reading a whole journal
            for that again each time would hold up the thread that writes it.

    Raises:
        OSError: the directory cannot be written.
    """
    sizes = {first_seq: _size(place.segment(first_seq)) for first_seq in place.segments()}
    if sum(sizes.values()) <= room_bytes:
        return
    acked_next = read_acks(place.acks).journal_next
    firsts = sorted(sizes)
    for first_seq, following in pairwise(firsts):
        if following <= acked_next:
            place.segment(first_seq).unlink(missing_ok=True)
            del sizes[first_seq]
            if sum(sizes.values()) <= room_bytes:
                return
    # Never the last one: it is open for appending, and what is appended would go to a file that has no name any more.
    relieved = without_sketches if without_sketches is not None else set()
    for kinds in SKETCHES, (*SKETCHES, Points):
        for first_seq in sorted(sizes)[:-1]:
            if kinds == SKETCHES and first_seq in relieved:
                continue
            sizes[first_seq] = condense(place.segment(first_seq), kinds)
            relieved.add(first_seq)
            if sum(sizes.values()) <= room_bytes:
                return


def condense(path: Path, kinds: Kinds = (*SKETCHES, Points)) -> int:
    """Replace records of some kinds in a segment by `Lost` records; everything else stays where it is in the sequence.

    Returns:
        The size of the segment now, in bytes.
    """
    data = path.read_bytes()
    header, at = segment.read_header(data)
    if header is None:
        return len(data)  # damaged: its reader reports what is missing; a new header would hide that
    frames = b"".join(segment.pack(seq, payload) for seq, payload in _condensed(_frames(data, at), kinds))
    condensed = segment.pack_header(header) + frames
    if len(condensed) < len(data):
        write_atomically(path, condensed)
    return min(len(condensed), len(data))


def _frames(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    found = segment.find_frame(data, at)
    while found is not None:
        frame = segment.read_frame(data, found)
        assert frame is not None
        yield frame.seq, frame.payload
        found = segment.find_frame(data, frame.end)


def _condensed(frames: Iterator[tuple[int, bytes]], kinds: Kinds) -> Iterator[tuple[int, bytes]]:
    """Runs of such records as one `Lost` each, merged with a `Lost` of the quota that is there already."""
    run: Lost | None = None
    for seq, payload in frames:
        dropped = _as_lost(seq, payload, kinds)
        if dropped is None:
            if run is not None:
                yield run.first_seq, encode(run)
                run = None
            yield seq, payload
        elif run is not None and run.last_seq + 1 == dropped.first_seq:
            run = _merged(run, dropped)
        else:
            if run is not None:
                yield run.first_seq, encode(run)
            run = dropped
    if run is not None:
        yield run.first_seq, encode(run)


def _as_lost(seq: int, payload: bytes, kinds: Kinds) -> Lost | None:
    try:
        record = decode_record(payload)
    except DecodeError:
        return None  # of a later version: not ours to judge, kept
    if isinstance(record, Lost):
        return record if record.reason == REASON else None
    if not isinstance(record, kinds):
        return None
    if isinstance(record, SKETCHES):
        time_us, counts = record.time_us, {"sketches": len(record.lids) // 4}
    else:
        time_us = int.from_bytes(record.times_us[:8], "little", signed=True)
        counts = {"points": sum(len(column.values) // 8 for column in record.columns)}
    counts |= {"bytes": len(payload), **steps_of(record)}
    return Lost(first_seq=seq, last_seq=seq, reason=REASON, time_us=time_us, counts=counts)


def _merged(a: Lost, b: Lost) -> Lost:
    counts = merged(a.counts, b.counts)
    return Lost(first_seq=a.first_seq, last_seq=b.last_seq, reason=a.reason, time_us=a.time_us, counts=counts)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
