"""What a forked journal begins with under its new name.

A journal forks when its directory was copied, or its machine cloned, and both copies went on: the server then holds,
under the stream's name, what the other copy wrote. The newcomer continues as a stream of its own, behind what was
acknowledged to the ancestor. Must not import torch or numpy. Invariant: the new stream can be read alone, so it
begins with `Start` and all declarations.
"""

from __future__ import annotations

import contextlib
import secrets
import time

from halfscope.record.acks import Fork, ServerAck
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import JournalReader
from halfscope.wire.codec import decode_record, encode
from halfscope.wire.errors import DecodeError
from halfscope.wire.messages import Declare, Event, Points, Series, Start

EVENT_KIND = "journal_forked"


def make_fork(place: StreamPlace, stream: str, ack: ServerAck, server_next: int) -> Fork:
    """A new name for the part of a journal that the server does not have.

    Args:
        stream: the name it had until now.
        ack: what was acknowledged under that name to whoever holds this journal.
        server_next: how far the server has come under that name.
    """
    at = ack.journal_next
    start, series, step = _before(place, at)
    event = Event(
        kind=EVENT_KIND,
        step=step,
        time_us=time.time_ns() // 1000,
        severity="warning",
        attributes={"forked_from": stream, "first_seq": ack.acked.seq, "server_next": server_next},
    )
    prelude = [record for record in (start, Declare(series=series) if series else None, event) if record is not None]
    return Fork(
        stream=secrets.token_hex(8),
        forked_from=stream,
        base=ack.acked.seq,
        at=at,
        prelude=[encode(record) for record in prelude],
    )


def _before(place: StreamPlace, at: int) -> tuple[Start | None, list[Series], int]:
    """The run's start, the series declared before a seq, and the step the records there belong to."""
    start: Start | None = None
    series: dict[int, Series] = {}
    step: int | None = None
    held = [first for first in place.segments() if first < at]
    with contextlib.closing(JournalReader(place, held[-1] if held else at)) as reader:
        for entry in reader.read():
            if entry.seq >= at and step is not None:
                break
            try:
                record = decode_record(entry.payload)
            except DecodeError:
                continue
            if isinstance(record, Start) and start is None:
                start = record
            elif isinstance(record, Declare) and entry.seq < at:
                series.update((one.sid, one) for one in record.series)
            elif isinstance(record, Points):
                step = int.from_bytes(record.steps[:8], "little", signed=True)
    if step is None:
        step = 0 if start is None else start.start_step
    return start, [series[sid] for sid in sorted(series)], step
