"""Updates that were lost, per sketched step and layer: steps of nonzero gradients that left the weight as it was.

Owns how they are read of the frames that stand for a run. Must not import plotly. Invariant: counts are of sampled
elements and are added up before a share is formed of them.

Suffixes: F frames, L layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.query.frames import MAX_CELLS, RunFrames, chunks, in_columns, run_frames
from halfscope_server.query.view import RunView
from halfscope_server.store.types import FrameMoments

UPDATES = "update"
"""The kind of sketch; see the agent's `Sketches.of`."""
_COUNTED = ("n", "zeros")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UpdateMoments:
    """Counts of a run. Rows ascend by step."""

    names: tuple[str, ...]
    """[L] in forward order."""
    step: NDArray[np.int64]
    """[F]; of very long runs neighbouring frames are added up: then of the first of them."""
    n: NDArray[np.int32]
    """[F, L] sampled elements with a nonzero gradient; 0: none, or not looked at in that step."""
    zeros: NDArray[np.int32]
    """[F, L] those of them whose weight did not change: lost updates."""

    @property
    def is_empty(self) -> bool:
        return not self.step.size


def update_moments(view: RunView) -> UpdateMoments | None:
    """The updates of a run; None where none were looked at: an agent of before, or no step yet."""
    frames = run_frames(view)
    if frames is None:
        return None
    found: UpdateMoments = frames.memo.get("updates", lambda: _read(view, frames))
    return None if found.is_empty else found


def _read(view: RunView, frames: RunFrames) -> UpdateMoments:
    num_layers = len(frames.layers)
    num_cells = view.store.count_frames(view.run_id, of=UPDATES) * num_layers
    group = max(1, -(-num_cells // MAX_CELLS))
    parts = [_added(part, group) for part in _moments(frames, num_cells) if part.step.size]
    empty = np.zeros((0, num_layers), np.int32)
    return UpdateMoments(
        names=tuple(layer.name for layer in frames.layers),
        step=np.concatenate([step for step, _ in parts] or [np.zeros(0, np.int64)]),
        **{name: np.concatenate([counts[name] for _, counts in parts] or [empty]) for name in _COUNTED},
    )


def _moments(frames: RunFrames, num_cells: int) -> Iterator[FrameMoments]:
    for piece in frames.pieces if num_cells else ():
        for part in chunks(piece, num_cells):
            yield frames.reader.moments(
                frames.layer_ids(0, len(frames.layers)),
                first_step=part.span.first_step,
                last_step=part.span.last_step,
                attempt=part.attempt,
                of=UPDATES,
                columns=_COUNTED,
            )


def _added(moments: FrameMoments, group: int) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    starts = np.arange(0, moments.step.size, group)
    counts = {name: in_columns(np.add, getattr(moments, name), starts).astype(np.int32) for name in _COUNTED}
    return moments.step[starts], counts
