"""What is told of each layer in every sketched step, whatever it is made of.

Must not know what is told. Invariant: layers stand in the order in which they came, also where later ones join them.

Suffixes: F frames, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.block import Block, Sketched
from halfscope_server.alerts.metrics.base import Floats, Found, Ints, LayerSamples, Memory
from halfscope_server.store.types import RunRow

Bools = NDArray[np.bool_]
Cells = Mapping[str, NDArray[Any]]
"""[F, L] each; see `block.Sketched`."""


class _Layers:
    """The layers of a run in the order in which they came, and where those of a frame are among them."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.names: list[str] = memory.setdefault("names", [])
        self._place = {name: at for at, name in enumerate(self.names)}
        self._last: tuple[Sequence[str], Ints] | None = None

    def places(self, names: Sequence[str]) -> Ints:
        """Columns of a frame's layers; those that are new are added."""
        if self._last is None or self._last[0] is not names:
            for name in names:
                if name not in self._place:
                    self._place[name] = len(self.names)
                    self.names.append(name)
            self._last = names, np.array([self._place[name] for name in names], np.int64)
        return self._last[1]


class Frames:
    """Something told of sketched steps: of many at once as of each for itself."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._layers = _Layers(memory)

    def feed(self, block: Block) -> Found:
        told = []
        sketched = [frames for frames in self._sketched(block) if frames.step.size]
        for frames in sketched:
            value = self._of_frames(block.run, frames.cells, self._layers.places(frames.names))
            if value is None:
                return {}
            told.append(value)
        if not told:
            return {}
        width = len(self._layers.names)
        return LayerSamples(
            names=self._layers.names,
            step=np.concatenate([frames.step for frames in sketched]),
            time_us=np.concatenate([frames.time_us for frames in sketched]),
            value=np.concatenate([widened(value, width, np.nan) for value in told]),
        )

    def _sketched(self, block: Block) -> Sequence[Sketched]:
        """Those that are looked at: of gradients."""
        return block.frames

    def _of_frames(self, run: RunRow, cells: Cells, places: Ints) -> Floats | None:
        """[F, L]; None: of this run nothing is told."""
        raise NotImplementedError

    def _spread(self, value: NDArray[Any], present: Bools, places: Ints, fill: Any) -> NDArray[Any]:
        """Of the layers of some frames, to the places of all layers.

        Args:
            fill: of layers that are not there: a number, or [F, 1].
        """
        there = np.where(present, value, fill)
        if places.size == len(self._layers.names) and (np.diff(places) == 1).all():
            return there
        result = np.empty((len(value), len(self._layers.names)), there.dtype)
        result[:] = fill
        result[:, places] = there
        return result

    def restart(self) -> None:
        pass


def widened(value: NDArray[Any], width: int, fill: Any) -> NDArray[Any]:
    """With columns for layers that have come since."""
    missing = width - value.shape[1]
    if not missing:
        return value
    return np.concatenate((value, np.broadcast_to(np.asarray(fill, value.dtype), (len(value), missing))), axis=1)
