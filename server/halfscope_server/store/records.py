"""A batch decoded and checked: the one place where bytes from outside become values.

Owns every check on what an agent sends: sizes, column lengths, row numbers, order of steps, series known. Must not
import the tables. Invariant: a batch that passes can be committed and read back by any later step without a further
check; one that does not raises `BadBatch` and changes nothing, so others in the same group commit are not harmed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
from halfscope.wire.codec import chain, decode_record, encode, pack_body, unpack_body
from halfscope.wire.errors import WireError
from halfscope.wire.messages import (
    Batch,
    Column,
    Declare,
    End,
    Event,
    Facts,
    Layer,
    Layers,
    Lost,
    Points,
    Record,
    Series,
    Sketches,
    Slices,
    Start,
)

from halfscope_server.store.checks import (
    MAX_KIND_CHARS,
    MAX_NAME_CHARS,
    MAX_STEP,
    MAX_TIME_US,
    BadBatch,
    check_kind,
    check_number,
)
from halfscope_server.store.sketch_records import check_layer, check_sketches, check_slices, layer_id

MAX_RECORDS = 65_536
"""Records of one batch: a body of millions of empty records would hold up everybody's acks."""
MAX_ROWS = 65_536
"""Rows of one `Points` record."""
FEW_ROWS = 64
"""Up to so many rows plain integers are quicker than arrays; a frame of 200 ms mostly has fewer."""
MAX_SERIES = 65_536
"""Series of one stream."""
MAX_LABELS = 16
COLUMN_BYTES = 110
"""Of one column of a record as it is decoded, beside its values."""

SEVERITIES = ("info", "warning", "critical")


@dataclass(slots=True, kw_only=True)
class Decoded:
    """What a batch holds, record by record, with the seq of those that are kept under it."""

    batch: Batch
    starts: list[tuple[int, Start]] = field(default_factory=list)
    declared: dict[int, tuple[int, Series]] = field(default_factory=dict)
    """sid -> (series_id, declaration) of series that are new to the stream."""
    layers: dict[int, tuple[int, Layer]] = field(default_factory=dict)
    """lid -> (layer_id, declaration) of layers that are new to the stream."""
    points: list[Points] = field(default_factory=list)
    sketches: list[Sketches] = field(default_factory=list)
    slices: list[tuple[Slices, list[int]]] = field(default_factory=list)
    """With the ids of their layers."""
    events: list[tuple[int, Event]] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)
    lost: list[tuple[int, Lost]] = field(default_factory=list)
    ends: list[tuple[int, End]] = field(default_factory=list)
    first_step: int | None = None
    last_step: int | None = None
    num_points: int = 0
    num_sketches: int = 0
    series_ids: set[int] = field(default_factory=set)

    @property
    def end_seq(self) -> int:
        """The first seq after the batch."""
        return self.batch.first + self.batch.count

    @property
    def points_bytes(self) -> int:
        """What its points take in memory, about: of a step or two it is mostly the objects around the values."""
        return 8 * self.num_points + COLUMN_BYTES * sum(len(points.columns) for points in self.points)

    @property
    def is_measured(self) -> bool:
        """Whether it holds points or sketches, which are kept as the batch brought them."""
        return bool(self.points) or self.num_sketches > 0

    def measured(self) -> tuple[int, bytes]:
        """The body that is kept and its size before compression: the batch's own, but for slices, which are kept apart
        and are a hundred times as large as the points that they come with."""
        if not self.slices:
            return self.batch.raw_bytes, self.batch.body
        records: list[Record] = [*self.points, *self.sketches]
        return pack_body(map(encode, records))

    def saw_steps(self, first: int, last: int) -> None:
        """Widen the extent in steps."""
        if self.first_step is None or first < self.first_step:
            self.first_step = first
        if self.last_step is None or last > self.last_step:
            self.last_step = last


@dataclass(frozen=True, slots=True)
class _Known:
    """What the stream has declared so far, this batch included."""

    sids: dict[int, int]
    lids: dict[int, int]


def series_id(name: str, labels: Mapping[str, str]) -> int:
    """The id of (name, labels), the same in every run and on every replica: 63 bits of BLAKE2b."""
    key = msgspec.msgpack.encode([name, sorted(labels.items())])
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1


