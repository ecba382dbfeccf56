"""Layers and sketches on their way from the training thread to the journal.

Must not import torch; NumPy comes with the first frame that is packed, not with the recorder. Invariant: a frame that
cannot be packed costs itself alone, and no record is made that servers refuse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from halfscope.record.plain import text
from halfscope.wire.messages import Layer, Sketches

if TYPE_CHECKING:
    from halfscope.sketch import Sketch

LAYERS_PER_RECORD = 1024
MAX_LAYERS = 65_536
"""What servers take of one stream; more layers than that are not sketched."""
MAX_NAME_CHARS = 500
MAX_DIMENSIONS = 32
MAX_PART_CHARS = 200


class LayerTable:
    """The layers of a stream, as they were declared."""

    def __init__(self) -> None:
        self._layers: list[Layer] = []
        self._known: set[int] = set()

    def __contains__(self, lid: int) -> bool:
        return lid in self._known

    def add(self, layers: Sequence[Layer]) -> list[list[Layer]]:
        """Takes those that are new; returns them as servers take them, in parts of one record each."""
        fresh: dict[int, Layer] = {}
        for layer in layers:
            if layer.lid not in self._known and layer.lid < MAX_LAYERS:
                fresh.setdefault(layer.lid, _bounded(layer))
        self._layers += fresh.values()
        self._known.update(fresh)
        return _parts(list(fresh.values()))

    def snapshot(self) -> list[list[Layer]]:
        """All of them, in parts of one record each."""
        return _parts(list(self._layers))


@dataclass(frozen=True, slots=True)
class SketchFrame:
    """What was measured of some layers at one step, as the training thread left it."""

    step: int
    time_us: int
    point: str
    clipped: str
    scale: float
    lids: Sequence[int]
    sketches: Sketch
    of: str

    @property
    def num_bytes(self) -> int:
        return int(self.sketches.counts.nbytes) + 72 * len(self.lids)

    def records(self, declared: LayerTable) -> Iterator[Sketches]:
        """As records of layers that were declared."""
        import numpy as np

        from halfscope.sketch import pack

        kept = [at for at, lid in enumerate(self.lids) if lid in declared]
        if not kept:
            return
        yield from pack(
            self.sketches if len(kept) == len(self.lids) else self.sketches[kept],
            np.array([self.lids[at] for at in kept]),
            step=self.step,
            time_us=self.time_us,
            point=self.point,
            clipped=self.clipped,
            scale=self.scale,
            of=self.of,
        )


def _parts(layers: list[Layer]) -> list[list[Layer]]:
    return [layers[at : at + LAYERS_PER_RECORD] for at in range(0, len(layers), LAYERS_PER_RECORD)]


def _bounded(layer: Layer) -> Layer:
    return Layer(
        lid=layer.lid,
        name=_name(layer.name) or "unnamed",
        shape=[int(size) for size in layer.shape[:MAX_DIMENSIONS]],
        dtype=text(layer.dtype, 64).replace("\x00", "\ufffd"),
        part=text(layer.part, MAX_PART_CHARS).replace("\x00", "\ufffd"),
    )


def _name(name: str) -> str:
    """As servers take it. One that is cut off ends in a digest of the whole: layers of one name would be one layer."""
    if len(name) > MAX_NAME_CHARS:
        digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
        name = f"{name[: MAX_NAME_CHARS - len(digest) - 1]}~{digest}"
    return text(name, MAX_NAME_CHARS).replace("\x00", "\ufffd")
