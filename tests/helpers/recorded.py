"""What a real agent wrote, read back from its journals.

Invariant: nothing is lost on the way, and nothing that is said once comes twice; both are asserted while reading.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from halfscope.record.layout import find_streams
from halfscope.record.reader import JournalReader, read_info
from halfscope.sketch import Sketch, unpack
from halfscope.wire.codec import decode_record
from halfscope.wire.messages import (
    Declare,
    End,
    Event,
    Facts,
    Layer,
    Layers,
    Lost,
    Points,
    Series,
    Sketches,
    Slices,
    Start,
    StreamInfo,
)


@dataclass
class LayerSketch:
    """One layer's sketch at one step, with what its record says of it."""

    sketch: Sketch
    point: str
    clipped: str
    scale: float


@dataclass
class Recorded:
    """What one stream's journal holds."""

    run_id: str = ""
    info: StreamInfo = field(default_factory=StreamInfo)
    start: Start | None = None
    end: End | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    declared: dict[int, Series] = field(default_factory=dict)
    points: dict[int, dict[int, float]] = field(default_factory=dict)
    layers: dict[int, Layer] = field(default_factory=dict)
    frames: dict[int, dict[str, LayerSketch]] = field(default_factory=dict)
    """Step to layer to sketch of its gradient."""
    updates: dict[int, dict[str, LayerSketch]] = field(default_factory=dict)
    """Likewise of the change of its weights."""
    slices: list[Slices] = field(default_factory=list)

    def series(self, name: str, **labels: str) -> dict[int, float]:
        """Step to value of one series; empty where there is none."""
        for sid, series in self.declared.items():
            if series.name == name and series.labels == labels:
                return self.points.get(sid, {})
        return {}

    def names(self) -> set[str]:
        return {series.name for series in self.declared.values()}

    def kinds(self, *kinds: str) -> list[Event]:
        """Events of some kinds, in order."""
        return [event for event in self.events if event.kind in kinds]

    def steps(self) -> list[int]:
        """Every step that has a row."""
        return sorted({step for column in self.points.values() for step in column})


def read_journal(directory: Path) -> list[Recorded]:
    """Every stream below a directory."""
    found = []
    for place in find_streams(directory):
        recorded = Recorded(run_id=place.run_id, info=read_info(place))
        for entry in JournalReader(place).read(final=True):
            _take(recorded, decode_record(entry.payload))
        found.append(recorded)
    return sorted(found, key=lambda recorded: recorded.start.time_us if recorded.start else 0)


def _take(recorded: Recorded, record: Any) -> None:
    match record:
        case Start():
            recorded.start = record
        case End():
            recorded.end = record
        case Facts():
            recorded.facts.update(record.facts)
        case Event():
            recorded.events.append(record)
        case Declare():
            recorded.declared.update({series.sid: series for series in record.series})
        case Points():
            steps = np.frombuffer(record.steps, "<i8")
            for column in record.columns:
                rows = np.frombuffer(column.rows, "<u4") if column.rows else np.arange(len(steps))
                values = np.frombuffer(column.values, "<f8")
                kept = recorded.points.setdefault(column.sid, {})
                for step, value in zip(steps[rows].tolist(), values.tolist(), strict=True):
                    assert step not in kept, f"step {step} of {recorded.declared[column.sid].name} came twice"
                    kept[step] = value
        case Layers():
            for layer in record.layers:
                assert recorded.layers.setdefault(layer.lid, layer) == layer
        case Sketches():
            frame = {"grad": recorded.frames, "update": recorded.updates}[record.of].setdefault(record.step, {})
            lids, sketches = unpack(record)
            for at, lid in enumerate(lids.tolist()):
                name = recorded.layers[lid].name
                assert name not in frame, f"step {record.step} of {name} was sketched twice"
                frame[name] = LayerSketch(sketches[at], record.point, record.clipped, record.scale)
        case Slices():
            recorded.slices.append(record)
        case Lost():
            raise AssertionError(f"the journal lost records: {record}")
