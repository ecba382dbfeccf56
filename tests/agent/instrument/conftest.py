"""Watching into a real journal, and reading that journal back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import halfscope
import numpy as np
import pytest
import torch
from halfscope.record.layout import find_streams
from halfscope.record.reader import JournalReader
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
    Start,
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
        recorded = Recorded()
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
        case Lost():
            raise AssertionError(f"the journal lost records: {record}")


@dataclass
class Watching:
    """Starts runs that write into a directory of the test, and ends those that the test leaves on."""

    directory: Path
    runs: list[halfscope.Run] = field(default_factory=list)

    def __call__(self, model: Any, optimizer: Any, scaler: Any = None, **options: Any) -> halfscope.Run:
        run = halfscope.watch(model, optimizer, scaler, **{"mode": "offline", "directory": self.directory, **options})
        self.runs.append(run)
        return run

    def read(self) -> Recorded:
        """The one stream that was written; its run is finished first."""
        recorded = self.read_all()
        assert len(recorded) == 1
        return recorded[0]

    def read_all(self) -> list[Recorded]:
        for run in self.runs:
            run.finish()
        return read_journal(self.directory)


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    made = Watching(tmp_path / "journals")
    yield made
    for run in made.runs:
        run.finish()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models run fastest, and the same everywhere, on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def net() -> Callable[[], torch.nn.Sequential]:
    """Makes the same small network at every call."""

    def make() -> torch.nn.Sequential:
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    return make


@pytest.fixture
def read() -> Callable[[Path], list[Recorded]]:
    """Reads journals that another process wrote."""
    return read_journal
