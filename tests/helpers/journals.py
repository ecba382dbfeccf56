"""What a real agent recorded, as evaluation is given it: journals, or recordings kept as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zstandard
from halfscope.record.layout import find_streams
from halfscope.record.reader import JournalReader
from halfscope.sketch import Sketch, unpack
from halfscope.wire.codec import decode_record
from halfscope.wire.messages import Declare, End, Event, Facts, Layers, Points, Record, Sketches, Start
from halfscope_server.alerts.types import Column, Update
from halfscope_server.store.types import EventRow, FrameMoments, RunRow, SeriesRow

from tests.helpers.records import run_row, series_row

STREAM = "00000000"
NAMES = ("n", "zeros", "nan", "pos_inf", "neg_inf", "sum", "sumsq", "absmax", "absmin_nonzero")


def payloads(directory: Path) -> list[list[bytes]]:
    """The records of every stream below a directory, oldest first."""
    places = find_streams(directory)
    found = [[bytes(entry.payload) for entry in JournalReader(place).read(final=True)] for place in places]
    return sorted(found, key=lambda records: next(r.time_us for r in map(decode_record, records) if type(r) is Start))


def keep(path: Path, records: Sequence[bytes]) -> None:
    """Write a recording."""
    path.write_bytes(zstandard.compress(msgspec.msgpack.encode(list(records)), 19))


def kept(path: Path) -> list[bytes]:
    """Read one."""
    found: list[bytes] = msgspec.msgpack.decode(zstandard.decompress(path.read_bytes()))
    return found


def as_updates(records: Sequence[bytes], at_once: int = 20) -> tuple[RunRow, list[Update]]:
    """One stream as the server would hand it over, some records at a time, with its run as it is known at the end."""
    reader = _Reader()
    decoded = [decode_record(payload) for payload in records]
    updates = [reader.update(decoded[at : at + at_once], at) for at in range(0, len(decoded), at_once)]
    return run_row(name=reader.name, facts=reader.facts), updates


class _Reader:
    def __init__(self) -> None:
        self.name, self.facts = "", dict[str, Any]()
        self._series: dict[int, SeriesRow] = {}
        self._layers: dict[int, str] = {}

    def update(self, records: Sequence[Record], seq: int) -> Update:
        parts: dict[int, list[tuple[Any, Any, Any]]] = {}
        events: list[EventRow] = []
        frames: dict[str, dict[int, list[Sketches]]] = {"grad": {}, "update": {}}
        ended, end_us = "", None
        for at, record in enumerate(records):
            match record:
                case Start():
                    self.name = record.name
                case Facts():
                    self.facts |= record.facts
                case Declare():
                    for series in record.series:
                        row = series_row(series.name, tuple(sorted(series.labels.items())))
                        values = {name: getattr(row, name) for name in SeriesRow.__dataclass_fields__}
                        self._series[series.sid] = SeriesRow(**{**values, "reduction": series.reduction})
                case Layers():
                    self._layers |= {layer.lid: layer.name for layer in record.layers}
                case Points():
                    steps, times = np.frombuffer(record.steps, "<i8"), np.frombuffer(record.times_us, "<i8")
                    for column in record.columns:
                        rows = np.frombuffer(column.rows, "<u4") if column.rows else slice(None)
                        part = (steps[rows], times[rows], np.frombuffer(column.values, "<f8"))
                        parts.setdefault(column.sid, []).append(part)
                case Event():
                    events.append(_event(record, seq + at))
                case Sketches() if record.of in frames:
                    frames[record.of].setdefault(record.step, []).append(record)
                case End():
                    ended, end_us = record.outcome, record.time_us
        columns = [
            Column(
                series=self._series[sid],
                step=np.concatenate([part[0] for part in found]),
                time_us=np.concatenate([part[1] for part in found]),
                value=np.concatenate([part[2] for part in found]),
            )
            for sid, found in parts.items()
        ]
        moments, names = self._moments(frames["grad"])
        changes, changed_names = self._moments(frames["update"])
        return Update(
            run_id="run1",
            stream=STREAM,
            attempt=0,
            rank=0,
            next=seq + len(records),
            columns=columns,
            events=events,
            frames=moments,
            layer_names=names,
            changes=changes,
            changed_names=changed_names,
            ended=ended,
            end_us=end_us,
        )

    def _moments(self, frames: dict[int, list[Sketches]]) -> tuple[FrameMoments | None, tuple[str, ...]]:
        if not frames:
            return None, ()
        lids = sorted({lid for parts in frames.values() for part in parts for lid in unpack(part)[0].tolist()})
        rows = [moments_of(dict(_sketches(parts)), lids) for _, parts in sorted(frames.items())]
        heads = [(step, parts[0].time_us) for step, parts in sorted(frames.items())]
        return as_moments(heads, rows), tuple(self._layers[lid] for lid in lids)


def _sketches(parts: Sequence[Sketches]) -> Iterator[tuple[int, tuple[Sketch, float]]]:
    for part in parts:
        lids, stacked = unpack(part)
        for at, lid in enumerate(lids.tolist()):
            yield lid, (stacked[at], part.scale)


def moments_of(sketches: dict[int, tuple[Sketch, float]], lids: Sequence[int]) -> dict[str, np.ndarray[Any, Any]]:
    """Of one frame, [L]: what is kept beside the histograms, with the counts that go with each layer's scale."""
    empty = (Sketch.empty(), np.nan)
    found: dict[str, list[Any]] = {}
    for lid in lids:
        sketch, scale = sketches.get(lid, empty)
        at = scale if np.isfinite(scale) else 65536.0
        cell = {name: getattr(sketch, name) for name in NAMES}
        cell |= {"flushed": np.rint(sketch.flushed(at)), "subnormal": np.rint(sketch.subnormal(at))}
        cell |= {"overflow": np.rint(sketch.overflow(at)[0]), "scale": scale, "present": lid in sketches}
        for name, value in cell.items():
            found.setdefault(name, []).append(value)
    return {name: np.array(column) for name, column in found.items()}


def as_moments(heads: Sequence[tuple[int, int]], rows: Sequence[dict[str, np.ndarray[Any, Any]]]) -> FrameMoments:
    """Frames as the store gives them.

    Args:
        heads: (step, time) of each.
    """
    table = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    shape = table["present"].shape
    counts = (*NAMES[:5], "flushed", "subnormal", "overflow")
    columns = {name: table[name].astype(np.int64) if name in counts else table[name] for name in (*NAMES, *counts)}
    return FrameMoments(
        layer_ids=tuple(range(shape[1])),
        step=np.array([step for step, _ in heads], np.int64),
        time_us=np.array([time_us for _, time_us in heads], np.int64),
        rank=np.zeros(shape[0], np.int32),
        attempt=np.zeros(shape[0], np.int32),
        scale=table["scale"].astype(np.float64),
        present=table["present"].astype(np.bool_),
        point=np.zeros(shape, np.uint8),
        maybe_clipped=np.zeros(shape, np.bool_),
        columns=columns,
    )


def _event(record: Event, seq: int) -> EventRow:
    return EventRow(
        run_id="run1",
        stream=STREAM,
        seq=seq,
        rank=0,
        attempt=0,
        kind=record.kind,
        step=record.step,
        time_us=record.time_us,
        severity=record.severity,
        where=record.where,
        attributes=record.attributes,
    )