def decode_batch(
    batch: Batch, *, digest: bytes, sids: Mapping[int, int], lids: Mapping[int, int] | None = None
) -> Decoded:
    """Decode and check a batch.

    Args:
        batch: as received.
        digest: the stream's digest chain just before it.
        sids: sid -> series_id of the series that the stream has declared so far.
        lids: lid -> layer_id of the layers that it has declared; None: none.

    Raises:
        BadBatch: anything in it is not as agreed.
    """
    decoded = Decoded(batch=batch)
    if not 1 <= batch.count <= MAX_TIME_US or not 0 <= batch.first <= MAX_TIME_US:
        raise BadBatch(f"a batch of {batch.count} records from seq {batch.first}; expected at least 1, from 0 on")
    known = _Known(dict(sids), dict(lids or ()))
    seq = batch.first
    try:
        for num_records, payload in enumerate(unpack_body(batch.body, batch.raw_bytes)):
            if num_records >= MAX_RECORDS:
                raise BadBatch(f"a batch of more than {MAX_RECORDS} records; send fewer at once")
            digest = chain(digest, payload)
            record = decode_record(payload)
            _take(decoded, record, seq, known)
            # A Lost that replaced records stands for all of their seqs.
            seq = record.last_seq + 1 if isinstance(record, Lost) and seq <= record.last_seq < MAX_TIME_US else seq + 1
    except WireError as error:
        raise BadBatch(str(error)) from error
    except RecursionError as error:
        raise BadBatch("a record is nested too deeply") from error
    if seq != decoded.end_seq:
        raise BadBatch(f"the batch says {batch.count} records from seq {batch.first}; its body ends before seq {seq}")
    if digest != batch.digest:
        raise BadBatch(
            f"the records of seq {batch.first}..{seq - 1} do not continue the chain: another journal's, or altered"
        )
    return decoded


def measured_of(batch_body: bytes, raw_bytes: int) -> Iterator[Points | Sketches]:
    """The `Points` and `Sketches` records of a body that was checked when it was taken in."""
    for payload in unpack_body(batch_body, raw_bytes):
        record = decode_record(payload)
        if isinstance(record, Points | Sketches):
            yield record


def _take(decoded: Decoded, record: Record, seq: int, known: _Known) -> None:
    match record:
        case Points():
            _take_points(decoded, record, known.sids)
        case Sketches():
            decoded.num_sketches += check_sketches(record, known.lids)
            decoded.sketches.append(record)
            decoded.saw_steps(record.step, record.step)
        case Slices():
            decoded.slices.append((record, check_slices(record, known.lids)))
            decoded.saw_steps(record.step, record.step)
        case Event():
            _check_event(record)
            decoded.events.append((seq, record))
        case Declare():
            for declaration in record.series:
                _take_declaration(decoded, declaration, known.sids)
        case Layers():
            for layer in record.layers:
                _take_layer(decoded, layer, known.lids)
        case Start():
            check_number("start_step", record.start_step, MAX_STEP)
            check_number("time_us", record.time_us, MAX_TIME_US)
            decoded.starts.append((seq, record))
        case Facts():
            decoded.facts.append(record)
        case Lost():
            check_number("first_seq", record.first_seq, MAX_TIME_US)
            check_number("last_seq", record.last_seq, MAX_TIME_US)
            check_number("time_us", record.time_us, MAX_TIME_US)
            decoded.lost.append((seq, record))
        case End():
            check_number("step", record.step, MAX_STEP, lowest=-1)
            check_number("time_us", record.time_us, MAX_TIME_US)
            decoded.ends.append((seq, record))


def _take_points(decoded: Decoded, points: Points, known: Mapping[int, int]) -> None:
    num_rows = len(points.steps) // 8
    if len(points.steps) % 8 or not 1 <= num_rows <= MAX_ROWS or len(points.times_us) != len(points.steps):
        raise BadBatch(
            f"points with {len(points.steps)} bytes of steps and {len(points.times_us)} of times; "
            f"expected 8 for each of 1 to {MAX_ROWS} rows in both"
        )
    first_step, last_step = _check_axis(points, num_rows)
    columns = points.columns
    sids = {column.sid for column in columns}
    if not sids <= known.keys():
        raise BadBatch(f"points of series {min(sids - known.keys())}, which the stream has not declared")
    # Sets rather than a loop: this is the hottest place of the server, and most columns are whole.
    is_whole = {len(column.values) for column in columns} <= {len(points.steps)} and not any(
        column.rows for column in columns
    )
    if not is_whole:
        decoded.num_points += sum(_check_column(column, num_rows) for column in columns)
    else:
        decoded.num_points += num_rows * len(columns)
    decoded.series_ids.update([known[sid] for sid in sids])
    decoded.points.append(points)
    decoded.saw_steps(first_step, last_step)


