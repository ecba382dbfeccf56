"""What was recorded of a case, read from its journals: series, events, facts, and frames of sketches."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from halfscope.record.layout import find_streams
from halfscope.record.reader import JournalReader
from halfscope.sketch import Sketch
from halfscope.sketch.packing import unpack
from halfscope.wire.codec import decode_record
from halfscope.wire.messages import Event, Layers, Sketches, Start

from tests.agent.instrument.conftest import Recorded, read_journal


@dataclass
class Frame:
    """The sketches of one step, by layer."""

    point: str
    clipped: str
    scale: float
    layers: dict[str, Sketch] = field(default_factory=dict)


@dataclass
class Recording:
    """One run."""

    recorded: Recorded
    frames: dict[int, Frame]
    """By step; gradients only."""

    @property
    def name(self) -> str:
        assert self.recorded.start is not None
        return self.recorded.start.name

    def values(self, name: str, **labels: str) -> dict[int, float]:
        return self.recorded.series(name, **labels)

    def events(self, *kinds: str) -> list[Event]:
        return self.recorded.kinds(*kinds)

    def by_optimizer(self, name: str) -> dict[str, dict[int, float]]:
        """A series of each optimizer; of the only one under its name."""
        found = {}
        names = [optimizer["name"] for optimizer in self.recorded.facts["optimizers"]]
        for optimizer in names:
            labels = {"optimizer": optimizer} if len(names) > 1 else {}
            found[optimizer] = self.values(name, **labels)
        return found


def read(directory: Path) -> list[Recording]:
    """Every run below a directory, oldest first."""
    frames = []
    for place in find_streams(directory):
        records = [decode_record(entry.payload) for entry in JournalReader(place).read(final=True)]
        (start,) = {record.time_us for record in records if isinstance(record, Start)}
        names = {layer.lid: layer.name for record in records if isinstance(record, Layers) for layer in record.layers}
        found: dict[int, Frame] = {}
        for record in records:
            if isinstance(record, Sketches) and record.of == "grad":
                frame = found.setdefault(record.step, Frame(record.point, record.clipped, record.scale))
                lids, stacked = unpack(record)
                for at, lid in enumerate(lids.tolist()):
                    assert names[lid] not in frame.layers, f"layer {names[lid]} came twice at step {record.step}"
                    frame.layers[names[lid]] = stacked[at]
        frames.append((start, found))
    frames.sort(key=lambda pair: pair[0])
    runs = read_journal(directory)
    return [Recording(recorded, found) for recorded, (_, found) in zip(runs, frames, strict=True)]


def zero_share(sketch: Sketch) -> float:
    return float(np.sum(sketch.zeros) / np.sum(sketch.n))
