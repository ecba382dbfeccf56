"""Share of a layer's updates that were lost, in every step in which they were looked at.

Must not tell why: in FP32 a share near one says that steps are next to nothing. Invariant: the counts are those that
the pages add up (query/updates); a layer of which nothing counted has no share.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from halfscope_server.alerts.block import Block, Sketched
from halfscope_server.alerts.metrics.base import Floats, Ints, Metric
from halfscope_server.alerts.metrics.frames import Cells, Frames
from halfscope_server.store.types import RunRow
from halfscope_server.store.update_types import Wanted


class _UpdateLostShare(Frames):
    def _sketched(self, block: Block) -> Sequence[Sketched]:
        return block.changes

    def _of_frames(self, run: RunRow, cells: Cells, places: Ints) -> Floats:
        n, present = cells["n"], cells["present"]
        share = np.divide(cells["zeros"], n, out=np.full(n.shape, np.nan), where=present & (n > 0))
        return self._spread(share, present, places, np.nan)


METRICS = (
    Metric(
        id="update_lost_share",
        title="lost updates, share",
        text="Share of a layer's sampled weights with a gradient that the step left as they were. Near 1 in FP32 it"
        " says that the steps are next to nothing; of weights stored in fewer bits, that they are rounded away.",
        make=_UpdateLostShare,
        inputs=Wanted(series=frozenset({"opt.steps"}), changes=True),
        unit="share",
        per_layer=True,
    ),
)