def _check_axis(points: Points, num_rows: int) -> tuple[int, int]:
    """First and last step of a record whose steps ascend and whose times are times."""
    if num_rows <= FEW_ROWS:
        steps = list(struct.unpack(f"<{num_rows}q", points.steps))
        times_us = struct.unpack(f"<{num_rows}q", points.times_us)
        first_step, last_step, ascends = steps[0], steps[-1], steps == sorted(steps)
        first_us, last_us = min(times_us), max(times_us)
    else:
        many = np.frombuffer(points.steps, "<i8")
        first_step, last_step, ascends = int(many[0]), int(many[-1]), bool((many[1:] >= many[:-1]).all())
        times = np.frombuffer(points.times_us, "<i8")
        first_us, last_us = int(times.min()), int(times.max())
    if first_step < 0 or last_step > MAX_STEP or not ascends:
        raise BadBatch(f"steps {first_step} to {last_step} do not ascend within 0..{MAX_STEP}")
    if first_us < 0 or last_us > MAX_TIME_US:
        raise BadBatch(f"a time outside 0..{MAX_TIME_US} microseconds")
    return first_step, last_step


def _check_column(column: Column, num_rows: int) -> int:
    """The number of values of a column whose lengths and row numbers are right."""
    num_values = num_rows
    if column.rows:
        num_values, rest = divmod(len(column.rows), 4)
        if rest or int(np.frombuffer(column.rows, "<u4").max()) >= num_rows:
            raise BadBatch(f"series {column.sid} has row numbers that are not all below {num_rows}")
    if len(column.values) != 8 * num_values:
        raise BadBatch(f"series {column.sid} has {len(column.values)} bytes of values; expected {8 * num_values}")
    return num_values


def _take_declaration(decoded: Decoded, declared: Series, known: dict[int, int]) -> None:
    texts = [declared.name, *declared.labels, *declared.labels.values()]
    others = (declared.unit, declared.kind, declared.reduction)
    if not declared.name or any(len(part) > MAX_NAME_CHARS or "\x00" in part for part in texts):
        raise BadBatch(f"a series name or label that is empty, holds NUL or is longer than {MAX_NAME_CHARS} characters")
    if any(len(part) > MAX_KIND_CHARS or "\x00" in part for part in others) or len(declared.labels) > MAX_LABELS:
        raise BadBatch(
            f"series {declared.name!r}: unit, kind or reduction over {MAX_KIND_CHARS} characters, or too many labels"
        )
    if not 0 <= declared.sid < MAX_SERIES:
        raise BadBatch(f"series number {declared.sid}; expected 0 to {MAX_SERIES - 1}")
    identity = series_id(declared.name, declared.labels)
    held = known.get(declared.sid)
    if held is None:
        known[declared.sid] = identity
        decoded.declared[declared.sid] = (identity, declared)
    elif held != identity:
        raise BadBatch(f"series number {declared.sid} is declared as {declared.name!r} and was something else before")


def _take_layer(decoded: Decoded, declared: Layer, known: dict[int, int]) -> None:
    check_layer(declared)
    identity = layer_id(declared.name)
    held = known.get(declared.lid)
    if held is None:
        known[declared.lid] = identity
        decoded.layers[declared.lid] = (identity, declared)
    elif held != identity:
        raise BadBatch(f"layer number {declared.lid} is declared as {declared.name!r} and was something else before")


def _check_event(event: Event) -> None:
    check_kind("an event kind", event.kind, least_chars=1)
    if event.severity not in SEVERITIES:
        raise BadBatch(f"an event of severity {event.severity[:20]!r}; expected one of {', '.join(SEVERITIES)}")
    check_number("step", event.step, MAX_STEP, lowest=-1)
    check_number("time_us", event.time_us, MAX_TIME_US)
