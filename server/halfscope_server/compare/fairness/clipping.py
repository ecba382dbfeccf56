"""Whether gradients were clipped before the optimizer was given them."""

from __future__ import annotations

import numpy as np

from halfscope_server.compare.fairness.base import ValueCheck
from halfscope_server.query.view import RunView

CLIPPED, UNCLIPPED = "grad.norm_clipped", "grad.norm"


def _clipping(view: RunView) -> str | None:
    """In words; None where no gradient was measured."""
    if not view.has(UNCLIPPED):
        return None
    if not view.has(CLIPPED):
        return "none seen"

    def limit() -> float:
        return float(np.max(view.recent(CLIPPED), initial=0.0))

    # No more than is the same from run to run: which steps were clipped is not.
    return "clipped" if view.memo("clipping", limit) >= 0 else "none seen"


CHECK = ValueCheck(
    id="clipping", title="Gradient clipping", order=8, read=_clipping, confounds=("quality",), missing="no gradient yet"
)
